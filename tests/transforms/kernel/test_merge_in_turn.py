"""merge = turnstile: each workgroup adds its part in its turn: right, the same bits every time, proven, refused where it does not fit."""

from typing import Any

import numpy as np
import pytest
from generators.arrivals import IN_ROLES, product_kernel, split_product
from ml_dtypes import bfloat16
from targets.amd import emulator, programs
from transforms.kernel.test_merge_parts import ADDED, FOLDS, matmul, random_roles, reduction, refusals

import treadle
from treadle import remarks
from treadle.dialects import dispatch, pipe, sync, tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.frontends.mlir import load
from treadle.ir.dialects import scf
from treadle.ir.passes import run_passes
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.sim.schedule import ScheduledProgram
from treadle.sim.schedule.scheduler import Mode
from treadle.targets.registry import backend
from treadle.transforms.kernel.merge_parts import MergePartsPass
from treadle.verify.check import prove
from treadle.verify.faults import faults

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
RNG = np.random.default_rng(12)


def in_turn(text: str) -> str:
    """A split whose parts the last workgroup would merge, merged in turn."""
    assert "merge = last" in text
    return text.replace("merge = last", "merge = turnstile")


def test_memory_for_one_part() -> None:
    last, turn = (treadle.compile(text, target="sm_90a") for text in (matmul(100, 90, 500, 7), in_turn(matmul(100, 90, 500, 7))))
    assert len(turn.manifest.launches) == 1
    found = [[(b.bytes, b.zero) for b in one.manifest.buffers if b.role == "temporary"] for one in (last, turn)]
    assert found == [[(7 * 4 * 100 * 90, False), (4 * 2 * 3, True)], [(4 * 100 * 90, False), (4 * 2 * 3, True)]]


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 7, 129), (33, 41, 203), (65, 31, 500)])
def test_products(m: int, n: int, k: int, parts: int) -> None:
    """Small ragged products onto an initial value, twice on the same counters."""
    a, b = RNG.standard_normal((m, k)).astype(np.float16), RNG.standard_normal((k, n)).astype(np.float16)
    c = RNG.standard_normal((m, n)).astype(np.float32)
    program = treadle.compile(in_turn(matmul(m, n, k, parts)), target="sim")
    assert len(program.manifest.launches) == 1
    first, again = (np.asarray(program(a, b, c)[0]) for _ in range(2))
    np.testing.assert_allclose(first, a.astype(np.float64) @ b + c, atol=1e-4 * np.sqrt(k))
    assert first.tobytes() == again.tobytes()


@pytest.mark.parametrize(("body", "start", "fold"), FOLDS)
@pytest.mark.parametrize(("rows", "columns", "parts"), [(1, 3001, 7), (7, 1003, 2), (33, 700, 3)])
def test_sums_of_rows(body: str, start: str, fold: Any, rows: int, columns: int, parts: int) -> None:
    x, bias = RNG.integers(-9, 10, (rows, columns)).astype(np.float32), RNG.integers(-9, 10, rows).astype(np.float32)
    program = treadle.compile(
        in_turn(reduction(rows, columns, parts, body=body, start=start, tail=ADDED.format(rows, "f32"))), target="sim"
    )
    assert len(program.manifest.launches) == 1
    for _ in range(2):
        np.testing.assert_array_equal(program(x, bias)[0], fold(x, axis=1) + bias)


def test_the_parts_are_added_in_their_order() -> None:
    """Not in that of a tree: ((p0 + p1) + p2) + p3, and the initial value last."""
    x = np.zeros((1, 64), np.float32)
    x[0, ::16] = [1.0, 2.0**24, -(2.0**24), 3.0]
    program = treadle.compile(in_turn(reduction(1, 64, 4)), target="sim")
    np.testing.assert_array_equal(program(x, np.zeros(1, np.float32))[0], np.array([3.0], np.float32))  # 1 is lost beside 2^24


def test_integers() -> None:
    x, bias = RNG.integers(-(2**31), 2**31, (3, 900)).astype(np.int32), np.zeros(3, np.int32)
    program = treadle.compile(in_turn(reduction(3, 900, 4, body="arith.addi", start="0", kind="i32")), target="sim")
    np.testing.assert_array_equal(program(x, bias)[0], x.sum(1, dtype=np.int32))


TEXTS = {
    "product": in_turn(matmul(70, 45, 300, 3)),
    "skinny": in_turn(matmul(1, 45, 300, 7)),
    "few rows": in_turn(reduction(5, 1501, 7, tail=ADDED.format(5, "f32"))),
    "rows": in_turn(reduction(33, 700, 2, tail=ADDED.format(33, "f32"))),
}


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("name", TEXTS)
def test_proven_and_compiled(name: str, target: str) -> None:
    """Every target's code, audited; in the simulator with some workgroups at a time, twice, the same bits in every order."""
    module = scheduled(read_source(TEXTS[name]), target, CompileOptions(verify=False), None)
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    assert [type(op) for op in kernel.walk() if isinstance(op, tile.CounterOp)] == [tile.AwaitTurnOp, tile.PassTurnOp]
    assert prove(kernel, effort=16).is_proven
    chosen = backend(target)
    assert chosen.assemble(chosen.emit(kernel)).facts.spill_bytes == 0
    inputs = [op for op in module.walk() if isinstance(op, dispatch.InputOp)]
    arrays = [RNG.standard_normal([int(t.data) for t in op.shape]).astype("f2" if "f16" in str(op.result.type) else "f4") for op in inputs]
    bits: set[bytes] = set()
    ways: tuple[tuple[Mode, int], ...] = (("late", 0), ("late", 3), ("random", 3))
    for order, seed in ways:
        program = ScheduledProgram(module, order, seed)
        bits |= {np.asarray(program(*arrays)[0]).tobytes() for _ in range(2)}
        assert program.findings.report(()).ok, str(program.findings.report(()))
    assert len(bits) == 1


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("parts", [2, 3, 7])
def test_as_machine_code(target: str, parts: int) -> None:
    x, bias = RNG.integers(-9, 10, (5, 801)).astype(np.float32), RNG.integers(-9, 10, 5).astype(np.float32)
    text = in_turn(reduction(5, 801, parts, tail=ADDED.format(5, "f32")))
    program = emulator.EmulatedProgram(scheduled(read_source(text), target, CompileOptions(), None), target)
    for _ in range(2):
        np.testing.assert_array_equal(program(x, bias)[0], x.sum(1) + bias)


@needs_emulator
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_a_product_as_machine_code(target: str) -> None:
    m, n, k = 33, 17, 100
    a, b = RNG.integers(-3, 4, (m, k)).astype(np.float16), RNG.integers(-3, 4, (k, n)).astype(np.float16)
    c = RNG.integers(-9, 10, (m, n)).astype(np.float32)
    program = emulator.EmulatedProgram(scheduled(read_source(in_turn(matmul(m, n, k, 3))), target, CompileOptions(), None), target)
    for _ in range(2):
        np.testing.assert_array_equal(program(a, b, c)[0], a.astype(np.float64) @ b + c)


@pytest.mark.parametrize("seed", range(8))
def test_random_products_in_roles(seed: int) -> None:
    """Each group of consumers takes turns for its own rows."""
    rng = np.random.default_rng(300 + seed)
    (m, n, k, parts), knobs = random_roles(rng)
    kind = ("f16", "bf16")[seed % 2]
    module, kernel = product_kernel(split_product(m, n, k, parts, kind, merge="turnstile"), **knobs)
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk()) and any(isinstance(op, tile.AwaitTurnOp) for op in kernel.walk())
    assert prove(kernel, effort=16).is_proven
    dtype = np.float16 if kind == "f16" else bfloat16
    a, b = rng.integers(-3, 4, (m, k)).astype(dtype), rng.integers(-3, 4, (k, n)).astype(dtype)
    c = rng.integers(-9, 10, (m, n)).astype(np.float32)
    for order in ("late", "random"):
        program = ScheduledProgram(module, order, seed)
        for _ in range(2):
            np.testing.assert_array_equal(program(a, b, c)[0], a.astype(np.float64) @ b.astype(np.float64) + c)
        assert program.findings.report(()).ok, str(program.findings.report(()))


@pytest.mark.parametrize("name", IN_ROLES)
def test_every_fault_within_roles_is_found(name: str) -> None:
    """Rings, the meetings of a group's warps, the wait, its acquire, the end, its release, the count. Only what the last one does needs no
    order with other workgroups.
    """
    text, knobs = IN_ROLES[name]
    _, kernel = product_kernel(in_turn(text), **knobs)
    assert prove(kernel).is_proven
    chosen = backend("sm_90a")
    assert chosen.assemble(chosen.emit(kernel)).facts.spill_bytes == 0
    found = list(faults(kernel, ("remove", "weaken")))
    assert [fault.description for fault in found if prove(fault.kernel).is_proven] == []
    descriptions = " ".join(fault.description for fault in found)
    assert all(word in descriptions for word in ("releases nothing", "acquires nothing", "does not reset the counter", "named_barrier"))


def test_one_meeting_behind_the_wait_and_one_ahead_of_the_end() -> None:
    """Of all ways through a turn: more would be in everybody's way."""
    module = scheduled(read_source(in_turn(matmul(70, 45, 300, 3))), "gfx942", CompileOptions(verify=False), None)
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    ops = list(kernel.body.block.ops)
    (first,), (last,) = ([at for at, op in enumerate(ops) if isinstance(op, kind)] for kind in (tile.AwaitTurnOp, tile.PassTurnOp))
    inner = ops[first + 1 : last]
    (branch,) = (op for op in inner if isinstance(op, scf.IfOp))
    assert not any(isinstance(op, sync.BarrierOp) for op in branch.walk())
    assert [type(op) for op in inner if isinstance(op, sync.BarrierOp | scf.IfOp)] == [sync.BarrierOp, scf.IfOp, sync.BarrierOp]


# --- refused: a launch of its own merges, as where the last workgroup is asked to


def test_sizes_of_the_runtime() -> None:
    launches, why = refusals(in_turn(matmul(100, 90, 500, 7)).replace("100", "?"))
    assert launches == 2 and "run time" in why


def test_several_axes_of_parts() -> None:
    text = in_turn(reduction(60, 700, 3)).replace('["parallel", "reduction"]', '["reduction", "reduction"]')
    text = text.replace("affine_map<(d0, d1) -> (d0)>", "affine_map<(d0, d1) -> ()>").replace("tensor<60xf32>", "tensor<f32>")
    launches, why = refusals(text.replace('r0 = "3"', 'r0 = "3", r1 = "5"'))
    assert launches == 2 and "several axes of parts" in why


def test_several_results() -> None:
    text = """
func.func @f(%x: tensor<7x900xf32>) -> (tensor<7xf32>, tensor<7xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<7xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<7xf32>) -> tensor<7xf32>
  %s:2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>],
    iterator_types = ["parallel", "reduction"]} ins(%x : tensor<7x900xf32>) outs(%i, %i : tensor<7xf32>, tensor<7xf32>)
    attrs = {treadle.split_reduction = #dispatch.split<r0 = "3", merge = turnstile>} {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.addf %a, %b : f32
    %2 = arith.maximumf %a, %c : f32
    linalg.yield %1, %2 : f32, f32
  } -> (tensor<7xf32>, tensor<7xf32>)
  return %s#0, %s#1 : tensor<7xf32>, tensor<7xf32>
}
"""
    launches, why = refusals(text)
    assert launches >= 2 and "several results" in why


def test_a_remark_tells_who_merges() -> None:
    launches, told = refusals(in_turn(matmul(64, 64, 256, 4)))
    assert (launches, told) == (1, "the workgroups that share a result add its parts, each in its turn")


def test_explanations_tell_what_turns_take() -> None:
    """More than what the last workgroup would take: each turn has an arrival's way to the next."""
    times: list[float] = []
    for text in (matmul(128, 128, 4096, 8), in_turn(matmul(128, 128, 4096, 8))):
        with remarks.collect_remarks() as log:
            scheduled(read_source(text), "sm_90a", CompileOptions(verify=False, form="tiles"), None)
        (told,) = (remark.text for remark in log.remarks if "us modelled" in remark.text and "tile 64x" in remark.text)
        assert ("add its parts in turn" in told) == ("turnstile" in text)
        times.append(float(told.split(";")[-1].split("us")[0]))
    assert times[0] < times[1]


def test_the_attribute_is_kept() -> None:
    """Printed and read again; and the kernel says who merges."""
    module = load(in_turn(matmul(64, 64, 256, 4)))
    assert "merge = turnstile" in str(module)
    run_passes(module, [*tensor_passes(target_spec("sm_90a"), CompileOptions()), MergePartsPass()])
    (kernel,) = (op for op in module.walk() if isinstance(op, dispatch.KernelOp))
    assert dispatch.MERGE_IN_TURN in kernel.attributes and dispatch.MERGE_IN_CLUSTER not in kernel.attributes
    assert str(kernel.function_type.outputs.data[0]) == "tensor<1x64x64xf32>"
