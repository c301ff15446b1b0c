"""insert-sched-fences: where fences stand, where none do, and that a schedule is as right without them."""

from dataclasses import replace

import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find, lowered, skeleton
from language.attention_problems import Problem

from treadle.dialects import sync, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.simplify import CsePass, DcePass
from treadle.machine import register_target, target_spec
from treadle.transforms.kernel.allocate_shared import AllocateSharedPass
from treadle.transforms.kernel.insert_sched_fences import InsertSchedFencesPass
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.transforms.kernel.lower_layout_conversions import LowerLayoutConversionsPass
from treadle.transforms.kernel.order_issue import OrderIssuePass
from treadle.transforms.kernel.pipeline_loops import PipelineLoopsPass
from treadle.transforms.kernel.pipelining.request import PIPELINED
from treadle.transforms.kernel.set_pipeline import SetPipelinePass
from treadle.verify.check import prove

OPS = ("tile.load", "tile.local", "tile.contract", "sync", "scf.for")
SHORT = {
    "r": "tile.load",
    "w": "tile.local_store",
    "l": "tile.local_load",
    "m": "tile.contract",
    "b": "sync.barrier",
    "f": "sync.sched_fence",
}
CDNA = kernel_texts.matmul(130, 136, 520, target="gfx942", instruction="mfma_16x16x16_f32_f16", tile=(64, 64, 32), warps=(2, 2), out="f16")
HOPPER = kernel_texts.matmul(130, 136, 520)


def scheduled(text: str, request: SetPipelinePass) -> builtin.ModuleOp:
    module = lowered(text, LowerLayoutConversionsPass)
    ordered = (AllocateSharedPass(), OrderIssuePass(), InsertSyncPass(), InsertSchedFencesPass())
    run_passes(module, [request, PipelineLoopsPass(), CsePass(), DcePass(), *ordered])
    return module


def names(text: str) -> list[str]:
    return [SHORT.get(word, word) for word in text.split()]


def around(loop: scf.ForOp) -> tuple[list[str], list[str]]:
    """Accesses to shared memory, contractions, barriers and fences ahead of a loop; behind it."""
    assert loop.parent is not None
    ops = list(loop.parent.ops)
    ahead, behind = ops[: ops.index(loop)], ops[ops.index(loop) + 1 :]
    kept = {name: short for short, name in SHORT.items()}
    return [kept[op.name] for op in ahead if op.name in kept], [kept[op.name] for op in behind if op.name in kept]


@pytest.mark.parametrize(
    ("stages", "buffers", "body", "behind"),
    [
        (2, 1, "r r f b f l l m f b f w w", "f b f l l m f"),
        # One barrier a step: the write stage has a border of its own.
        (2, 2, "r r f b f l l m f w w", "f b f l l m f"),
        # Two steps a trip.
        (3, 1, 2 * "f b f l l m f b f w w r r ", "f b f l l m f b f w w r r f b f l l m f b f w w f b f l l m f"),
    ],
)
def test_fences_stand_at_the_borders_of_stages(stages: int, buffers: int, body: str, behind: str) -> None:
    """In the loop, and in the steps that it leaves to do; none ahead of it."""
    module = scheduled(CDNA, SetPipelinePass(stages=stages, buffers=buffers))
    (loop,) = [op for op in find(module, scf.ForOp) if PIPELINED in op.attributes]
    assert skeleton(loop, *OPS)[1:-1] == names(body)
    ahead, after = around(loop)
    assert "f" not in ahead and "".join(after) == behind.replace(" ", "")


def test_reads_a_step_ahead_of_copies_stay_ahead_of_the_matrix_instructions() -> None:
    """In each of the four steps of a trip, and in the steps behind the loop; the last of them reads nothing ahead."""
    copied = kernel_texts.matmul(
        512, 512, 512, target="gfx950", instruction="mfma_16x16x32_f32_f16", tile=(128, 128, 32), warps=(2, 2), b_transposed=True
    )
    module = scheduled(copied, SetPipelinePass())
    (loop,) = [op for op in find(module, scf.ForOp) if PIPELINED in op.attributes]
    inside = [name for name in skeleton(loop, *OPS)[1:-1] if name in SHORT.values() and name != "tile.load"]
    assert inside == names(4 * "f b f l l f m ")
    assert "".join(around(loop)[1]) == 2 * "fbfllfm" + "fbfllfmmf"


def test_two_steps_of_loads_ahead_of_a_loop_are_kept_apart() -> None:
    """The last two of them are in flight when it begins, and waited for in the order of their issue; one step's need no fence."""
    module = scheduled(CDNA, SetPipelinePass())
    (loop,) = [op for op in find(module, scf.ForOp) if PIPELINED in op.attributes]
    assert loop.parent is not None
    ops = list(loop.parent.ops)
    ahead = [op for op in ops[: ops.index(loop)] if op.name in SHORT.values()]
    last = [op for op in ahead if op.name == "tile.load" and op.results[0] in loop.iter_args]
    assert len(last) == 4 and [op.name for op in ahead].count("sync.sched_fence") == 1
    (fence,) = [at for at, op in enumerate(ahead) if op.name == "sync.sched_fence"]
    assert [ahead.index(op) < fence for op in last] == [True, True, False, False]
    (loop,) = [op for op in find(scheduled(CDNA, SetPipelinePass(stages=2)), scf.ForOp) if PIPELINED in op.attributes]
    assert "f" not in around(loop)[0]


def test_loops_that_overlap_nothing_have_no_fences() -> None:
    assert not find(scheduled(CDNA, SetPipelinePass(stages=1)), sync.SchedFenceOp)


def test_machines_that_schedule_well_have_no_fences() -> None:
    assert target_spec("sm_90a").stage_fence is None
    assert not find(scheduled(HOPPER, SetPipelinePass(stages=3)), sync.SchedFenceOp)


def test_the_row_says_what_may_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    row = target_spec("gfx942")
    try:
        register_target(replace(row, stage_fence=("scalar_alu",)))
        fences = find(scheduled(CDNA, SetPipelinePass(stages=2)), sync.SchedFenceOp)
    finally:
        register_target(row)
    assert {str(fence.classes) for fence in fences} == {'["scalar_alu"]'}


@pytest.mark.parametrize("stages", [2, 3])
def test_a_dropped_fence_is_no_fault(stages: int) -> None:
    module = scheduled(CDNA, SetPipelinePass(stages=stages))
    fences = find(module, sync.SchedFenceOp)
    assert fences
    for fence in fences:
        fence.detach()
        fence.erase()
    for kernel in find(module, tile.KernelOp):
        assert prove(kernel, target_spec(kernel.target.data)).is_proven
    find(module, sync.BarrierOp)[1].detach()
    for kernel in find(module, tile.KernelOp):
        assert not prove(kernel, target_spec(kernel.target.data)).is_proven, "a dropped barrier is one"


def test_stages_that_multiply_and_then_store_what_was_loaded() -> None:
    """One fence in front of the stores; none within stages that store what they have computed."""
    module = Problem(1, 1, 1, 512, 512, 64).lowered("gfx942", 128, 64, 8, cut="auto")
    loop = next(op for op in find(module, scf.ForOp) if WARP_PIPELINED in op.attributes)
    body = list(loop.body.block.ops)
    fences = [at for at, op in enumerate(body) if isinstance(op, sync.SchedFenceOp)]
    stage = max(at for at, op in enumerate(body) if isinstance(op, sync.BarrierOp) and at < len(body) - 3 and at < fences[-1])
    kinds = [op.name for op in body[stage:] if isinstance(op, sync.SchedFenceOp | tile.ContractOp | tile.LocalStoreOp)]
    last = "tile.contract", "sync.sched_fence", "tile.local_store"
    assert any(tuple(kinds[at : at + 3]) == last for at in range(len(kinds)))
