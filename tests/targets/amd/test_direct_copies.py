"""Rings filled by direct copies: right in the emulator at ragged sizes, counted waits, no wait that the schedule did not ask for."""

import re

import numpy as np
import pytest
from targets.amd import emulator, programs

from treadle.dialects import tile
from treadle.dialects.sync import WaitOp
from treadle.frontends.mlir import load
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.layout.linear_copy import instructions
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower, prove, unproven_schedule_passes
from treadle.targets.amd.assembly import Instruction, parse
from treadle.targets.amd.audit import violations
from treadle.targets.amd.counters import Counters
from treadle.targets.amd.direct_copies import copies_left, direct_copies, distribution
from treadle.targets.amd.steady_loop import steady_loop
from treadle.targets.interface import CompiledKernel

CDNA = ("gfx942", "gfx950")
RAGGED = [
    programs.matmul(65, 48, 328, "f16", "f32", transposed="b"),
    programs.matmul(131, 70, 200, "bf16", "f32", transposed="b", bias=True),
    programs.matmul(70, 66, 592, "i8", "i32", transposed="b"),
    programs.matmul(33, 40, 404, "f32", "f32", transposed="b"),
    programs.matmul(256, 256, 72, "f16", "f32", transposed="b"),
    programs.matmul(17, 300, 640, "f16", "f32", transposed="b"),
    programs.matmul(144, 208, 70, "i8", "i32", transposed="a"),
]


def lowered(program: programs.Program, target: str, **options: object) -> builtin.ModuleOp:
    """A module after insert-sync whose contractions are asked to be fed by direct copies."""
    module, spec = load(program.text), target_spec(target)
    lower(module, spec, CompileOptions(**options), until="tile")  # type: ignore[arg-type]
    path = builtin.DictionaryAttr({"path": builtin.StringAttr("direct")})
    for op in module.walk():
        if isinstance(op, tile.ContractOp):
            op.attributes["staging"] = builtin.DictionaryAttr({"a": path, "b": path})
    run_passes(module, unproven_schedule_passes(CompileOptions(**options), spec))  # type: ignore[arg-type]
    return module


def kernel_of(program: programs.Program, target: str, **options: object) -> CompiledKernel:
    """The one kernel of a program."""
    (found,) = emulator.compile_kernels(lowered(program, target, **options), target).values()
    return found


def loop_of(kernel: CompiledKernel) -> list[Instruction]:
    """The instructions of its steady loop."""
    counters = Counters(parse(kernel.assembly, kernel.symbol), own_store_counter=False)
    loop = steady_loop(counters)
    assert loop is not None
    return [counters.listing.instructions[at] for at in sorted(loop)]


@pytest.mark.parametrize("target", CDNA)
@pytest.mark.parametrize("number", range(len(RAGGED)))
def test_they_are_proven(number: int, target: str) -> None:
    module = lowered(RAGGED[number], target)
    assert [op for op in module.walk() if isinstance(op, tile.CopyOp)]
    prove(module, CompileOptions())


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("target", CDNA)
@pytest.mark.parametrize("number", range(len(RAGGED)))
def test_they_are_right(number: int, target: str, stages: int) -> None:
    program = RAGGED[number]
    module = lowered(program, target, pipeline_stages=stages)
    compiled = emulator.compile_kernels(module, target)
    expected = program.expected()
    for order in emulator.ORDERS:
        (found,) = emulator.EmulatedProgram(module, target, order, compiled)(*program.arrays())
        assert (np.abs(found.astype(np.float64) - expected) <= program.tolerance * np.abs(expected)).all()


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("target", CDNA)
def test_rows_that_only_the_runtime_counts(target: str) -> None:
    program = programs.matmul(77, 48, 328, "f16", "f32", transposed="b")
    text = program.text.replace("77x", "?x").replace("tensor.empty()", "tensor.empty(%rows)")
    text = text.replace("%z =", "%c0 = arith.constant 0 : index\n %rows = tensor.dim %a, %c0 : tensor<?x328xf16>\n %z =", 1)
    module = lowered(programs.Program(text, program.inputs, program.reference), target)
    assert [op for op in module.walk() if isinstance(op, tile.CopyOp)]
    (found,) = emulator.EmulatedProgram(module, target, "forward")(*program.arrays())
    assert (found == program.expected()).all()


@pytest.mark.parametrize(("target", "instruction"), [("gfx942", "buffer_load_dword"), ("gfx950", "buffer_load_dwordx4")])
def test_the_loop_waits_for_what_the_schedule_counts(target: str, instruction: str) -> None:
    """Three slots: the copies of the newest step stay in flight over the barrier, and nothing else waits for any."""
    kernel = kernel_of(programs.matmul(128, 128, 512, "f16", "f32", transposed="b"), target, pipeline_stages=3)
    loop = loop_of(kernel)
    copies = [one for one in loop if one.mnemonic == instruction and one.operands.endswith(" lds")]
    waits = [int(n.group(1)) for one in loop if (n := re.search(r"vmcnt\((\d+)\)", one.operands))]
    assert copies and waits == [len(copies)]
    assert sum(one.mnemonic == "s_barrier" for one in loop) == 1


def test_the_audit_finds_waits_for_more_and_for_fewer_copies() -> None:
    kernel = kernel_of(programs.matmul(128, 128, 512, "f16", "f32", transposed="b"), "gfx950", pipeline_stages=3)
    expected = kernel.emitted.expected
    assert not violations(parse(kernel.assembly, kernel.symbol, expected.sources), kernel.emitted)
    one = loop_of(kernel)
    (left,) = [int(n.group(1)) for i in one if (n := re.search(r"vmcnt\((\d+)\)", i.operands))]
    drained = kernel.assembly.replace(f"vmcnt({left})", "vmcnt(0)")
    found = violations(parse(drained, kernel.symbol, expected.sources), kernel.emitted)
    assert {v.rule for v in found} == {"A6"}
    weaker = kernel.assembly.replace(f"vmcnt({left})", f"vmcnt({left + 1})")
    found = violations(parse(weaker, kernel.symbol, expected.sources), kernel.emitted)
    assert {v.rule for v in found} == {"A4"}


def test_copies_with_several_instructions_are_counted_by_the_machine() -> None:
    """The wait counts the instructions of the newest copies, whatever path led there."""
    module = lowered(programs.matmul(256, 64, 512, "f16", "f32", transposed="b"), "gfx950", pipeline_stages=3)
    (kernel,) = [op for op in module.walk() if isinstance(op, tile.KernelOp)]
    queue = target_spec("gfx950").queue_for("copy_in")
    assert queue is not None
    left = copies_left(kernel, queue, 64, kernel.num_warps.value.data)
    counts = {
        op: instructions(*found)
        for op in direct_copies(kernel)
        if (found := distribution(op, queue, 64, kernel.num_warps.value.data)) is not None
    }
    (a, b) = list(counts.values())[:2]
    pending = {op.pending.value.data: n for op, n in left.items() if isinstance(op, WaitOp)}
    assert pending == {0: 0, 2: a + b}
