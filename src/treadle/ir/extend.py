"""Extending an upstream dialect under its own name."""

from collections.abc import Iterable

from treadle.ir.core import Dialect, Operation


def extend(base: Dialect, operations: Iterable[type[Operation]]) -> Dialect:
    """`base` with `operations` added, each taking the place of the one of the same name."""
    merged = {op.name: op for op in base.operations}
    merged.update({op.name: op for op in operations})
    return Dialect(base.name, list(merged.values()), list(base.attributes), list(base._interfaces))  # pyright: ignore[reportPrivateUsage]
