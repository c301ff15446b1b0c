"""Attributes and the buffer type of the `dispatch` dialect: lists of texts, numbers, and memory seen through shape and strides."""

from collections.abc import Iterable
from typing import cast

from treadle.ir.core import Attribute, ParametrizedAttribute, TypeAttribute, irdl_attr_definition, param_def
from treadle.ir.dialects import builtin

StringAttr, IntAttr = builtin.StringAttr, builtin.IntegerAttr
Strings = builtin.ArrayAttr[builtin.StringAttr]
Ints = builtin.DenseArrayBase


def strings(items: Iterable[object]) -> Strings:
    """An attribute holding the texts of `items` (expressions, names)."""
    return builtin.ArrayAttr([StringAttr(str(item)) for item in items])


def string_lists(rows: Iterable[Iterable[object]]) -> builtin.ArrayAttr[Strings]:
    """One list of texts an argument or result."""
    return builtin.ArrayAttr([strings(row) for row in rows])


def texts(attr: Strings) -> tuple[str, ...]:
    """The strings of an attribute made by `strings`."""
    return tuple(item.data for item in attr)


def text_lists(attr: builtin.ArrayAttr[Strings]) -> tuple[tuple[str, ...], ...]:
    """The strings of an attribute made by `string_lists`."""
    return tuple(texts(row) for row in attr)


def ints(values: Iterable[int]) -> Ints:
    """An `array<i64: ..>` attribute."""
    return builtin.DenseArrayBase.from_list(builtin.i64, list(values))


def integers(attr: Ints) -> tuple[int, ...]:
    """The numbers of an attribute made by `ints`."""
    return tuple(int(value) for value in cast(builtin.DenseArrayBase[builtin.IntegerType], attr).get_values())


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """`!dispatch.buffer<elem>`: device memory seen through a shape and strides that its defining op gives."""

    name = "dispatch.buffer"
    element_type: Attribute = param_def()
