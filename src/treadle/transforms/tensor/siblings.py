"""Which contractions become roots of one kernel: those over the same loops that read one operand together (horizontal fusion).

Their kernel stages the shared operand once, and an elementwise operation that combines their results (`silu(x Wg) * (x Wu)`) works on all
of them while they are in registers. It costs width: the tiles of all results together must fit the registers that one would have.
"""

from math import prod

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction, StructuredOp, classify, is_permutation, tensor_of
from treadle.analysis.shapes import infer_shapes
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import func, linalg
from treadle.transforms.tensor.generics import ORIGIN, view_of
from treadle.transforms.tensor.groups import Group, Grouping, captured, closes_cycle, consumer_loops, defining, line_of, result_axes, say

MOST_SIBLINGS = 4
"""More tiles of sums than this leave each too narrow to be worth it."""
SAVED_PART = 4
"""Contractions whose results do not meet are fused where that saves at least one part in so many of their memory traffic ..."""
BALANCE = 256
"""... and they do fewer operations than this for each byte, so that traffic is what they wait for (machines of today do 200 to 300)."""


def join_siblings(grouping: Grouping) -> None:
    """Merge the groups of contractions that should share a kernel. Remarks tell of what is merged, and why what shares is not."""
    kept: list[Group] = []
    for group in [g for g in grouping.groups if isinstance(kind := classify(g.root), Contraction) and not kind.scales]:
        for earlier in kept:
            if not shared_operands(earlier, group.root):
                continue
            reason = _refusal(grouping, earlier, group.root)
            if reason is None:
                earlier.add_root(group.root)
                grouping.groups.remove(group)
                grouping.owner[group.root] = earlier
                text = f"{line_of(group.root)} joins the kernel of {line_of(earlier.root)}: they share an operand"
                say("decision", earlier.root, group.root, text, grouping)
                break
            text = f"{line_of(group.root)} shares an operand with {line_of(earlier.root)} but not its kernel: {reason}"
            say("refusal", earlier.root, group.root, text, grouping)
        else:
            kept.append(group)


def shared_operands(group: Group, root: Operation) -> list[int]:
    """Input numbers at which all roots of the group and `root` read the same value in the same way."""
    views = [view_of(op) for op in (*group.roots, root)]
    return [
        number
        for number in (0, 1)
        if len({view.inputs[number] for view in views}) == 1 and len({view.input_maps[number] for view in views}) == 1
    ]


def _refusal(grouping: Grouping, group: Group, root: linalg.ops.GenericOp) -> str | None:
    """Why a contraction does not become a root of a group it shares an operand with; None where it does."""
    first, own = view_of(group.root), view_of(root)
    if own.iterators != first.iterators or own.output_maps != first.output_maps or _roles(own) != _roles(first):
        return "its loops have other roles"
    if _types(own) != _types(first):
        return "its operands or its result have other types"
    if len(group.roots) >= MOST_SIBLINGS:
        return f"it has {MOST_SIBLINGS} contractions already, and more sums would not fit the registers"
    if any(defining(value) in group.members for value in captured(root)) or closes_cycle(grouping, group, root, consumer=True):
        return "it needs the other's result"
    known, result = tensor_of(first.op.results[0]), tensor_of(own.op.results[0])
    if (
        known is None
        or result is None
        or any(a != b and min(a, b) >= 0 for a, b in zip(known.get_shape(), result.get_shape(), strict=True))
    ):
        return f"its result is {result}, not {known}"
    if any(_meet(grouping, op, root) for op in group.roots):
        return None  # so their sizes agree too
    if not _equal_sizes(grouping, first.op.results[0], own.op.results[0]):
        return "their results are not known to be of one size"
    return _traffic_refusal([view_of(op) for op in (*group.roots, root)], shared_operands(group, root)[0])


def _roles(view: StructuredOp) -> tuple[tuple[int, ...], ...]:
    kind = classify(view.op)
    return (kind.batch, kind.m, kind.n, kind.k) if isinstance(kind, Contraction) else ()


def _types(view: StructuredOp) -> tuple[object, ...]:
    kind = classify(view.op)
    casts = (kind.lhs_cast, kind.rhs_cast) if isinstance(kind, Contraction) else ()
    elements = [type_.element_type for value in (*view.inputs, *view.op.results) if (type_ := tensor_of(value)) is not None]
    marks = {name: value for name, value in view.op.attributes.items() if name != ORIGIN}
    return (*casts, *elements, marks)


def _reach(grouping: Grouping, root: Operation) -> dict[Operation, tuple[int, ...]]:
    """Elementwise operations that are computed from a root's result at the place of their own, with the root's loops they walk."""
    view = view_of(root)
    axes = result_axes(view, tuple(range(view.rank)))
    found: dict[Operation, tuple[int, ...]] = {}
    for op in grouping.nodes[grouping.position(root) + 1 :]:
        user = view_of(op)
        reads = [map_ for value, map_ in user.operands() if value in axes]
        if not user.is_parallel or not reads or not all(is_permutation(map_) for map_ in reads):
            continue
        if (loops := consumer_loops(user, axes)) is not None:
            found[op] = loops
            axes.update(result_axes(user, loops))
    return found


def _meet(grouping: Grouping, first: Operation, second: Operation) -> bool:
    """Whether some elementwise operation reads the same element of both results, through other such operations or directly."""
    left, right = _reach(grouping, first), _reach(grouping, second)
    return any(right.get(op) == loops for op, loops in left.items())


def _equal_sizes(grouping: Grouping, first: SSAValue, second: SSAValue) -> bool:
    shape = tensor_of(first)
    if shape is not None and shape.has_static_shape():
        return True
    function = grouping.block.parent_op()
    if not isinstance(function, func.FuncOp):
        return False
    shapes = infer_shapes(function)
    return shapes.shape(first) == shapes.shape(second)


def _traffic_refusal(views: list[StructuredOp], shared: int) -> str | None:
    """Whether reading the shared operand once is worth narrower tiles, for contractions whose results do not meet."""
    one = [_bytes(value) for view in views for value in (view.inputs[1 - shared], view.op.results[0])]
    operand = _bytes(views[0].inputs[shared])
    if operand is None or any(size is None for size in one):
        return "their results do not meet, and how much memory traffic it would save is known at run time only"
    apart = sum(size for size in one if size is not None) + operand * len(views)
    saved = operand * (len(views) - 1)
    operations = 2 * sum(_operations(view) for view in views)
    if saved * SAVED_PART < apart:
        return f"their results do not meet, and it would save {saved} of {apart} bytes of memory traffic only"
    if operations > BALANCE * (apart - saved):
        return "their results do not meet, and they wait for arithmetic, not for memory"
    return None


def _bytes(value: SSAValue) -> int | None:
    type_ = tensor_of(value)
    if type_ is None or not type_.has_static_shape():
        return None
    return prod(type_.get_shape()) * element_bytes(type_.element_type)


def _operations(view: StructuredOp) -> int:
    extents: dict[int, int] = {}
    for value, map_ in view.operands():
        type_ = tensor_of(value)
        for expr, size in zip(map_.results, type_.get_shape() if type_ is not None else (), strict=False):
            for d in expr.used_dims():
                extents[d] = max(extents.get(d, 0), size)
    return prod(extents.values())
