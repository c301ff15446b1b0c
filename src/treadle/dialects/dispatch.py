"""The `dispatch` dialect: what becomes one kernel, and the host program that launches kernels.

Levels: `dispatch.region` stands inside a function between form-dispatches and outline-dispatches; `dispatch.kernel` and
`dispatch.program` are what outline-dispatches leaves of a function. All sizes, strides and offsets are expression strings
(`plan/expr.py`), strides and offsets in elements. The host's operations are in `dispatch_host.py`; all is reached through this module.
"""

from collections.abc import Mapping, Sequence

from treadle.dialects.dispatch_attributes import (
    BufferType,
    GroupAttr,
    GroupRole,
    StringAttr,
    Strings,
    integers,
    ints,
    string_lists,
    strings,
    text_lists,
    texts,
)
from treadle.dialects.dispatch_host import AllocOp, CheckOp, ConstantOp, InputOp, LaunchOp, ProgramOp, ReturnOp, ViewOp
from treadle.dialects.dispatch_reads import Read, ReadIndexOp, check_reads, read_properties, reads_of
from treadle.dialects.split_attribute import SplitAttr
from treadle.ir.core import (
    Attribute,
    Block,
    Dialect,
    IRDLOperation,
    IsolatedFromAbove,
    IsTerminator,
    Operation,
    Parser,
    Printer,
    Pure,
    Region,
    SSAValue,
    SymbolOpInterface,
    VerifyException,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from treadle.ir.dialects import builtin, linalg
from treadle.plan.expr import Expr, as_expr

__all__ = [
    "DISPATCH",
    "GROUP",
    "ROOT",
    "AllocOp",
    "BlockIndexOp",
    "BufferType",
    "CheckOp",
    "ConstantOp",
    "GroupAttr",
    "GroupRole",
    "InputOp",
    "KernelOp",
    "LaunchOp",
    "OnlyWhereOp",
    "ProgramOp",
    "Read",
    "ReadIndexOp",
    "RegionOp",
    "ReturnOp",
    "SameSizeOp",
    "StringAttr",
    "ViewOp",
    "YieldOp",
    "integers",
    "ints",
    "string_lists",
    "strings",
    "text_lists",
    "texts",
    "yielded",
]

GROUP = "dispatch.group"
"""Attribute (`GroupAttr`) of an operation of a function: the kernels that will compute it. set-dispatch-groups keeps what is there."""
ROOT = "dispatch.root"
"""Unit attribute of the operations of a kernel's body that it is formed around."""
ALL_BLOCKS = "dispatch.all_blocks"
"""Unit attribute of a `tensor.insert_slice` of a function: it stands for the insertions of every block, and its result has them all."""
CANDIDATE = "candidate"
"""Attribute of kernels: which of the ways to compute it is taken, 0 for the best, else one behind it."""
MERGE = "merge"
MERGE_IN_CLUSTER = "merge_in_cluster"
MERGE_IN_TURN = "merge_in_turn"
"""Attribute of kernels whose last workgroup merges the parts of a result: the number of the argument of counters. Its results are the
parts, then what consumers compute of the merged root; the consumer that joins that with the initial values has it as a unit attribute.
With `MERGE_IN_CLUSTER` workgroups of a cluster merge together where they can; with `MERGE_IN_TURN` each in its turn adds its part to what
is in the first result, which holds one part then."""
ANY_SIZE = "any_size"
"""Unit attribute of kernels whose runtime sizes may be of any 64-bit value."""


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a region or kernel with the tensors it computes."""

    name = "dispatch.yield"
    values = var_operand_def()
    assembly_format = "($values^ `:` type($values))? attr-dict"
    traits = traits_def(IsTerminator())

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[values])


def yielded(block: Block, owner: str) -> YieldOp:
    """The terminator of `block`; VerifyException where it is another operation."""
    last = block.last_op
    if not isinstance(last, YieldOp):
        raise VerifyException(f"the body of {owner} must end with dispatch.yield")
    return last


@irdl_op_definition
class BlockIndexOp(IRDLOperation):
    """One of the indices 0 .. extent - 1 of what was a `scf.forall`: what is computed from it is computed once for each, by workgroups."""

    name = "dispatch.block_index"
    extent = operand_def(builtin.IndexType)
    result = result_def(builtin.IndexType)
    assembly_format = "$extent attr-dict"
    traits = traits_def(Pure())

    def __init__(self, extent: SSAValue) -> None:
        super().__init__(operands=[extent], result_types=[builtin.IndexType()])


@irdl_op_definition
class SameSizeOp(IRDLOperation):
    """Two sizes of a function's tensors must be the same; the runtime checks it where it is not known."""

    name = "dispatch.same_size"
    left = operand_def(builtin.IndexType)
    right = operand_def(builtin.IndexType)
    assembly_format = "$left `,` $right attr-dict"

    def __init__(self, left: SSAValue, right: SSAValue) -> None:
        super().__init__(operands=[left, right])


@irdl_op_definition
class OnlyWhereOp(IRDLOperation):
    """The function is computed as its block says where one of `counts` is more than 1, else as the function `otherwise` says."""

    name = "dispatch.only_where"
    counts = var_operand_def(builtin.IndexType)
    otherwise = prop_def(builtin.SymbolRefAttr)
    assembly_format = "$counts `else` $otherwise attr-dict"

    def __init__(self, counts: Sequence[SSAValue], otherwise: str) -> None:
        super().__init__(operands=[counts], properties={"otherwise": builtin.SymbolRefAttr(otherwise)})


@irdl_op_definition
class RegionOp(IRDLOperation):
    """What form-dispatches decided to be one kernel; captures values of the surrounding function, yields tensors."""

    name = "dispatch.region"
    body = region_def("single_block")
    results_ = var_result_def(builtin.TensorType)
    assembly_format = "(`->` type($results_)^)? attr-dict-with-keyword $body"

    def __init__(self, result_types: Sequence[Attribute], body: Region, attributes: dict[str, Attribute] | None = None) -> None:
        super().__init__(regions=[body], result_types=[result_types], attributes=attributes or {})

    def verify_(self) -> None:
        if self.body.block.args:
            raise VerifyException("dispatch.region captures values of the function, its block takes no arguments")
        _check_types("dispatch.region yields", yielded(self.body.block, "dispatch.region").values, [r.type for r in self.results])


def _check_types(what: str, values: Sequence[SSAValue], wanted: Sequence[Attribute]) -> None:
    found = [value.type for value in values]
    if found != list(wanted):
        raise VerifyException(f"{what} ({', '.join(map(str, found))}) where ({', '.join(map(str, wanted))}) was declared")


def _check_rows(what: str, rows: builtin.ArrayAttr[Strings], types: Sequence[Attribute]) -> None:
    """Each row has one entry a dimension of its tensor type; static sizes of shapes are compared by the caller."""
    if len(rows) != len(types):
        raise VerifyException(f"{what} has {len(rows)} entries for {len(types)} tensors")
    for index, (row, type_) in enumerate(zip(rows, types, strict=True)):
        if not isinstance(type_, builtin.TensorType):
            raise VerifyException(f"{what} {index} belongs to {type_}, which is not a tensor")
        if len(row) != type_.get_num_dims():
            raise VerifyException(f"{what} {index} has {len(row)} dimensions, its tensor {type_} has {type_.get_num_dims()}")


def _check_static(what: str, rows: builtin.ArrayAttr[Strings], types: Sequence[Attribute]) -> None:
    for index, (row, type_) in enumerate(zip(rows, types, strict=True)):
        sizes = type_.get_shape() if isinstance(type_, builtin.TensorType) else ()
        for axis, (text, size) in enumerate(zip(texts(row), sizes, strict=True)):
            if size != builtin.DYNAMIC_INDEX and text != str(size):
                raise VerifyException(f"{what} {index} says {text} for axis {axis}, its tensor {type_} says {size}")


def _check_roots(roots: Sequence[Operation]) -> None:
    """A kernel is formed around computations; which of them one kernel can be built of is for the kernel forms to say."""
    if not roots:
        raise VerifyException(f"dispatch.kernel has no operation with {ROOT}")
    for op in roots:
        if not isinstance(op, linalg.ops.GenericOp):
            raise VerifyException(f"{ROOT} belongs to linalg.generic, found on {op.name}")


@irdl_op_definition
class KernelOp(IRDLOperation):
    """One kernel as a program on tensors: its tensors, then an `index` argument for each of `symbols`, `block_symbols` and `read_symbols`.

    Properties: `symbols` names of the index arguments that a launch gives; `block_symbols` names of those that workgroups have from their
    place in the grid, 0 to the entry of `block_extents` - 1, the last fastest; `read_symbols` names of those that they read, each from the
    tensor argument of its entry in `read_arguments` at that of `read_places`, brought to 0 .. that of `read_bounds`; `arg_shapes`,
    `arg_strides`, `arg_align` (bytes) of the tensor arguments; `result_shapes`, `result_strides`, `result_align` of the memory the results
    go to. See docs/architecture.md for what the body may hold.
    """

    name = "dispatch.kernel"
    sym_name = prop_def(builtin.StringAttr)
    function_type = prop_def(builtin.FunctionType)
    symbols = prop_def(builtin.ArrayAttr[builtin.StringAttr])
    block_symbols = opt_prop_def(builtin.ArrayAttr[builtin.StringAttr])
    block_extents = opt_prop_def(builtin.ArrayAttr[builtin.StringAttr])
    read_symbols = opt_prop_def(builtin.ArrayAttr[builtin.StringAttr])
    read_arguments = opt_prop_def(builtin.DenseArrayBase)
    read_places = opt_prop_def(builtin.ArrayAttr[Strings])
    read_bounds = opt_prop_def(builtin.ArrayAttr[builtin.StringAttr])
    arg_shapes = prop_def(builtin.ArrayAttr[Strings])
    arg_strides = prop_def(builtin.ArrayAttr[Strings])
    arg_align = prop_def(builtin.DenseArrayBase)
    result_shapes = prop_def(builtin.ArrayAttr[Strings])
    result_strides = prop_def(builtin.ArrayAttr[Strings])
    result_align = prop_def(builtin.DenseArrayBase)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface())

    def __init__(
        self,
        name: str,
        body: Region,
        result_types: Sequence[Attribute],
        *,
        symbols: Sequence[str],
        blocks: Mapping[str, object] | None = None,
        reads: Mapping[str, Read] | None = None,
        arg_shapes: Sequence[Sequence[object]],
        arg_strides: Sequence[Sequence[object]],
        arg_align: Sequence[int],
        result_shapes: Sequence[Sequence[object]],
        result_strides: Sequence[Sequence[object]],
        result_align: Sequence[int],
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        super().__init__(
            regions=[body],
            properties={
                "sym_name": StringAttr(name),
                "function_type": builtin.FunctionType.from_lists([arg.type for arg in body.block.args], list(result_types)),
                "symbols": strings(symbols),
                **({"block_symbols": strings(blocks), "block_extents": strings(blocks.values())} if blocks else {}),
                **read_properties(reads or {}),
                "arg_shapes": string_lists(arg_shapes),
                "arg_strides": string_lists(arg_strides),
                "arg_align": ints(arg_align),
                "result_shapes": string_lists(result_shapes),
                "result_strides": string_lists(result_strides),
                "result_align": ints(result_align),
            },
            attributes=attributes or {},
        )

    @property
    def tensor_count(self) -> int:
        """How many of the block's arguments are tensors (they come first)."""
        return len(self.body.block.args) - len(self.symbols) - len(self.blocks) - len(self.reads)

    @property
    def blocks(self) -> dict[str, str]:
        """Each block symbol with the number of its values, the slowest first."""
        if self.block_symbols is None or self.block_extents is None:
            return {}
        return dict(zip(texts(self.block_symbols), texts(self.block_extents), strict=True))

    @property
    def reads(self) -> dict[str, Read]:
        """Each symbol that workgroups read, with where from."""
        return reads_of(self.read_symbols, self.read_arguments, self.read_places, self.read_bounds)

    @property
    def ranges(self) -> dict[str, Expr]:
        """The symbols of blocks and of reads, each with the number of values that it may have, from 0."""
        found = {name: as_expr(extent) for name, extent in self.blocks.items()}
        return found | {name: as_expr(read.most) + 1 for name, read in self.reads.items()}

    def verify_(self) -> None:
        args = [arg.type for arg in self.body.block.args]
        _check_types("dispatch.kernel takes", list(self.body.block.args), list(self.function_type.inputs))
        tensors, scalars = args[: self.tensor_count], args[self.tensor_count :]
        wrong = any(not isinstance(type_, builtin.TensorType) for type_ in tensors)
        if len(self.symbols) > len(args) or wrong or any(not isinstance(type_, builtin.IndexType) for type_ in scalars):
            raise VerifyException(
                "dispatch.kernel takes its tensors first, then one index argument for each name in symbols, block_symbols, read_symbols"
            )
        check_reads(self.reads, tensors)
        outputs = list(self.function_type.outputs)
        _check_rows("arg_shapes", self.arg_shapes, tensors)
        _check_rows("arg_strides", self.arg_strides, tensors)
        _check_static("arg_shapes", self.arg_shapes, tensors)
        _check_rows("result_shapes", self.result_shapes, outputs)
        _check_rows("result_strides", self.result_strides, outputs)
        _check_static("result_shapes", self.result_shapes, outputs)
        for what, attr, count in (("arg_align", self.arg_align, len(tensors)), ("result_align", self.result_align, len(outputs))):
            values = list(integers(attr))
            if len(values) != count:
                raise VerifyException(f"{what} has {len(values)} entries for {count} tensors")
            if any(value < 1 or value & (value - 1) for value in values):
                raise VerifyException(f"{what} holds powers of two (bytes), found {values}")
        _check_types("dispatch.kernel yields", yielded(self.body.block, "dispatch.kernel").values, outputs)
        _check_roots([op for op in self.body.block.ops if ROOT in op.attributes])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        with printer.in_parens():
            printer.print_list(self.body.block.args, printer.print_block_argument)
        printer.print_string(" -> ")
        with printer.in_parens():
            printer.print_list(self.function_type.outputs.data, printer.print_attribute)
        shown = {**self.properties, **self.attributes}
        printer.print_string(" attributes ")
        printer.print_attr_dict({key: value for key, value in shown.items() if key not in ("sym_name", "function_type")})
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> "KernelOp":
        name = parser.parse_symbol_name()
        args = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
        parser.parse_punctuation("->")
        outputs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        given = parser.parse_optional_attr_dict_with_keyword()
        attributes = dict(given.data) if given else {}
        body = parser.parse_region(args)
        names = cls.get_irdl_definition().properties
        properties: dict[str, Attribute] = {key: attributes.pop(key) for key in list(attributes) if key in names}
        properties["sym_name"] = name
        properties["function_type"] = builtin.FunctionType.from_lists([arg.type for arg in body.block.args], outputs)
        return cls.create(regions=[body], properties=properties, attributes=attributes)


DISPATCH = Dialect(
    "dispatch",
    [
        RegionOp,
        KernelOp,
        YieldOp,
        BlockIndexOp,
        ReadIndexOp,
        SameSizeOp,
        OnlyWhereOp,
        ProgramOp,
        InputOp,
        ConstantOp,
        AllocOp,
        ViewOp,
        LaunchOp,
        CheckOp,
        ReturnOp,
    ],
    [BufferType, GroupAttr, SplitAttr],
)
