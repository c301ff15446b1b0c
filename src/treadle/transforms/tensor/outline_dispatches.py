"""outline-dispatches: functions of regions become `dispatch.kernel`s and one `dispatch.program` each.

Level: tensor to dispatch.
Reads: `dispatch.region`, slices, reshapes, constants, index arithmetic; `treadle.strides`, `treadle.stride_divisor` and `treadle.align` of
arguments.
Writes: kernels (those with equal body, shapes, strides and alignments once), programs. Nothing of the functions stays.
Leaves alone: kernels and programs that are there already.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar

from treadle import errors
from treadle.analysis.placement import placements
from treadle.analysis.shapes import (
    ALIGN,
    DEFAULT_ALIGN,
    STRIDE_DIVISOR,
    STRIDES,
    Shapes,
    groups_of,
    infer_shapes,
    kept_axes,
    power_of_two,
    slice_parameters,
    unsupported,
)
from treadle.analysis.sizes import cannot_compile
from treadle.dialects import dispatch
from treadle.errors import InternalError, TreadleError
from treadle.ir.context import Context
from treadle.ir.core import DYNAMIC_INDEX, Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, func, tensor
from treadle.ir.locations import location_of, set_location
from treadle.ir.passes import ModulePass, register_pass
from treadle.ir.tensors import tensor_type
from treadle.plan.expr import Expr, as_expr, constant, maximum, minimum, symbol
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.buffers import ALLOC_ALIGN, Buffer, collapsed, cut_out, expanded, reshaped, row_major, sliced, whole_buffer
from treadle.transforms.tensor.generics import functions
from treadle.transforms.tensor.host_branches import join_branches
from treadle.transforms.tensor.kernels import KernelTable, copy_region

NAME = "outline-dispatches"


@dataclass(slots=True)
class ProgramBuilder:
    """The program of one function under construction."""

    function: func.FuncOp
    shapes: Shapes
    kernels: KernelTable
    block: Block = field(default_factory=Block)
    buffers: dict[SSAValue, Buffer] = field(default_factory=dict[SSAValue, Buffer])
    writable: set[SSAValue] = field(default_factory=set[SSAValue])
    """Tensors of the function whose buffer is an allocation that only they name: it may be written in place."""
    placed: dict[SSAValue, tuple[SSAValue, tensor.InsertSliceOp]] = field(
        default_factory=dict[SSAValue, tuple[SSAValue, tensor.InsertSliceOp]]
    )
    """Results that are written where they will be inserted (`analysis/placement.py`)."""
    guard: Expr | None = None
    """Where the function is computed so only for some sizes: 1 for these, else 0."""
    otherwise: str = ""
    """The function that says how for the others."""

    def add(self, op: Operation, like: Operation) -> None:
        """Append a program operation with the location of `like`."""
        set_location(op, like)
        self.block.add_op(op)

    # buffers

    def add_inputs(self) -> None:
        """One `dispatch.input` an argument; strides and alignment from the argument's attributes."""
        attributes = self.function.arg_attrs.data if self.function.arg_attrs is not None else ()
        for index, argument in enumerate(self.function.body.block.args):
            given: Mapping[str, Attribute] = attributes[index].data if index < len(attributes) else {}
            shape = self.shapes.shape(argument)
            divisor = power_of_two(STRIDE_DIVISOR, given, 1, self.function)
            strides = self._input_strides(index, shape, given.get(STRIDES), divisor)
            align = power_of_two(ALIGN, given, DEFAULT_ALIGN, self.function)
            name = argument.name_hint or f"arg{index}"
            op = dispatch.InputOp(index, name, dispatch.BufferType(tensor_type(argument).element_type), shape, strides, align)
            op.result.name_hint = name
            self.add(op, self.function)
            self.buffers[argument] = whole_buffer(op.result, argument, shape, align, owned=False, strides=strides)

    def _input_strides(self, index: int, shape: Sequence[Expr], attr: Attribute | None, divisor: int) -> tuple[Expr, ...]:
        if attr is None:
            return row_major(shape)
        values = [int(value) for value in attr.get_values()] if isinstance(attr, builtin.DenseArrayBase) else None
        if values is None or len(values) != len(shape) or any(value < 0 and value not in (-1, DYNAMIC_INDEX) for value in values):
            raise TreadleError(
                errors.VERIFY,
                location_of(self.function),
                message=f"{STRIDES} of argument {index} must be array<i64> with one stride a dimension",
            )
        # `s // d * d` is the stride itself where d divides it, and the runtime compares the two; every pass sees that d divides it.
        return tuple(
            self.shapes.new_symbol((index, -1 - axis)) // divisor * divisor if value in (-1, DYNAMIC_INDEX) else constant(value)
            for axis, value in enumerate(values)
        )

    def add_checks(self) -> None:
        """The size requirements that the inputs' shapes do not imply."""
        for check in self.shapes.checks:
            place = f" at {check.location}" if check.location else ""
            self.add(dispatch.CheckOp(check.left, check.relation, check.right, f"{check.message}{place}"), self.function)

    def allocate(self, value: SSAValue, shape: Sequence[Expr], like: Operation) -> Buffer:
        """Fresh memory for a tensor like `value`."""
        op = dispatch.AllocOp(shape, dispatch.BufferType(tensor_type(value).element_type))
        op.result.name_hint = value.name_hint
        self.add(op, like)
        return whole_buffer(op.result, value, shape, ALLOC_ALIGN, owned=True)

    def buffer(self, value: SSAValue, like: Operation) -> Buffer:
        """The buffer of a tensor of the function; constants and empty tensors get theirs at the first use."""
        if value not in self.buffers:
            owner = value.owner
            if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, builtin.DenseIntOrFPElementsAttr):
                op = dispatch.ConstantOp(owner.value)
                op.result.name_hint = value.name_hint
                self.add(op, owner)
                self.buffers[value] = whole_buffer(op.result, value, self.shapes.shape(value), ALLOC_ALIGN, owned=False)
            elif isinstance(owner, tensor.EmptyOp):
                self.buffers[value] = self.allocate(value, self.shapes.shape(value), like)
                self.writable.add(value)
            else:
                raise InternalError(f"a tensor made by {owner.name if isinstance(owner, Operation) else 'a block argument'} has no buffer")
        return self.buffers[value]

    def program_value(self, buffer: Buffer, like: Operation) -> SSAValue:
        """The program's value for a buffer; a `dispatch.view` where it is not the base itself."""
        if buffer.value is not None:
            return buffer.value
        op = dispatch.ViewOp(buffer.base, buffer.offset, buffer.shape, buffer.strides)
        self.add(op, like)
        return op.result

    # operations

    def visit(self, op: Operation) -> None:
        """Append what the host does for one operation of the function."""
        match op:
            case dispatch.RegionOp():
                self._launch_region(op)
            case tensor.CastOp():
                self.buffers[op.dest] = self.buffer(op.source, op)
            case tensor.ExtractSliceOp():
                offsets, sizes, strides = slice_parameters(op, self.shapes)
                self.buffers[op.result] = self._part(self.buffer(op.source, op), offsets, sizes, strides, kept_axes(op, op.result))
            case tensor.ExpandShapeOp() | tensor.CollapseShapeOp() | tensor.ReshapeOp() if self.buffer(op.operands[0], op).cut is not None:
                hint = "reshape the whole tensor outside of scf.forall, and take slices that leave out axes of extent 1"
                raise cannot_compile(op, what=f"'{op.name}' inside 'scf.forall'", hint=hint)
            case tensor.ExpandShapeOp():
                self.buffers[op.result] = expanded(self.buffer(op.src, op), groups_of(op.reassociation), self.shapes.shape(op.result))
            case tensor.CollapseShapeOp():
                source = self.buffer(op.src, op)
                groups = groups_of(op.reassociation)
                found = collapsed(source, groups) or collapsed(self._contiguous(op.src, source, op), groups)
                self.buffers[op.result] = found if found is not None else errors.unreachable("a contiguous array collapses")
            case tensor.ReshapeOp():
                source = self.buffer(op.source, op)
                shape = self.shapes.shape(op.result)
                found = reshaped(source, shape) or reshaped(self._contiguous(op.source, source, op), shape)
                self.buffers[op.result] = found if found is not None else errors.unreachable("a contiguous array reshapes")
            case tensor.InsertSliceOp():
                self._insert_slice(op)
            case dispatch.OnlyWhereOp():
                counts = [count for value in op.counts if (count := self.shapes.index(value)) is not None]
                self.guard = minimum(1, maximum(0, sum(counts, start=constant(-len(counts)))))
                self.otherwise = op.otherwise.string_value()
            case func.ReturnOp():
                self._return(op)
            case (
                dispatch.BlockIndexOp()
                | dispatch.ReadIndexOp()
                | dispatch.SameSizeOp()
                | tensor.EmptyOp()
                | tensor.DimOp()
                | tensor.ExtractOp()
                | arith.ConstantOp()
            ):
                pass
            case _ if op.name.split(".")[0] in ("arith", "affine", "math"):
                pass
            case _:
                raise unsupported(op)

    def _launch_region(self, op: dispatch.RegionOp) -> None:
        outputs = [self._memory_of(result, op) for result in op.results]
        self._launch(op, outputs, op)
        for result, buffer in zip(op.results, outputs, strict=True):
            self.buffers[result] = buffer
            self.writable.add(result)

    def _memory_of(self, result: SSAValue, like: Operation) -> Buffer:
        """Fresh memory for a result, or the slice of an array that it is a piece of."""
        if result not in self.placed:
            return self.allocate(result, self.shapes.shape(result), like)
        whole, insertion = self.placed[result]
        return self._slice(self.buffer(whole, like), insertion)

    def _slice(self, buffer: Buffer, op: tensor.InsertSliceOp) -> Buffer:
        offsets, sizes, strides = slice_parameters(op, self.shapes)
        return self._part(buffer, offsets, sizes, strides, kept_axes(op, op.source))

    def _part(self, buffer: Buffer, offsets: Sequence[Expr], sizes: Sequence[Expr], strides: Sequence[Expr], kept: Sequence[int]) -> Buffer:
        """A slice, of the host's or of each block's own."""
        per_block = buffer.cut is not None or any(self.shapes.is_per_block(each) for each in (*offsets, *sizes, *strides))
        return (cut_out if per_block else sliced)(buffer, offsets, sizes, strides, kept)

    def _launch(self, region: dispatch.RegionOp, outputs: Sequence[Buffer], like: Operation) -> None:
        if all(constant(0) in buffer.shape for buffer in outputs):
            return  # a kernel without workgroups: its code would store nothing, and the audits of code ask for what a tile stores
        found = self.kernels.outline(region, self, outputs, like)
        inputs = [self.program_value(self.buffer(value, like).whole, like) for value in found.tensors]
        values = [self.program_value(buffer.whole, like) for buffer in outputs]
        self.add(dispatch.LaunchOp(found.name, inputs, values, found.symbols), like)

    def copy(self, source: SSAValue, destination: Buffer, like: Operation) -> None:
        """Launch a kernel that copies a tensor into a buffer of the same shape."""
        self._launch(copy_region(source, like), [destination], like)

    def _contiguous(self, value: SSAValue, buffer: Buffer, like: Operation) -> Buffer:
        emit("decision", NAME, like.name, "copies its source: the strides do not allow a view", location_of(like))
        fresh = self.allocate(value, buffer.shape, like)
        self.copy(value, fresh, like)
        return fresh

    def _insert_slice(self, op: tensor.InsertSliceOp) -> None:
        destination = self.buffer(op.dest, op)
        if dispatch.ALL_BLOCKS in op.attributes:
            pass  # made for these insertions
        elif op.dest not in self.writable or not op.dest.has_one_use():
            fresh = self.allocate(op.result, self.shapes.shape(op.result), op)
            if not isinstance(op.dest.owner, tensor.EmptyOp):
                self.copy(op.dest, fresh, op)
            destination = fresh
        self.buffers[op.result] = destination
        self.writable.add(op.result)
        if op.source not in self.placed or self.placed[op.source][1] is not op:
            self.copy(op.source, self._slice(destination, op), op)

    def _return(self, op: func.ReturnOp) -> None:
        values: list[SSAValue] = []
        returned: set[SSAValue] = set()
        for operand in op.operands:
            if not isinstance(operand.type, builtin.TensorType):
                raise cannot_compile(
                    op,
                    what=f"a result of type {operand.type}",
                    hint="return tensors (tensor<f32> holds one number)",
                )
            buffer = self.buffer(operand, op)
            if not buffer.owned or not buffer.is_whole or buffer.base in returned:
                fresh = self.allocate(operand, buffer.shape, op)
                self.copy(operand, fresh, op)
                buffer = fresh
            returned.add(buffer.base)
            values.append(self.program_value(buffer, op))
        self.add(dispatch.ReturnOp(values), op)


def outline_function(function: func.FuncOp, kernels: KernelTable) -> ProgramBuilder:
    """The program of one function under construction, complete but for other ways; new kernels are added to `kernels`."""
    builder = ProgramBuilder(function, infer_shapes(function), kernels)
    builder.placed = placements(list(function.body.block.ops), builder.shapes)
    builder.add_inputs()
    builder.add_checks()
    for op in function.body.block.ops:
        builder.visit(op)
    return builder


def finished(builder: ProgramBuilder, others: Mapping[str, ProgramBuilder]) -> dispatch.ProgramOp:
    """The program, with the launches of the other way in which it is computed for some sizes."""
    if builder.guard is not None:
        other, shapes = others[builder.otherwise], builder.shapes
        known = {source: shapes.resolve(symbol(name)) for name, source in shapes.sources.items()}
        renamed: dict[str, Expr | int] = {
            name: known[source] if source in known else shapes.new_symbol(source) for name, source in other.shapes.symbols.items()
        }
        join_branches(builder.block, other.block, builder.guard, lambda text: as_expr(text).substitute(renamed))
    program = dispatch.ProgramOp(builder.function.sym_name.data, builder.shapes.symbols, Region(builder.block))
    set_location(program, builder.function)
    return program


def outline_dispatches(module: builtin.ModuleOp) -> None:
    """Replace every function of `module` by its program, kernels first."""
    kernels = KernelTable()
    builders = {function.sym_name.data: outline_function(function, kernels) for function in functions(module)}
    others = {builder.otherwise for builder in builders.values()}
    programs = [finished(builder, builders) for name, builder in builders.items() if name not in others]
    for op in [op for op in module.body.block.ops if isinstance(op, func.FuncOp)]:
        module.body.block.erase_op(op)
    for op in (*kernels.ops, *programs):
        module.body.block.add_op(op)


@register_pass
@dataclass(frozen=True)
class OutlineDispatchesPass(ModulePass):
    """See the module's docstring."""

    name: ClassVar[str] = "outline-dispatches"

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        outline_dispatches(op)
