"""Extending an upstream dialect under its own name."""

from collections.abc import Iterable

from treadle.ir.core import Attribute, Dialect, Operation


def extend(base: Dialect, operations: Iterable[type[Operation]], attributes: Iterable[type[Attribute]] = ()) -> Dialect:
    """`base` with `operations` and `attributes` added, each operation taking the place of the one of the same name."""
    merged = {op.name: op for op in base.operations}
    merged.update({op.name: op for op in operations})
    return Dialect(base.name, list(merged.values()), [*base.attributes, *attributes], list(base._interfaces))  # pyright: ignore[reportPrivateUsage]
