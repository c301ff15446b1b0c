"""pipeline-loops on text: what stands where, and the schedules that insert-sync makes of it."""

import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.pipelined_kernels import CASES
from generators.tile_pipeline import find, lowered, skeleton

from treadle.dialects import pipe, sync, tile
from treadle.errors import TreadleError
from treadle.ir.core import Operation
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.simplify import CsePass, DcePass
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.plan.stages import Mode, Request, Tail
from treadle.transforms.kernel.allocate_shared import AllocateSharedPass
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.transforms.kernel.lower_layout_conversions import LowerLayoutConversionsPass
from treadle.transforms.kernel.order_issue import OrderIssuePass
from treadle.transforms.kernel.pipeline_loops import PipelineLoopsPass
from treadle.transforms.kernel.pipelining.request import PIPELINE, PIPELINED, request_attribute
from treadle.transforms.kernel.set_pipeline import SetPipelinePass
from treadle.verify.check import prove

OPS = ("tile.load", "tile.copy", "tile.local", "tile.contract", "arith.addf", "scf.if")
MFMA = kernel_texts.matmul(130, 136, 520, target="gfx942", instruction="mfma_16x16x16_f32_f16", tile=(64, 64, 32), warps=(2, 2), out="f16")
BULK = kernel_texts.matmul(130, 136, 520)


def case(
    name: str, stages: int, tail: Tail = "peeled", n: int | None = 160, mode: Mode | None = None, buffers: int = 0
) -> builtin.ModuleOp:
    """A case of `pipelined_kernels`, pipelined: ten trips, or a symbol's."""
    module = builtin.ModuleOp([CASES[name](n)])
    for loop in find(module, scf.ForOp):
        if not any(isinstance(op, scf.ForOp) for op in loop.body.walk()):
            chosen: Mode = mode or ("async" if find(loop, tile.CopyOp) else "stream")
            loop.attributes[PIPELINE] = request_attribute(Request(stages, chosen, buffers, tail))
    run_passes(module, [PipelineLoopsPass(), CsePass(), DcePass()])
    return module


def steady(module: Operation) -> scf.ForOp:
    (loop,) = [op for op in find(module, scf.ForOp) if PIPELINED in op.attributes]
    return loop


def upper(loop: scf.ForOp) -> int:
    assert isinstance(loop.ub.owner, arith.ConstantOp) and isinstance(loop.ub.owner.value, builtin.IntegerAttr)
    return loop.ub.owner.value.value.data


def names(text: str) -> list[str]:
    short = {"r": "tile.load", "w": "tile.local_store", "l": "tile.local_load", "+": "arith.addf", "c": "tile.copy", "m": "tile.contract"}
    return [short.get(word, word) for word in text.split()]


def test_two_stages_read_compute_write() -> None:
    module = case("prefetch_add", 2)
    assert skeleton(module, *OPS) == names("r w for r l + w end l +")
    assert upper(steady(module)) == 9 * 16
    assert not find(module, pipe.SlotOp)


def test_three_stages_compute_write_read() -> None:
    module = case("prefetch_add", 3)
    assert skeleton(module, *OPS) == names("r w r for l + w r end l + w l +")
    loop = steady(module)
    assert upper(loop) == 8 * 16
    assert len(loop.iter_args) == 2  # the sum, and what was read a step ago


def test_short_loops_leave_no_loop() -> None:
    module = case("prefetch_add", 3, n=32)
    assert not find(module, scf.ForOp) and skeleton(module, *OPS) == names("r w r l + w l +")
    assert skeleton(case("prefetch_add", 3, n=0), *OPS) == []


def test_both_carried_values_survive() -> None:
    loop = steady(case("two_results", 2))
    assert len(loop.iter_args) == 2
    assert loop.body.block.last_op is not None and len(loop.body.block.last_op.operands) == 2


def test_a_branch_that_computes_an_index_moves_with_the_read() -> None:
    assert skeleton(case("index_by_if", 2), *OPS) == names("scf.if r w for scf.if r l + w end l +")


def test_guarded_read_and_write_are_split_over_the_stages() -> None:
    body = skeleton(steady(case("guarded_stream", 2)), *OPS)
    assert body == names("for scf.if r l + scf.if w end")


def test_asynchronous_copies_have_slots() -> None:
    for stages in (2, 3, 4):
        module = case("async_matmul", stages)
        assert skeleton(module, *OPS) == names("c c " * (stages - 1) + "for c c m end " + "m " * (stages - 1))
        for alloc in find(module, tile.AllocOp):
            assert tile.memref_type(alloc.result).get_shape() == (stages, 16, 16)
            assert tile.shared_layout_of(alloc.result).slot().shape == (16, 16)
    late = case("async_matmul", 3, mode="async-late", buffers=2)
    assert skeleton(late, *OPS) == names("c c c c for m c c end m m")
    assert {tile.memref_type(a.result).get_shape()[0] for a in find(late, tile.AllocOp)} == {2}


def test_counters_wrap_by_compare_and_select() -> None:
    loop = steady(case("async_matmul", 3))
    assert loop.body.block.last_op is not None
    starts: list[int] = []
    for start, following in list(zip(loop.iter_args, loop.body.block.last_op.operands, strict=True))[1:]:
        assert isinstance(following.owner, arith.SelectOp) and isinstance(start.owner, arith.ConstantOp)
        assert isinstance(start.owner.value, builtin.IntegerAttr)
        starts.append(start.owner.value.value.data)
    assert starts == [2, 0]  # copies are two slots ahead of the computation
    assert not [op for op in loop.walk() if op.name.startswith(("arith.rem", "arith.div"))]


def test_guarded_loops_have_no_epilogue() -> None:
    module = case("async_matmul", 3, "guarded", n=None)
    assert skeleton(module, *OPS) == names("scf.if c c scf.if c c for scf.if c c m end")
    assert steady(module).ub is find(module, tile.KernelOp)[0].body.block.args[-1]


def test_unknown_trip_counts_have_two_versions() -> None:
    module = builtin.ModuleOp([CASES["async_matmul"](None)])
    run_passes(module, [SetPipelinePass(stages=3, tail="versioned"), PipelineLoopsPass(), CsePass(), DcePass()])
    assert skeleton(module, *OPS) == names("scf.if c c c c for c c m end m m for c c m end")
    before = [loop.attributes[PIPELINED] for loop in find(module, scf.ForOp)]
    run_passes(module, [SetPipelinePass(stages=3), PipelineLoopsPass()])
    assert [loop.attributes[PIPELINED] for loop in find(module, scf.ForOp)] == before


def test_nested_loops_have_their_prologue_inside() -> None:
    assert skeleton(case("nested", 2), *OPS) == names("for r r w w for r r l l m w w end l l m end")


def test_every_loop_of_a_kernel_is_pipelined() -> None:
    assert skeleton(case("two_loops", 2), *OPS) == names("c for c m end m r w for r l m w end l m")


def test_loads_that_turn_tiles_and_loads_for_registers() -> None:
    assert skeleton(case("transposed_load", 2), *OPS) == names("r w for r l + w end l +")
    # What the computation takes from registers is read one step ahead, not two.
    assert skeleton(case("direct_load", 3), *OPS) == names("r w r r for l m w r r end l m w r l m")


def test_copies_under_a_condition_and_copies_before_the_loop() -> None:
    body = skeleton(steady(case("predicated_pair", 3)), *OPS)
    assert body == names("for scf.if c scf.if c c scf.if l l m end")
    module = case("copied_before", 2)
    assert skeleton(module, *OPS) == names("c c for c m end m")
    assert [len(tile.memref_type(a.result).get_shape()) for a in find(module, tile.AllocOp)] == [2, 3]


def scheduled(text: str, *passes: SetPipelinePass) -> builtin.ModuleOp:
    module = lowered(text, LowerLayoutConversionsPass)
    run_passes(module, [*passes, PipelineLoopsPass(), CsePass(), DcePass(), AllocateSharedPass(), OrderIssuePass(), InsertSyncPass()])
    return module


REQUESTS = {
    "bulk": (BULK, SetPipelinePass(stages=4)),
    "bulk, late copies": (BULK, SetPipelinePass(stages=3, mode="async-late")),
    "bulk, guarded": (BULK, SetPipelinePass(stages=3, tail="guarded")),
    "stream of two": (MFMA, SetPipelinePass(stages=2)),
    "stream of two, two buffers": (MFMA, SetPipelinePass(stages=2, buffers=2)),
    "stream of three": (MFMA, SetPipelinePass(stages=3)),
    "stream of three, two buffers": (MFMA, SetPipelinePass(stages=3, buffers=2)),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_schedules_are_proven(name: str) -> None:
    text, request = REQUESTS[name]
    module = scheduled(text, request)
    assert steady(module)
    for kernel in find(module, tile.KernelOp):
        assert prove(kernel, target_spec(kernel.target.data)).is_proven


def test_synchronisation_of_the_steady_state() -> None:
    two, other = (steady(scheduled(MFMA, SetPipelinePass(stages=2, buffers=buffers))) for buffers in (1, 2))
    assert (len(find(two, sync.BarrierOp)), len(find(other, sync.BarrierOp))) == (2, 1)
    late = steady(scheduled(BULK, SetPipelinePass(stages=4, mode="async-late")))
    assert [op.pending.value.data for op in find(late, sync.WaitOp)] == [1]  # one contraction stays in flight


@pytest.mark.parametrize(
    "written",
    [
        "3 : i64",
        '{mode = "stream"}',
        '{stages = 3 : i64, mode = "deep"}',
        '{stages = 3 : i64, mode = "stream", tail = 1 : i64}',
        '{stages = 3 : i64, mode = "stream", buffers = "two"}',
        '{stages = 3 : i64, mode = "stream", buffers = -1 : i64}',
        '{stages = 3 : i64, mode = "stream", buffer = 2 : i64}',
    ],
)
def test_a_malformed_request_is_an_error_at_its_line(written: str) -> None:
    lines = print_module(builtin.ModuleOp([CASES["prefetch_add"](160)])).splitlines()
    start = next(number for number, line in enumerate(lines) if "scf.for" in line)
    lines[lines.index("    }", start)] += f" {{pipeline = {written}}}"
    module = parse_module("\n".join(lines), "kernel.mlir")
    with pytest.raises(TreadleError, match=r"no request.*\n.*stages = 3 : i64") as caught:
        run_passes(module, [PipelineLoopsPass()])
    assert caught.value.code == "TR416"
    assert caught.value.location is not None and caught.value.location.line == start + 1
