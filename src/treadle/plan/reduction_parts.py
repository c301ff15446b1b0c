"""Into how many parts a reduction that is no contraction is split: modelled times of the whole and of its parts. No IR.

Such reductions wait for memory: they get the bytes that their workgroups have in flight each time the memory answers (Little's law), as far
as the memory has bandwidth.
"""

from dataclasses import replace
from math import prod

from treadle.machine.spec import TargetSpec
from treadle.plan.form_times import seconds
from treadle.plan.pointwise_tiles import AxisShape
from treadle.plan.reduction_tiles import reduction_tile
from treadle.plan.small_m import limited
from treadle.plan.split_parts import CLEAR_GAIN, LEAST_SAVED_SECONDS, Parts, is_clear, merge_seconds, part_counts
from treadle.records import dataclass

RESIDENT_THREADS = 2048


@dataclass(frozen=True, slots=True)
class SplitReduction:
    """Any other reduction over known sizes: its axes as for the choice of tiles, which of them is split, bytes read in all, and of a
    result's partial values.
    """

    axes: tuple[AxisShape, ...]
    split_axis: int
    read_bytes: float
    partial_bytes: int

    @property
    def results(self) -> int:
        """Elements of each result."""
        return prod(axis.size or 1 for axis in self.axes if not axis.is_reduction)


def _reduction_seconds(problem: SplitReduction, count: int, spec: TargetSpec) -> float:
    """Time of a reduction whose split axis is in so many parts."""
    axes = list(problem.axes)
    split = axes[problem.split_axis]
    axes[problem.split_axis] = replace(split, size=-(-(split.size or 1) // count))
    tile, warps = reduction_tile(tuple(axes), spec, separable=True)
    pairs = list(zip(axes, tile, strict=True))
    workgroups = count * prod(-(-(axis.size or 1) // extent) for axis, extent in pairs if not axis.is_reduction)
    elements = prod(axis.size or 1 for axis in axes) * count
    each = prod(min(extent, axis.size or extent) for axis, extent in pairs) * problem.read_bytes / max(1, elements)
    resident = max(1, RESIDENT_THREADS // (warps * spec.subgroup_size))
    active = min(workgroups, resident * spec.compute_units)
    busiest = elements / workgroups * -(-workgroups // spec.compute_units) / spec.subgroup_size
    rates = spec.rates.streaming
    in_flight = active * each / rates.latency_clocks * spec.clock_mhz * 1e6
    moving = limited(problem.read_bytes / in_flight, problem.read_bytes / (spec.memory_gbps * 1e9), 2)  # latency grows under load
    rounds = -(-workgroups // (resident * spec.compute_units))
    working = seconds(busiest * spec.rates.reductions.element_clocks, spec)
    return seconds(rates.fixed_clocks + rounds * spec.rates.reductions.workgroup_clocks, spec) + limited(moving, working, 2)


def split_reduction(problem: SplitReduction, spec: TargetSpec) -> Parts | None:
    """The parts that are modelled to be clearly faster than the whole; None where none are, or sizes are not known."""
    if any(axis.size is None or axis.size < 1 for axis in problem.axes):
        return None
    tile, _ = reduction_tile(problem.axes, spec, separable=True)
    step = tile[problem.split_axis]
    size = problem.axes[problem.split_axis].size or 1
    pairs = zip(problem.axes, tile, strict=True)
    workgroups = prod(-(-(axis.size or 1) // extent) for axis, extent in pairs if not axis.is_reduction)
    whole = _reduction_seconds(problem, 1, spec)
    best: Parts | None = None
    for count in part_counts(workgroups, -(-size // step), 1, problem.results * problem.partial_bytes, spec):
        time = _reduction_seconds(problem, count, spec) + merge_seconds(count, problem.results, problem.partial_bytes, spec)
        if best is None or time < best.seconds:
            best = Parts(count, step, whole, time)
    return best if best is not None and is_clear(best, CLEAR_GAIN, LEAST_SAVED_SECONDS) else None
