"""What the forms of contractions on matrix instructions (or multiply-adds) in tiles share."""

from treadle.analysis.indexing import Contraction
from treadle.analysis.kernel_problem import KernelProblem
from treadle.errors import InternalError, KernelRejected
from treadle.plan.form_times import seconds
from treadle.plan.part_merges import cluster_clocks, last_clocks, turns_clocks
from treadle.plan.tile_config import ContractionTile, ContractionTypes, tile_refusal
from treadle.records import dataclass, replace
from treadle.transforms.kernel.forms.form import FormConfig, tile_extents
from treadle.transforms.kernel.tiling.builder import KernelBuilder

GROUP_M = 8
"""Rows of tiles that are walked together where nothing says better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractionConfig(FormConfig):
    """`axes`: the main ones along m, n and k (-1: extent one); `tile`: extents along them; `warps`: along m and n (empty: all along m).

    `a_type`, `b_type`, `accumulator_type`: what products and accumulators are computed in; `instruction`: a matrix instruction or "fma".
    `group_m`: rows of tiles that are walked together. `is_promoted`: see tiling/accumulation.py. `is_sequential`: loops are not pipelined.
    `parts_together`: workgroups of a cluster that have, and merge, the parts of one tile. `overlaps_ends`: sides, 0 for m and 1 for n, at
    which the last tiles begin so much earlier that they end with the result (tiling/overlaps.py).
    """

    axes: tuple[int, ...] = (-1, -1, -1)
    tile: tuple[int, ...] = (1, 1, 1)
    warps: tuple[int, ...] = ()
    instruction: str = "fma"
    a_type: str = ""
    b_type: str = ""
    accumulator_type: str = ""
    group_m: int = 1
    is_promoted: bool = False
    is_sequential: bool = False
    parts_together: int = 1
    overlaps_ends: tuple[int, ...] = ()

    @property
    def cluster_size(self) -> int:
        return self.parts_together

    @property
    def num_warps(self) -> int:
        return self.warps[0] * self.warps[1]

    @property
    def rows_together(self) -> int:
        return self.group_m

    @property
    def tiles_together(self) -> tuple[int, int]:
        """Tiles along m and along n of which there are whole multiples, some of them beyond the result."""
        return 1, 1

    def extents(self, rank: int) -> list[int]:
        return tile_extents(self.axes, self.tile, rank)


def asked_tile(problem: KernelProblem, usual: ContractionTile) -> ContractionTile:
    """The tile that the overrides name, as `usual` where they leave something open; with as few warps as issue an instruction where the
    usual ones do not fit. Rejects a tile that the matrix instruction's warps cannot hold.
    """
    asked, row = problem.overrides, None if problem.types.instruction == "fma" else problem.spec.instruction(problem.types.instruction)
    m, n, k = (*asked.tile, 0, 0)[:3]
    warps_m, warps_n = (*asked.warps, 0, 0)[:2]
    tile = ContractionTile(m, n or usual.n, k or usual.k, warps_m or usual.warps_m, warps_n or usual.warps_n, asked.group_m or GROUP_M)
    if row is None or not (reason := tile_refusal(tile, row)):
        return tile
    fewest = replace(tile, warps_m=warps_m or row.warps, warps_n=warps_n or 1)
    if not (reason := tile_refusal(fewest, row)):
        return fewest
    raise KernelRejected(problem.nest.kernel.sym_name.data, f"a tile's {reason}")


def merging_text(problem: KernelProblem, config: ContractionConfig) -> str:
    """Who merges the parts of a tile, as remarks say it."""
    if not problem.merges_parts:
        return ""
    together = config.parts_together
    if problem.merges_in_turn:
        return "; the workgroups of a tile add its parts in turn"
    return (
        f"; the {together} parts of a tile are merged in a cluster" if together > 1 else "; the last workgroup of a tile merges its parts"
    )


def merging_seconds(problem: KernelProblem, elements: int, together: int = 1) -> float:
    """Modelled time in which the parts of a tile of so many elements are merged: in a cluster of `together`, in turn, or by the last."""
    if not problem.merges_parts:
        return 0.0
    spec = problem.spec
    if together > 1:
        return seconds(cluster_clocks(elements, spec), spec)
    return seconds((turns_clocks if problem.merges_in_turn else last_clocks)(problem.parts, elements, spec), spec)


def contraction_text(problem: KernelProblem, tile: ContractionTile, types: ContractionTypes, *, is_promoted: bool) -> str:
    """How a choice of tiles reads in remarks."""
    count = problem.shape.root_count
    what = f"{count} contractions" if count > 1 else "contraction"
    accumulators = f"{types.accumulator}, promoted every {tile.k} along k" if is_promoted else types.accumulator
    return (
        f"{what} {problem.extents_text}, operands {types.a} and {types.b}, accumulators in {accumulators}: "
        f"tile {tile.m}x{tile.n}x{tile.k}, {tile.warps_m}x{tile.warps_n} warps, instruction {types.instruction}"
    )


def contraction_of(kernel: KernelBuilder) -> Contraction:
    """What a kernel computes, for the forms that are of contractions."""
    if not isinstance(kernel.nest.computation, Contraction):
        raise InternalError("a form of contractions for another kernel")
    return kernel.nest.computation
