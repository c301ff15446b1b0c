"""Kernels of attention: two contractions with a softmax between them, all of one kernel.

The first contraction makes *scores*, of each row (query) with each column (key); what is elementwise of them (scales, masks) is computed
on the same loops. Each row has a maximum and a sum of exponentials; the second contraction reduces over the keys what the exponentials,
divided by their sum or as they stand, are times the values. Elementwise operations may follow on the result. Nothing is recognised by
name, nor by the order of axes: each operation's loops are told by what it reads of the others' results.
"""

from collections.abc import Collection, Mapping, Sequence
from math import inf

from treadle.analysis.indexing import (
    Contraction,
    Reduction,
    StructuredOp,
    classify,
    is_projection,
    map_dims,
    structured,
)
from treadle.analysis.softmax import Softmax, softmax_of
from treadle.ir.builtin import attr_number
from treadle.ir.core import AffineMap, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, linalg
from treadle.records import dataclass

Loops = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Attention:
    """The members of a kernel of attention in program order: for each, the loop that each of its dimensions is.

    Loops: those of the second contraction as it counts them, then the one that the first one reduces. `rows` (others than the batch's),
    `columns` of the result, `keys`, `width` (that is reduced in scores) name them. `first`, `second`: the contractions, turned so that
    their `lhs` is what has the rows (queries; exponentials). `is_normalised`: the second contraction reads quotients by the sum, not the
    exponentials. `start`: what the maximum starts from. `behind`: members behind the second contraction in the program: those of its
    results, and those of rows.
    """

    members: Mapping[Operation, Loops]
    scores: StructuredOp
    values: StructuredOp
    first: Contraction
    second: Contraction
    softmax: Softmax
    start: float
    is_normalised: bool
    behind: tuple[Operation, ...]
    batch: Loops
    rows: Loops
    columns: int
    keys: int
    width: int

    @property
    def rank(self) -> int:
        """How many loops there are."""
        return self.values.rank + 1


@dataclass(frozen=True, slots=True)
class NoAttention:
    """The operation that keeps others from being one kernel of attention, and why."""

    op: Operation
    reason: str


def is_chain(roots: Collection[Operation]) -> bool:
    """Whether a kernel around `roots` has to be one of attention, if it is one kernel: contractions and reductions together."""
    kinds = [classify(op) for op in roots] if len(roots) > 2 else []
    return any(isinstance(kind, Contraction) for kind in kinds) and any(isinstance(kind, Reduction) for kind in kinds)


def source_of_exponentials(value: SSAValue, softmax: Softmax) -> list[StructuredOp] | None:
    """The operations from the exponentials of a softmax to `value`, program order: roundings and at most one quotient by the sum; None
    where `value` is anything else.
    """
    exponentials, found = softmax.total.inputs[0], list[StructuredOp]()
    while value is not exponentials:
        view = _elementwise(value)
        divided = None if view is None else _read_of(view, exponentials, softmax)
        if view is None or divided is None:
            return None
        found.insert(0, view)
        value = view.inputs[divided]
    return found


def _elementwise(value: SSAValue) -> StructuredOp | None:
    from_op = value.owner if isinstance(value.owner, linalg.ops.GenericOp) else None
    view = None if from_op is None else structured(from_op)
    is_plain = view is not None and view.is_parallel and len(view.outputs) == 1 and view.output_maps[0] == AffineMap.identity(view.rank)
    return view if is_plain else None


def _plain_argument(value: SSAValue, body: object) -> int | None:
    """The number of the argument that a scalar is, as it stands, widened or rounded."""
    while isinstance(value.owner, arith.ExtFOp | arith.TruncFOp):
        value = value.owner.operands[0]
    return value.index if isinstance(value, BlockArgument) and value.block is body else None


def _read_of(view: StructuredOp, exponentials: SSAValue, softmax: Softmax) -> int | None:
    """The input that an operation rounds, or divides by the sum of the exponentials; None where it does anything else."""
    value = view.yielded()[0]
    while isinstance(value.owner, arith.ExtFOp | arith.TruncFOp):
        value = value.owner.operands[0]
    if isinstance(value, BlockArgument):
        return value.index if value.index < len(view.inputs) else None
    if not isinstance(value.owner, arith.DivfOp):
        return None
    over, under = (_plain_argument(operand, view.body) for operand in value.owner.operands)
    total = softmax.total.op.results[0]
    if over is None or under is None or max(over, under) >= len(view.inputs) or view.inputs[under] is not total:
        return None
    return over


def _start(maximum: StructuredOp) -> float | None:
    """The number that a maximum starts from; None where it is no constant, or nothing is below it."""
    made = maximum.outputs[0].owner
    constant = made.inputs[0].owner if isinstance(made, linalg.ops.FillOp) else None
    number = attr_number(constant.value) if isinstance(constant, arith.ConstantOp) else None
    return None if number is None or not number < inf else float(number)


def is_quotient(view: StructuredOp, softmax: Softmax) -> bool:
    """Whether an operation on the way from the exponentials divides by their sum."""
    return softmax.total.op.results[0] in view.inputs


def attention_of(operations: Sequence[StructuredOp], roots: Collection[Operation]) -> Attention | NoAttention:
    """How operations in program order are a kernel of attention around `roots`. What is computed from no root, and is none, is left to its
    readers.
    """
    views = {view.op: view for view in operations}
    contractions = [(view, kind) for op, view in views.items() if op in roots and isinstance(kind := classify(op), Contraction)]
    softmaxes = [found for op, view in views.items() if op in roots and not view.is_parallel and (found := softmax_of(view))]
    first = next(view for view in operations if view.op in roots)
    if len(contractions) != 2 or len(softmaxes) != 1 or len(roots) != 4:
        return NoAttention(first.op, "it and the other roots are no two contractions with a softmax between them")
    softmax = softmaxes[0]
    if softmax.maximum.op not in roots:
        return NoAttention(softmax.maximum.op, "it is the maximum of a softmax, and no root")
    (scores, first_kind), (values, second_kind) = contractions
    for view, kind in contractions:
        if kind.scales or kind.image >= 0:
            return NoAttention(view.op, "it is a contraction with scales, or of images")
    steps = source_of_exponentials(values.inputs[second_kind.lhs], softmax)
    if steps is None:
        second_kind = second_kind.swapped()
        steps = source_of_exponentials(values.inputs[second_kind.lhs], softmax)
    if steps is None:
        return NoAttention(values.op, "it does not read the exponentials of a softmax, or their quotients by the sum")
    if sum(is_quotient(step, softmax) for step in steps) > 1:
        return NoAttention(values.op, "what it reads is divided twice")
    tracer = _Tracer(scores, first_kind, softmax, values, second_kind, frozenset(step.op for step in steps))
    return tracer.traced(operations, any(is_quotient(step, softmax) for step in steps))


class _Tracer:
    """Names the dimensions of all members by letters: numbers of the scores' own dimensions, and "e" for the columns of the result."""

    def __init__(
        self,
        scores: StructuredOp,
        first: Contraction,
        softmax: Softmax,
        values: StructuredOp,
        second: Contraction,
        weights: frozenset[Operation],
    ) -> None:
        self.scores, self.first, self.softmax, self.values, self.second, self.weights = scores, first, softmax, values, second, weights
        self.known: dict[SSAValue, tuple[int, ...]] = {}
        self.members: dict[Operation, tuple[int, ...]] = {}
        self.behind: list[Operation] = []

    def traced(self, operations: Sequence[StructuredOp], is_normalised: bool) -> Attention | NoAttention:
        """The structure, or the first operation that is no part of it."""
        scores, softmax, values = self.scores, self.softmax, self.values
        for view in operations:
            read = (*(value for value, _ in view.operands()), *view.gathered)
            if view is not scores and view.op is not scores.op and not any(value in self.known for value in read):
                if view.op in (values.op, softmax.maximum.op, softmax.total.op):
                    return NoAttention(view.op, "it reads nothing that is computed from the scores")
                continue
            loops = self._loops(view)
            reason = loops if isinstance(loops, str) else self._refusal(view, loops)
            if isinstance(loops, str) or reason is not None:
                return NoAttention(view.op, reason or "it is no part of attention")
            self.members[view.op] = loops
            for result, map_ in zip(view.op.results, view.output_maps, strict=True):
                self.known[result] = tuple(loops[d] for d in map_dims(map_) or ())
        return self._found(is_normalised)

    @property
    def _new(self) -> int:
        """The name of the loop that the second contraction adds."""
        return self.scores.rank

    def _loops(self, view: StructuredOp) -> tuple[int, ...] | str:
        if view.op is self.scores.op:
            return tuple(range(view.rank))
        found: dict[int, int] = {}
        if any(value in self.known for value in view.gathered):
            return "it gathers from what the kernel computes"
        for value, map_ in view.operands():
            if value not in self.known:
                continue
            dims = map_dims(map_)
            if dims is None or not is_projection(map_):
                return f"it reads what the kernel computes through {map_}"
            for d, loop in zip(dims, self.known[value], strict=True):
                if found.setdefault(d, loop) != loop:
                    return "it reads what the kernel computes at two places"
        missing = [d for d in range(view.rank) if d not in found]
        if view.op is self.values.op and len(missing) == 1:
            found[missing[0]] = self._new
        elif missing:
            return "which loops it walks cannot be told from what it reads"
        loops = tuple(found[d] for d in range(view.rank))
        return loops if len(set(loops)) == len(loops) else "it meets what the kernel computes with itself"

    @property
    def _keys(self) -> frozenset[int]:
        """The loop that softmax reduces."""
        loops = self.members[self.softmax.maximum.op]
        return frozenset(loops[d] for d in self.softmax.maximum.reduction_dims)

    def _refusal(self, view: StructuredOp, loops: tuple[int, ...]) -> str | None:
        """Why an operation with these loops is no member at its place; None where it is."""
        scores, softmax, values = self.scores, self.softmax, self.values
        whole = frozenset(range(scores.rank)) - frozenset(self.first.k)
        if view.op is scores.op:
            return None
        if view.op is values.op:
            reduced = frozenset(loops[d] for d in view.reduction_dims)
            return None if reduced == self._keys else "it does not reduce the dimension that the softmax is along"
        if view.op in (softmax.maximum.op, softmax.total.op):
            reduced = frozenset(loops[d] for d in view.reduction_dims)
            sides = (self.first.m, self.first.n)
            if len(reduced) != 1 or not any(len(side) == 1 and reduced == frozenset(side) for side in sides):
                return "the softmax is not along the rows or the columns of the scores"
            return None if frozenset(loops) == whole else "it does not walk all scores of a row"
        if not view.is_parallel:
            return "it is a reduction or contraction itself"
        if any(map_ != AffineMap.identity(view.rank) for map_ in view.output_maps[:1]):
            return "its result is not in the order of its loops"
        if values.op in self.members:
            return self._refusal_behind(view, loops)
        on_rows = softmax.maximum.op in self.members and frozenset(loops) == whole - self._keys
        return None if frozenset(loops) == whole or on_rows else "it walks a part of the scores only"

    def _refusal_behind(self, view: StructuredOp, loops: tuple[int, ...]) -> str | None:
        result = frozenset(self.members[self.values.op]) - self._keys
        if frozenset(loops) not in (result, result - {self._new}):
            return "it walks neither the result of the second contraction nor its rows"
        whole_rows = [value for value, _ in view.operands() if self._keys & frozenset(self.known.get(value, ()))]
        if whole_rows:
            return "it reads scores behind the second contraction"
        self.behind.append(view.op)
        return None

    def _found(self, is_normalised: bool) -> Attention | NoAttention:
        scores, softmax, values = self.scores, self.softmax, self.values
        for op in (softmax.maximum.op, softmax.total.op, values.op):
            if op not in self.members:
                return NoAttention(op, "it is not computed from the scores")
        keys = self._keys
        first = self.first if keys == frozenset(self.first.n) else self.first.swapped()
        (key,) = keys
        own = self.members[values.op]
        number = {loop: d for d, loop in enumerate(own)} | {self._width: values.rank}
        if len(first.k) != 1 or len(self.second.n) != 1 or own[self.second.n[0]] != self._new:
            return NoAttention(values.op, "the contractions reduce several dimensions, or share more than the scores")
        if len(number) != self.scores.rank + 1:
            return NoAttention(values.op, "it lacks a loop of the scores")
        if (start := _start(softmax.maximum)) is None:
            return NoAttention(softmax.maximum.op, "its maximum starts from no constant, or from none of the numbers")
        members = {op: tuple(number[loop] for loop in loops) for op, loops in self.members.items()}
        rows = tuple(number[d] for d in first.m if number[d] in self.second.m)
        if not rows:
            return NoAttention(values.op, "its values are others for each row of the scores")
        batch = tuple(d for d in values.parallel_dims if d not in rows and d != number[self._new])
        return Attention(
            members,
            scores,
            values,
            first,
            self.second,
            softmax,
            start,
            is_normalised,
            tuple(self.behind),
            batch,
            rows,
            number[self._new],
            number[key],
            values.rank,
        )

    @property
    def _width(self) -> int:
        return self.first.k[0] if self.first.k else -1
