"""roles: copying and computing of a contraction go to different warps, which take the tiles in turn (set-roles, form-roles)."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import ClassVar

from treadle.analysis.channel_steps import in_channel_steps
from treadle.analysis.kernel_problem import KernelProblem
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.window_steps import outgrows_cache, window_steps
from treadle.machine.spec import TargetSpec
from treadle.plan.form_times import bounded_seconds
from treadle.plan.mixed_widths import MixedWidths
from treadle.plan.part_merges import clustered_units
from treadle.plan.role_search import RoleSearch
from treadle.plan.role_tiles import ROLE_KNOBS, RoleProblem, RoleTile, cluster_extents, mixed_tiles
from treadle.plan.tile_config import ContractionTile, TileProblem, contraction_tile
from treadle.records import dataclass, replace
from treadle.transforms.kernel.forms.contraction import (
    GROUP_M,
    ContractionConfig,
    asked_tile,
    contraction_of,
    contraction_text,
    merging_text,
)
from treadle.transforms.kernel.forms.form import Choice, Choices, Grid
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.contraction import build_contraction

NAME = "roles"
KIND = "contraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ContractionConfig):
    """What is asked of roles; set-roles decides what can be had.

    `num_stages`: slots of the ring between copying and computing warps. `consumer_warpgroups`: groups of warps that compute a tile, each
    `tile` of it, neighbours along m. `ping_pong`: sets of them that take tiles in turn. `steps_in_flight`: groups of matrix instructions
    that still run when the next slot is waited for (0 or 1). `deferred_store`: a tile's results leave under the next one's first steps.
    `cluster`: workgroups that fetch what they share once: `cluster_n` neighbours along n A's tile, the others, along m, B's.
    `workgroups`: how many take all tiles in turn, 0 for one a tile. `blocks`: where tiles of two widths lie (see `MixedWidths.numbers`),
    empty where all have one. `channel_step`: of a convolution, whole steps of channels for each place of a window (0: as many as there
    are). `places_inside`: all places of a window are taken for one step of channels before the next one (see `analysis/window_steps.py`).
    `keeps_cache`: the ring may be cut so that it leaves copies by threads enough of their cache.
    """

    form: ClassVar[str] = NAME
    num_stages: int = 1
    consumer_warpgroups: int = 1
    ping_pong: int = 1
    steps_in_flight: int = 0
    deferred_store: bool = False
    cluster: int = 1
    cluster_n: int = 1
    workgroups: int = 0
    blocks: tuple[int, ...] = ()
    channel_step: int = 0
    places_inside: bool = False
    keeps_cache: bool = False

    def nest_of(self, nest: LoopNest) -> LoopNest:
        return (in_channel_steps(nest, self.channel_step) if self.channel_step else None) or nest

    @property
    def groups(self) -> int:
        return self.consumer_warpgroups

    @property
    def tiles_together(self) -> tuple[int, int]:
        return self.cluster // self.cluster_n, self.cluster_n

    @property
    def mixed_widths(self) -> MixedWidths | None:
        """Where tiles of two widths lie; None where all have one."""
        return MixedWidths.of(self.blocks) if self.blocks else None

    def relieved(self, problem: KernelProblem) -> "Config":
        """Without iterations that overlap, where roles are refused in the end."""
        return replace(self, is_sequential=problem.overlaps)


def refusal(problem: KernelProblem) -> str | None:
    """See `Form`."""
    problem = in_steps(problem)
    if not problem.overrides.roles:
        return "roles are turned off"
    if problem.merges_parts and problem.axes[0] < 0:
        return "groups of warps merge parts of their own rows, and there is one row"
    if (reason := problem.copies.refusal) is not None:
        return reason
    if problem.overrides.tile and not problem.overrides.num_stages:
        return "a tile is asked for without the stages of a ring (num_stages)"
    return None


def decide(problem: KernelProblem) -> Sequence[Choice]:
    """See `Form`."""
    stepped = in_steps(problem)
    if stepped is problem:
        return Choices(_choices(problem))
    step = _slot_columns(problem)
    return Choices(replace(choice, config=replace(choice.config, channel_step=step)) for choice in _choices(stepped))


def _choices(problem: KernelProblem) -> Iterator[Choice]:
    if problem.overrides.tile:
        warps = asked_tile(problem, _usual_tile(problem))
        yield _choice(problem, _asked(problem, warps), (warps.warps_m, warps.warps_n))
        return
    for number, tile in enumerate(_candidates(problem)):
        yield _choice(problem, tile, (tile.warps, 1), is_light=number > 0)


def _slot_columns(problem: KernelProblem) -> int:
    return problem.spec.slot_row_bytes // problem.types.operand_bytes


def in_steps(problem: KernelProblem) -> KernelProblem:
    """The problem with whole steps of channels, where descriptor copies can bring a convolution's operands only so."""
    found = None if problem.descriptor_refusal is None else in_channel_steps(problem.nest, _slot_columns(problem))
    changed = None if found is None else replace(problem, nest=found)
    return problem if changed is None or changed.descriptor_refusal is not None else changed


@lru_cache(maxsize=8)
def _search(problem: RoleProblem, spec: TargetSpec) -> RoleSearch:
    """What looks for a problem's tile and tells how long it takes."""
    return RoleSearch(problem, spec)


def _candidates(problem: KernelProblem) -> Iterator[RoleTile]:
    """The tile of least modelled time, and the best of those that need some fewer registers, and many."""
    asked, model = problem.overrides, _search(problem.role_problem, problem.spec)
    if (best := model.best()) is None:
        return
    # The model saw the columns of one block of them only.
    several = sum(axis.role == "n" for axis in problem.nest.axes) > 1

    def as_asked(tile: RoleTile) -> RoleTile:
        return replace(
            tile,
            num_stages=asked.num_stages or tile.num_stages,
            group_m=asked.group_m or (GROUP_M if several else tile.group_m),
            deferred_store=asked.deferred_store or tile.deferred_store,
            cluster=max(asked.cluster, tile.cluster),
            cluster_n=asked.cluster_n or tile.cluster_n,
            tail_tile_n=asked.tail_tile_n or tile.tail_tile_n,
        )

    yield as_asked(best)
    most = best.m * best.n
    lighter = model.best(lambda t: 8 * t.m * t.n <= 7 * most or (t.ping_pong < best.ping_pong and t.m * t.n <= most))
    lightest = model.best(lambda t: 2 * t.m * t.n <= most or (t.ping_pong < best.ping_pong and t.m * t.n <= most))
    yield from [as_asked(tile) for tile in dict.fromkeys((lighter, lightest)) if tile is not None]


def _usual_tile(problem: KernelProblem) -> ContractionTile:
    """What stands for extents and warps that the overrides leave open: the warps of one group, which an instruction has."""
    usual = contraction_tile(TileProblem(problem.types, problem.shape, problem.spec, problem.is_crowded, problem.is_promoted))
    return replace(usual, warps_m=problem.role_problem.row.warps, warps_n=1)


def _asked(problem: KernelProblem, tile: ContractionTile) -> RoleTile:
    """The roles that the overrides name, with a tile."""
    knobs = {name: getattr(problem.overrides, name) for name in (*ROLE_KNOBS, "tail_tile_n")}
    return RoleTile(tile.m, tile.n, tile.k, tile.num_warps, group_m=tile.group, **knobs)


def _mixed_widths(problem: KernelProblem, tile: RoleTile) -> tuple[MixedWidths | None, str]:
    """Where tiles of two widths lie, and what to tell about it."""
    if not tile.tail_tile_n:
        return None, ""
    if not problem.role_problem.may_be_deferred or problem.overrides.persistent == "never" or min(problem.axes[:2]) < 0:
        reason = "workgroups do not take tiles in turn whose results leave in boxes"
    elif (mixed := mixed_tiles(tile, problem.role_problem, problem.spec)) is not None:
        tail = mixed.tiles - mixed.first_narrow
        return mixed, f"; {tail} of {mixed.tiles} tiles have {mixed.narrow} columns, which fills the last round"
    else:
        reason = "stores are not deferred, boxes are wider, or such tiles do not fill the last round"
    return None, f"; no tiles of {tile.tail_tile_n} columns: {reason}"


def _takes_places_inside(problem: KernelProblem, tile: RoleTile) -> bool:
    asked = problem.overrides.window_order
    if asked == "channels" or window_steps(problem.nest, problem.axes[2], tile.k) is None:
        return False
    return asked == "places" or outgrows_cache(problem.nest, (tile.rows, tile.n), problem.spec)


def _choice(problem: KernelProblem, tile: RoleTile, warps: tuple[int, int], *, is_light: bool = False) -> Choice:
    spec, types = problem.spec, problem.types
    mixed, about_widths = _mixed_widths(problem, tile)
    knobs = {name: getattr(tile, name) for name in ROLE_KNOBS}
    # Workgroups that add their parts in turn are no clusters, and those of clusters that merge the parts of a tile have no others.
    has_others = problem.merges_in_turn or problem.parts_together(tile.m) > 1
    along_m, along_n = (1, 1) if has_others else cluster_extents(tile, problem.shape)
    knobs["cluster"], knobs["cluster_n"] = along_m * along_n, along_n
    # Of a cluster all workgroups take as many tiles, and clusters that found no room at first would take theirs when all others have.
    units = clustered_units(knobs["cluster"], spec) // knobs["cluster"] * knobs["cluster"]
    config = Config(
        axes=problem.axes,
        tile=(tile.m, tile.n, tile.k),
        warps=warps,
        instruction=types.instruction,
        a_type=types.a,
        b_type=types.b,
        accumulator_type=types.accumulator,
        group_m=tile.group_m,
        is_promoted=problem.is_promoted,
        **knobs,
        parts_together=problem.parts_together(tile.m),
        workgroups=0 if problem.overrides.persistent == "never" or not problem.may_take_turns else units,
        blocks=tuple(mixed.numbers()) if mixed is not None else (),
        keeps_cache=problem.may_keep_cache,
        places_inside=_takes_places_inside(problem, tile),
        overlaps_ends=tuple(side for side, may in enumerate(problem.role_problem.overlaps) if may),
    )
    seconds = bounded_seconds(_search(problem.role_problem, spec).cost(tile), problem.memory_bytes, spec)
    how = "in ping-pong " if tile.ping_pong > 1 else "with deferred stores " if tile.deferred_store else ""
    shown = ContractionTile(tile.m, tile.n, tile.k, *warps)
    text = contraction_text(problem, shown, types, is_promoted=problem.is_promoted)
    consumers = tile.consumer_warpgroups * tile.ping_pong
    text += f"; {consumers} consumer warpgroups {how}fed through {tile.num_stages} stages by a producer{about_widths}"
    text += _cluster_text(along_m, along_n)
    if tile.cluster > 1 and not config.cluster > 1:
        text += "; no clusters that share operands, as parts are merged" if has_others else "; no clusters: tiles make no whole ones"
    text += "; all places of a window for each step of channels" if config.places_inside else ""
    text += merging_text(problem, config)
    return Choice(config, seconds, text, tile.m * tile.n / tile.warps, is_light)


def _cluster_text(along_m: int, along_n: int) -> str:
    """What clusters of so many workgroups share."""
    if along_m * along_n == 1:
        return ""
    if along_m > 1 and along_n > 1:
        return f"; clusters of {along_m} x {along_n} share columns of B and rows of A"
    return f"; clusters of {along_m * along_n} share {'rows of A' if along_n > 1 else 'columns of B'}"


def build(kernel: KernelBuilder, config: Config) -> Grid:
    """See `Form`."""
    inside, in_turn = config.places_inside, config.workgroups > 0
    kind, mixed = contraction_of(kernel), config.mixed_widths
    return build_contraction(kernel, kind, config, mixed=mixed, has_roles=True, places_inside=inside, in_turn=in_turn)
