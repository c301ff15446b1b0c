"""What tuning tries: the model's best few tilings of a program's largest contraction, or of its attention, as compile options."""

from dataclasses import dataclass, replace
from math import prod

from treadle.analysis.kernel_problem import NO_OVERRIDES, KernelProblem
from treadle.analysis.loop_nest import loop_nest
from treadle.bench.attention_candidates import AttentionProblem, attention_options, attention_problem
from treadle.bench.small_candidates import streaming_options, swapped_options
from treadle.dialects import dispatch
from treadle.errors import NOTHING_TO_TUNE, TreadleError
from treadle.frontends import mlir
from treadle.ir.passes import run_passes
from treadle.machine import TargetSpec, target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.plan.multiply_add_tiles import MultiplyAdds, multiply_add_tiles
from treadle.plan.role_clocks import RoleModel
from treadle.plan.role_tiles import ROLE_KNOBS, RoleProblem, RoleTile
from treadle.plan.small_m import SmallShape
from treadle.plan.tile_config import ContractionShape, ContractionTypes, TileProblem, contraction_cost, tiles_for
from treadle.transforms.kernel.set_kernel_form import answers

VARIED = 2
"""So many of the best tiles are tried in variants."""
MOST_ROWS_TOGETHER = 32


@dataclass(frozen=True, slots=True)
class Problem:
    """A contraction to tune: its sizes, what it is computed in.

    `roles`: what tiles of role kernels are chosen for, None where none can compute it. `small`: where one side is small, what its forms
    are chosen by; `few_is_m`: that side is m. `copied`: the vector units multiply what copies bring.
    """

    kernel: str
    shape: ContractionShape
    types: ContractionTypes
    roles: RoleProblem | None = None
    small: SmallShape | None = None
    few_is_m: bool = True
    copied: bool = False

    @property
    def instruction(self) -> str:
        """The matrix instruction, "fma" for none."""
        return self.types.instruction

    @property
    def work(self) -> int:
        """Multiply-adds, unknown sizes counted as 4096, batches as 1."""
        return (self.shape.batch or 1) * prod(self.shape.extents)


def problem_of(text: str, name: str, target: str, options: CompileOptions) -> Problem | AttentionProblem:
    """The largest contraction of a program, or its attention. Raises TR823 where there is neither."""
    module = mlir.load(text, name)
    run_passes(module, tensor_passes(target_spec(target), options))
    spec, numerics = target_spec(target), (options.f32_precision, options.fp8_accumulation)
    nests = [loop_nest(op) for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)]
    asked = [KernelProblem(nest, spec, NO_OVERRIDES, *numerics) for nest in nests]
    fused = [problem for one in asked if one.nest.kind == "attention" and (problem := attention_problem(one)) is not None]
    found = [*fused, *(_problem(one) for one in asked if one.nest.kind == "contraction")]
    if not found:
        raise TreadleError(NOTHING_TO_TUNE, name=name, target=target, reason="no kernel is a contraction, or attention")
    return max(found, key=lambda problem: problem.work)


def _problem(asked: KernelProblem) -> Problem:
    (best, *_) = answers(asked)
    nest, side = asked.nest, asked.small_side
    small = None if isinstance(side, str) or best.form.NAME not in ("streaming", "swapped") else side
    types = replace(asked.types, instruction="fma") if best.form.NAME == "streaming" else asked.types
    few_is_m = small is None or small.few_role == "m"
    name, shape = nest.kernel.sym_name.data, asked.shape
    roles = asked.role_problem if asked.copies.refusal is None else None
    return Problem(name, shape, types, roles, small and small.shape, few_is_m, asked.multiplies_pieces)


def candidates(problem: Problem | AttentionProblem, target: str, base: CompileOptions, count: int) -> list[CompileOptions]:
    """At most `count` options beside the compiler's own choice, which comes first: kernels of roles and plain ones, each best first by
    its model, two of roles for one plain (the models' units differ).
    """
    spec = target_spec(target)
    if isinstance(problem, AttentionProblem):
        roles, plain = attention_options(problem, spec, base), list[CompileOptions]()
    elif problem.small is None:
        roles, plain = _role_options(problem, spec, base), _plain_options(problem, spec, base)
    else:
        roles, plain = _small_options(problem, problem.small, spec, base)
    found = [base]
    while len(found) <= count and (roles or plain):
        for ranked in (roles, roles, plain):
            if ranked and len(found) <= count:
                chosen = ranked.pop(0)
                if chosen not in found:
                    found.append(chosen)
    return found


def _small_options(
    problem: Problem, shape: SmallShape, spec: TargetSpec, base: CompileOptions
) -> tuple[list[CompileOptions], list[CompileOptions]]:
    """Swapped and streaming ones, the form that the compiler chose first."""
    few_is_m = problem.few_is_m
    streaming = streaming_options(shape, few_is_m, spec, base)
    if problem.instruction == "fma":
        return streaming, []
    return swapped_options(shape, few_is_m, spec.instruction(problem.instruction), spec, base), streaming


def _role_options(problem: Problem, spec: TargetSpec, base: CompileOptions) -> list[CompileOptions]:
    """The best tiles by the model, each of the first few followed by its variants. One that does not fit after all fails to compile, and is
    dropped.
    """
    asked = problem.roles
    if asked is None:
        return []
    costs = RoleModel(asked, spec).costs()
    ranked = sorted(costs, key=lambda tile: costs[tile])
    found: list[CompileOptions] = []
    for number, tile in enumerate(ranked):
        variants = _variants(tile) if number < VARIED else [tile]
        found += [_options(base, variant) for variant in variants]
    return found


def _variants(tile: RoleTile) -> list[RoleTile]:
    """The tile, and the same walked, waited for and stored otherwise."""
    rasters = [raster for raster in (2 * tile.group_m, tile.group_m // 2) if 1 <= raster <= MOST_ROWS_TOGETHER]
    late = [replace(tile, deferred_store=not tile.deferred_store, tail_tile_n=0)] if tile.ping_pong == 1 else []
    return [
        tile,
        *late,
        replace(tile, steps_in_flight=1 - tile.steps_in_flight),
        replace(tile, cluster=1 if tile.cluster > 1 else 2, cluster_n=0, tail_tile_n=0),
        *(replace(tile, group_m=raster) for raster in rasters),
    ]


def _options(base: CompileOptions, tile: RoleTile) -> CompileOptions:
    names = (*ROLE_KNOBS, "group_m", "tail_tile_n")
    return replace(base, tile=(tile.m, tile.n, tile.k), warps=(tile.warps, 1), **{name: getattr(tile, name) for name in names})


def _plain_options(problem: Problem, spec: TargetSpec, base: CompileOptions) -> list[CompileOptions]:
    if problem.copied:
        found = multiply_add_tiles(MultiplyAdds(problem.types, problem.shape, spec))
        return [replace(base, tile=(t.m, t.n, t.k), warps=(t.warps_m, t.warps_n)) for t in found]
    tiles = sorted(tiles_for(TileProblem(problem.types, problem.shape, spec)), key=lambda tile: contraction_cost(tile, problem.shape, spec))
    depths = (0, 1) if base.pipeline_stages < 0 else (base.pipeline_stages,)
    return [replace(base, tile=(t.m, t.n, t.k), warps=(t.warps_m, t.warps_n), pipeline_stages=depth) for t in tiles for depth in depths]
