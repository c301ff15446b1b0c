"""How deep to pipeline a loop whose buffers are in shared memory: a fixed rule until a cost model chooses. Pure functions.

Two resident workgroups hide each other's prologues and epilogues, so a depth that lets two be resident is preferred while it is at least
`SHALLOW`; beyond `DEEP` stages nothing is gained on the machines measured (3 to 4 stages in every published kernel that reaches the
vendor's library, see also the depth of one memory latency: 1 to 2 steps of a 128 x 128 x 64 tile).
"""

from collections.abc import Callable, Sequence

DEEP = 4
SHALLOW = 3
REGISTER_BYTES = 4
BESIDE_STREAM = 64
"""Registers of a thread in a streamed loop for a step's operands and addresses."""

BESIDE_FETCHED = 16
"""Registers of a thread for addresses alone, where a step's operands are counted by themselves."""
RESIDENT = 2
"""Workgroups on a unit that hide each other's meetings: more add little."""
RING_SLOTS = 4
"""Of buffers that are read a step ahead: one is read, one is waited for, and two are filled."""


def choose_depth(shared_bytes: Callable[[int], int], per_workgroup: int, per_unit: int, deepest: int = DEEP) -> int:
    """The number of stages, from `shared_bytes(stages)` of a workgroup: 1 where not even two stages fit in `per_workgroup` bytes."""
    fitting = [stages for stages in range(2, deepest + 1) if shared_bytes(stages) <= per_workgroup]
    resident = [stages for stages in fitting if 2 * shared_bytes(stages) <= per_unit]
    if resident and resident[-1] >= min(SHALLOW, deepest):
        return resident[-1]
    return fitting[-1] if fitting else 1


def stream_registers(carried_bytes: int, loads: Sequence[tuple[int, int]], threads: int) -> int:
    """Registers of a thread in a loop whose loads run a step ahead: what it carries, the loads, and the rest.

    `loads`: bytes of each tile, and of one access to it; what comes by accesses narrower than a register takes a register each.
    """
    ahead = sum(-(-size // threads) // min(access, REGISTER_BYTES) for size, access in loads)
    return carried_bytes // (threads * REGISTER_BYTES) + ahead + BESIDE_STREAM
