"""rows: reductions over the same dimensions with what is computed between and behind them (softmax, normalisations), row by row."""

from collections.abc import Sequence
from typing import ClassVar

from treadle.analysis.axis_traffic import axis_shapes
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.kernel_problem import KernelProblem
from treadle.plan.expr_tables import shortened
from treadle.plan.form_times import moving_seconds
from treadle.plan.row_tiles import resident_walks, row_tiles, tiles_in_flight
from treadle.records import dataclass
from treadle.transforms.kernel.forms import elementwise
from treadle.transforms.kernel.forms.form import Choice, Grid
from treadle.transforms.kernel.forms.row_facts import line_of_rows, longest_reduced, read_bytes
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.rows import build_rows
from treadle.transforms.kernel.tiling.walks import set_walk

NAME = "rows"
KIND = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(elementwise.Config):
    """The same entries. Where the tile is as long as the rows they stay in registers, else they are walked once for each reduction."""

    form: ClassVar[str] = NAME


def refusal(problem: KernelProblem) -> str | None:
    """Nothing is refused."""
    return None


def decide(problem: KernelProblem) -> Sequence[Choice]:
    """See `Form`."""
    nest = problem.nest
    shapes = axis_shapes(nest)
    narrowest = min((element_bytes(a.element) for a in nest.accesses), default=4)
    extents, found, config = "x".join(shortened(axis.size) for axis in nest.axes), list[Choice](), Config()
    widest = max((element_bytes(a.element) for a in nest.accesses), default=4)
    line = line_of_rows(problem)
    read = read_bytes(problem)
    for tile in row_tiles(shapes, narrowest, problem.spec, max(0, line - 1)):
        seconds = moving_seconds(problem.memory_bytes * (1 if tile.is_whole else 2), problem.spec)
        how = "rows stay in registers" if tile.is_whole else f"rows are walked {len(nest.roots) + 1} times"
        text = f"rows over {extents}: {how}, tile {'x'.join(map(str, tile.extents))}, {tile.warps} warps"
        if line:
            text += f", from lines of {line} elements"
        tiles = tiles_in_flight(tile, longest_reduced(problem), read, problem.spec) if line or not tile.is_whole else 0
        resident = resident_walks(tile, widest, problem.spec) if tiles and not tile.is_whole else 0
        config = Config(tile=tile.extents, warps=tile.warps, line=line, tiles_in_flight=tiles, resident=resident)
        found.append(Choice(config, seconds, text, is_light=True))
    return [*found, *elementwise.halvings(problem, config)[1:]]


def build(kernel: KernelBuilder, config: Config) -> Grid:
    """See `Form`."""
    set_walk(kernel, config.tile, config.line, config.tiles_in_flight)
    return build_rows(kernel, config.tile)
