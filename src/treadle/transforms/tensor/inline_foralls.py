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
from treadle.ir.core import DYNAMIC_INDEX, AffineMap, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.passes import register_pass
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, copy_body, empty_like, erase_dead, insert_before, tensor_type
from treadle.transforms.tensor.generics import replace as put

NAME: Final = "inline-foralls"
_SPEED: Final = ("x", "y", "z", *(f"linear_dim_{i}" for i in range(len(MAPPING_IDS) - 3)))
"""Axes of the grid, the fastest first."""

Extent = SSAValue | int


def _value(extent: Extent, anchor: Operation) -> SSAValue:
    if isinstance(extent, SSAValue):
        return extent
    op = arith.ConstantOp(builtin.IntegerAttr(extent, builtin.IndexType()))
    insert_before(anchor, op)
    return op.result


def _extent(lower: Extent, upper: Extent, step: Extent, anchor: Operation) -> Extent:
    """How many values an index has."""
    if isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int):
        return max(0, -((lower - upper) // step))
    if isinstance(lower, int) and lower == 0 and isinstance(step, int) and step == 1:
        return upper
    low, high, by = (_value(bound, anchor) for bound in (lower, upper, step))
    length = arith.SubiOp(high, low)
    count = arith.CeilDivSIOp(length.result, by)
    least = arith.MaxSIOp(count.result, _value(0, anchor))
    insert_before(anchor, length, count, least)
    return least.result


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
    bounds = list(zip(loop.lower_bounds, loop.upper_bounds, loop.steps, strict=True))
    indices: dict[int, SSAValue] = {}
    for dimension in _speeds(loop):
        lower, upper, step = bounds[dimension]
        place = dispatch.BlockIndexOp(_value(_extent(lower, upper, step, loop), loop))
        place.result.name_hint = loop.induction_variables[dimension].name_hint
        insert_before(loop, place)
        index: SSAValue = place.result
        if not (isinstance(step, int) and step == 1):
            insert_before(loop, scaled := arith.MuliOp(index, _value(step, loop)))
            index = scaled.result
        if not (isinstance(lower, int) and lower == 0):
            insert_before(loop, moved := arith.AddiOp(index, _value(lower, loop)))
            index = moved.result
        indices[dimension] = index
    return [indices[dimension] for dimension in range(loop.rank)]


def _destination(value: SSAValue, loop: ForallOp) -> SSAValue:
    """What insertions write: uninitialised memory, or a copy of a tensor with contents."""
    if isinstance(value.owner, tensor.EmptyOp):
        own = value.owner.clone()  # memory that other loops do not write
        insert_before(loop, own)
        return own.tensor
    identity = AffineMap.identity(rank := tensor_type(value).get_num_dims())
    body = copy_body(tensor_type(value).element_type)
    copy = build_generic([value], [empty_like(value, loop)], (identity, identity), ["parallel"] * rank, body, loop)
    copy.attributes[ORIGIN] = builtin.StringAttr("copy")
    insert_before(loop, copy)
    return copy.results[0]


def _inserted(op: ParallelInsertSliceOp, whole: SSAValue) -> tensor.InsertSliceOp:
    names = ("static_offsets", "static_sizes", "static_strides")
    new = tensor.InsertSliceOp.build(
        operands=[op.source, whole, list(op.offsets), list(op.sizes), list(op.strides)],
        result_types=[whole.type],
        properties={name: op.properties[name] for name in names},
    )
    new.attributes[dispatch.ALL_BLOCKS] = builtin.UnitAttr()
    return new


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
        insert_before(loop, op)
    for op in list(terminator.body.block.ops):
        if isinstance(op, ParallelInsertSliceOp):
            insertion = _inserted(op, wholes[_argument(op, arguments)])
            insert_before(loop, insertion)
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


def _slice_shape(op: tensor.ExtractSliceOp) -> list[Extent]:
    """The sizes of a slice's own axes."""
    dynamic = iter(op.sizes)
    sizes = [next(dynamic) if size == DYNAMIC_INDEX else int(size) for size in op.static_sizes.get_values()]
    return [sizes[axis] for axis in kept_axes(op, op.result)]


def _simplify_slice(op: tensor.ExtractSliceOp) -> None:
    """A slice of a fill is a fill, a slice of what is not initialised is not either."""
    filled = op.source.owner
    if not isinstance(filled, linalg.ops.FillOp | tensor.EmptyOp):
        return
    type_ = builtin.TensorType(tensor_type(op.result).element_type, tensor_type(op.result).get_shape())
    empty = tensor.EmptyOp([size for size in _slice_shape(op) if isinstance(size, SSAValue)], type_)
    if isinstance(filled, tensor.EmptyOp):
        put(op, empty)
        return
    insert_before(op, empty)
    put(op, linalg.ops.FillOp([filled.inputs[0]], [empty.tensor], [type_]))


def _simplify_fill(op: linalg.ops.FillOp) -> None:
    """A fill reads nothing of what it fills."""
    if not isinstance(op.outputs[0].owner, tensor.EmptyOp):
        op.operands[1] = empty_like(op.outputs[0], op)


def _sum(left: Extent, right: Extent, anchor: Operation) -> Extent:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    op = arith.AddiOp(_value(left, anchor), _value(right, anchor))
    insert_before(anchor, op)
    return op.result


def _extents(static: builtin.DenseArrayBase[builtin.IntegerType], dynamic: Sequence[SSAValue]) -> list[Extent]:
    values = iter(dynamic)
    return [next(values) if entry == DYNAMIC_INDEX else int(entry) for entry in static.get_values()]


def _join_insertions(outer: tensor.InsertSliceOp) -> None:
    """The insertion of what an inner loop inserts into uninitialised memory becomes that of the inner loop's pieces."""
    inner = outer.source.owner
    if not isinstance(inner, tensor.InsertSliceOp) or dispatch.ALL_BLOCKS not in inner.attributes:
        return
    steps = [*inner.static_strides.get_values(), *outer.static_strides.get_values()]
    if not isinstance(inner.dest.owner, tensor.EmptyOp) or not inner.results[0].has_one_use() or any(step != 1 for step in steps):
        hint = "insert the pieces of the inner loop into one uninitialised tensor, with strides of 1"
        raise cannot_compile(outer, what="the insertion of what an inner 'scf.forall' inserts", hint=hint)
    offsets, sizes = _extents(outer.static_offsets, outer.offsets), _extents(outer.static_sizes, outer.sizes)
    inner_offsets, inner_sizes = _extents(inner.static_offsets, inner.offsets), _extents(inner.static_sizes, inner.sizes)
    for place, axis in enumerate(kept_axes(outer, outer.source)):
        offsets[axis] = _sum(offsets[axis], inner_offsets[place], outer)
        sizes[axis] = inner_sizes[place]
    static = [[value if isinstance(value, int) else DYNAMIC_INDEX for value in values] for values in (offsets, sizes)]
    dynamic = [[value for value in values if isinstance(value, SSAValue)] for values in (offsets, sizes)]
    new = tensor.InsertSliceOp.build(
        operands=[inner.source, outer.dest, dynamic[0], dynamic[1], []],
        result_types=[outer.results[0].type],
        properties={
            "static_offsets": builtin.DenseArrayBase.from_list(builtin.i64, static[0]),
            "static_sizes": builtin.DenseArrayBase.from_list(builtin.i64, static[1]),
            "static_strides": builtin.DenseArrayBase.from_list(builtin.i64, [1] * len(offsets)),
        },
    )
    new.attributes[dispatch.ALL_BLOCKS] = builtin.UnitAttr()
    put(outer, new)


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
