"""What results cost beside others where their rows begin inside lines or sectors of the cache. No IR."""

from math import gcd

from treadle.machine.spec import TargetSpec
from treadle.plan.cache_requests import LINE_BYTES, SECTOR_BYTES
from treadle.plan.role_tiles import ResultShape

CUT_LINE = 0.5
"""Of what results cost whose rows begin inside a sector, what those do that begin inside a line of the cache alone."""


def cut_row_clocks(result: ResultShape, spec: TargetSpec, apart: int = 0) -> float:
    """Clocks of an element of a result whose rows begin at multiples of 16 bytes, beside others. `apart`: what tiles are apart by multiples
    of along a row, where that is to count: those that begin inside a sector share it with their neighbours.
    """
    if result.is_read or result.pitch_bytes < spec.max_vector_bytes:
        return 0.0
    if gcd(result.pitch_bytes, apart * result.element_bytes) % SECTOR_BYTES:
        return spec.rates.roles.cut_store_clocks
    return spec.rates.roles.cut_store_clocks * CUT_LINE if result.pitch_bytes % LINE_BYTES else 0.0


def stored_cut_clocks(result: ResultShape, neighbours: int, spec: TargetSpec) -> float:
    """Clocks of an element of a result that threads store, beside others: a warp's store of so many neighbours at most leaves the sectors
    at both of its ends partly written.
    """
    if result.is_read or result.pitch_bytes >= spec.max_vector_bytes:
        return 0.0
    return spec.rates.roles.cut_run_clocks / min(neighbours, spec.subgroup_size * max(1, result.pitch_bytes // result.element_bytes))
