"""Products that share an operand, from linalg to schedules: one kernel, proven, executed by the simulator, held against float64."""

from typing import Any

import pytest
from generators.horizontal import Products
from transforms.kernel_configs import reconfigure

from treadle import pipelines
from treadle.dialects import dispatch, pipe, sync, tile
from treadle.ir.core import Operation
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.sim.check import check
from treadle.sim.reference import evaluate_module
from treadle.sim.schedule import run_program_scheduled
from treadle.sim.schedule.scheduler import Mode
from treadle.transforms.kernel.set_kernel_form import SetKernelFormPass

PLAIN: dict[str, Any] = {"roles": False}
PIPELINED: dict[str, Any] = {"roles": False, "pipeline_stages": 0}
ROLES: dict[str, Any] = {"tile": (64, 64, 64), "warps": (4, 1), "num_stages": 3, "consumer_warpgroups": 2}
CASES = {
    "odd": Products(77, 50, 33, "f16", result="f16"),
    "three results, ragged rows and columns": Products(130, 200, 72, kept=True),
    "layouts apart": Products(70, 136, 64, weights=("nk", "kn")),
    "the second factor shared": Products(72, 66, 40, shared_last=True, weights=("nk", "kn")),
    "three products": Products(65, 40, 48, weights=("nk", "nk", "kn")),
    "four products": Products(33, 40, 48, weights=("nk",) * 4),
    "products alone": Products(200, 24, 400, weights=("nk", "nk", "nk"), combined=False, kept=True),
    "f32": Products(65, 41, 30, "f32", result="f32", weights=("kn", "kn")),
    "i8": Products(66, 48, 80, "i8", result="i32", kept=True),
    "fp8": Products(40, 48, 144, "f8E4M3FN"),
    "dynamic": Products(70, 45, 40, dynamic=True),
    "dynamic, the second factor shared": Products(70, 45, 40, dynamic=True, shared_last=True, weights=("kn", "nk")),
    "one row": Products(1, 64, 72),
    "four rows": Products(4, 72, 256, kept=True),
    "sixteen rows": Products(16, 136, 264, "f16", result="f16"),
    "one column": Products(65, 1, 72),
    "nothing to sum": Products(20, 24, 0),
}
AMD_CASES = ("odd", "four rows", "sixteen rows", "layouts apart", "three products", "i8", "dynamic, the second factor shared")


def lowered(text: str, target: str, options: CompileOptions) -> builtin.ModuleOp:
    """At schedule level; the verifier has looked at it."""
    module = parse_module(text, "test.mlir")
    pipelines.lower(module, target_spec(target), options)
    return module


def kernel_of(module: Operation) -> tile.KernelOp:
    """The only kernel."""
    (kernel,) = [op for op in module.walk() if isinstance(op, tile.KernelOp)]
    return kernel


def judge(program: Products, target: str, options: CompileOptions, mode: Mode = "late") -> tile.KernelOp:
    """Compile, execute and compare; the kernel."""
    module = lowered(program.text(), target, options)
    arrays = program.arrays()
    report = run_program_scheduled(module, arrays, mode)
    assert report.ok, str(report)
    for got, reference in zip(report.outputs, evaluate_module(parse_module(program.text(), "test.mlir"), arrays), strict=True):
        verdict = check(got, reference)
        assert verdict.ok, verdict
    return kernel_of(module)


@pytest.mark.parametrize(
    ("name", "target"), [(name, "sm_90a") for name in CASES] + [(n, t) for n in AMD_CASES for t in ("gfx942", "gfx1201")]
)
def test_products_by_the_compilers_choice(name: str, target: str) -> None:
    judge(CASES[name], target, CompileOptions())


@pytest.mark.parametrize("options", [PIPELINED, PIPELINED | {"persistent": "always"}, PLAIN | {"persistent": "always"}])
@pytest.mark.parametrize("name", ["odd", "three results, ragged rows and columns", "layouts apart", "dynamic", "nothing to sum"])
def test_products_without_roles(name: str, options: dict[str, Any]) -> None:
    judge(CASES[name], "sm_90a", CompileOptions(**options), "random")


ROLE_CASES: dict[str, tuple[Products, dict[str, Any]]] = {
    "two groups": (Products(200, 200, 200), {}),
    "three results": (Products(200, 136, 264, kept=True), {}),
    "layouts apart": (Products(130, 200, 264, weights=("kn", "nk")), {}),
    "the second factor shared": (Products(136, 200, 264, shared_last=True, weights=("nk", "kn")), {}),
    "three products": (Products(130, 136, 264, weights=("nk",) * 3), {"tile": (64, 64, 64), "num_stages": 2}),
    "columns known at run time": (Products(130, 136, 264, dynamic=True), {}),
    "one tile a workgroup": (Products(200, 200, 200), {"persistent": "never"}),
    "an instruction in flight": (Products(200, 200, 264), {"steps_in_flight": 1}),
    "in turn": (Products(200, 200, 264, kept=True), {"consumer_warpgroups": 1, "ping_pong": 2, "tile": (64, 64, 64)}),
    "i8": (Products(130, 160, 272, "i8", result="i32"), {"tile": (64, 32, 128)}),
    "one step": (Products(130, 136, 64), {}),
}


@pytest.mark.parametrize("number", range(len(ROLE_CASES)), ids=list(ROLE_CASES))
def test_products_with_roles(number: int) -> None:
    program, options = list(ROLE_CASES.values())[number]
    mode: Mode = "random" if number % 2 else "late"
    kernel = judge(program, "sm_90a", CompileOptions(**{**ROLES, **options}), mode)
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk())


@pytest.mark.parametrize("options", [PIPELINED, PLAIN, ROLES, ROLES | {"consumer_warpgroups": 1, "ping_pong": 2}])
def test_few_workgroups_take_all_tiles_in_turn(options: dict[str, Any]) -> None:
    program, spec = Products(200, 136, 136, kept=True), target_spec("sm_90a")
    sized: dict[str, Any] = {"tile": (64, 32, 64), "warps": (4, 1), **options}
    asked = CompileOptions(persistent="always", **sized)
    module = parse_module(program.text(), "test.mlir")
    passes = pipelines.tile_passes(spec, asked)
    deciding = 1 + next(i for i, one in enumerate(passes) if isinstance(one, SetKernelFormPass))
    run_passes(module, [*pipelines.tensor_passes(), *passes[:deciding]])
    (kernel,) = [op for op in module.walk() if isinstance(op, dispatch.KernelOp)]
    reconfigure(kernel, workgroups=2)
    run_passes(module, [*passes[deciding:], *pipelines.schedule_passes(asked)])
    assert kernel_of(module).grid_text()[0] == "2"
    report = run_program_scheduled(module, program.arrays(), "random")
    assert report.ok, str(report)
    for got, reference in zip(report.outputs, evaluate_module(parse_module(program.text(), "test.mlir"), program.arrays()), strict=True):
        assert check(got, reference).ok


def inside(op: Operation, kind: type[Operation]) -> list[Any]:
    """Operations of one kind in a region, at any depth."""
    return [inner for inner in op.walk() if isinstance(inner, kind) and inner is not op]


def main_loops(kernel: tile.KernelOp) -> list[scf.ForOp]:
    """The innermost loops that contract."""
    loops = [op for op in kernel.walk() if isinstance(op, scf.ForOp) and inside(op, tile.ContractOp)]
    return [loop for loop in loops if not inside(loop, scf.ForOp)]


def test_roles_share_the_operand_and_the_group_of_instructions() -> None:
    kernel = kernel_of(lowered(CASES["three results, ragged rows and columns"].text(), "sm_90a", CompileOptions(**ROLES)))
    (roles,) = inside(kernel, pipe.RolesOp)
    producer, *consumers = roles.regions
    copies = [op for op in producer.walk() if isinstance(op, tile.CopyOp)]
    assert len(copies) == 2 + 2, "one of x for each group of rows, one of each weight"
    (expected,) = [op for op in producer.walk() if isinstance(op, sync.MbarrierExpectOp)]
    assert expected.byte_count.value.data == (128 + 64 + 64) * 64 * 2
    for consumer in consumers:
        (loop,) = [op for op in consumer.walk() if isinstance(op, scf.ForOp) and not inside(op, scf.ForOp)]
        first, second = inside(loop, tile.ContractOp)
        assert first.a is second.a
        assert len(inside(loop, sync.CommitOp)) == len(inside(loop, sync.WaitOp)) == len(inside(loop, sync.WaitPhaseOp)) == 1
        assert not [op for op in consumer.walk() if isinstance(op, sync.WaitOp) and op.queue.data == "wgmma" and op.parent_op() is not loop]
        outs = [op for op in consumer.walk() if isinstance(op, tile.CopyOutOp)]
        assert len(outs) == 3, "each of the three results leaves in bulk"
        assert not [op for op in consumer.walk() if isinstance(op, tile.StoreOp)]


@pytest.mark.parametrize("options", [PLAIN, PIPELINED])
def test_a_loop_of_two_products_commits_once_a_step_and_waits_once_before_the_epilogue(options: dict[str, Any]) -> None:
    program = Products(256, 128, 512, kept=True)
    kernel = kernel_of(lowered(program.text(), "sm_90a", CompileOptions(**options, tile=(128, 64, 64), warps=(4, 1))))
    (loop,) = main_loops(kernel)
    first, second = inside(loop, tile.ContractOp)
    assert first.a is second.a and first.next_op is second
    matrix = [op for op in kernel.walk() if isinstance(op, sync.CommitOp | sync.WaitOp) and op.queue.data == "wgmma"]
    in_loop = [op for op in matrix if op.parent_op() is loop]
    assert sum(isinstance(op, sync.CommitOp) for op in in_loop) == 1
    assert sum(isinstance(op, sync.WaitOp) for op in in_loop) == 1
    # Behind the loop: one wait for the first result before its epilogue; the second result's instructions may run on under that.
    waits = 0
    op: Operation | None = loop.next_op
    while op is not None and not isinstance(op, arith.TruncFOp):
        waits += isinstance(op, sync.WaitOp) and op.queue.data == "wgmma"
        op = op.next_op
    assert op is not None
    assert waits == (options == PIPELINED), "without stages the wait of each step is enough"


def test_fragments_of_the_shared_operand_are_loaded_once_a_step() -> None:
    kernel = kernel_of(lowered(Products(128, 64, 256, "f16").text(), "gfx942", CompileOptions(tile=(64, 64, 32), warps=(2, 2))))
    (loop,) = main_loops(kernel)
    contracts = inside(loop, tile.ContractOp)
    assert len(contracts) % 2 == 0
    assert len(inside(loop, tile.LocalLoadOp)) == len(contracts) // 2 * 3
    pipelined: Any = loop.attributes["pipelined"]
    steps = pipelined.data["unroll"].value.data
    assert len(inside(loop, tile.LocalStoreOp)) == 3 * steps
