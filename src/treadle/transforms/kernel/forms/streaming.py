"""streaming: the large operand of a contraction with a small side passes once through registers, several steps ahead of its use."""

from collections.abc import Sequence
from typing import ClassVar

from treadle.analysis.kernel_problem import KernelProblem
from treadle.analysis.small_side import SmallSide
from treadle.plan.form_times import seconds
from treadle.plan.small_m import StreamTile, held_refusal, stream_clocks, stream_refusal, stream_resident, stream_tile
from treadle.records import dataclass
from treadle.transforms.kernel.forms.contraction import contraction_of, merging_seconds
from treadle.transforms.kernel.forms.form import Choice, FormConfig, Grid, tile_extents
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.streaming import StreamPlan, build_streaming

NAME = "streaming"
KIND = "contraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(FormConfig):
    """`axes`, `tile`: as for other contractions; `warps`: all of them. `steps_in_flight`: steps of k whose loads are in flight.

    `large`: input number of the operand that is loaded ahead; `small`: the other one. `resident`: workgroups that are to share a unit, 0
    for what registers come to.
    """

    form: ClassVar[str] = NAME
    axes: tuple[int, ...] = (-1, -1, -1)
    tile: tuple[int, ...] = (1, 1, 1)
    warps: int = 1
    steps_in_flight: int = 1
    accumulator_type: str = ""
    large: int = 1
    small: int = 0
    resident: int = 0

    @property
    def num_warps(self) -> int:
        return self.warps

    def extents(self, rank: int) -> list[int]:
        return tile_extents(self.axes, self.tile, rank)


def refusal(problem: KernelProblem) -> str | None:
    """See `Form`."""
    side = problem.small_side
    if isinstance(side, str):
        return side
    if problem.overrides.form == NAME:
        tile = _tile(problem, side)
        return None if tile is None else held_refusal(tile, side.shape, problem.spec)
    return side.refusal(problem.overrides) or stream_refusal(side.shape)


def decide(problem: KernelProblem) -> Sequence[Choice]:
    """See `Form`."""
    side = problem.small_side
    tile = None if isinstance(side, str) else _tile(problem, side)
    if tile is None or isinstance(side, str):
        return []
    shape = side.shape
    m, n = (tile.few, tile.many) if side.few_role == "m" else (tile.many, tile.few)
    resident = stream_resident(tile, shape, problem.spec)
    config = Config(
        axes=problem.axes,
        tile=(m, n, tile.k),
        warps=tile.warps,
        steps_in_flight=tile.ahead,
        accumulator_type=problem.types.accumulator,
        large=side.large,
        small=side.small,
        resident=resident if resident > 1 else 0,
    )
    text = (
        f"{problem.operands_text}: streamed: the operand of {shape.many or 'many'} rows passes once through registers, "
        f"tile {m}x{n}x{tile.k}, {tile.ahead} steps of {shape.vector * shape.large_bytes} bytes a load in flight, {tile.warps} warps"
    )
    merging = merging_seconds(problem, tile.few * tile.many)
    return [Choice(config, seconds(stream_clocks(tile, shape, problem.spec), problem.spec) + merging, text)]


def _tile(problem: KernelProblem, side: SmallSide) -> StreamTile | None:
    """The best tile as far as nothing else is asked for; None where no workgroup's side fits the large operand."""
    tile = stream_tile(side.shape, problem.spec)
    if tile is None:
        return None
    asked, (m, n, k) = problem.overrides, (*problem.overrides.tile, 0, 0, 0)[:3]
    many, warps = n if side.few_role == "m" else m, (asked.warps[0] * max((*asked.warps, 0)[1], 1)) if asked.warps else 0
    if not (m or n or k or warps or asked.num_stages):
        return tile
    return StreamTile(side.shape.few, many or tile.many, k or tile.k, asked.num_stages or tile.ahead, warps or tile.warps)


def build(kernel: KernelBuilder, config: Config) -> Grid:
    """See `Form`."""
    accumulator = kernel.element_type(config.accumulator_type)
    plan = StreamPlan(config.axes, config.tile, config.steps_in_flight, accumulator, config.large, config.small)
    return build_streaming(kernel, contraction_of(kernel), plan)
