"""reduction: reductions that are no contractions, over tiles of all axes."""

from collections.abc import Sequence
from typing import ClassVar

from treadle.analysis.axis_traffic import axis_shapes
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.folds import is_separable
from treadle.analysis.indexing import Reduction, sums_windows_alone
from treadle.analysis.kernel_problem import KernelProblem
from treadle.plan.reduction_tiles import reduction_tile
from treadle.plan.row_tiles import RowTile, tiles_in_flight
from treadle.records import dataclass, replace
from treadle.transforms.kernel.forms import elementwise
from treadle.transforms.kernel.forms.form import Choice, Grid
from treadle.transforms.kernel.forms.row_facts import line_of_rows, longest_reduced, read_bytes, walks_longest
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.reduction import build_reduction
from treadle.transforms.kernel.tiling.walks import set_walk

NAME = "reduction"
KIND = "reduction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(elementwise.Config):
    """The same entries."""

    form: ClassVar[str] = NAME


def refusal(problem: KernelProblem) -> str | None:
    """Nothing is refused."""
    return None


def decide(problem: KernelProblem) -> Sequence[Choice]:
    """See `Form`."""
    kind = problem.nest.computation
    shapes = axis_shapes(problem.nest)
    in_parts = isinstance(kind, Reduction) and is_separable(problem.nest.root, kind)
    if not shapes:
        return elementwise.halvings(problem, Config())
    read = max((element_bytes(a.element) for a in problem.nest.accesses if not a.is_result), default=4)
    outputs = len(problem.nest.root.outputs)
    tile, warps = reduction_tile(shapes, problem.spec, in_parts, element_bytes=read, outputs=outputs)
    line, tiles = _walk(problem, tile, warps) if in_parts else (0, 0)
    found = elementwise.halvings(problem, Config(tile=tile, warps=warps, line=line, tiles_in_flight=tiles))
    if sums_windows_alone(problem.nest.root):
        why = "; a convolution that sums over no channel, which leaves matrix instructions nothing to sum"
        return [replace(choice, text=choice.text + why) for choice in found]
    return found


def _walk(problem: KernelProblem, tile: tuple[int, ...], warps: int) -> tuple[int, int]:
    """`line` and `tiles_in_flight` of a tile: rows are walked from aligned addresses where a workgroup has one at a time."""
    axes = problem.nest.axes
    if any(not axis.is_reduction and extent > 1 for axis, extent in zip(axes, tile, strict=True)):
        return 0, 0
    length, line = longest_reduced(problem), line_of_rows(problem)
    if length is not None and length + max(0, line - 1) <= max(tile):
        return line, 1 if line else 0
    if not walks_longest(problem, tile):
        return 0, 0
    return line, tiles_in_flight(RowTile(tile, warps, False), length, read_bytes(problem), problem.spec)


def build(kernel: KernelBuilder, config: Config) -> Grid:
    """See `Form`."""
    set_walk(kernel, config.tile, config.line, config.tiles_in_flight)
    return build_reduction(kernel, config.tile)
