"""Kernels of roles: every schedule proven and simulated, with several tiles a workgroup, odd sizes and few steps."""

import ml_dtypes
import numpy as np
import pytest

from treadle import machine, pipelines
from treadle.dialects import dispatch, pipe, sync, tile
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.plan.mixed_widths import mixed_widths
from treadle.sim.schedule import Report, simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.verify.check import is_right

SPEC = machine.target_spec("sm_90a")
MATMUL = """
func.func @f(%a: tensor<{m}x{k}xbf16>, %b: tensor<{n}x{k}xbf16>) -> tensor<{m}x{n}xbf16> {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{m}x{n}xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %r = linalg.matmul_transpose_b ins(%a, %b : tensor<{m}x{k}xbf16>, tensor<{n}x{k}xbf16>)
      outs(%f : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %o = tensor.empty() : tensor<{m}x{n}xbf16>
  %g = linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}} ins(%r : tensor<{m}x{n}xf32>) outs(%o : tensor<{m}x{n}xbf16>) {{
  ^bb0(%x: f32, %u: bf16):
    %h = arith.truncf %x : f32 to bf16
    linalg.yield %h : bf16
  }} -> tensor<{m}x{n}xbf16>
  return %g : tensor<{m}x{n}xbf16>
}}
"""
SHAPES = [(200, 136, 200), (130, 72, 64), (64, 264, 328)]
"""Ragged in every dimension, one step, more steps than slots."""


def kernel_of(m: int, n: int, k: int, options: CompileOptions, workgroups: int = 2, **config: int) -> tile.KernelOp:
    """The schedule of a product, its tiles taken in turn by so many workgroups; `config`: further choices."""
    module = parse_module(MATMUL.format(m=m, n=n, k=k), "test.mlir")
    run_passes(module, [*pipelines.tensor_passes(SPEC, options), *pipelines.tile_passes(SPEC, options)])
    kernel = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    assert kernel.config is not None
    numbers = {"workgroups": workgroups, **config}
    chosen = {name: builtin.IntegerAttr(value, builtin.i64) for name, value in numbers.items()}
    kernel.properties["config"] = builtin.DictionaryAttr({**kernel.config.data, **chosen})
    run_passes(module, pipelines.unproven_schedule_passes(options))
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def check(kernel: tile.KernelOp, m: int, n: int, k: int) -> None:
    """Nothing to object, and the right result in the latest and a random order of effects."""
    assert is_right(kernel)
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-3, 4, (n, k)).astype(ml_dtypes.bfloat16)
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)
    ways: tuple[tuple[Mode, int], ...] = (("late", 0), ("random", 1))
    for mode, seed in ways:
        report = simulate(kernel, [a, b, np.full((m, n), np.nan, ml_dtypes.bfloat16)], mode=mode, seed=seed)
        assert report.ok, report
        assert np.array_equal(report.outputs[0].reshape(m, n).astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("name", ["together", "pending", "late", "turns", "turns-pending"])
def test_schedules_of_roles(name: str, m: int, n: int, k: int) -> None:
    turns = 2 if "turns" in name else 1
    pending = int("pending" in name)
    options = CompileOptions(tile=(64, 64, 64), warps=(4, 1), groups=3 - turns, ring=3, turns=turns, pending=pending)
    check(kernel_of(m, n, k, options, late=int(name == "late")), m, n, k)


@pytest.mark.parametrize("turns", [1, 2])
def test_groups_of_a_turn_are_one_role(turns: int) -> None:
    m, n, k = 264, 72, 136
    options = CompileOptions(tile=(64, 64, 64), warps=(4, 1), groups=2, ring=2, turns=turns)
    kernel = kernel_of(m, n, k, options)
    (roles,) = (op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    assert roles.role_names() == ("producer", *(("consumer",) if turns == 1 else ("consumer0", "consumer1")))
    assert roles.role_groups() == (1, *[2] * turns)
    met = {op.number(group) for op in roles.walk() if isinstance(op, sync.NamedBarrierOp) for group in (0, 1)}
    assert met == set(range(1, 1 + 2 * turns))
    check(kernel, m, n, k)


@pytest.mark.parametrize("columns", [32, 48, 96])
def test_late_boxes_of_several_widths(columns: int) -> None:
    options = CompileOptions(tile=(64, columns, 64), warps=(4, 1), groups=2, ring=2)
    kernel = kernel_of(200, 136, 128, options, late=1)
    check(kernel, 200, 136, 128)


def test_late_stores_stand_between_matrix_instructions_and_their_wait() -> None:
    options = CompileOptions(tile=(64, 128, 64), warps=(4, 1), groups=2, ring=3)
    kernel = kernel_of(512, 512, 256, options, late=1)
    for op in kernel.walk():
        if isinstance(op, sync.WaitOp) and op.queue.data == "wgmma":
            before = [earlier.name for earlier in list(op.parent.ops)[: list(op.parent.ops).index(op)]] if op.parent else []
            if "tile.copy_out" in before:
                assert before[-1] == "sync.commit" and "tile.contract" in before
    loops = [op for op in kernel.walk() if op.name == "scf.for"]
    assert any(sum(isinstance(inner, tile.CopyOutOp) for inner in loop.walk()) == 2 for loop in loops)


def test_a_turn_barrier_is_needed() -> None:
    options = CompileOptions(tile=(64, 64, 64), warps=(4, 1), groups=1, ring=2, turns=2)
    kernel = kernel_of(256, 128, 256, options)
    turns = next(op for op in kernel.walk() if isinstance(op, sync.MbarrierAllocOp) and op.slot_count() == 2 and op is not None)
    assert turns.arrivals.value.data == 1
    waits = [op for op in kernel.walk() if isinstance(op, sync.WaitPhaseOp)]
    alloc = [op for op in kernel.walk() if isinstance(op, sync.MbarrierAllocOp)][-1]
    removed = [w for w in waits if getattr(w.barrier.owner, "source", None) is alloc.result]
    assert len(removed) == 2
    for wait in removed:
        wait.detach()
        wait.erase()
    assert not is_right(kernel)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(("m", "n", "k"), [(200, 136, 200), (250, 72, 264)])
def test_clusters_share_what_their_tiles_have_in_common(m: int, n: int, k: int, late: int) -> None:
    options = CompileOptions(tile=(64, 64, 64), warps=(4, 1), groups=1, ring=3)
    kernel = kernel_of(m, n, k, options, workgroups=4, cluster=2, late=late)
    assert kernel.cluster_size() == 2
    copies = [op for op in kernel.walk() if isinstance(op, tile.CopyOp)]
    assert [op.multicast_ranks() for op in copies] == [(), (0, 1)]
    assert [tile.memref_type(op.destination).get_shape() for op in copies] == [(64, 64), (64, 32)]
    assert is_right(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, sync.ArriveOp) and op.peer_ranks():
            op.properties.pop("peers")
    assert not is_right(kernel), "the other workgroup's consumers hold the slot too"


def mixed_kernel(m: int, n: int, k: int, narrow: int, workgroups: int) -> tile.KernelOp:
    """As `kernel_of`, with late stores and tiles of two widths that fill the rounds of so many workgroups."""
    options = CompileOptions(tile=(64, 128, 64), warps=(4, 1), groups=2, ring=3, late=True)
    module = parse_module(MATMUL.format(m=m, n=n, k=k), "test.mlir")
    passes = pipelines.tile_passes(SPEC, options)
    at = next(i for i, one in enumerate(passes) if one.name == "convert-dispatch-to-tile")
    run_passes(module, [*pipelines.tensor_passes(SPEC, options), *passes[:at]])
    kernel = next(op for op in module.walk() if isinstance(op, dispatch.KernelOp))
    config = kernel.attributes["config"]
    mixed = mixed_widths(-(-m // 128), n, 128, narrow, workgroups)
    assert isinstance(config, builtin.DictionaryAttr)
    assert mixed is not None
    more = {
        "workgroups": builtin.IntegerAttr(workgroups, builtin.i64),
        "blocks": builtin.DenseArrayBase.from_list(builtin.i64, mixed.numbers()),
    }
    kernel.attributes["config"] = builtin.DictionaryAttr({**config.data, **more})
    run_passes(module, [*passes[at:], *pipelines.unproven_schedule_passes(options)])
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


@pytest.mark.parametrize(("m", "n", "k", "narrow", "workgroups"), [(330, 520, 72, 96, 4), (120, 392, 200, 96, 2)])
def test_tiles_of_two_widths(m: int, n: int, k: int, narrow: int, workgroups: int) -> None:
    kernel = mixed_kernel(m, n, k, narrow, workgroups)
    contracts = [op for op in kernel.walk() if isinstance(op, tile.ContractOp)]
    assert {op.defined_columns() for op in contracts} == {128, narrow}
    check(kernel, m, n, k)


def test_the_place_of_a_late_tile_is_computed_behind_its_loop() -> None:
    kernel = mixed_kernel(330, 520, 72, 96, 4)
    for contract in (op for op in kernel.walk() if isinstance(op, tile.ContractOp)):
        loop = contract.parent_op()
        if isinstance(loop, scf.ForOp) and isinstance(loop.parent_op(), scf.ForOp):
            names = [op.name for op in loop.parent.ops] if loop.parent is not None else []
            assert "arith.divui" not in names[: names.index("scf.for")], "the place waits for nothing and nothing waits for it"


def test_columns_that_a_narrow_tile_does_not_need_are_poison() -> None:
    kernel = mixed_kernel(330, 520, 72, 96, 4)
    for op in kernel.walk():
        if isinstance(op, tile.ContractOp) and op.columns is not None:
            op.properties["columns"] = builtin.IntegerAttr(88, builtin.i64)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((330, 72), (520, 72)))
    report = simulate(kernel, [a, b, np.zeros((330, 520), ml_dtypes.bfloat16)])
    assert np.isnan(report.outputs[0].astype(np.float32)).any()


def test_elements_written_twice_need_a_word_and_equal_values() -> None:
    def report(*, said: bool, moved: int) -> Report:
        kernel = mixed_kernel(120, 392, 72, 96, 2)
        for op in kernel.walk():
            if isinstance(op, tile.CopyOutOp) and not said:
                del op.properties["repeats"]
            # The last box of a narrow tile is columns 32 to 96 of its sums.
            if isinstance(op, tile.SliceOp) and tile.ints(op.offsets) == (0, 32):
                op.properties["offsets"] = builtin.DenseArrayBase.from_list(builtin.i64, [0, 32 - moved])
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((120, 72), (392, 72)))
        return simulate(kernel, [a, b, np.zeros((120, 392), ml_dtypes.bfloat16)])

    assert report(said=True, moved=0).ok
    assert {race.kind for race in report(said=False, moved=0).races} == {"order"}
    assert any("different values" in race.where for race in report(said=True, moved=8).races)
