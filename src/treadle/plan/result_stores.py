"""What results cost beside others where their rows begin inside lines or sectors of the cache. No IR."""

from treadle.machine.spec import TargetSpec
from treadle.plan.cache_requests import LINE_BYTES, SECTOR_BYTES
from treadle.plan.role_tiles import ResultShape

CUT_LINE = 0.5
"""Of what results cost whose rows begin inside a sector, what those do that begin inside a line of the cache alone."""


def cut_row_clocks(result: ResultShape, spec: TargetSpec) -> float:
    """Clocks of an element of a result whose rows begin at multiples of 16 bytes, beside others."""
    if result.is_read or result.pitch_bytes < spec.max_vector_bytes or not result.pitch_bytes % LINE_BYTES:
        return 0.0
    return spec.rates.roles.cut_store_clocks * (1.0 if result.pitch_bytes % SECTOR_BYTES else CUT_LINE)


def stored_cut_clocks(result: ResultShape, neighbours: int, spec: TargetSpec) -> float:
    """Clocks of an element of a result that threads store, beside others: a warp's store of so many neighbours at most leaves the sectors
    at both of its ends partly written.
    """
    if result.is_read or result.pitch_bytes >= spec.max_vector_bytes:
        return 0.0
    return spec.rates.roles.cut_run_clocks / min(neighbours, spec.subgroup_size * max(1, result.pitch_bytes // result.element_bytes))
