"""Control flow of a listing: basic blocks, natural loops, and a forward data flow over them."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from treadle.records import dataclass
from treadle.targets.amd.assembly import Listing

Ages = dict[int, int]
"""A number for each of some instructions, by index: how many accesses of its counter are newer."""


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions `first` to `last` run one after the other; then one of the blocks `successors`."""

    first: int
    last: int
    successors: tuple[int, ...]


def blocks(listing: Listing) -> list[Block]:
    """The basic blocks in order of the text; the first is the entry."""
    code = listing.instructions
    starts = {0}
    for at, one in enumerate(code):
        if one.target is not None:
            starts.add(one.target)
        if (one.target is not None or one.ends) and at + 1 < len(code):
            starts.add(at + 1)
    ordered = sorted(starts)
    number = {first: n for n, first in enumerate(ordered)}
    lasts = [*(first - 1 for first in ordered[1:]), len(code) - 1]
    return [Block(first, last, tuple(number[at] for at in listing.successors(last))) for first, last in zip(ordered, lasts, strict=True)]


def _dominators(found: Sequence[Block]) -> list[int]:
    """Each block's dominators as a set of bits."""
    everything = (1 << len(found)) - 1
    before: list[list[int]] = [[] for _ in found]
    for n, block in enumerate(found):
        for successor in block.successors:
            before[successor].append(n)
    dominators = [1, *([everything] * (len(found) - 1))]
    changed = True
    while changed:
        changed = False
        for n in range(1, len(found)):
            common = everything
            for predecessor in before[n]:
                common &= dominators[predecessor]
            common |= 1 << n
            if common != dominators[n]:
                dominators[n], changed = common, True
    return dominators


def _back_edges(found: Sequence[Block]) -> set[tuple[int, int]]:
    """Edges to a block that every path to their start has passed."""
    dominators = _dominators(found)
    reached, todo = {0}, [0]
    while todo:
        for successor in found[todo.pop()].successors:
            if successor not in reached:
                reached.add(successor)
                todo.append(successor)
    return {(n, to) for n in reached for to in found[n].successors if dominators[n] >> to & 1}


def natural_loops(listing: Listing) -> list[frozenset[int]]:
    """The instructions of each natural loop (back edges to one header make one loop), smallest first."""
    found = blocks(listing)
    before: list[list[int]] = [[] for _ in found]
    for n, block in enumerate(found):
        for successor in block.successors:
            before[successor].append(n)
    tails: dict[int, list[int]] = {}
    for tail, header in sorted(_back_edges(found)):
        tails.setdefault(header, []).append(tail)
    loops: list[frozenset[int]] = []
    for header, ends in tails.items():
        body, todo = {header}, list(ends)
        while todo:
            n = todo.pop()
            if n not in body:
                body.add(n)
                todo += before[n]
        loops.append(frozenset(at for n in body for at in range(found[n].first, found[n].last + 1)))
    return sorted(loops, key=len)


def _unmasked(listing: Listing, found: Sequence[Block]) -> list[Block]:
    """The blocks without the edges that skip code while no thread is active."""
    back = _back_edges(found)
    kept: list[Block] = []
    for n, block in enumerate(found):
        successors = block.successors
        if len(successors) == 2 and (n, successors[1]) not in back:
            match listing.instructions[block.last].mnemonic:
                case "s_cbranch_execz":
                    successors = successors[:1]
                case "s_cbranch_execnz":
                    successors = successors[1:]
                case _:
                    pass
        kept.append(Block(block.first, block.last, successors))
    return kept


def replay(
    listing: Listing,
    matters: Callable[[int], bool],
    step: Callable[[int, Ages], None],
    join: Callable[[int, int], int],
    observe: Callable[[int, Ages], None],
    *,
    skips: bool = True,
) -> None:
    """Follow ages along every path until nothing changes; then `observe` the state before each instruction that `matters`.

    `step` changes the ages by one instruction; `join` says which of two ages counts where paths meet (it must only ever go one way). An
    instruction that one path has not seen has the other path's age. `skips` False leaves out the branches that skip code while no thread
    is active: code under an empty mask does nothing, so that a path through it stands for both.
    """
    found = blocks(listing)
    found = found if skips else _unmasked(listing, found)
    events = [[at for at in range(block.first, block.last + 1) if matters(at)] for block in found]
    entry: list[Ages | None] = [None] * len(found)
    entry[0] = {}
    todo, waiting = [0], {0}  # in the order of the text, so that paths have met before what is behind them is followed
    while todo:
        n = heappop(todo)
        waiting.discard(n)
        ages = dict(entry[n] or {})
        for at in events[n]:
            step(at, ages)
        for successor in found[n].successors:
            known = entry[successor]
            merged = dict(ages) if known is None else _merged(known, ages, join)
            if known is None or merged != known:
                entry[successor] = merged
                if successor not in waiting:
                    waiting.add(successor)
                    heappush(todo, successor)
    for n, ages in enumerate(entry):
        if ages is not None:
            for at in events[n]:
                observe(at, ages)
                step(at, ages)


def _merged(known: Ages, other: Ages, join: Callable[[int, int], int]) -> Ages:
    merged = dict(known)
    for at, age in other.items():
        merged[at] = join(merged[at], age) if at in merged else age
    return merged
