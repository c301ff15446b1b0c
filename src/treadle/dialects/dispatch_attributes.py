"""Attributes and the buffer type of the `dispatch` dialect: lists of texts, numbers, groups, and memory seen through shape and strides."""

from collections.abc import Iterable
from typing import Literal, cast, get_args

from treadle.ir.core import Attribute, AttrParser, Data, ParametrizedAttribute, Printer, TypeAttribute, irdl_attr_definition, param_def
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


GroupRole = Literal["root", "consumer", "producer"]
"""What an operation is to a kernel: formed around it; computed from a root's result, on its tile; computed where another reads it."""


@irdl_attr_definition
class GroupAttr(Data[tuple[tuple[str, GroupRole], ...]]):
    """`#dispatch.group<g0 = root, g1 = producer>`: the kernels that compute an operation, by name, and what it is to each."""

    name = "dispatch.group"

    def role(self, wanted: GroupRole) -> tuple[str, ...]:
        """The names of the groups in which the operation has this role."""
        return tuple(name for name, role in self.data if role == wanted)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[str, GroupRole], ...]:
        found: dict[str, GroupRole] = {}

        def membership() -> None:
            name = parser.parse_identifier()
            parser.parse_punctuation("=")
            role = parser.parse_identifier()
            if role not in get_args(GroupRole) or name in found:
                parser.raise_error(f"a group is named once, with one of the roles {', '.join(get_args(GroupRole))}")
            found[name] = cast(GroupRole, role)

        with parser.in_angle_brackets():
            parser.parse_comma_separated_list(AttrParser.Delimiter.NONE, membership)
        return tuple(found.items())

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{', '.join(f'{name} = {role}' for name, role in self.data)}>")


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """`!dispatch.buffer<elem>`: device memory seen through a shape and strides that its defining op gives."""

    name = "dispatch.buffer"
    element_type: Attribute = param_def()
