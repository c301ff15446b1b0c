"""enclose-stages: stages in straight-line code become a loop of one iteration; which runs of stages there are, and what is refused."""

from typing import Any

import pytest
from hazards.schedules import EIGHT_ROWS as ROWS
from transforms.kernel.test_form_warp_pipeline import SLOT, Text, kernel_in, ring
from transforms.kernel.test_warp_pipeline_joints import Chain, entries, formed

import treadle
from treadle.dialects import sync, tile
from treadle.dialects.stages import WARP_PIPELINED
from treadle.ir.dialects import arith, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.transforms.kernel.enclose_stages import EncloseStagesPass


def line(chain: Chain) -> str:
    """A store to a slot, in no stage."""
    slot = f"%z = pipe.slot %ring[%c0] : {ring(chain.slots)} -> {SLOT}"
    return f"{slot}\ntile.local_store %x, %z array<i64: 0, 0> : tensor<64x64xf16, {ROWS}>, {SLOT}"


def loops(kernel: tile.KernelOp) -> list[tuple[str, ...]]:
    """The labels of each pipeline."""
    found: list[Any] = [op.attributes[WARP_PIPELINED] for op in kernel.walk() if WARP_PIPELINED in op.attributes]
    return [tuple(label.data for label in each.data["stages"]) for each in found]


def test_four_stages_in_a_line() -> None:
    """The write of one is read two stages later: the slot behind it flushes, no other one does."""
    chain = Chain(1)
    chain.straight().stage("a").stage("b", chain.store()).stage("c").stage("d", chain.read())
    kernel, _ = formed(chain)
    assert loops(kernel) == [("a", "b", "c", "d")]
    (body,) = [op.body.block for op in kernel.walk() if isinstance(op, scf.ForOp)]
    assert [op.bare is None for op in body.ops if isinstance(op, sync.BarrierOp)] == [False, True, False, False]


def test_a_wait_in_a_line() -> None:
    chain = Chain(1)
    chain.straight().stage("b", chain.store()).add('sync.wait "lgkmcnt" pending 0 : i64').stage("c").stage("d", chain.read())
    kernel, _ = formed(chain)
    (body,) = [op.body.block for op in kernel.walk() if isinstance(op, scf.ForOp)]
    found = [str(op) for op in body.ops if isinstance(op, sync.BarrierOp | sync.WaitOp)]
    assert found == ['sync.wait "lgkmcnt" pending 0 : i64', *3 * ["sync.barrier bare"]]


def test_a_slot_in_a_line_is_not_used_again() -> None:
    """What would be a wrong order in a loop, whose next iteration fills the slot again."""
    chain = Chain(1)
    chain.straight().stage("a", chain.store()).stage("b").stage("c", chain.read())
    assert entries(formed(chain)[0]) == 1
    text = Text(1)
    text.stage("a", text.store()).stage("b").stage("c", text.read())
    with pytest.raises(treadle.TreadleError, match="is there at the same time"):
        run_passes(parse_module(str(text), "staged.mlir"), [EncloseStagesPass(), *form()])


def form() -> list[Any]:
    from treadle.transforms.kernel.form_warp_pipeline import FormWarpPipelinePass

    return [FormWarpPipelinePass()]


def test_what_stands_between_two_runs() -> None:
    """The stages of a loop are not those ahead of it or behind it; a store in no stage ends a run."""
    chain = Chain(2)
    chain.straight().stage("a").stage("b")
    chain.loop().stage("c").stage("d")
    chain.straight().stage("e").stage("f").add(line(chain)).stage("g").stage("h")
    kernel, told = formed(chain)
    assert loops(kernel) == [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]
    assert entries(kernel) == 2
    assert len(told) == 2


def test_values_flow_out_of_a_line() -> None:
    """What is computed in stages is the loop's result; indices that need nothing of them stand ahead of it."""
    chain = Chain(2)
    chain.straight().stage("a", chain.read()).stage("b", "%e = arith.addi %n, %c1 : index")
    at = f"%o = pipe.slot %ring[%c0] : {ring(2)} -> {SLOT}"
    chain.lines += ["%e2 = arith.addi %e, %c1 : index", "%v = arith.addf %v1, %v1 : " + kind(chain), at]
    module = parse_module(str(chain), "chain.mlir")
    run_passes(module, [EncloseStagesPass()])
    kernel = kernel_in(module)
    (loop,) = [op for op in kernel.walk() if isinstance(op, scf.ForOp)]
    assert len(loop.results) == 1
    assert any(isinstance(op, arith.AddfOp) and op.lhs is loop.results[0] for op in kernel.body.block.ops)
    assert not any(isinstance(op, arith.AddiOp) for op in loop.body.block.ops)
    printed = print_module(module)
    assert print_module(parse_module(printed, "again.mlir")) == printed


def kind(chain: Chain) -> str:
    return next(part.split("-> ")[1] for part in "\n".join(chain.lines).splitlines() if "local_load" in part)


def test_a_line_in_a_loop_of_loops() -> None:
    """Stages behind a loop with stages are no stages of the loop around both."""
    chain = Chain(3)
    chain.loop().stage("a", chain.read(), chain.store(1)).stage("b")
    chain.straight().stage("c", chain.read()).stage("d")
    inside = chain.loops()
    chain.loops = lambda: f"  scf.for %turn = %c0 to %slots step %c1 {{\n{inside}\n  }}"  # type: ignore[method-assign]
    kernel, _ = formed(chain)
    assert loops(kernel) == [("a", "b"), ("c", "d")]
    assert entries(kernel) == 1


def refused(chain: Chain) -> str:
    text = str(chain)
    module = parse_module(text, "chain.mlir")
    before = print_module(module)
    with pytest.raises(treadle.TreadleError) as error:
        run_passes(module, [EncloseStagesPass()])
    assert print_module(module) == before
    return str(error.value).split("error TR417: warp pipeline: ")[1]


FIX = "let two stages or more follow one another, with waits, barriers and arithmetic alone between them, or cut a loop into stages"


def test_a_stage_alone() -> None:
    chain = Chain()
    chain.straight().stage("a")
    assert refused(chain) == f"stage 'a' stands alone in straight-line code\n  fix: {FIX}"


def test_a_loop_between_two_stages() -> None:
    chain = Chain()
    chain.straight().stage("a")
    chain.add("scf.for %q = %c0 to %n step %c1 {", line(chain), "}")
    chain.stage("b")
    assert refused(chain) == f"stage 'a' stands alone in straight-line code: scf.for parts it from the next one\n  fix: {FIX}"


def test_borders_that_do_not_match() -> None:
    chain = Chain()
    chain.straight().add("pipe.end_stage")
    assert refused(chain) == "the end of a stage that has not begun\n  fix: begin it with pipe.stage"


def test_loops_are_left_alone() -> None:
    text = Text()
    module = parse_module(str(text.stage("a", text.read()).stage("b")), "staged.mlir")
    before = print_module(module)
    run_passes(module, [EncloseStagesPass()])
    assert print_module(module) == before
