"""inline-foralls: the body of a `scf.forall` becomes part of the block around it, computed from block indices.

Level: tensor. Reads: `scf.forall`, nested ones too, with or without a mapping to blocks. Writes: one `dispatch.block_index` for each index,
the slowest first; the operations of the body; for each parallel insertion a `tensor.insert_slice` with `dispatch.all_blocks`, which
stands for those of all blocks. Slices of fills and of uninitialised tensors become such themselves, and the insertion of what an inner loop
inserts becomes one insertion.
Leaves alone: everything outside of these loops.
Refuses with TR301 loops that are mapped to threads or warps.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from treadle.analysis.operation_marks import ORIGIN
from treadle.analysis.sizes import cannot_compile, kept_axes
from treadle.dialects import dispatch
from treadle.dialects.mlir_ext.forall import ForallOp
from treadle.dialects.mlir_ext.mapping import MAPPING_IDS, BlockMappingAttr
from treadle.dialects.mlir_ext.slices import ParallelInsertSliceOp
from treadle.ir.core import DYNAMIC_INDEX, Operation, SSAValue, split_dynamic_index_list
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.emitter import Index, before
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter, mixed, tensor_type
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import copy_body, elementwise, erase_dead, give_way
from treadle.transforms.tensor.generics import replace as put

NAME: Final = "inline-foralls"
_SPEED: Final = ("x", "y", "z", *(f"linear_dim_{i}" for i in range(len(MAPPING_IDS) - 3)))
"""Axes of the grid, the fastest first."""


def _extent(lower: Index, upper: Index, step: Index, emit: TensorEmitter) -> Index:
    """How many values an index has."""
    low, high, by = (emit.static(bound) for bound in (lower, upper, step))
    if low is not None and high is not None and by is not None:
        return max(0, -((low - high) // by))
    if low == 0 and by == 1:
        return upper
    count = emit.insert(arith.CeilDivSIOp(emit.subtract(upper, lower), emit.value(step)))
    return emit.insert(arith.MaxSIOp(count, emit.constant(0)))


def _speeds(loop: ForallOp) -> list[int]:
    """The loop's dimensions, the slowest first. Raises TR301 for a mapping to something else than blocks."""
    dimensions = list(range(loop.rank))
    if loop.mapping is None or not loop.mapping.data:
        return dimensions
    ranks: list[int] = []
    for entry in loop.mapping:
        if not isinstance(entry, BlockMappingAttr):
            hint = "map it to #gpu.block, or leave the mapping out: what the threads of a workgroup do is the compiler's choice"
            raise cannot_compile(loop, what=f"'scf.forall' mapped to {entry} on tensors", hint=hint)
        ranks.append(_SPEED.index(entry.data))
    return sorted(dimensions, key=lambda d: -ranks[d])


def _block_indices(loop: ForallOp) -> list[SSAValue]:
    """The loop's indices as values computed from block indices."""
    emit = TensorEmitter(loop)
    bounds = list(zip(loop.lower_bounds, loop.upper_bounds, loop.steps, strict=True))
    indices: dict[int, SSAValue] = {}
    for dimension in _speeds(loop):
        lower, upper, step = bounds[dimension]
        place = dispatch.BlockIndexOp(emit.value(_extent(lower, upper, step, emit)))
        place.result.name_hint = loop.induction_variables[dimension].name_hint
        index = emit.insert(place)
        if emit.static(step) != 1:
            index = emit.insert(arith.MuliOp(index, emit.value(step)))
        indices[dimension] = emit.add(index, lower)
    return [indices[dimension] for dimension in range(loop.rank)]


def _destination(value: SSAValue, loop: ForallOp) -> SSAValue:
    """What insertions write: uninitialised memory, or a copy of a tensor with contents."""
    emit = TensorEmitter(loop)
    if isinstance(value.owner, tensor.EmptyOp):
        return emit.insert(value.owner.clone())  # memory that other loops do not write
    copy = elementwise([value], [emit.empty_like(value)], copy_body(tensor_type(value).element_type), loop)
    copy.attributes[ORIGIN] = builtin.StringAttr("copy")
    return emit.insert(copy)


def _insertion(source: SSAValue, whole: SSAValue, *lists: Sequence[Index]) -> tensor.InsertSliceOp:
    """The insertion of all blocks at `lists` of offsets, sizes and strides."""
    split = [split_dynamic_index_list(indices, DYNAMIC_INDEX) for indices in lists]
    names = ("static_offsets", "static_sizes", "static_strides")
    new = tensor.InsertSliceOp.build(
        operands=[source, whole, *(values for _, values in split)],
        result_types=[whole.type],
        properties={name: builtin.DenseArrayBase.from_list(builtin.i64, numbers) for name, (numbers, _) in zip(names, split, strict=True)},
    )
    new.attributes[dispatch.ALL_BLOCKS] = builtin.UnitAttr()
    return new


def _places(op: ParallelInsertSliceOp | tensor.InsertSliceOp) -> tuple[list[Index], list[Index], list[Index]]:
    """Offsets, sizes and strides of an insertion."""
    return (
        mixed(op.static_offsets.get_values(), op.offsets),
        mixed(op.static_sizes.get_values(), op.sizes),
        mixed(op.static_strides.get_values(), op.strides),
    )


def inline_forall(loop: ForallOp) -> list[Operation]:
    """Put the operations of a loop's body in its place; returns them."""
    indices = _block_indices(loop)
    wholes: dict[SSAValue, SSAValue] = {
        argument: _destination(output, loop) for argument, output in zip(loop.output_arguments, loop.outputs, strict=True)
    }
    arguments = list(loop.output_arguments)
    for argument, index in zip(loop.induction_variables, indices, strict=True):
        argument.replace_all_uses_with(index)
    terminator = loop.terminator
    moved = [op for op in loop.body.block.ops if op is not terminator]
    for op in moved:
        op.detach()
        before(loop).put(op)
    for op in list(terminator.body.block.ops):
        if isinstance(op, ParallelInsertSliceOp):
            before(loop).put(insertion := _insertion(op.source, wholes[_argument(op, arguments)], *_places(op)))
            wholes[_argument(op, arguments)] = insertion.results[0]
            moved.append(insertion)
    for result, argument, output in zip(loop.results, arguments, loop.outputs, strict=True):
        wholes[argument].name_hint = result.name_hint
        result.replace_all_uses_with(wholes[argument])
        argument.replace_uses_with_if(output, lambda use: use.operation.parent_op() is not terminator)
    if (block := loop.parent_block()) is not None:
        block.detach_op(loop)
        loop.erase(drop_references=True)
    return moved


def _argument(op: ParallelInsertSliceOp, arguments: Sequence[SSAValue]) -> SSAValue:
    return next(argument for argument in arguments if argument is op.dest)


# what the bodies hold besides computations


def _simplify_slice(op: tensor.ExtractSliceOp) -> None:
    """A slice of a fill is a fill, a slice of what is not initialised is not either."""
    filled = op.source.owner
    if not isinstance(filled, linalg.ops.FillOp | tensor.EmptyOp):
        return
    emit, type_ = TensorEmitter(op), tensor_type(op.result)
    sizes = mixed(op.static_sizes.get_values(), op.sizes)
    kept = [sizes[axis] for axis in kept_axes(op, op.result)]
    empty = emit.empty(kept, type_.element_type, type_.get_shape())
    give_way(op, [empty if isinstance(filled, tensor.EmptyOp) else emit.fill(filled.inputs[0], empty)])


def _simplify_fill(op: linalg.ops.FillOp) -> None:
    """A fill reads nothing of what it fills."""
    if not isinstance(op.outputs[0].owner, tensor.EmptyOp):
        op.operands[1] = TensorEmitter(op).empty_like(op.outputs[0])


def _join_insertions(outer: tensor.InsertSliceOp) -> None:
    """The insertion of what an inner loop inserts into uninitialised memory becomes that of the inner loop's pieces."""
    inner = outer.source.owner
    if not isinstance(inner, tensor.InsertSliceOp) or dispatch.ALL_BLOCKS not in inner.attributes:
        return
    steps = [*inner.static_strides.get_values(), *outer.static_strides.get_values()]
    if not isinstance(inner.dest.owner, tensor.EmptyOp) or not inner.results[0].has_one_use() or any(step != 1 for step in steps):
        hint = "insert the pieces of the inner loop into one uninitialised tensor, with strides of 1"
        raise cannot_compile(outer, what="the insertion of what an inner 'scf.forall' inserts", hint=hint)
    offsets, sizes, strides = _places(outer)
    emit, (inner_offsets, inner_sizes, _) = TensorEmitter(outer), _places(inner)
    for axis, offset, size in zip(kept_axes(outer, outer.source), inner_offsets, inner_sizes, strict=True):
        offsets[axis], sizes[axis] = emit.add(offsets[axis], offset), size
    put(outer, _insertion(inner.source, outer.dest, offsets, sizes, strides))


@register_pass
@dataclass(frozen=True)
class InlineForallsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = NAME

    def run(self, function: func.FuncOp) -> None:
        """Inline outer loops before the loops in them, then simplify what they held."""
        block, found = function.body.block, False
        while (loop := next((op for op in block.ops if isinstance(op, ForallOp)), None)) is not None:
            found = True
            for op in inline_forall(loop):  # before inner loops, which may write into slices of what is not initialised
                if isinstance(op, tensor.ExtractSliceOp):
                    _simplify_slice(op)
                elif isinstance(op, linalg.ops.FillOp):
                    _simplify_fill(op)
        if not found:
            return
        for op in list(block.ops):
            if isinstance(op, tensor.InsertSliceOp) and dispatch.ALL_BLOCKS in op.attributes:
                _join_insertions(op)
        erase_dead(function)
