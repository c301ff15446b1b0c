"""fold-data-movement: transposes, broadcasts and copies become part of the maps of their readers, widening casts part of contractions.

Level: tensor, after normalize-generics. Reads: generics.
Writes: input maps and bodies of generics that read a copy, transpose or broadcast (the source is read directly), and contractions whose
operand is a widened tensor (`f16 -> f32` and the like: the narrow tensor becomes the operand and the body widens its elements, which is the
same computation and what matrix instructions do). A remark tells of each.
Leaves alone: copies that something other than a generic reads, or whose kernel the user has chosen (`dispatch.group`); initial values.
"""

from typing import ClassVar

from treadle.analysis.indexing import WIDENING, Contraction, Copy, classify, compose, structured, view_of
from treadle.analysis.operation_marks import origin_of
from treadle.dialects import dispatch
from treadle.ir.core import AffineMap, Block, Operation, SSAValue
from treadle.ir.dialects import func, linalg
from treadle.ir.emitter import at_start
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.drafts import draft_of
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import erase_dead, generics

NAME = "fold-data-movement"


def moved_source(value: SSAValue) -> tuple[SSAValue, AffineMap] | None:
    """(source, map from the dimensions of `value` to those of the source) where `value` is a copy, transpose or broadcast."""
    owner = value.owner
    if not isinstance(owner, linalg.ops.GenericOp) or dispatch.GROUP in owner.attributes or not isinstance(found := classify(owner), Copy):
        return None
    view = view_of(owner)
    if view.output_maps[0] != AffineMap.identity(view.rank):
        return None
    return view.inputs[found.source], view.input_maps[found.source]


def _fold_copies(op: linalg.ops.GenericOp) -> None:
    view = view_of(op)
    draft = draft_of(view)
    for index, value in enumerate(view.inputs):
        found = moved_source(value)
        if found is None or not draft.sizes_loops_without(index, through := compose(found[1], draft.maps[index])):
            continue
        draft.inputs[index], draft.maps[index], draft.changed = found[0], through, True
        emit("decision", NAME, origin_of(op), f"reads the source of the {origin_of(_owner(value))} directly", location_of(op))
    draft.finish(view.iterators)


def _owner(value: SSAValue) -> Operation:
    owner = value.owner
    if isinstance(owner, Block):
        raise TypeError("a block argument has no defining operation")
    return owner


def widened_source(value: SSAValue) -> tuple[SSAValue, AffineMap, Operation] | None:
    """(narrow tensor, its map, the cast) where `value` is a tensor widened element by element and nothing else."""
    owner = value.owner
    view = structured(owner) if isinstance(owner, linalg.ops.GenericOp) and dispatch.GROUP not in owner.attributes else None
    if view is None or not view.is_parallel or len(view.inputs) != 1 or view.output_maps != (AffineMap.identity(view.rank),):
        return None
    cast = view.body.first_op
    if not isinstance(cast, WIDENING) or cast.next_op is not view.body.last_op or view.yielded() != (cast.results[0],):
        return None
    return (view.inputs[0], view.input_maps[0], cast) if cast.operands[0] is view.body.args[0] else None


def _fold_widening(op: linalg.ops.GenericOp) -> None:
    kind = classify(op)
    if not isinstance(kind, Contraction):
        return
    view = view_of(op)
    draft = draft_of(view)
    for index, present in ((kind.lhs, kind.lhs_cast), (kind.rhs, kind.rhs_cast)):
        found = None if present else widened_source(draft.inputs[index])
        if found is None:
            continue
        source, map_, cast = found
        wide = draft.block.args[index]
        narrow = draft.block.insert_arg(cast.operands[0].type, index)
        wide.replace_all_uses_with(at_start(draft.block).insert(cast.clone(value_mapper={cast.operands[0]: narrow})))
        draft.block.erase_arg(wide)
        draft.inputs[index], draft.maps[index], draft.changed = source, compose(map_, draft.maps[index]), True
        text = f"multiplies operand {index} as {cast.operands[0].type} and widens in the multiplication"
        emit("decision", NAME, origin_of(op), text, location_of(op))
    draft.finish(view.iterators)


@register_pass
@dataclass(frozen=True)
class FoldDataMovementPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "fold-data-movement"

    def run(self, function: func.FuncOp) -> None:
        """Fold, then erase what nobody reads any more."""
        for op in generics(function):
            _fold_copies(op)
        for op in generics(function):
            _fold_widening(op)
        for op in generics(function):
            _fold_copies(op)
        erase_dead(function)
