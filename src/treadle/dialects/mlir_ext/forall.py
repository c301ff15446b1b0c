"""`scf.forall` and `scf.forall.in_parallel` in MLIR's own syntax.

    %r = scf.forall (%i, %j) in (%n, 77) shared_outs(%o = %init) -> (tensor<..>) { ...
      scf.forall.in_parallel { tensor.parallel_insert_slice .. }
    } {mapping = [#gpu.block<y>, #gpu.block<x>]}

The form with bounds is `(%i) = (%lb) to (%ub) step (%s)`. Static bounds are held in `static_*` arrays, where the dynamic
marker stands for the next operand, as everywhere in MLIR.
"""

from collections.abc import Sequence
from typing import Self

from treadle.dialects.mlir_ext.mapping import mapping_error
from treadle.ir.builtin import ArrayAttr, DenseArrayBase, IndexType, IntegerType, TensorType, i64, is_array_of
from treadle.ir.core import (
    DYNAMIC_INDEX,
    Attribute,
    AttrSizedOperandSegments,
    Block,
    BlockArgument,
    HasParent,
    IRDLOperation,
    IsTerminator,
    NoTerminator,
    Operation,
    Parser,
    Printer,
    RecursiveMemoryEffect,
    Region,
    SSAValue,
    VerifyException,
    get_dynamic_index_list,
    irdl_op_definition,
    lazy_traits_def,
    opt_prop_def,
    parse_assignment,
    parse_dynamic_index_list_without_types,
    print_dynamic_index_list,
    prop_def,
    region_def,
    split_dynamic_index_list,
    traits_def,
    var_operand_def,
    var_result_def,
    verify_dynamic_index_list,
)

Bound = SSAValue | int


@irdl_op_definition
class InParallelOp(IRDLOperation):
    """The terminator of `scf.forall`: the parallel insertions that make its results."""

    name = "scf.forall.in_parallel"
    body = region_def("single_block")
    traits = lazy_traits_def(lambda: (IsTerminator(), NoTerminator(), HasParent(ForallOp), RecursiveMemoryEffect()))

    def __init__(self, body: Region | None = None) -> None:
        super().__init__(regions=[body if body is not None else Region(Block())])

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        attributes = parser.parse_optional_attr_dict()
        op = cls(body)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)
        printer.print_op_attributes(self.attributes)

    def verify_(self) -> None:
        for op in self.body.block.ops:
            if op.name != "tensor.parallel_insert_slice":
                raise VerifyException(f"expected only tensor.parallel_insert_slice inside, found {op.name}")


@irdl_op_definition
class ForallOp(IRDLOperation):
    """A loop nest whose iterations may run in any order and at once; `shared_outs` are written by the terminator's insertions."""

    name = "scf.forall"

    dynamic_lower_bound = var_operand_def(IndexType)
    dynamic_upper_bound = var_operand_def(IndexType)
    dynamic_step = var_operand_def(IndexType)
    outputs = var_operand_def(TensorType)

    static_lower_bound = prop_def(DenseArrayBase.constr(i64), prop_name="staticLowerBound")
    static_upper_bound = prop_def(DenseArrayBase.constr(i64), prop_name="staticUpperBound")
    static_step = prop_def(DenseArrayBase.constr(i64), prop_name="staticStep")
    mapping = opt_prop_def(ArrayAttr)

    body = region_def("single_block")
    res = var_result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(RecursiveMemoryEffect())

    def __init__(
        self,
        lower: Sequence[Bound],
        upper: Sequence[Bound],
        step: Sequence[Bound],
        outputs: Sequence[SSAValue | Operation],
        body: Region,
        mapping: ArrayAttr[Attribute] | None = None,
    ) -> None:
        """`body`'s block takes one index per dimension and then one tensor per output, and ends in `InParallelOp`."""
        static_lower, dynamic_lower = split_dynamic_index_list(lower, DYNAMIC_INDEX)
        static_upper, dynamic_upper = split_dynamic_index_list(upper, DYNAMIC_INDEX)
        static_step, dynamic_step = split_dynamic_index_list(step, DYNAMIC_INDEX)
        values = [SSAValue.get(output) for output in outputs]
        super().__init__(
            operands=[dynamic_lower, dynamic_upper, dynamic_step, values],
            result_types=[[value.type for value in values]],
            properties={
                "staticLowerBound": DenseArrayBase.from_list(i64, static_lower),
                "staticUpperBound": DenseArrayBase.from_list(i64, static_upper),
                "staticStep": DenseArrayBase.from_list(i64, static_step),
                "mapping": mapping,
            },
            regions=[body],
        )

    @property
    def rank(self) -> int:
        """Number of loop dimensions."""
        return len(self.static_upper_bound)

    @property
    def lower_bounds(self) -> list[Bound]:
        """First index of each dimension: an int or an index value."""
        return get_dynamic_index_list(self.static_lower_bound.get_values(), self.dynamic_lower_bound, DYNAMIC_INDEX)

    @property
    def upper_bounds(self) -> list[Bound]:
        """End (exclusive) of each dimension."""
        return get_dynamic_index_list(self.static_upper_bound.get_values(), self.dynamic_upper_bound, DYNAMIC_INDEX)

    @property
    def steps(self) -> list[Bound]:
        """Step of each dimension."""
        return get_dynamic_index_list(self.static_step.get_values(), self.dynamic_step, DYNAMIC_INDEX)

    @property
    def is_normalized(self) -> bool:
        """Whether every dimension starts at 0 and steps by 1."""
        return all(bound == 0 for bound in self.lower_bounds) and all(step == 1 for step in self.steps)

    @property
    def induction_variables(self) -> tuple[BlockArgument, ...]:
        """One index per dimension."""
        return tuple(self.body.block.args[: self.rank])

    @property
    def output_arguments(self) -> tuple[BlockArgument, ...]:
        """The tensors of the body that stand for `outputs`."""
        return tuple(self.body.block.args[self.rank :])

    @property
    def terminator(self) -> InParallelOp:
        """The `scf.forall.in_parallel` at the end of the body."""
        last = self.body.block.last_op
        if not isinstance(last, InParallelOp):
            raise VerifyException("body must end in scf.forall.in_parallel")
        return last

    def verify_(self) -> None:
        rank = self.rank
        for what, static, dynamic in (
            ("lower bound", self.static_lower_bound, self.dynamic_lower_bound),
            ("upper bound", self.static_upper_bound, self.dynamic_upper_bound),
            ("step", self.static_step, self.dynamic_step),
        ):
            if len(static) != rank:
                raise VerifyException(f"expected {rank} {what}(s), found {len(static)}")
            verify_dynamic_index_list(static.get_values(), dynamic, DYNAMIC_INDEX, f" in the {what}s")
        if rank == 0:
            raise VerifyException("expected at least one dimension")
        if any(isinstance(step, int) and step <= 0 for step in self.steps):
            raise VerifyException("steps must be positive")
        expected = [IndexType()] * rank + [value.type for value in self.outputs]
        if [argument.type for argument in self.body.block.args] != expected:
            raise VerifyException("body arguments must be one index per dimension and then the shared_outs")
        if [result.type for result in self.res] != [value.type for value in self.outputs]:
            raise VerifyException("result types must be the types of the shared_outs")
        if self.mapping is not None and (reason := mapping_error(self.mapping.data, rank)) is not None:
            raise VerifyException(reason)
        outputs = set(self.output_arguments)
        for op in self.terminator.body.block.ops:
            if op.operands[1] not in outputs:
                raise VerifyException("a parallel insertion must write one of the shared_outs of its scf.forall")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        index = IndexType()
        variables = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=False))

        def bounds() -> list[Bound]:
            position = parser.pos
            dynamic, static = parse_dynamic_index_list_without_types(parser, DYNAMIC_INDEX, delimiter=parser.Delimiter.PAREN)
            values = parser.resolve_operands(dynamic, [index] * len(dynamic), position)
            if len(static) != len(variables):
                parser.raise_error(f"expected {len(variables)} bound(s), found {len(static)}", position, parser.pos)
            return get_dynamic_index_list(static, values, DYNAMIC_INDEX)

        if parser.parse_optional_keyword("in"):
            lower: list[Bound] = [0] * len(variables)
            upper = bounds()
            step: list[Bound] = [1] * len(variables)
        else:
            parser.parse_punctuation("=", " or 'in' after the induction variables")
            lower = bounds()
            parser.parse_keyword("to")
            upper = bounds()
            parser.parse_keyword("step")
            step = bounds()

        arguments = [variable.resolve(index) for variable in variables]
        outputs: Sequence[SSAValue] = ()
        if parser.parse_optional_keyword("shared_outs"):
            position = parser.pos
            pairs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parse_assignment(parser))
            parser.parse_punctuation("->")
            types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
            outputs = parser.resolve_operands([operand for _, operand in pairs], types, position)
            arguments += [argument.resolve(type) for (argument, _), type in zip(pairs, types, strict=True)]

        body = parser.parse_region(arguments)
        if not isinstance(body.block.last_op, InParallelOp):
            body.block.add_op(InParallelOp())
        attributes = parser.parse_optional_attr_dict()
        mapping = attributes.pop("mapping", None)
        if mapping is not None and not is_array_of(mapping, Attribute):
            parser.raise_error("mapping must be an array of mapping attributes")
        op = cls(lower, upper, step, outputs, body, mapping)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        paren = Parser.Delimiter.PAREN
        printer.print_string(" (")
        printer.print_list(self.induction_variables, printer.print_ssa_value)
        printer.print_string(")")

        def bounds(static: DenseArrayBase[IntegerType], dynamic: Sequence[SSAValue]) -> None:
            print_dynamic_index_list(printer, DYNAMIC_INDEX, dynamic, static.get_values(), delimiter=paren)

        if self.is_normalized:
            printer.print_string(" in ")
            bounds(self.static_upper_bound, self.dynamic_upper_bound)
        else:
            printer.print_string(" = ")
            bounds(self.static_lower_bound, self.dynamic_lower_bound)
            printer.print_string(" to ")
            bounds(self.static_upper_bound, self.dynamic_upper_bound)
            printer.print_string(" step ")
            bounds(self.static_step, self.dynamic_step)
        if self.outputs:
            printer.print_string(" shared_outs(")
            printer.print_list(
                zip(self.output_arguments, self.outputs, strict=True),
                lambda pair: (printer.print_ssa_value(pair[0]), printer.print_string(" = "), printer.print_ssa_value(pair[1])),
            )
            printer.print_string(") -> (")
            printer.print_list(self.res.types, printer.print_attribute)
            printer.print_string(")")
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)
        attributes = dict(self.attributes)
        if self.mapping is not None:
            attributes["mapping"] = self.mapping
        printer.print_op_attributes(attributes)
