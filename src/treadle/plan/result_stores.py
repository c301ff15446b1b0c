"""What threads' stores of results cost beside others where rows begin inside sectors of the cache. No IR."""

from treadle.machine.spec import TargetSpec
from treadle.plan.role_tiles import ResultShape


def stored_cut_clocks(result: ResultShape, neighbours: int, spec: TargetSpec) -> float:
    """Clocks of an element of a result that threads store, beside others: a warp's store of so many neighbours at most leaves the sectors
    at both of its ends partly written.
    """
    if result.is_read or result.pitch_bytes >= spec.max_vector_bytes:
        return 0.0
    return spec.rates.roles.cut_run_clocks / min(neighbours, spec.subgroup_size * max(1, result.pitch_bytes // result.element_bytes))
