"""The text of a `tile.kernel` that a user writes, and what its signature must agree with."""

from collections.abc import Set
from typing import TYPE_CHECKING, cast

from treadle.dialects.dispatch_attributes import Strings, integers, ints, strings
from treadle.ir.core import Attribute, Parser, Region, VerifyException
from treadle.ir.dialects import builtin

if TYPE_CHECKING:
    from treadle.dialects.tile import KernelOp

ANY_TARGET = "any"
"""What a kernel is written for that runs wherever it is compiled for."""
USUAL_ALIGN = 16
"""Bytes that arrays are aligned to where nothing else is said, as arguments of functions are."""

KernelText = tuple[builtin.StringAttr, dict[str, Attribute], dict[str, Attribute], Region]


def parse_kernel(parser: Parser, names: Set[str]) -> KernelText:
    """What stands behind `tile.kernel`: name, properties (those of `names`), other attributes, body.

    May be left out: `symbols` and `arg_names` (the arguments' own names), `target` (any), `arg_align` (16 each), grid axes of extent 1.
    """
    name = parser.parse_symbol_name()
    arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
    given = parser.parse_optional_attr_dict_with_keyword()
    attributes = dict(given.data) if given else {}
    body = parser.parse_region(arguments)
    properties: dict[str, Attribute] = {key: attributes.pop(key) for key in list(attributes) if key in names}
    indices = [a.name.text[1:] for a in arguments if isinstance(a.type, builtin.IndexType)]
    pointers = [a.name.text[1:] for a in arguments if not isinstance(a.type, builtin.IndexType)]
    properties.setdefault("symbols", strings(indices))
    properties.setdefault("target", builtin.StringAttr(ANY_TARGET))
    properties.setdefault("arg_align", ints([USUAL_ALIGN] * len(pointers)))
    if "arg_shapes" in properties:
        properties.setdefault("arg_names", strings(pointers))
    grid = properties.get("grid")
    if isinstance(grid, builtin.ArrayAttr):
        extents = cast("Strings", grid)
        properties["grid"] = builtin.ArrayAttr([*extents, *[builtin.StringAttr("1")] * (3 - len(extents))])
    return name, properties, attributes, body


def check_signature(kernel: "KernelOp", pointers: int) -> None:
    """Raises VerifyException where the signature's parts do not have one entry for each pointer."""
    for what, rows in (("arg_shapes", kernel.arg_shapes), ("arg_strides", kernel.arg_strides), ("arg_names", kernel.arg_names)):
        if rows is not None and len(rows) != pointers:
            raise VerifyException(f"tile.kernel: {what} has {len(rows)} entries for {pointers} pointers")
    if kernel.arg_shapes is not None and kernel.arg_strides is not None:
        for number, (shape, strides) in enumerate(zip(kernel.arg_shapes, kernel.arg_strides, strict=True)):
            if len(shape) != len(strides):
                raise VerifyException(f"tile.kernel: pointer {number} has {len(shape)} sizes and {len(strides)} strides")
    aligns = integers(kernel.arg_align)
    if any(align < 1 or align & (align - 1) for align in aligns):
        raise VerifyException(f"tile.kernel: arg_align holds powers of two (bytes), found {list(aligns)}")
    first = pointers - kernel.output_count.value.data
    named: list[int] = []
    for what, numbers in (("in_place", kernel.in_place), ("workspace", kernel.workspace)):
        named += integers(numbers) if numbers is not None else ()
        if any(not first <= number < pointers for number in named) or len(set(named)) != len(named):
            raise VerifyException(f"tile.kernel: {what} names outputs, which are the pointers {first} to {pointers - 1}, once each")
