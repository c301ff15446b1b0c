"""attention: two contractions with a softmax between them in one kernel, whose scores never leave the registers."""

from collections.abc import Sequence
from typing import ClassVar

from treadle.analysis.attention_structure import Attention
from treadle.analysis.contraction_axes import main_axis
from treadle.analysis.kernel_problem import KernelProblem
from treadle.analysis.loop_nest import LoopNest
from treadle.errors import InternalError
from treadle.ir.builtin import element_of
from treadle.plan.attention_tiles import AttentionSizes, AttentionTiles, attention_seconds, candidate_tiles
from treadle.records import dataclass
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.form import Choice, Grid
from treadle.transforms.kernel.tiling.attention import AttentionTile, build_attention
from treadle.transforms.kernel.tiling.builder import KernelBuilder

NAME = "attention"
KIND = "attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(roles.Config):
    """`axes`: of the nest along rows, columns, keys and width (-1: extent one); `tile`: extents along them. `a_type`: what is multiplied.
    Copying and computing go to different warps where the machine has copies for it; `num_stages` of their rings. `resident`: workgroups
    that share a unit's registers, 0 for one.
    """

    form: ClassVar[str] = NAME
    axes: tuple[int, ...] = (-1, -1, -1, -1)
    tile: tuple[int, ...] = (1, 1, 1, 1)
    resident: int = 0

    @property
    def asked(self) -> AttentionTile:
        """As the tiling takes it."""
        return AttentionTile((*self.axes,), (*self.tile,), self.a_type, self.instruction)  # type: ignore[arg-type]

    def extents(self, rank: int) -> list[int]:
        found = dict(zip(self.axes, self.tile, strict=True))
        return [found.get(axis, 1) for axis in range(rank)]


def _structure(nest: LoopNest) -> Attention:
    if nest.attention is None:
        raise InternalError("a kernel of attention is wanted")
    return nest.attention


def axis_of(nest: LoopNest, loop: int) -> int:
    """The axis that a loop of the nest is part of, -1 where it has extent one."""
    return next((number for number, axis in enumerate(nest.axes) if loop in axis.dims), -1)


def refusal(problem: KernelProblem) -> str | None:
    """See `Form`."""
    nest, found = problem.nest, _structure(problem.nest)
    if nest.kernel.blocks:
        return "it is computed block by block"
    for what, loop in (("columns of the result", found.columns), ("width that scores reduce", found.width)):
        if (axis := axis_of(nest, loop)) >= 0 and nest.axes[axis].size.as_int() is None:
            return f"the {what} are the runtime's"
    if axis_of(nest, found.keys) < 0:
        return "there is one key"
    return None


def sizes_of(problem: KernelProblem) -> AttentionSizes:
    """What the models go by."""
    nest, found = problem.nest, _structure(problem.nest)

    def extent(axis: int) -> int | None:
        return 1 if axis < 0 else nest.axes[axis].usual

    main = main_axis(nest, "m")
    batch: int | None = 1
    for number, axis in enumerate(nest.axes):
        if not axis.is_reduction and number not in (main, axis_of(nest, found.columns)):
            batch = None if batch is None or axis.usual is None else batch * axis.usual
    width, columns = (extent(axis_of(nest, loop)) or 1 for loop in (found.width, found.columns))
    return AttentionSizes(batch, extent(main), extent(axis_of(nest, found.keys)), width, columns)


def operand_type(found: Attention) -> str:
    """What is multiplied: the operands' own type where all four have one, else that of the sums."""
    read = (*found.scores.inputs[:2], *found.values.inputs[:2])
    types = {str(element_of(value.type)) for value in read}
    return types.pop() if len(types) == 1 else str(element_of(found.softmax.total.op.results[0].type))


def decide(problem: KernelProblem) -> Sequence[Choice]:
    """See `Form`."""
    nest, found, sizes = problem.nest, _structure(problem.nest), sizes_of(problem)
    operand = operand_type(found)
    axes = (main_axis(nest, "m"), *(axis_of(nest, loop) for loop in (found.columns, found.keys, found.width)))
    choices: list[Choice] = []
    rows, keys, *_ = (*problem.overrides.tile, 0, 0)  # of the first contraction, as of any
    for tiles in candidate_tiles(sizes, operand, problem.spec, (rows, keys) if keys else None):
        config = Config(
            axes=axes,
            tile=(tiles.rows, tiles.columns, tiles.keys, tiles.width),
            warps=(tiles.warps, 1),
            num_stages=problem.overrides.num_stages or tiles.num_stages,
            instruction=tiles.instruction,
            a_type=operand,
            resident=tiles.resident if tiles.resident > 1 else 0,
        )
        seconds = attention_seconds(sizes, tiles, problem.memory_bytes, problem.spec)
        choices.append(Choice(config, seconds, _text(sizes, tiles, operand), tiles.rows * tiles.columns / tiles.warps, is_light=True))
    return choices


def _text(sizes: AttentionSizes, tiles: AttentionTiles, operand: str) -> str:
    rows, keys = ("any" if size is None else size for size in (sizes.rows, sizes.keys))
    return (
        f"attention of {rows} rows over {keys} keys, width {sizes.width}, {sizes.columns} columns, operands {operand}: tiles of "
        f"{tiles.rows}x{tiles.keys} scores, {tiles.warps} warps, instruction {tiles.instruction}"
    )


def build(kernel: KernelBuilder, config: Config) -> Grid:
    """See `Form`."""
    return build_attention(kernel, config.asked)
