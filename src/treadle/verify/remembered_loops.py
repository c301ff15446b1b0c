"""Loops that a run comes to again with the same inputs, in another iteration of an outer loop or in another run: followed once.

Only where nothing that the loop starts with depends on sizes and workgroups, and it said nothing of the class: so it does the next time.
"""

from treadle.dialects import sync
from treadle.dialects.tile_attributes import is_shared
from treadle.ir.core import SSAValue
from treadle.ir.dialects import scf
from treadle.ir.operands import operands_of
from treadle.verify.trace_state import State, Step

MAX_REMEMBERED = 4096


class _Followed:
    """What a run of the loop did: nodes, trip counts and the loops of nodes, and the values of its results by their places."""

    __slots__ = ("loop_of", "nodes", "results", "trips")

    def __init__(
        self, nodes: tuple[int, ...], trips: dict[int, int], loop_of: dict[int, int], results: tuple[tuple[int, object], ...]
    ) -> None:
        self.nodes, self.trips, self.loop_of, self.results = nodes, trips, loop_of, results


def remembered(state: State, op: scf.ForOp, follow: Step) -> Step:
    """`follow`, or what it did the last time with the same inputs."""
    around = list(op.walk())
    made = {value for each in around[1:] for value in each.results}
    made |= {value for each in around for region in each.regions for block in region.blocks for value in block.args}
    if not made.isdisjoint([unknown for each in state.unknowns.all for unknown in each.values]):
        return follow
    used = dict.fromkeys([value for each in around for value in operands_of(each) if value not in made and _matters(state, value)])
    inputs, results = [state.place(value) for value in used], [state.place(value) for value in op.results]
    known: dict[tuple[object, ...], _Followed] = {}

    def run() -> None:
        if len(known) > MAX_REMEMBERED or any(state.symbols[at] is not None or state.reasons[at] is not None for at in inputs):
            follow()
            return
        key = (state.group, state.rank, *[state.env[at] for at in inputs])
        found = known.get(key)
        if found is None:
            shared = state.covered.shared
            found = _followed(state, results, follow)
            if state.covered.shared == shared and all(state.symbols[at] is None and state.reasons[at] is None for at in results):
                known[key] = found
        else:
            for at, value in found.results:
                state.put(at, value)
        state.out += found.nodes
        state.loop_of |= found.loop_of
        for loop, count in found.trips.items():
            state.trips[loop] = max(count, state.trips.get(loop, 0))

    return run


def _matters(state: State, value: SSAValue) -> bool:
    """Whether steps look at a value."""
    return value in state.program.deciding or is_shared(value.type) or isinstance(value.type, sync.MbarrierType)


def _followed(state: State, results: list[int], follow: Step) -> _Followed:
    kept = state.out, state.trips, state.loop_of
    state.out, state.trips, state.loop_of = [], {}, {}
    try:
        follow()
        return _Followed(tuple(state.out), state.trips, state.loop_of, tuple([(at, state.env[at]) for at in results]))
    finally:
        state.out, state.trips, state.loop_of = kept
