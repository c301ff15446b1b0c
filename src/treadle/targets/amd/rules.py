"""The rules of the audit: pure, a listing and what the schedule says in, violations out. docs/architecture.md lists them.

Audit rules have names of two characters here; the assumptions of the schedule's model (docs/schedule.md) are other things.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from treadle.targets.amd.assembly import Listing
from treadle.targets.amd.counters import RETIRED, Counters, Flight, Kind, Violation, access_bytes, kind_of
from treadle.targets.amd.emitted import Amounts
from treadle.targets.amd.flow import Ages
from treadle.targets.amd.stages import barriers_behind
from treadle.targets.interface import SchedulePoint

_UNITS = {"matrix": "matrix instructions", "barrier": "barriers"}
_WORDS = {
    "load": "loads",
    "store": "stores",
    "copy": "direct copies",
    "local_load": "loads from shared memory",
    "local_store": "stores to shared memory",
}
_MERGED = ("load", "local_load")
"""Kinds of which equal ones may become one: fewer than emitted are no loss."""
_REGISTER_BYTES = 4
_ORDERED: tuple[Kind, ...] = ("matrix", "barrier", "local_load", "local_store")
_LOCAL: tuple[Kind, ...] = ("local_load", "local_store")


def _violation(rule: str, listing: Listing, at: int, text: str) -> Violation:
    return Violation(rule, listing.instructions[at].line, text)


def scratch_accesses(listing: Listing) -> list[Violation]:
    """A2: accesses to memory of the thread's own, which only spilled registers and stack objects use."""
    code = enumerate(listing.instructions)
    return [_violation("A2", listing, at, f"{listing.named(at)} spills") for at, one in code if one.mnemonic.startswith("scratch_")]


def accumulator_copies(counters: Counters) -> list[Violation]:
    """A2: moves between the register files in loops that sum. A loop that stores results takes tiles in turn: it reads the accumulators of
    each.
    """
    listing = counters.listing
    summing = [loop for loop in counters.loops if not any(kind_of(listing.instructions[at]) == "store" for at in loop)]
    inside = sorted(set[int]().union(*summing))
    copies = [at for at in inside if listing.instructions[at].mnemonic.startswith("v_accvgpr_")]
    return [_violation("A2", listing, at, f"{listing.named(at)} in a loop") for at in copies]


def _amounts(listing: Listing, where: Iterable[int]) -> Counter[str]:
    """How many matrix instructions and barriers, how many bytes a lane of each kind of access."""
    found: Counter[str] = Counter()
    for at in where:
        one = listing.instructions[at]
        if (kind := kind_of(one)) is not None and kind != "lane":
            found[kind] += 1 if kind in _UNITS else access_bytes(one)
    return found


def _asked(points: Iterable[SchedulePoint], emitted: Amounts) -> Counter[str]:
    """The same of what was emitted for operations of the schedule."""
    found: Counter[str] = Counter()
    for point in points:
        found[point.kind] += emitted[point.line][point.kind] if point.line in emitted else 0
    return found


def lost_instructions(listing: Listing, points: Sequence[SchedulePoint], emitted: Amounts) -> list[Violation]:
    """A1: kinds of instructions of which the code of the whole kernel has fewer (accesses: narrower ones) than were emitted."""
    found, asked = _amounts(listing, range(len(listing.instructions))), _asked(points, emitted)
    lost = [point for point in points if point.kind not in _MERGED and found[point.kind] < asked[point.kind]]
    text = "{} {} in the assembly, {} emitted, such as those{}"
    kinds = {point.kind: point for point in reversed(lost)}
    return [
        _violation("A1", listing, 0, text.format(found[kind], _unit(kind), asked[kind], listing.origin(point.line)))
        for kind, point in kinds.items()
    ]


def _unit(kind: str) -> str:
    return _UNITS.get(kind, f"bytes a lane of {_WORDS.get(kind, kind)}")


def loop_bodies(counters: Counters, points: Sequence[SchedulePoint]) -> dict[int, frozenset[int] | None]:
    """For each loop of the schedule with matrix instructions of its own, by line: the smallest loop of the code with its operations."""
    code = counters.listing.instructions
    inner = {(point.line, point.kind): point.loops[-1] for point in points if point.loops}
    bodies: dict[int, frozenset[int] | None] = {}
    for line in dict.fromkeys(loop for (_, kind), loop in inner.items() if kind == "matrix"):
        own = [at for at, one in enumerate(code) if (kind := counters.kinds[at]) in _ORDERED and inner.get((one.source, kind)) == line]
        bodies[line] = next((loop for loop in counters.loops if own and loop.issuperset(own)), None)
    return bodies


def misplaced_loops(counters: Counters, points: Sequence[SchedulePoint], emitted: Amounts) -> list[Violation]:
    """A1: each loop of the schedule with matrix instructions of its own is one loop of the code, with its instructions and no others."""
    listing = counters.listing
    wrong: list[Violation] = []
    for line, body in loop_bodies(counters, points).items():
        if body is None:
            at = next((at for at, one in enumerate(listing.instructions) if one.source == line), 0)
            wrong.append(_violation("A1", listing, at, f"no loop of the code holds all of the loop{listing.origin(line)}"))
            continue
        within = [point for point in points if line in point.loops]
        inner = {loop for point in within for loop in point.loops[point.loops.index(line) + 1 :]}
        found, asked = _amounts(listing, body), _asked(within, emitted)
        # Accumulators that start an inner loop at zero are written by matrix instructions in front of it.
        asked["matrix"] += sum(emitted[loop]["matrix"] for loop in inner if loop in emitted)
        for kind in found | asked:
            if found[kind] > asked[kind] or (found[kind] < asked[kind] and kind not in _MERGED):
                text = f"{found[kind]} {_unit(kind)} in a loop of the code, {asked[kind]} emitted{listing.origin(line)}"
                wrong.append(_violation("A1", listing, min(body), text))
    return wrong


def pending_at_barriers(counters: Counters, points: Sequence[SchedulePoint]) -> list[Violation]:
    """A4: barriers that some path reaches with accesses to shared memory or direct copies pending that the schedule has complete there."""
    listing = counters.listing
    planned = {point.line: point.copies for point in points}
    wrong: list[Violation] = []

    def observe(at: int, ages: Ages) -> None:
        if counters.kinds[at] != "barrier":
            return
        allowed = planned.get(listing.instructions[at].source, ())
        for old in sorted(ages, reverse=True):
            kind = counters.kinds[old]
            source = listing.instructions[old].source
            is_joined = not source and kind in _LOCAL  # LLVM loses the line where it makes one access of two
            if (kind in _LOCAL or kind == "copy") and source not in allowed and not (is_joined and allowed):
                wrong.append(_violation("A4", listing, at, f"{listing.named(old)} may be pending at {listing.named(at)}"))
                return

    counters.may_be_pending(observe)
    return wrong


def _unnamed_matrix(counters: Counters, points: Sequence[SchedulePoint]) -> dict[int, tuple[SchedulePoint, ...]]:
    """For matrix instructions of loops whose line LLVM has lost (it rewrites some of RDNA's): those of the loop that each may be.

    That is, the ones that the schedule has between the barrier that was met last and the next one.
    """
    listing = counters.listing
    found: dict[int, tuple[SchedulePoint, ...]] = {}
    for line, body in loop_bodies(counters, points).items():
        lost = [at for at in counters.at("matrix") if body and at in body and not listing.instructions[at].source]
        if not lost:
            continue
        own = [point for point in points if point.loops[-1:] == (line,)]
        matrix, behind = [point for point in own if point.kind == "matrix"], barriers_behind(listing)
        for at in lost:
            may_be = [point for point in matrix if _last_barrier(own, point) in behind[at]]
            found[at] = tuple(may_be or matrix)
    return found


def _last_barrier(own: Sequence[SchedulePoint], point: SchedulePoint) -> int:
    """The line of the barrier of a loop that is met last ahead of one of its operations, be it in the trip before; 0 for none."""
    barriers = [other.line for other in own if other.kind == "barrier"]
    return max((line for line in barriers if line < point.line), default=max(barriers, default=0))


def drained_loads(counters: Counters, points: Sequence[SchedulePoint]) -> list[Violation]:
    """A5, A3: barriers, matrix instructions, of pipelined loops that some path reaches after waiting for loads that are used only later.

    Loads narrower than a register are left out: LLVM puts their elements together as they arrive. So are loads ahead of the loop.
    """
    listing = counters.listing
    by_line = {point.line: point for point in points}
    loop_of = _innermost(points, "load")
    unnamed = _unnamed_matrix(counters, points)

    def points_of(at: int) -> tuple[SchedulePoint, ...]:
        point = by_line.get(listing.instructions[at].source)
        return (point,) if point is not None and point.kind == counters.kinds[at] else unnamed.get(at, ())

    def flight(at: int, load: int) -> Flight:
        source, found = listing.instructions[load].source, points_of(at)
        if not found:
            return "unknown"
        if any(source in point.loads for point in found):
            return "in flight" if all(source in point.loads for point in found) else "unknown"
        return "used" if all(source in point.used for point in found) else "not"

    wrong: list[Violation] = []

    def observe(at: int, ages: Ages) -> None:
        found = points_of(at)
        if not found or not found[0].loops or found[0].kind not in ("barrier", "matrix"):
            return
        for load, age in ages.items():
            is_own = loop_of.get(listing.instructions[load].source) == found[0].loops[-1]
            if is_own and age >= RETIRED and flight(at, load) == "in flight":
                rule = "A5" if found[0].kind == "barrier" else "A3"
                origin = listing.origin(found[0].loops[-1] if at in unnamed else found[0].line)
                place = f"{listing.instructions[at].mnemonic}{origin}"
                wrong.append(_violation(rule, listing, at, f"{listing.named(load)} is waited for ahead of {place}"))
                return

    wide = [load for load in counters.at("load") if access_bytes(listing.instructions[load]) >= _REGISTER_BYTES]
    counters.surely_pending({load for load in wide if listing.instructions[load].source in loop_of}, flight, observe)
    return wrong


def _innermost(points: Iterable[SchedulePoint], kind: Kind) -> dict[int, int]:
    """The innermost loop of each operation of a kind, by line."""
    return {point.line: point.loops[-1] for point in points if point.kind == kind and point.loops}


def drained_copies(counters: Counters, points: Sequence[SchedulePoint]) -> list[Violation]:
    """A6: barriers of a loop that some path reaches after waiting for a direct copy of the loop that the schedule keeps in flight there."""
    listing = counters.listing
    barriers = {point.line: point for point in points if point.kind == "barrier" and point.loops}
    loop_of = _innermost(points, "copy")
    wrong: list[Violation] = []

    def observe(at: int, ages: Ages) -> None:
        point = barriers.get(listing.instructions[at].source) if counters.kinds[at] == "barrier" else None
        if point is None:
            return
        for copy, age in ages.items():
            line = listing.instructions[copy].source
            if age >= RETIRED and line in point.copies and loop_of.get(line) == point.loops[-1]:
                wrong.append(_violation("A6", listing, at, f"{listing.named(copy)} is waited for ahead of {listing.named(at)}"))
                return

    counters.surely_pending(set(counters.at("copy")), lambda at, copy: "unknown", observe)
    return wrong


def unpaired_barriers(listing: Listing) -> list[Violation]:
    """A9: split barriers that some path signals twice without a wait, waits for without a signal, or leaves open at the end."""
    code = listing.instructions
    if not any(one.mnemonic.startswith("s_barrier_") for one in code):
        return []
    reached: dict[int, set[bool]] = {0: {False}}
    todo = [(0, False)]
    while todo:
        at, signalled = todo.pop()
        after = {"s_barrier_signal": True, "s_barrier_signal_isfirst": True, "s_barrier_wait": False}.get(code[at].mnemonic, signalled)
        for following in listing.successors(at):
            if after not in reached.setdefault(following, set()):
                reached[following].add(after)
                todo.append((following, after))
    wrong: Mapping[str, bool] = {"s_barrier_signal": True, "s_barrier_wait": False, "s_endpgm": True}
    return [
        _violation("A9", listing, at, f"{listing.named(at)} does not pair up")
        for at, one in enumerate(code)
        if one.mnemonic in wrong and wrong[one.mnemonic] in reached.get(at, set[bool]())
    ]


def invalidations(counters: Counters) -> list[Violation]:
    """A9: caches invalidated in loops, which barriers of shared memory never ask for."""
    listing = counters.listing
    inside = sorted(set[int]().union(*counters.loops))
    found = [at for at in inside if re.match(r"(buffer|global)_(gl[01]_|wb)?inv", listing.instructions[at].mnemonic)]
    return [_violation("A9", listing, at, f"{listing.named(at)} in a loop") for at in found]
