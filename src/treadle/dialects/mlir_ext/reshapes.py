"""`tensor.expand_shape` and `tensor.collapse_shape` with strict verification; `expand_shape` without `output_shape` is read too."""

from collections.abc import Sequence
from math import prod
from typing import Self, cast

from treadle.ir.builtin import ArrayAttr, DenseArrayBase, IndexType, IntegerAttr, TensorType, i64, is_array_of, is_tensor
from treadle.ir.core import (
    DYNAMIC_INDEX,
    Parser,
    Printer,
    SSAValue,
    VerifyException,
    parse_dynamic_index_list_without_types,
    print_dynamic_index_list,
    verify_dynamic_index_list,
)
from treadle.ir.dialects import tensor

Reassociation = ArrayAttr[ArrayAttr[IntegerAttr]]


def reassociation_groups(reassociation: Reassociation) -> list[list[int]]:
    """The groups of expanded dimensions, one per collapsed dimension."""
    return [[entry.value.data for entry in group] for group in reassociation]


def _verify(collapsed: TensorType, expanded: TensorType, reassociation: Reassociation) -> None:
    """Check that `reassociation` maps the dimensions of `expanded` onto those of `collapsed`, and the extents agree."""
    groups = reassociation_groups(reassociation)
    if collapsed.element_type != expanded.element_type:
        raise VerifyException(f"element types differ: {collapsed.element_type} and {expanded.element_type}")
    if len(groups) != collapsed.get_num_dims():
        raise VerifyException(f"expected {collapsed.get_num_dims()} groups of dimensions, found {len(groups)}")
    if not groups:
        if any(extent != 1 for extent in expanded.get_shape()):
            raise VerifyException(f"only dimensions of 1 collapse to a scalar tensor, found {expanded}")
        return
    if [dim for group in groups for dim in group] != list(range(expanded.get_num_dims())):
        raise VerifyException(f"groups {groups} must list the dimensions 0 to {expanded.get_num_dims() - 1} in order")
    for dimension, (group, extent) in enumerate(zip(groups, collapsed.get_shape(), strict=True)):
        if not group:
            raise VerifyException(f"group {dimension} is empty")
        extents = [expanded.get_shape()[dim] for dim in group]
        wanted = DYNAMIC_INDEX if DYNAMIC_INDEX in extents else prod(extents)
        if wanted != extent:
            shown = ["?" if size == DYNAMIC_INDEX else str(size) for size in (extent, wanted)]
            raise VerifyException(f"dimension {dimension} of {collapsed} is {shown[0]}, but its group in {expanded} makes {shown[1]}")


def _print_groups(printer: Printer, reassociation: Reassociation) -> None:
    printer.print_string(str(reassociation_groups(reassociation)))


class CollapseShapeOp(tensor.CollapseShapeOp):
    """Merges groups of neighbouring dimensions."""

    def verify_(self) -> None:
        super().verify_()
        _verify(self.result.type, cast(TensorType, self.src.type), self.reassociation)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.src)
        printer.print_string(" ")
        _print_groups(printer, self.reassociation)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.src.type)
        printer.print_string(" into ")
        printer.print_attribute(self.result.type)


class ExpandShapeOp(tensor.ExpandShapeOp):
    """Splits dimensions into groups; `output_shape` gives every extent of the result."""

    def verify_(self) -> None:
        result = self.result.type
        _verify(cast(TensorType, self.src.type), result, self.reassociation)
        static = self.static_output_shape.get_values()
        verify_dynamic_index_list(static, self.dynamic_output_shape, DYNAMIC_INDEX, " in output_shape")
        if tuple(static) != tuple(result.get_shape()):
            raise VerifyException(f"output_shape {_shape(static)} differs from the result's shape {_shape(result.get_shape())}")
        if len(self.reassociation):  # upstream knows no expansion of a scalar
            super().verify_()

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        source = parser.parse_unresolved_operand()
        start = parser.pos
        groups = parser.parse_attribute()
        if not is_array_of(groups, ArrayAttr):
            parser.raise_error("expected groups of dimensions, such as [[0], [1, 2]]", start, parser.pos)
        dynamic: Sequence[SSAValue] = ()
        static: Sequence[int] | None = None
        if parser.parse_optional_keyword("output_shape"):
            position = parser.pos
            unresolved, static = parse_dynamic_index_list_without_types(parser, DYNAMIC_INDEX)
            dynamic = parser.resolve_operands(unresolved, [IndexType()] * len(unresolved), position)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source_type = parser.parse_type()
        parser.parse_keyword("into")
        position = parser.pos
        result_type = parser.parse_type()
        if not is_tensor(result_type):
            parser.raise_error("expected a tensor type", position, parser.pos)
        if static is None:
            if DYNAMIC_INDEX in result_type.get_shape():
                parser.raise_error("a result with dynamic dimensions needs 'output_shape [..]'", start, parser.pos)
            static = result_type.get_shape()
        array = DenseArrayBase.from_list(i64, list(static))
        value = parser.resolve_operand(source, source_type)
        return cls(value, dynamic, cast(Reassociation, groups), array, result_type, attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.src)
        printer.print_string(" ")
        _print_groups(printer, self.reassociation)
        printer.print_string(" output_shape ")
        print_dynamic_index_list(printer, DYNAMIC_INDEX, self.dynamic_output_shape, self.static_output_shape.get_values())
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.src.type)
        printer.print_string(" into ")
        printer.print_attribute(self.result.type)


def _shape(extents: Sequence[int]) -> str:
    return "[" + ", ".join("?" if extent == DYNAMIC_INDEX else str(extent) for extent in extents) + "]"
