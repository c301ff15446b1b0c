"""The wait counters of AMD machines, followed through a kernel's control flow: what may be pending at each barrier.

Accesses to shared memory retire in the order of their issue. The counter is `lgkmcnt` (shared with scalar loads, which retire in any order)
up to RDNA3 and `dscnt` on RDNA4. A wait for n leaves at most the newest n. Every path is followed until no new state appears, so a loop is
replayed as often as its state changes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from treadle.targets.amd.assembly import Instruction, Listing

T = TypeVar("T")

State = tuple[str, ...]
"""Pending accesses to shared memory, oldest first: "read", "write", "lane" (a lane exchange through the same unit)."""

_LIMIT = 64  # no counter counts further


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule broken by the instruction on a line of the assembly."""

    rule: str
    line: int
    text: str


def shared_access(mnemonic: str) -> str | None:
    """What an instruction leaves pending: "read", "write" (atomics too), "lane", or None."""
    if not mnemonic.startswith("ds_"):
        return None
    if re.match(r"ds_(b?permute|swizzle)", mnemonic):
        return "lane"
    return "read" if re.match(r"ds_(read|load)", mnemonic) else "write"


def shared_wait(one: Instruction) -> int | None:
    """The number of accesses to shared memory that a wait leaves pending; None for other instructions and other counters."""
    if one.mnemonic == "s_waitcnt":
        named = re.search(r"lgkmcnt\((\d+)\)", one.operands)
        return int(named.group(1)) if named else None
    if one.mnemonic in ("s_waitcnt_lgkmcnt", "s_wait_dscnt"):
        return int(one.operands.split(",")[-1], 0)
    if one.mnemonic in ("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt"):
        return int(one.operands, 0) & 0x3F
    return None


def step(state: State, one: Instruction) -> State:
    """The state after an instruction."""
    access = shared_access(one.mnemonic)
    if access is not None:
        after = (*state, access)
        if len(after) > _LIMIT:  # what is older counts by its kind
            old = tuple(sorted(set(after[:-_LIMIT])))
            after = (*old, *after[-_LIMIT:]) if not set(old) <= set(after[-_LIMIT:]) else after[-_LIMIT:]
        return after
    left = shared_wait(one)
    return state if left is None else state[len(state) - min(left, len(state)) :]


def follow(listing: Listing, start: T, advance: Callable[[T, int], T]) -> dict[int, set[T]]:
    """States before each instruction that some path reaches, from `start` at the first."""
    reached: dict[int, set[T]] = {0: {start}}
    todo = [(0, start)]
    while todo:
        at, state = todo.pop()
        after = advance(state, at)
        for next_at in listing.successors(at):
            known = reached.setdefault(next_at, set())
            if after not in known:
                known.add(after)
                todo.append((next_at, after))
    return reached


def pending_at_barriers(listing: Listing) -> list[Violation]:
    """Barriers that some path reaches with reads or writes of shared memory pending."""
    code = listing.instructions
    start = State()

    def advance(state: State, at: int) -> State:
        return step(state, code[at])

    reached = follow(listing, start, advance)
    found: list[Violation] = []
    for at, one in enumerate(code):
        if one.mnemonic not in ("s_barrier", "s_barrier_signal"):
            continue
        worst = max(reached.get(at, set[State]()), key=lambda s: sum(a != "lane" for a in s), default=())
        counts = {kind: worst.count(kind) for kind in ("write", "read")}
        if any(counts.values()):
            text = f"{counts['write']} writes and {counts['read']} reads of shared memory may be pending at {one.mnemonic}"
            found.append(Violation("A4", one.line, text))
    return found


def unpaired_barriers(listing: Listing) -> list[Violation]:
    """Split barriers that some path signals twice without a wait, waits for without a signal, or leaves open at the end."""
    code = listing.instructions
    if not any(one.mnemonic.startswith("s_barrier_") for one in code):
        return []

    def advance(signalled: bool, at: int) -> bool:
        match code[at].mnemonic:
            case "s_barrier_signal" | "s_barrier_signal_isfirst":
                return True
            case "s_barrier_wait":
                return False
            case _:
                return signalled

    reached = follow(listing, False, advance)
    wrong = {"s_barrier_signal": True, "s_barrier_wait": False, "s_endpgm": True}
    return [
        Violation("A9", one.line, f"{one.mnemonic} does not pair up")
        for at, one in enumerate(code)
        if one.mnemonic in wrong and wrong[one.mnemonic] in reached.get(at, set[bool]())
    ]
