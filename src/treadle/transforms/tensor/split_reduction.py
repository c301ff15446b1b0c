"""split-reduction: reductions that are asked to be split become a `scf.forall` over parts and a reduction that merges them.

Level: tensor. Reads: contractions and reductions with `treadle.split_reduction`, named or generic. Writes: a `scf.forall` mapped to blocks
that reduces one part in each, from the combiner's identity, on slices of the operands; elementwise operations that cost little are computed
on the slices. Behind it a generic that reduces the partial results, along leading axes, onto the original initial value.
Narrow floats are summed in f32 until after the merge.
Leaves alone: operations without the attribute, with "off", and with one part. Refuses with TR308 what cannot be split so.
"""

from typing import ClassVar, Final

from treadle.analysis.folds import Separate, neutral_numbers
from treadle.analysis.indexing import Contraction, dim_map, map_dims, plain_dims
from treadle.analysis.operation_marks import ASSOCIATIVE, ORIGIN, origin_of
from treadle.dialects import dispatch
from treadle.dialects.mlir_ext.forall import ForallOp, InParallelOp
from treadle.dialects.mlir_ext.linalg_base import cast_scalar
from treadle.dialects.mlir_ext.mapping import BlockMappingAttr
from treadle.dialects.mlir_ext.slices import ParallelInsertSliceOp
from treadle.dialects.split_attribute import MERGED_BY, SPLIT_REDUCTION, SplitAttr
from treadle.errors import InternalError
from treadle.ir.core import DYNAMIC_INDEX, Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg
from treadle.ir.emitter import Index, before
from treadle.ir.locations import location_of, set_location
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.plan.expr import parse
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.strategies.facts import OperationFacts
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, elementwise, erase_dead
from treadle.transforms.tensor.part_bodies import (
    merge_body,
    part_body,
    placed_indices,
)
from treadle.transforms.tensor.part_shares import share
from treadle.transforms.tensor.part_sizes import Part, loop_extents, part_of
from treadle.transforms.tensor.part_slices import Slicer
from treadle.transforms.tensor.split_requests import check_asked, facts_of

NAME: Final = "split-reduction"
CHEAP_FOR_TILES: Final = 2
"""What a contraction reads is computed for every tile that reads it: casts and scalings may be."""
CHEAP: Final = 16
"""What another reduction reads may cost so many operations."""


@dataclass(slots=True)
class Splitting:
    """One reduction under change: the extents of its loops, the parts that some of them are split into, and who merges these."""

    op: Operation
    facts: OperationFacts
    extents: list[Index]
    parts: list[Part]
    merge: str

    def result_sizes(self, number: int) -> list[Index]:
        """Sizes of a result."""
        return [self.extents[dim] for dim in map_dims(self.facts.view.output_maps[number]) or ()]

    def workspace(self, number: int) -> SSAValue:
        """Uninitialised memory for the partial results of an output, its leading axes the parts."""
        sizes = [*(part.count for part in self.parts), *self.result_sizes(number)]
        return TensorEmitter(self.op).empty(sizes, self.facts.partial_types[number])


def _mapping(count: int) -> builtin.ArrayAttr[Attribute]:
    names = ("z", "y", "x")[:count] if count <= 3 else tuple(f"linear_dim_{count - 1 - i}" for i in range(count))
    return builtin.ArrayAttr([BlockMappingAttr(name) for name in names])


def _part_loop(work: Splitting) -> ForallOp:
    """The loop over the parts."""
    view, op = work.facts.view, work.op
    spaces = [work.workspace(number) for number in range(len(view.outputs))]
    block = Block(arg_types=[*(builtin.IndexType() for _ in work.parts), *(space.type for space in spaces)])
    indices, own = block.args[: len(work.parts)], block.args[len(work.parts) :]
    emit = TensorEmitter(block, like=op)
    bounds = {part.dim: part.bounds(index, emit) for part, index in zip(work.parts, indices, strict=True)}
    cuts = {dim: found for dim, found in bounds.items() if dim >= 0}
    is_contraction = isinstance(work.facts.computation, Contraction)
    slicer = Slicer(emit, CHEAP_FOR_TILES if is_contraction else CHEAP, is_contraction)
    inputs = [slicer.operand(value, map_, cuts) for value, map_ in zip(view.inputs, view.input_maps, strict=True)]
    if len(cuts) < len(bounds) and (number := work.facts.shared_operand) is not None:
        inputs[number] = share(inputs[number], view.input_maps[number], view.reduction_dims, work.parts[0], bounds[-1], emit, op)
    starts: list[SSAValue] = []
    places: list[tuple[list[Index], list[Index]]] = []
    kinds = work.facts.partial_types
    for number, (space, neutral) in enumerate(zip(own, neutral_numbers(work.facts.folds or (), kinds), strict=True)):
        sizes = work.result_sizes(number)
        places.append(([*indices, *(0 for _ in sizes)], [*(1 for _ in indices), *sizes]))
        offsets, lengths = places[-1]
        piece = emit.extract_slice(space, lengths, offsets, kept=range(len(indices), len(lengths)))
        starts.append(emit.fill(emit.insert(arith.ConstantOp.create(result_types=[kinds[number]], properties={"value": neutral})), piece))
    emit.insert(part := _computation(work, inputs, starts))
    results = placed_indices(work.facts, list(part.results), {dim: start for dim, (start, _) in cuts.items()}, emit, op)
    insertions = Block()
    for result, space, (offsets, sizes) in zip(results, own, places, strict=True):
        insertion = ParallelInsertSliceOp(result, space, offsets, sizes, [1] * len(sizes))
        set_location(insertion, op)
        insertions.add_op(insertion)
    block.add_op(end := InParallelOp(Region(insertions)))
    set_location(end, op)
    counts = [part.count for part in work.parts]
    return ForallOp([0] * len(counts), counts, [1] * len(counts), spaces, Region(block), _mapping(len(counts)))


def _computation(work: Splitting, inputs: list[SSAValue], starts: list[SSAValue]) -> Operation:
    """The reduction of one part, still the named operation that it was where its types allow."""
    view, op = work.facts.view, work.op
    types = [value.type for value in starts]
    if [tensor_type(value).element_type for value in starts] != [tensor_type(value).element_type for value in view.outputs]:
        maps = (*view.input_maps, *view.output_maps)
        new: Operation = build_generic(inputs, starts, maps, view.iterators, part_body(view, work.facts), op)
    else:
        body = view.body.parent_region()
        if body is None:
            raise InternalError("a body outside a region")
        kept = {name: value for name, value in op.attributes.items() if name != SPLIT_REDUCTION}
        properties = dict(op.properties)
        new = type(op).create(
            operands=[*inputs, *starts], result_types=types, properties=properties, attributes=kept, regions=[body.clone()]
        )
    new.attributes.pop(SPLIT_REDUCTION, None)
    return new


def _cast(value: SSAValue, kind: Attribute, anchor: Operation) -> SSAValue:
    """A tensor of floats in another type; of a fill, the fill of the cast scalar."""
    source, emit = tensor_type(value).element_type, TensorEmitter(anchor)
    empty = emit.empty_like(value, kind)
    if isinstance(value.owner, linalg.ops.FillOp):
        return emit.fill(emit.insert(arith.ExtFOp(value.owner.inputs[0], kind)), empty)
    block = Block(arg_types=[source, kind])
    block.add_op(linalg.ops.YieldOp(cast_scalar(block, block.args[0], kind)))
    new = elementwise([value], [empty], Region(block), anchor)
    new.attributes.clear()
    return emit.insert(new)


def _merge(work: Splitting, partials: list[SSAValue]) -> list[SSAValue]:
    """The reduction of the partial results onto the initial values: the results of the whole."""
    view, op, kinds = work.facts.view, work.op, work.facts.partial_types
    ranks = [tensor_type(value).get_num_dims() for value in view.outputs]
    rank, parts = ranks[0] + len(work.parts), len(work.parts)
    first = map_dims(view.output_maps[0]) or ()
    orders = [[first.index(dim) for dim in map_dims(map_) or ()] for map_ in view.output_maps]
    leading = range(ranks[0], rank)
    ins = [dim_map(rank, [*leading, *order]) for order in orders]
    outs = [dim_map(rank, order) for order in orders]
    initial: list[SSAValue] = []
    for value, kind in zip(view.outputs, kinds, strict=True):
        initial.append(value if tensor_type(value).element_type == kind else _cast(value, kind, op))
    iterators = ["parallel"] * ranks[0] + ["reduction"] * parts
    merge = build_generic(partials, initial, (*ins, *outs), iterators, merge_body(work.facts), op)
    merge.attributes.clear()
    folds = work.facts.folds or ()
    if any(not isinstance(part, Separate) for part in folds):
        merge.attributes[ASSOCIATIVE] = builtin.ArrayAttr(neutral_numbers(folds, kinds))
    merge.attributes[ORIGIN] = builtin.StringAttr("merge")
    if work.merge != "kernel":
        merge.attributes[MERGED_BY] = builtin.StringAttr(work.merge)
    before(op).put(merge)
    found: list[SSAValue] = []
    for result, value in zip(merge.results, view.outputs, strict=True):
        wanted = tensor_type(value).element_type
        found.append(result if tensor_type(result).element_type == wanted else _cast(result, wanted, op))
    return found


def _require_equal_loops(op: Operation, facts: OperationFacts, part: Part) -> None:
    """What all operands said of a loop's length together, slices of them do not say any more."""
    if isinstance(part.extent, int):
        return
    for value, map_ in facts.view.operands():
        for axis, dim in enumerate(plain_dims(map_)):
            if dim == part.dim and tensor_type(value).get_shape()[axis] == DYNAMIC_INDEX:
                emit = TensorEmitter(op)
                emit.put(dispatch.SameSizeOp(emit.value(emit.size(value, axis)), part.extent))


def split(op: Operation, attribute: SplitAttr) -> list[SSAValue]:
    """Split one reduction as its attribute says; returns the numbers of parts that only the runtime knows."""
    if (facts := facts_of(op)) is None:
        raise InternalError("a split of what is no reduction")
    emitter = TensorEmitter(op)
    extents = loop_extents(facts.view, emitter)
    parts = [part_of(loop, facts.view, extents, emitter) for loop in attribute.data.loops]
    parts = [part for part in parts if part.count != 1]
    if not parts:
        op.attributes.pop(SPLIT_REDUCTION)
        return []
    for part in parts:
        _require_equal_loops(op, facts, part)
    work = Splitting(op, facts, extents, parts, attribute.data.merge)
    loop = _part_loop(work)
    before(op).put(loop)
    emit("decision", NAME, origin_of(op), f"split into {' x '.join(_shown(part.count) for part in parts)} parts", location_of(op))
    results = _merge(work, list(loop.results))
    for old, new in zip(op.results, results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    if (block := op.parent_block()) is not None:
        block.erase_op(op)
    return [part.count for part in parts if not isinstance(part.count, int)]


def kept_whole(function: func.FuncOp) -> func.FuncOp:
    """A copy of a function, behind it in its module, in which no reduction is split that is not split whatever its size."""
    whole = function.clone()
    whole.properties["sym_name"] = builtin.StringAttr(f"{function.sym_name.data}_whole")
    for op in whole.body.block.ops:
        asked = op.attributes.get(SPLIT_REDUCTION)
        if isinstance(asked, SplitAttr) and (facts := facts_of(op)) is not None and is_of_runtime(asked, facts):
            op.attributes.pop(SPLIT_REDUCTION)
    if (block := function.parent_block()) is not None:
        block.insert_op_after(whole, function)
    return whole


def is_of_runtime(attribute: SplitAttr, facts: OperationFacts) -> bool:
    """Whether only the runtime knows into how many parts a reduction is split."""
    names = {f"r{number}": facts.sizes[dim] for number, dim in enumerate(facts.view.reduction_dims)}
    names |= {f"n{number}": facts.sizes[dim] for number, dim in enumerate(facts.view.parallel_dims)}
    unknown = {name for name, size in names.items() if size is None}
    return any(not unknown.isdisjoint((f"r{loop.loop}", *parse(loop.parts).symbols())) for loop in attribute.data.loops)


def _shown(count: Index) -> str:
    return str(count) if isinstance(count, int) else "as many as the sizes tell"


@register_pass
@dataclass(frozen=True)
class SplitReductionPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = NAME

    def run(self, function: func.FuncOp) -> None:
        """Split what is asked to be split."""
        asked: list[tuple[Operation, OperationFacts, SplitAttr]] = []
        for op in list(function.body.block.ops):
            if SPLIT_REDUCTION not in op.attributes:
                continue
            facts = facts_of(op)
            check_asked(op, facts)
            attribute = op.attributes[SPLIT_REDUCTION]
            if facts is not None and isinstance(attribute, SplitAttr):
                asked.append((op, facts, attribute))
            else:
                op.attributes.pop(SPLIT_REDUCTION)
        if not asked:
            return
        if any(is_of_runtime(attribute, facts) for _, facts, attribute in asked):
            whole = kept_whole(function)
            self.run(whole)
            counts = [count for op, _, attribute in asked for count in split(op, attribute)]
            if (last := function.body.block.last_op) is not None:
                before(last).put(dispatch.OnlyWhereOp(counts, whole.sym_name.data))
        else:
            for op, _, attribute in asked:
                split(op, attribute)
        erase_dead(function)
