"""Warp pipelines on every AMD target: groups that meet at different places compute what the loop computes, stage by stage."""

from typing import Any

import numpy as np
import pytest
from language.staged_attentions import staged_attention
from language.staged_kernels import DEEPER, JOINED, PRODUCTS, kernel_of, lowered, operands, quadrants
from staged_attention import expected
from staged_attention import operands as attention_operands
from targets.amd import emulator, programs

from treadle.dialects.sync import SchedFenceOp
from treadle.errors import KernelRejected
from treadle.machine import target_spec
from treadle.targets.amd.assembly import parse
from treadle.targets.amd.audit import violations
from treadle.targets.amd.backend import AmdBackend
from treadle.targets.amd.counters import kind_of
from treadle.targets.interface import CompiledKernel
from treadle.verify.faults import erase

needs_emulator = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")


class InPlace(emulator.EmulatedProgram):
    """A program whose one output is changed in place: `output` is what the array holds behind the launch."""

    output: Any = None

    def launch(self, op: Any, environment: Any, values: Any) -> None:
        super().launch(op, environment, values)
        self.output = values[op.outputs[0]].array().copy()


@needs_emulator
@pytest.mark.parametrize("shape", [(128, 32, 100), (140, 40, 33), (128, 32, 31)])
@pytest.mark.parametrize("stages", PRODUCTS)
@pytest.mark.parametrize("target", programs.TARGETS)
def test_products(target: str, stages: str, shape: tuple[int, int, int]) -> None:
    """Also with a loop of one iteration, in three orders of the waves."""
    check(PRODUCTS[stages], target, *shape)


@needs_emulator
@pytest.mark.parametrize(
    ("stages", "k"), [("eight", 130), ("triple", 100), ("straight", 100), ("unrolled", 100), ("unrolled", 31), ("drained", 70)]
)
@pytest.mark.parametrize("target", programs.TARGETS)
def test_deep_rings_straight_lines_and_unrolled_loops(target: str, stages: str, k: int) -> None:
    """Stages that no loop holds, and those of loops that groups go on from without meeting."""
    check({**DEEPER, **JOINED}[stages], target, 128, 32, k, **steps(stages, target))


@needs_emulator
def test_quadrants() -> None:
    """A tile of 256 x 256 by eight waves, one order of them."""
    module = lowered(quadrants, "gfx942", 256, 256, 64)
    compiled = emulator.compile_kernels(module, "gfx942")
    a, b, c = operands(256, 256, 64)
    program = InPlace(module, "gfx942", next(iter(reversed(emulator.ORDERS))), compiled)
    program(a, b, c, np.array(1), np.array(1))
    np.testing.assert_array_equal(program.output, a.astype(np.float64) @ b)


@needs_emulator
@pytest.mark.parametrize("target", programs.TARGETS)
def test_attention(target: str) -> None:
    """Four stages, a tile of two with rows that are no queries, keys that end within a step."""
    q, k, v, o = attention_operands(1, 130, 70, 32)
    module = staged_attention(target, q, k, v, o)
    compiled = emulator.compile_kernels(module, target)
    if refused := [why for one in compiled.values() if (why := emulator.refusal(one))]:
        pytest.skip(f"the emulator does not know {refused[0]}")
    for order in emulator.ORDERS:
        program = InPlace(module, target, order, compiled)
        program(q, k, v, o, np.array(2), np.array(1))
        assert np.abs(program.output - expected(q, k, v)).max() < 2e-3


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_quadrants_in_the_code(target: str) -> None:
    """Four stages that multiply and four that do not: a barrier for each, no accumulator moves, nothing is spilled, nothing waits for
    global memory among matrix instructions.
    """
    found = AmdBackend(target_spec(target)).report(kernel_of(lowered(quadrants, target, 256, 256, 128)))
    assert found is not None
    assert (found.matrix, found.barriers) == ({"gfx942": 64, "gfx950": 32}[target], 8)
    assert (found.moves, found.scratch, found.broken, found.load_waits) == (0, 0, (), 0)
    assert found.registers <= 256
    assert (found.shared_bytes, found.workgroups, found.waves) == (65536, 1, 2)


def steps(stages: str, target: str) -> dict[str, Any]:
    """Eight stages have shared memory for steps of 16 alone, but where matrix instructions take 32 at a time."""
    return {"BK": 32} if (stages, target) == ("eight", "gfx950") else {}


def check(kernel: Any, target: str, m: int, n: int, k: int, **constants: Any) -> None:
    module = lowered(kernel, target, m, n, k, **constants)
    compiled = emulator.compile_kernels(module, target)
    a, b, c = operands(m, n, k)
    grid = [np.array(extent) for extent in (-(-m // 128), -(-n // 32))]
    for order in emulator.ORDERS:
        program = InPlace(module, target, order, compiled)
        program(a, b, c, *grid)
        np.testing.assert_array_equal(program.output, a.astype(np.float64) @ b)


# --- the audit


def code_of(name: str, target: str) -> CompiledKernel:
    (found,) = emulator.compile_kernels(lowered({**PRODUCTS, **DEEPER}[name], target, **steps(name, target)), target).values()
    return found


def broken_rules(kernel: CompiledKernel, assembly: str) -> set[str]:
    emitted = kernel.emitted
    return {found.rule for found in violations(parse(assembly, kernel.symbol, emitted.expected.sources), emitted)}


@pytest.mark.parametrize("target", programs.TARGETS)
@pytest.mark.parametrize("name", [*PRODUCTS, *DEEPER])
def test_slots_in_the_code(name: str, target: str) -> None:
    """A barrier for each slot; priorities are set at slots alone, where the stages have any; a wait where the slot flushes."""
    kernel = code_of(name, target)
    listing = parse(kernel.assembly, kernel.symbol, kernel.emitted.expected.sources)
    code = listing.instructions
    stages = {"two": 2, "three": 3, "four": 4, "eight": 8, "triple": 3}[name]
    points = {point.line: point for point in kernel.emitted.expected.points}
    slots = [at for at, one in enumerate(code) if kind_of(one) == "barrier" and points[one.source].stage is not None]
    assert len(slots) == stages
    priorities = [int(one.operands) for one in code if one.mnemonic == "s_setprio"]
    assert (
        sorted(priorities)
        == {"two": [0, 0, 0, 1], "three": [], "four": [0, 0, 0, 0, 2, 2], "eight": [*6 * [0], *4 * [3]], "triple": [0, 0, 0, 1, 2]}[name]
    )
    waits = "s_wait_dscnt" if target == "gfx1201" else "s_waitcnt"
    flushing = [at for at in slots if code[at - 1].mnemonic.startswith(waits)]
    assert len(flushing) == {"two": 1, "three": 1, "four": 1, "eight": 1, "triple": 1}[name]


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
def test_what_leaves_its_stage_is_found(target: str) -> None:
    kernel = code_of("two", target)
    assert not broken_rules(kernel, kernel.assembly)
    assert "A7" in broken_rules(kernel, kernel.assembly.replace("s_setprio 1", "s_setprio 2"))
    lines = kernel.assembly.splitlines()
    first = next(at for at, line in enumerate(lines) if "s_setprio 1" in line)
    barrier = next(at for at in range(first, len(lines)) if "s_barrier" in lines[at])
    matrix = next(at for at in range(barrier, len(lines)) if "mfma" in lines[at] or "wmma" in lines[at])
    place = next(at for at in range(matrix, 0, -1) if ".loc" in lines[at])
    moved = [lines[place], lines[matrix], *lines[first:matrix], *lines[matrix + 1 :]]
    assert "A7" in broken_rules(kernel, "\n".join([*lines[:first], *moved]))


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_fences_keep_stages_apart(target: str) -> None:
    """Without scheduling fences LLVM moves matrix instructions, which touch no memory, past the barriers."""
    module = lowered(PRODUCTS["four"], target)
    for op in [op for op in module.walk() if isinstance(op, SchedFenceOp)]:
        erase(op)
    with pytest.raises(KernelRejected, match="rule A7"):
        emulator.compile_kernels(module, target)
