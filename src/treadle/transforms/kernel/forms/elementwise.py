"""elementwise: kernels all of whose dimensions are parallel, one tile a workgroup."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from treadle.analysis.axis_traffic import axis_shapes
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.kernel_problem import KernelProblem
from treadle.plan.expr_tables import shortened
from treadle.plan.form_times import moving_seconds
from treadle.plan.pointwise_tiles import halved, pointwise_tile
from treadle.records import dataclass, replace
from treadle.transforms.kernel.forms.form import Choice, Choices, FormConfig, Grid
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.elementwise import build_elementwise

NAME = "elementwise"
KIND = "elementwise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(FormConfig):
    """`tile`: elements along each axis of the nest; `warps` of the workgroup.

    Of rows that are reduced: `line`, elements of the aligned lines that tiles begin with, wherever the rows do (0: where the rows do), and
    `tiles_in_flight`, whole tiles whose loads are issued together (0: a loop over tiles that all are masked at the end). `resident`:
    workgroups that are to share a unit, which bounds the registers of a thread (0: as many as the tools like).
    """

    form: ClassVar[str] = NAME
    tile: tuple[int, ...] = ()
    warps: int = 1
    line: int = 0
    tiles_in_flight: int = 0
    resident: int = 0

    @property
    def line_elements(self) -> int:
        return self.line

    @property
    def crosses_ends(self) -> bool:
        return self.form == NAME  # reductions and rows need zeros where a row has no elements

    @property
    def num_warps(self) -> int:
        return self.warps

    def extents(self, rank: int) -> list[int]:
        return list(self.tile)


def refusal(problem: KernelProblem) -> str | None:
    """Nothing is refused."""
    return None


def decide(problem: KernelProblem) -> Sequence[Choice]:
    """See `Form`."""
    nest = problem.nest
    largest = max((element_bytes(a.element) for a in nest.accesses), default=4)
    tile, warps = pointwise_tile(axis_shapes(nest), largest, problem.spec)
    return halvings(problem, Config(tile=tile, warps=warps))


def halvings(problem: KernelProblem, best: Config) -> Sequence[Choice]:
    """A configuration, and behind it the same with ever smaller tiles."""
    return Choices(_halvings(problem, best))


def _halvings(problem: KernelProblem, best: Config) -> Iterator[Choice]:
    nest, seconds = problem.nest, moving_seconds(problem.memory_bytes, problem.spec)
    extents = "x".join(shortened(axis.size) for axis in nest.axes) or "scalar"
    found: set[tuple[int, ...]] = set()
    while (tile := halved(best.tile, len(found))) not in found:
        text = f"{nest.kind} over {extents}: tile {'x'.join(map(str, tile)) or '1'}, {best.warps} warps"
        yield Choice(replace(best, tile=tile), seconds, text, is_light=True)
        found.add(tile)


def build(kernel: KernelBuilder, config: Config) -> Grid:
    """See `Form`."""
    return build_elementwise(kernel, config.tile)
