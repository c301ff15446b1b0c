"""Kernels of rows: reductions over the same dimensions, elementwise operations between and behind them, over the same loops.

A *row* is all elements that the reduced loops walk for one place of the kept ones: softmax is a maximum, a sum of exponentials and a
quotient of each row; normalisations are sums and what they scale. Members (the reductions, and what is computed from them) iterate over the
loops of the first reduction: reductions over all of them, elementwise operations over all or over the kept ones. They read each other's
results at their own place only.
"""

from collections.abc import Collection, Mapping, Sequence

from treadle.analysis.folds import is_separable
from treadle.analysis.indexing import Contraction, Reduction, StructuredOp, is_projection, map_dims
from treadle.ir.core import Operation, SSAValue
from treadle.records import dataclass

Loops = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """The members of a kernel of rows in program order: for each, the loop of the first reduction that each of its dimensions is.

    `reduced`: the loops that are reduced over.
    """

    members: Mapping[Operation, Loops]
    reduced: frozenset[int]

    def is_whole(self, op: Operation) -> bool:
        """Whether a member iterates over whole rows, not once a row."""
        return not self.reduced.isdisjoint(self.members[op])


@dataclass(frozen=True, slots=True)
class NoRows:
    """The operation that keeps others from being one kernel of rows, and why."""

    op: Operation
    reason: str


def needs_rows(operations: Sequence[StructuredOp], roots: Collection[Operation]) -> bool:
    """Whether a kernel around `roots` has to be one of rows, if it is one kernel: several reductions, or one whose result meets whole rows
    again.
    """
    return needed_rows(operations, roots) is not None


def needed_rows(operations: Sequence[StructuredOp], roots: Collection[Operation]) -> Rows | NoRows | None:
    """How operations are a kernel of rows where they have to be one (see `needs_rows`), or which of them keeps them from it; None where
    they need not be.
    """
    kinds = [view.computation for view in operations if view.op in roots]
    if any(isinstance(kind, Contraction) for kind in kinds) or not any(isinstance(kind, Reduction) for kind in kinds):
        return None
    rows = rows_of(operations, roots)
    if len(kinds) > 1:
        return rows
    return rows if isinstance(rows, Rows) and any(rows.is_whole(op) for op in rows.members if op not in roots) else None


def rows_of(operations: Sequence[StructuredOp], roots: Collection[Operation]) -> Rows | NoRows:
    """How operations in program order are a kernel of rows; `roots` are the reductions among them, and maybe others. What is computed from
    no root, and is none, is left to its readers.
    """
    first = next(view for view in operations if view.op in roots)
    if first.is_parallel:
        return NoRows(first.op, "it is computed from no reduction of the rows")
    found = _Finder(first)
    for view in operations:
        is_root = view.op in roots and not view.is_parallel
        if view is first or view.op in roots or found.is_reader(view):
            loops = tuple(range(first.rank)) if view is first else found.loops(view)
            reason = loops if isinstance(loops, str) else found.refusal(view, loops, is_root=is_root)
            if isinstance(loops, str) or reason is not None:
                return NoRows(view.op, reason or "it is no part of a row")
            found.add(view, loops)
    return Rows(found.members, found.reduced)


class _Finder:
    """`axes`: for members' results, and for what members read, the loop that each axis walks."""

    def __init__(self, first: StructuredOp) -> None:
        self.rank = first.rank
        self.reduced = frozenset(first.reduction_dims)
        self.members: dict[Operation, Loops] = {}
        self.results: dict[SSAValue, Loops] = {}
        self.read: dict[SSAValue, Loops] = {}

    def is_reader(self, view: StructuredOp) -> bool:
        """Whether an operation reads what a member has computed."""
        values = (*(value for value, _ in view.operands()), *view.gathered)
        return any(value in self.results for value in values)

    def loops(self, view: StructuredOp) -> Loops | str:
        """The loop that each dimension is; why that cannot be told. Results tell it, then what members have read too; the last dimension is
        the last loop.
        """
        found: dict[int, int] = {}
        for value, map_ in view.operands():
            dims = map_dims(map_)
            if value in self.results:
                if dims is None or not is_projection(map_):
                    return f"it reads a row's result through {map_}"
                if any(found.setdefault(d, loop) != loop for d, loop in zip(dims, self.results[value], strict=True)):
                    return "it reads results of the rows at two places"
        for value, map_ in view.operands():
            dims = map_dims(map_)
            if value in self.read and value not in self.results and dims is not None and is_projection(map_):
                told = dict(zip(dims, self.read[value], strict=True))
                if all(found.get(d, loop) == loop and loop not in _others(found, d) for d, loop in told.items()):
                    found.update(told)
        missing = [d for d in range(view.rank) if d not in found]
        left = [loop for loop in range(self.rank) if loop not in found.values()]
        if len(missing) == len(left) == 1:
            found[missing[0]] = left[0]
        elif missing:
            return "which loops of the rows it walks cannot be told from what it reads"
        return tuple(found[d] for d in range(view.rank))

    def refusal(self, view: StructuredOp, loops: Loops, *, is_root: bool) -> str | None:
        """Why an operation over these loops is no member; None where it is."""
        if any(value in self.results for value in view.gathered):
            return "it gathers from a result of the rows"
        if len(set(loops)) != len(loops):
            return "it meets a row with itself"
        walked = frozenset(loops)
        if is_root:
            kind = view.computation
            if not isinstance(kind, Reduction) or not is_separable(view, kind):
                return "it is no reduction that can be folded in parts"
            if {loops[d] for d in view.reduction_dims} != self.reduced or len(loops) != self.rank:
                return "it reduces other loops"
            return None
        if not view.is_parallel:
            return "it is a reduction or contraction itself, and no root"
        kept = frozenset(range(self.rank)) - self.reduced
        if walked not in (kept, frozenset(range(self.rank))):
            return "it walks a part of each row only"
        return None

    def add(self, view: StructuredOp, loops: Loops) -> None:
        """Take a member in."""
        self.members[view.op] = loops
        for value, map_ in view.operands():
            dims = map_dims(map_)
            if dims is not None and is_projection(map_):
                self.read.setdefault(value, tuple(loops[d] for d in dims))
        for result, map_ in zip(view.op.results, view.output_maps, strict=True):
            self.results[result] = tuple(loops[d] for d in map_dims(map_) or ())


def _others(found: Mapping[int, int], dim: int) -> set[int]:
    return {loop for d, loop in found.items() if d != dim}
