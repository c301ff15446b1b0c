"""Types and attributes of the `tile` dialect: pointers, register and shared layouts, the shared memory space."""

from collections.abc import Sequence
from typing import TypeVar

from treadle.ir.core import (
    AffineMap,
    Attribute,
    AttrParser,
    Data,
    ParametrizedAttribute,
    Printer,
    TypeAttribute,
    irdl_attr_definition,
)
from treadle.ir.dialects import builtin
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout
from treadle.layout.windows import Windows, listed, windows_of

Bases = tuple[tuple[int, ...], ...]
_T = TypeVar("_T")


@irdl_attr_definition
class PointerType(ParametrizedAttribute, TypeAttribute):
    """`!tile.ptr<f16>`: address of a global array."""

    name = "tile.ptr"
    element_type: Attribute


@irdl_attr_definition
class SharedSpaceAttr(ParametrizedAttribute):
    """`#tile.shared`: the workgroup's shared memory."""

    name = "tile.shared"


def is_shared(value_type: Attribute) -> bool:
    """Whether a type is a shared buffer's."""
    return isinstance(value_type, builtin.MemRefType) and isinstance(value_type.memory_space, SharedSpaceAttr)


def _bases_text(bases: Sequence[Sequence[int]]) -> str:
    return "[" + ", ".join("[" + ", ".join(map(str, b)) + "]" for b in bases) + "]"


def _parse_int_list(parser: AttrParser) -> tuple[int, ...]:
    return tuple(parser.parse_comma_separated_list(AttrParser.Delimiter.SQUARE, parser.parse_integer))


def _parse_bases(parser: AttrParser) -> Bases:
    return tuple(parser.parse_comma_separated_list(AttrParser.Delimiter.SQUARE, lambda: _parse_int_list(parser)))


def _parse_field(parser: AttrParser, name: str, last: bool = False) -> Bases:
    parser.parse_keyword(name)
    parser.parse_punctuation("=")
    bases = _parse_bases(parser)
    if not last:
        parser.parse_punctuation(",")
    return bases


def _parse_repeat(parser: AttrParser) -> tuple[int, ...]:
    parser.parse_keyword("repeat")
    parser.parse_punctuation("=")
    return _parse_int_list(parser)


@irdl_attr_definition
class TileLayoutAttr(Data[TileLayout]):
    """`#tile.layout<register = [[0, 1]], lane = [..], warp = [..], repeat = [1, 1]>`: how a register tile is spread over threads."""

    name = "tile.layout"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> TileLayout:
        with parser.in_angle_brackets():
            register, lane, warp = (_parse_field(parser, f) for f in ("register", "lane", "warp"))
            return TileLayout(register, lane, warp, _parse_repeat(parser))

    def print_parameter(self, printer: Printer) -> None:
        layout = self.data
        fields = [f"{f} = {_bases_text(getattr(layout, f))}" for f in ("register", "lane", "warp")]
        printer.print_string("<" + ", ".join([*fields, f"repeat = {list(layout.repeat)}"]) + ">")


@irdl_attr_definition
class SharedLayoutAttr(builtin.MemRefLayoutAttr, Data[SharedLayout]):
    """`#tile.shared_layout<offset = [[0, 1]], repeat = [1, 1]>`: where the elements of a shared buffer lie."""

    name = "tile.shared_layout"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> SharedLayout:
        with parser.in_angle_brackets():
            offset = _parse_field(parser, "offset")
            return SharedLayout(offset, _parse_repeat(parser))

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<offset = {_bases_text(self.data.offset)}, repeat = {list(self.data.repeat)}>")

    def get_affine_map(self) -> AffineMap:
        raise NotImplementedError("a swizzled shared layout is not an affine map")


@irdl_attr_definition
class WindowsAttr(Data[Windows]):
    """`#tile.windows<axes = [[pitch, low, high], ..], dims = [[[axis, extent, step], ..], ..]>`: how a view folds the axes of an array."""

    name = "tile.windows"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Windows:
        with parser.in_angle_brackets():
            axes = _parse_field(parser, "axes")
            parser.parse_keyword("dims")
            parser.parse_punctuation("=")
            dims = parser.parse_comma_separated_list(AttrParser.Delimiter.SQUARE, lambda: _parse_bases(parser))
            try:
                return windows_of(axes, dims)
            except ValueError as error:
                parser.raise_error(str(error))

    def print_parameter(self, printer: Printer) -> None:
        axes, dims = listed(self.data)
        printer.print_string(f"<axes = {_bases_text(axes)}, dims = [{', '.join(map(_bases_text, dims))}]>")
