"""Warp pipelines on Hopper: groups are warpgroups, whose matrix instructions read the slots that all of them fill."""

import re
from typing import Any

import numpy as np
import pytest
from language.staged_kernels import DEEPER, JOINED, PRODUCTS, lowered, operands

import treadle
import treadle.language as tl
from treadle.dialects import sync, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.ir.core import Operation
from treadle.ir.dialects import scf
from treadle.sim.schedule import simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.targets.registry import backend
from treadle.verify.check import prove
from treadle.verify.faults import faults

TARGET = "sm_90a"
SIZES: dict[str, Any] = {"BN": 64, "BK": 64, "S": 3}


@treadle.kernel(target="sim")
def scaled(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 64, S: tl.constexpr = 4) -> None:
    """Each step's product is scaled before it is added, in a stage of its own."""
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=S)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=S)
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a[0], ring_b[0] = a[m : m + BM, 0:BK], b[0:BK, n : n + BN]
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("memory"):
            x, y = ring_a[i % S], ring_b[i % S]
            ring_a[(i + 1) % S] = a[m : m + BM, k + BK : k + 2 * BK]
            ring_b[(i + 1) % S] = b[k + BK : k + 2 * BK, n : n + BN]
        with tl.warp_pipeline_stage("multiply"):
            part = tl.dot(x, y, tl.zeros((BM, BN), tl.float32))
        with tl.warp_pipeline_stage("add"):
            total += 2.0 * part
    c[m : m + BM, n : n + BN] = total


@treadle.kernel(target="sim")
def hasty(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 64) -> None:
    ring_a, ring_b = tl.allocate_shared((BM, BK), tl.float16, slots=3), tl.allocate_shared((BK, BN), tl.float16, slots=3)
    ring_a[0], ring_b[0] = a[0:BM, 0:BK], b[0:BK, 0:BN]
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("memory"):
            x, y = ring_a[i % 3], ring_b[i % 3]
            ring_a[(i + 1) % 3] = a[0:BM, k + BK : k + 2 * BK]
            ring_b[(i + 1) % 3] = b[k + BK : k + 2 * BK, 0:BN]
        with tl.warp_pipeline_stage("multiply"):
            total += 2.0 * tl.dot(x, y, tl.zeros((BM, BN), tl.float32))
    c[0:BM, 0:BN] = total


def kernel_in(module: Operation) -> tile.KernelOp:
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def staged(kernel: Any = PRODUCTS["two"], k: int = 192, **sizes: Any) -> tile.KernelOp:
    return kernel_in(lowered(kernel, TARGET, 128, 64, k, **(sizes or SIZES)))


def body_of(kernel: tile.KernelOp) -> list[Operation]:
    loop = next(op for op in kernel.walk() if isinstance(op, scf.ForOp) and WARP_PIPELINED in op.attributes)
    return [op for op in loop.body.block.ops if op.name.startswith("sync.") or isinstance(op, tile.ContractOp)]


def test_slots() -> None:
    """What threads wrote is fenced ahead of the slot, and the groups meet behind the issue of matrix instructions: those of a step run on
    while their group fills the next slots, and are over before anybody fills theirs.
    """
    found = [op.name if isinstance(op, tile.ContractOp) else str(op) for op in body_of(staged())]
    assert found == [
        'sync.fence "async_shared"',
        "sync.set_priority 1 : i64",
        'sync.wait "wgmma" pending 0 : i64',
        "sync.barrier",
        "tile.contract",
        'sync.commit "wgmma"',
        "sync.set_priority 0 : i64",
        "sync.barrier bare",
    ]


def computes(kernel: tile.KernelOp, k: int, factor: int = 1) -> bool:
    """Whether the simulator finds no fault in one workgroup, and the product, in two orders."""
    a, b, c = operands(128, 64, k)
    sizes = {"a_size0": 128, "a_size1": k, "b_size0": k, "b_size1": 64, "c_size0": 128, "c_size1": 64, "grid_x": 1, "grid_y": 1}
    strides = {"a_stride0": k, "b_stride0": 64, "c_stride0": 64}
    ways: tuple[tuple[Mode, int], ...] = (("late", 0), ("random", 1))
    for mode, seed in ways:
        report = simulate(kernel, [a, b, c], {**sizes, **strides}, mode=mode, seed=seed)
        if not report.ok or not np.array_equal(report.outputs[0], factor * (a.astype(np.float64) @ b)):
            return False
    return True


@pytest.mark.parametrize("k", [192, 72, 8])
def test_the_simulator_computes_the_product(k: int) -> None:
    assert computes(staged(k=k), k)


def test_results_that_a_later_stage_reads() -> None:
    """They are waited for at the slot behind the matrix instructions."""
    kernel = staged(scaled, BN=64)
    found = [op.name if isinstance(op, tile.ContractOp) else str(op) for op in body_of(kernel)]
    at = found.index("tile.contract")
    assert found[at : at + 3] == ["tile.contract", 'sync.commit "wgmma"', 'sync.wait "wgmma" pending 0 : i64']
    assert computes(kernel, 192, factor=2)


@treadle.kernel(target="sim")
def decayed(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 64, S: tl.constexpr = 3) -> None:
    """The sum is halved ahead of each product, in the product's stage: it is that of the iteration before."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    ring_a = tl.allocate_shared((BM, BK), tl.float16, slots=S)
    ring_b = tl.allocate_shared((BK, BN), tl.float16, slots=S)
    ring_a[0], ring_b[0] = a[m : m + BM, 0:BK], b[0:BK, n : n + BN]
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("memory"):
            x, y = ring_a[i % S], ring_b[i % S]
            ring_a[(i + 1) % S] = a[m : m + BM, k + BK : k + 2 * BK]
            ring_b[(i + 1) % S] = b[k + BK : k + 2 * BK, n : n + BN]
        with tl.warp_pipeline_stage("multiply"):
            total = tl.dot(x, y, 0.5 * total)
    c[m : m + BM, n : n + BN] = total


def test_a_result_of_the_iteration_before() -> None:
    """It is there behind the slot of its stage."""
    found = [op.name if isinstance(op, tile.ContractOp) else str(op) for op in body_of(staged(decayed, BN=64))]
    at = found.index("tile.contract")
    assert found[at : at + 3] == ["tile.contract", 'sync.commit "wgmma"', 'sync.wait "wgmma" pending 0 : i64']


def refused(kernel: Any, **sizes: Any) -> str:
    with pytest.raises(treadle.TreadleError) as error:
        lowered(kernel, TARGET, 128, 64, 192, **sizes)
    return f"{re.sub(r' .line [0-9]+.', '', error.value.message)}\n{error.value.fix}"


def test_too_few_slots() -> None:
    """A slot is read where the product is, a stage later than on machines that read it into registers."""
    assert refused(PRODUCTS["two"], BN=64, BK=64, S=2) == (
        "warp pipeline: a product from shared memory in stage 'compute' comes before a store to shared memory in stage 'memory' 1 "
        "iteration later, which is 1 stage on; a group that is 1 stage ahead is there at the same time\n"
        "give the buffer 3 slots instead of 2"
    )
    assert refused(DEEPER["triple"], BN=64, BK=64).endswith("give the buffer 4 slots instead of 3")


def test_a_result_in_its_own_stage() -> None:
    assert refused(hasty) == (
        "warp pipeline: the result of matrix instructions is used in their own stage 'multiply', which they outlast\n"
        "use it in a later stage, which begins when it is there"
    )


@treadle.kernel(target="sim")
def nested(a: Any, b: Any, c: Any, BM: tl.constexpr = 128, BN: tl.constexpr = 64, BK: tl.constexpr = 64) -> None:
    """Products in a loop of a stage, whose sum is used behind that loop. In loops of stages slots are not told apart."""
    ring_a, ring_b = tl.allocate_shared((BM, BK), tl.float16, slots=3), tl.allocate_shared((BK, BN), tl.float16, slots=3)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        i = k // BK
        with tl.warp_pipeline_stage("memory"):
            ring_a[(i + 1) % 3] = a[0:BM, k + BK : k + 2 * BK]
            ring_b[(i + 1) % 3] = b[k + BK : k + 2 * BK, 0:BN]
        with tl.warp_pipeline_stage("pause"):
            pass
        with tl.warp_pipeline_stage("multiply"):
            part = tl.zeros((BM, BN), tl.float32)
            for _ in range(2):
                part = tl.dot(ring_a[i % 3], ring_b[i % 3], part)
            total += part
        with tl.warp_pipeline_stage("rest"):
            pass
    c[0:BM, 0:BN] = total


def test_a_result_of_a_loop_in_its_own_stage() -> None:
    assert refused(nested).startswith("warp pipeline: the result of matrix instructions is used in their own stage 'multiply'")


def test_nothing_can_be_left_out() -> None:
    """No wait, fence, commit or barrier but that ahead of the loop, where the first stage reads nothing."""
    kernel = staged()
    ops = list(kernel.walk())
    kinds = sync.BarrierOp | sync.WaitOp | sync.FenceOp | sync.CommitOp
    found = [fault for fault in faults(kernel, ("remove", "weaken")) if isinstance(ops[fault.index], kinds)]
    missed = [ops[fault.index] for fault in found if not prove(fault.kernel).findings]
    assert len(found) >= 8
    assert [(str(op), op.parent is kernel.body.block) for op in missed] == [("sync.barrier", True)]


@pytest.mark.parametrize("kind", [sync.FenceOp, sync.WaitOp, sync.BarrierOp])
def test_the_simulator_finds_what_is_left_out(kind: type[Operation]) -> None:
    """Without the fence in the loop, the wait, or the slot that flushes."""
    kernel = staged()
    ops = list(kernel.walk())
    loop = next(op for op in ops if isinstance(op, scf.ForOp))
    number = next(n for n, op in enumerate(ops) if isinstance(op, kind) and op.parent_op() is loop)
    fault = next(fault for fault in faults(kernel, ("remove",)) if fault.index == number)
    assert not computes(fault.kernel, 192)


@pytest.mark.parametrize("warps", [8, 16])
def test_machine_code(warps: int) -> None:
    """Matrix instructions, no spills, and a barrier for each slot. Groups of a warpgroup, and of two."""
    sizes: dict[str, Any] = {"BM": 16 * warps, "BN": 128, "BK": 64, "S": 3}
    kernel = kernel_in(lowered(PRODUCTS["two"], TARGET, 16 * warps, 128, 256, num_warps=warps, **sizes))
    code = backend(TARGET)
    facts = code.assemble(code.emit(kernel)).facts
    assert facts.instructions["HGMMA"] >= 4
    assert not facts.spill_bytes
    assert facts.instructions["BAR"] >= 5


def test_groups_that_are_no_warpgroups() -> None:
    with pytest.raises(treadle.TreadleError) as error:
        lowered(PRODUCTS["two"], TARGET, 128, 64, 192, num_warps=4, **SIZES)
    assert f"{error.value.message}\n{error.value.fix}" == (
        "warp pipeline: 2 groups of 2 warps: matrix instructions of sm_90a are those of 4 warps\nlaunch it with num_warps = 8"
    )


def test_straight_lines_and_unrolled_loops() -> None:
    """Two slots are too few where products read them."""
    assert refused(JOINED["drained"], BN=64, BK=64).endswith("give the buffer 3 slots instead of 2")
    for name in ("straight", "unrolled"):
        assert "give the buffer more slots, each picked by the number of the step" in refused(JOINED[name], BN=64, BK=64)
