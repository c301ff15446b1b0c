"""set-roles and form-roles: what is decided can be read, written and overridden; what is formed holds no synchronisation."""

import random
from dataclasses import replace

import pytest
from transforms.kernel_configs import reconfigure
from transforms.role_kernels import MATMUL, SPEC

from treadle import pipelines
from treadle.analysis.element_bytes import buffer_bytes
from treadle.bench.suite import find
from treadle.dialects import pipe, tile
from treadle.dialects.agents import role_of, roles_of
from treadle.dialects.role_plan import RolePlan, RolePlanAttr
from treadle.errors import KernelRejected, TreadleError
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.options import CompileOptions
from treadle.plan.role_tiles import SHORTEST_RING
from treadle.remarks import collect_remarks
from treadle.transforms.kernel.roles.parts import STEPS_OF_TILES, cluster_refusal, turns_refusal
from treadle.transforms.kernel.set_roles import BESIDE_ACCUMULATORS
from treadle.verify.check import is_right

OPTIONS = CompileOptions(tile=(64, 64, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=3, tuned=False)


def until(last: str, options: CompileOptions = OPTIONS, roles: RolePlan | None = None) -> builtin.ModuleOp:
    """A product after the pass `last`; `roles`: a plan that is there already when set-roles comes."""
    return of_text(MATMUL.format(m=256, n=128, k=256), last, options, roles)


def of_text(text: str, last: str, options: CompileOptions, roles: RolePlan | None = None) -> builtin.ModuleOp:
    """The same of any program."""
    module = parse_module(text, "test.mlir")
    run_passes(module, [*pipelines.tensor_passes(SPEC, options), *pipelines.tile_passes(SPEC, options)])
    if roles is not None:
        kernel_in(module).attributes["roles"] = RolePlanAttr(roles)
    passes = pipelines.unproven_schedule_passes(options)
    at = next(number for number, one in enumerate(passes) if one.name == last)
    run_passes(module, passes[: at + 1])
    return module


def kernel_in(module: builtin.ModuleOp) -> tile.KernelOp:
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def plan_of(module: builtin.ModuleOp) -> RolePlan:
    plan = kernel_in(module).attributes["roles"]
    assert isinstance(plan, RolePlanAttr)
    return plan.data


def test_the_decision_can_be_read_and_written() -> None:
    module = until("set-roles")
    assert plan_of(module) == RolePlan(3, workgroups=SPEC.compute_units)
    printed = print_module(module)
    assert f"#pipe.role_plan<num_stages = 3, workgroups = {SPEC.compute_units}>" in printed
    assert print_module(parse_module(printed, "again")) == printed


@pytest.mark.parametrize("text", ["stages = 3", "num_stages = 0", "num_stages = 2, num_stages = 3", "cluster = 2"])
def test_plans_that_say_nothing_are_refused(text: str) -> None:
    printed = print_module(until("set-roles"))
    with pytest.raises(TreadleError):
        parse_module(
            printed.replace("role_plan<num_stages = 3", f"role_plan<{text}", 1).replace(f", workgroups = {SPEC.compute_units}", ""), "again"
        )


def test_a_plan_that_is_there_is_carried_out() -> None:
    module = until("insert-sync", roles=RolePlan(2, ping_pong=2, steps_in_flight=1, consumer_registers=104, workgroups=3))
    kernel = kernel_in(module)
    (roles,) = (op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    assert roles.role_names() == ("producer", "consumer0", "consumer1")
    assert kernel.grid_text()[0] == "3"
    assert is_right(kernel)


@pytest.mark.parametrize(("turns", "late", "cluster"), [(1, False, 1), (2, False, 1), (1, True, 1), (1, False, 2)])
def test_roles_are_formed_without_synchronisation(turns: int, late: bool, cluster: int) -> None:
    options = CompileOptions(
        tile=(64, 64, 64),
        warps=(4, 1),
        consumer_warpgroups=3 - turns,
        num_stages=3,
        ping_pong=turns,
        deferred_store=late,
        cluster=cluster,
        steps_in_flight=turns - 1,
        tuned=False,
    )
    module = until("form-roles", options)
    assert any(isinstance(op, pipe.RolesOp) for op in module.walk())
    assert not [op.name for op in module.walk() if op.name.startswith("sync.")]


@pytest.mark.parametrize(("groups", "turns", "moved"), [(1, 1, (0, 0)), (2, 1, (40, 232)), (1, 2, (40, 232)), (3, 1, (40, 152))])
def test_registers_move_where_threads_have_too_few_without(groups: int, turns: int, moved: tuple[int, int]) -> None:
    """One consumer warpgroup and its producer have 256 each."""
    options = replace(OPTIONS, consumer_warpgroups=groups, ping_pong=turns, steps_in_flight=turns - 1)
    plan = plan_of(until("set-roles", options))
    assert (plan.producer_registers, plan.consumer_registers) == moved


def test_a_ring_that_is_cut_back_is_a_remark() -> None:
    """The config asks for more than fits; the model's own choices never do."""
    module = until("lower-layout-conversions")
    reconfigure(kernel_in(module), num_stages=40)
    passes = pipelines.unproven_schedule_passes(OPTIONS)
    at = [one.name for one in passes].index("store-in-bulk")
    with collect_remarks() as log:
        run_passes(module, passes[at : at + 2])
    assert plan_of(module).num_stages < 40
    assert any("stages instead of 40" in remark.text for remark in log.remarks if remark.pass_name == "set-roles")


ONE_PART = CompileOptions(split_reduction="off", row_padding="off", tuned=False)


def planned(name: str, options: CompileOptions = ONE_PART) -> tuple[RolePlan, int]:
    """The roles of a product of that name (`bench/named_shapes.py`), and the bytes of its shared buffers."""
    workload = find(name)
    assert workload is not None
    plan = plan_of(of_text(workload.text, "set-roles", options))
    kernel = kernel_in(of_text(workload.text, "allocate-shared", options))
    ends = [op.byte_offset.value.data + buffer_bytes(op.result) for op in kernel.walk() if isinstance(op, tile.AllocOp) and op.byte_offset]
    return plan, max(ends)


@pytest.mark.parametrize(
    "name", ["gemm-f16-nt-3622x219x668", "gemm-bf16-nt-507x9671x122", "gemm-bf16-nt-74x9670x159", "gemm-f16-nn-3874x435x182"]
)
def test_copies_by_threads_have_cache_left(name: str) -> None:
    """Of 4, 4 and 2 bytes, and of both kinds; who asks for a number of stages has it."""
    plan, taken = planned(name)
    assert taken <= SPEC.shared_bytes_beside_cache < SPEC.shared_bytes_per_workgroup
    more, asked = planned(name, replace(ONE_PART, num_stages=plan.num_stages + 1))
    assert more.num_stages == plan.num_stages + 1
    assert asked > SPEC.shared_bytes_beside_cache


@pytest.mark.parametrize("seed", range(8))
def test_whatever_threads_copy_alone_has_cache_left(seed: int) -> None:
    """Rows along k are no whole 16 bytes apart, so that threads copy both operands, in rings of more slots than the fewest."""
    draw = random.Random(seed)
    m, n, k = draw.randint(130, 4000), draw.randint(130, 4000), 8 * draw.randint(20, 500) + draw.randint(1, 7)
    plan, taken = planned(f"gemm-{draw.choice(['f16', 'bf16'])}-nt-{m}x{n}x{k}", replace(ONE_PART, form="roles"))
    assert taken <= SPEC.shared_bytes_beside_cache or plan.num_stages == SHORTEST_RING


@pytest.mark.parametrize("name", ["gemm-f16-nt-4224x128x2816", "gemm-f16-nn-8192x60x4096"])
def test_rings_that_descriptors_fill_take_what_fits(name: str) -> None:
    """The second one's threads copy a third of a slot: fewer stages would keep the descriptors' copies waiting."""
    assert planned(name)[1] > SPEC.shared_bytes_beside_cache


def test_long_rings_leave_room_for_the_launch_behind() -> None:
    """Its workgroups wait beside this one's: a KiB of shared memory for each, which a ring of thirteen slots would take."""
    plan, taken = planned("gemm-bf16-nt-64x256x65536", replace(ONE_PART, split_reduction="32"))
    assert plan.num_stages == 12
    assert SPEC.shared_bytes_per_unit - taken > 8 << 10
    assert planned("gemm-bf16-nt-64x256x65536", replace(ONE_PART, split_reduction="32", num_stages=13))[0].num_stages == 13


def test_one_fill_is_in_flight_where_others_go_through_registers() -> None:
    """Rows of A are 4 bytes apart by multiples, those of B 2: each step waits for what registers bring."""
    assert planned("gemm-bf16-tt-452x2233x181")[0].fills_in_flight == 1
    plan = planned("gemm-f16-nt-3622x219x668")[0]
    assert plan.fills_in_flight == plan.num_stages // 2 > 1


@pytest.mark.parametrize(
    ("name", "columns", "consumers", "groups"),
    [
        ("gemm-bf16-nn-63x255x7001", 256, 1, 2),  # both operands through registers
        ("gemm-bf16-tt-1347x85x7662", 96, 2, 2),  # one, beside pieces of 4 bytes
        ("gemm-bf16-nn-123x456x5122", 256, 1, 1),  # pieces of 4 bytes only
        ("gemm-bf16-nn-12x154x7571", 192, 1, 1),  # three times as many of them
        ("gemm-f16-nt-74x200x1189", 80, 1, 1),  # no equal number of pieces for 256 threads
        ("gemm-f16-nt-128x2756x1245", 256, 2, 1),  # 128 accumulators of two consumers
        ("gemm-f16-nt-3624x216x664", 64, 2, 1),  # descriptors
    ],
)
def test_two_groups_copy_through_registers(name: str, columns: int, consumers: int, groups: int) -> None:
    asked = replace(ONE_PART, form="roles", tile=(64, columns, 64), consumer_warpgroups=consumers, num_stages=3)
    plan, _ = planned(name, asked)
    assert plan.copying_groups == groups
    if groups == 2:
        assert plan.producer_registers == plan.consumer_registers == 0, "all have as many as they begin with"


@pytest.mark.parametrize("seed", range(6))
def test_roles_have_the_registers_that_their_workgroup_begins_with(seed: int) -> None:
    """Of any product whose rows begin anywhere: what is asked for is there, and a consumer's accumulators fit what it has."""
    draw = random.Random(seed)
    m, n, k = (draw.randint(20, 3000) for _ in range(3))
    found = find(f"gemm-{draw.choice(['f16', 'bf16'])}-{draw.choice(['nn', 'nt', 'tn', 'tt'])}-{m}x{n}x{k | 1}")
    assert found is not None
    kernel = kernel_in(of_text(found.text, "form-roles", replace(ONE_PART, form="roles")))
    warps = kernel.num_warps.value.data
    start = SPEC.registers_at_start(warps)
    (roles,) = (roles_of(op) for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    assert sum((role.end_warp - role.first_warp) * (role.registers or start) for role in roles) <= start * warps
    for op in kernel.walk():
        if isinstance(op, tile.ContractOp):
            role = role_of(op)
            assert role is not None
            shape = tile.tile_type(op.result).get_shape()
            assert shape[0] * shape[1] // (role.warps * SPEC.subgroup_size) + BESIDE_ACCUMULATORS <= (role.registers or start)


def test_what_is_refused_is_a_remark_and_left_alone() -> None:
    options = CompileOptions(
        tile=(64, 64, 64),
        warps=(4, 1),
        consumer_warpgroups=1,
        num_stages=3,
        ping_pong=2,
        deferred_store=True,
        persistent="never",
        tuned=False,
    )
    with collect_remarks() as log:
        plan = plan_of(until("set-roles", options))
    assert (plan.ping_pong, plan.deferred_stores, plan.workgroups) == (1, 0, 0)
    texts = [remark.text for remark in log.remarks if remark.pass_name == "set-roles"]
    assert texts == ["no ping-pong: each workgroup has one tile", "no deferred stores: each workgroup has one tile"]
    plain = until("form-roles", CompileOptions(roles=False, tuned=False))
    assert "roles" not in kernel_in(plain).attributes
    assert not any(isinstance(op, pipe.RolesOp) for op in plain.walk())


@pytest.mark.parametrize(
    ("kind", "number", "in_turn", "is_refused"),
    [
        (arith.DivUIOp, 4, False, False),
        (arith.DivUIOp, 2, False, False),
        (arith.DivUIOp, 3, False, True),
        (arith.RemUIOp, 4, False, True),
        (arith.MuliOp, 4, False, True),
        (arith.DivUIOp, 4, True, True),
    ],
)
def test_clusters_have_the_same_steps(kind: type[arith.DivUIOp], number: int, in_turn: bool, is_refused: bool) -> None:
    """Workgroups of a cluster of two share a part of a sum, and its length, where their ids divided by an even number tell it."""
    kernel = kernel_in(until("lower-layout-conversions", replace(OPTIONS, consumer_warpgroups=1)))
    (loop,) = (op for op in kernel.body.block.ops if isinstance(op, scf.ForOp))
    assert cluster_refusal(kernel, (2, 1), in_turn=in_turn) is None
    by = arith.ConstantOp(builtin.IntegerAttr(number, builtin.IndexType()))
    own, other = tile.ProgramIdOp(0), arith.ConstantOp(builtin.IntegerAttr(64, builtin.IndexType()))
    part = kind(own.result, by.result)
    steps = arith.MuliOp(part.result, other.result)
    for op in (by, own, other, part, steps):
        kernel.body.block.insert_op_before(op, loop)
    loop.operands[1] = steps.result
    assert cluster_refusal(kernel, (2, 1), in_turn=in_turn) == (STEPS_OF_TILES if is_refused else None)
    assert turns_refusal(kernel) == STEPS_OF_TILES


def test_warpgroups_without_roles_are_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(kernel: tile.KernelOp) -> str:
        return "of this test"

    monkeypatch.setattr("treadle.transforms.kernel.set_roles.refusal", refused)
    with pytest.raises(KernelRejected, match="roles are refused: of this test"):
        until("set-roles")
    assert "roles" not in kernel_in(until("set-roles", replace(OPTIONS, consumer_warpgroups=1))).attributes
