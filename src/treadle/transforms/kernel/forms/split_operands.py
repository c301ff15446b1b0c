"""split_operands: a contraction of f32 whose kernel splits the operands into bf16 parts, or rounds them to tf32, behind a ring of roles.

Operands come as they are. One is split in the registers that the matrix instruction reads, the other by a role of its own, which writes the
parts to a ring of their own. Products of parts are summed from zero in every step and added in f32. Either operand may lie along k or
across it, also where the instruction reads along k alone. See docs/precision.md, "Inside the kernel".
"""

from collections.abc import Sequence
from typing import ClassVar

from treadle.analysis.kernel_problem import KernelProblem
from treadle.plan.expr import constant
from treadle.plan.f32_split import IN_KERNEL
from treadle.plan.split_tiles import SplitProblem, SplitTile, split_clocks, split_tile_seconds, split_tiles
from treadle.records import dataclass, replace
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.contraction import GROUP_M, contraction_of, merging_seconds, merging_text
from treadle.transforms.kernel.forms.form import Choice, Choices, Grid
from treadle.transforms.kernel.tiling.builder import KernelBuilder
from treadle.transforms.kernel.tiling.contraction import build_contraction

NAME = "split_operands"
KIND = "contraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(roles.Config):
    """`split`: a name of `plan/f32_split.IN_KERNEL`. `is_swapped`: A and B are exchanged (`axes` and `tile` are those of the exchanged
    problem), so that the problem's B goes through registers.
    """

    form: ClassVar[str] = NAME
    split: str = ""
    is_swapped: bool = False

    def relieved(self, problem: KernelProblem) -> "Config":
        return self


def refusal(problem: KernelProblem) -> str | None:
    """See `Form`."""
    name = problem.split_inside
    if not name:
        return "no split of its operands is asked for in the kernel"
    if not problem.overrides.roles:
        return "roles are turned off"
    if len(problem.nest.roots) > 1:
        return "several contractions share the kernel"
    inner = replace(problem, split=name)
    if min(inner.axes) < 0:
        return "one of its sides is no axis"
    if inner.types.instruction == "fma" or problem.spec.register_moves is None:
        return f"{problem.spec.name} has no instruction that reads {IN_KERNEL[name].element} from registers and shared memory"
    return inner.copies.refusal


def decide(problem: KernelProblem) -> Sequence[Choice]:
    """See `Form`."""
    inner = replace(problem, split=problem.split_inside)
    wanted, spec = _wanted(inner), problem.spec
    asked = problem.overrides.tile if problem.overrides.form == NAME else ()
    fitting = (tile for tile in split_tiles(wanted, spec) if not asked or (tile.m, tile.n, tile.k) == asked)
    found = sorted(fitting, key=lambda tile: split_clocks(tile, wanted, spec))
    if not found:
        return []
    lighter = [tile for tile in found if 2 * tile.n <= found[0].n]
    return Choices(_choice(inner, wanted, tile, is_light=number > 0) for number, tile in enumerate((*found[:1], *lighter[:1])))


def _wanted(inner: KernelProblem) -> SplitProblem:
    nest, row = inner.nest, inner.spec.instruction(inner.types.instruction)
    k_axis, result = nest.axes[inner.axes[2]], next(access for access in nest.accesses if access.is_result)
    operands = [next(a for a in nest.accesses if a.input_number == number) for number in (inner.kind.lhs, inner.kind.rhs)]
    along = [nest.stride_along(access, k_axis) == constant(1) for access in operands]
    width = {"f32": 4, "f64": 8}.get(str(result.element), 2)
    return SplitProblem(IN_KERNEL[inner.split], row, inner.shape, (along[0], along[1]), inner.copies.piece_bytes, width)


def _choice(inner: KernelProblem, wanted: SplitProblem, tile: SplitTile, *, is_light: bool) -> Choice:
    (m_axis, n_axis, k_axis), types, spec = inner.axes, inner.types, inner.spec
    config = Config(
        axes=(n_axis, m_axis, k_axis) if tile.is_swapped else inner.axes,
        tile=(tile.m, tile.n, tile.k),
        warps=(tile.warps, 1),
        instruction=types.instruction,
        a_type=types.a,
        b_type=types.b,
        accumulator_type=types.accumulator,
        group_m=inner.overrides.group_m or GROUP_M,
        is_promoted=inner.is_promoted,
        num_stages=inner.overrides.num_stages or tile.num_stages,
        keeps_cache=inner.may_keep_cache,
        consumer_warpgroups=tile.groups,
        parts_together=inner.parts_together(tile.m),
        split=inner.split,
        is_swapped=tile.is_swapped,
    )
    split, swapped = IN_KERNEL[inner.split], "B" if tile.is_swapped else "A"
    parts = f"{split.parts} {split.element} parts of each operand, {len(split.products)} products, promoted every {tile.k} along k"
    made, verb = (parts, "split") if split.parts > 1 else (f"both rounded to {split.element}", "round")
    text = (
        f"{inner.operands_text}: {made}; tile {tile.m}x{tile.n}x{tile.k}, {tile.groups} consumer warpgroups that {verb} {swapped} in "
        f"their registers, a role that {verb}s the other, fed through {tile.num_stages} stages by a producer"
    )
    seconds = split_tile_seconds(tile, wanted, inner.memory_bytes, spec) + merging_seconds(inner, tile.m * tile.n, config.parts_together)
    return Choice(config, seconds, text + merging_text(inner, config), tile.m * tile.n / tile.warps, is_light)


def build(kernel: KernelBuilder, config: Config) -> Grid:
    """See `Form`."""
    kind = contraction_of(kernel)
    kind, in_turn = kind.swapped() if config.is_swapped else kind, config.workgroups > 0
    return build_contraction(kernel, kind, config, has_roles=True, split=config.split, in_turn=in_turn)
