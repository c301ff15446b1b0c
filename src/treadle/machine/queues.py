"""Queues: classes of asynchronous operations that are retired in groups, and how the hardware counts and waits for them."""

from typing import Literal

from treadle.records import dataclass

QueueRole = Literal["matrix", "copy_in", "copy_out", "local", "store"]
"""What operations are in a queue: matrix instructions, copies into shared memory by all threads, copies out of it by one thread, accesses
to shared memory, stores to global memory. Effects name the role, `sync.commit` and `sync.wait` the machine's queue of it."""


@dataclass(frozen=True, slots=True)
class WaitField:
    """How an instruction's immediate says how many operations of a queue may stay in flight.

    `parts`: (first bit, bits) of each part of the count, the lowest first. `others`: the immediate that waits for nothing.
    """

    instruction: str
    parts: tuple[tuple[int, int], ...]
    others: int = 0

    def immediate(self, pending: int) -> int:
        """The immediate that waits until `pending` operations are left, and for nothing else."""
        found = self.others
        for first, bits in self.parts:
            mask = (1 << bits) - 1
            found = found & ~(mask << first) | (pending & mask) << first
            pending >>= bits
        return found


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of a machine: `name`, as its vendor's documents call it, is what `sync.commit` and `sync.wait` name.

    `is_committed`: groups are closed by `sync.commit`; in others each operation is a group of its own. `is_ordered`: operations take
    effect in the order of issue. `scope`: who issues and waits together; "elected": one thread for its team. `max_pending`: the most
    groups that a wait can leave in flight. `tells_reads`: waits can ask only that the sources have been read. `path`: the path of
    `tile.copy` that issues to it; `piece_bytes`: what a thread copies at a time there, the widest first, each aligned to its own width;
    `shifts`: rows that begin at no multiple of a piece come through registers, where they are shifted. `ends_at_branches`: results that
    are in flight at a branch cost a serialisation of everything around it, so they are waited for ahead of it. `wait`: the encoding of
    waits, where no assembler sees to it. `lane_bytes`: of copies whose lanes fill neighbouring places, whatever they read: what a lane may
    move at once, the widest first.
    """

    name: str
    role: QueueRole
    scope: Literal["thread", "warp", "warpgroup", "elected"]
    is_committed: bool = False
    is_ordered: bool = True
    max_pending: int = 63
    tells_reads: bool = False
    path: str = ""
    piece_bytes: tuple[int, ...] = ()
    shifts: bool = False
    ends_at_branches: bool = False
    wait: WaitField | None = None
    lane_bytes: tuple[int, ...] = ()
