"""Registers of kernels that a few fewer would let a unit hold more of: what is asked of LLVM, and what is taken."""

import random
from functools import cache

import pytest
from targets.amd import programs
from targets.amd.test_suite_bars import rows

from treadle.bench.suite import find
from treadle.frontends.mlir import load
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.targets.amd.metadata import KernelMetadata
from treadle.targets.amd.register_use import in_more_waves
from treadle.targets.amd.steady_loop import occupancy
from treadle.targets.interface import EmittedKernel
from treadle.targets.registry import backend
from treadle.transforms.kernel.kernel_ir import kernels


@cache
def emitted(target: str, text: str) -> EmittedKernel:
    """The one kernel of a program."""
    module = load(text)
    lower(module, target_spec(target), CompileOptions())
    (kernel,) = kernels(module)
    return backend(target).emit(kernel)


def metadata(registers: int, shared_bytes: int, threads: int) -> KernelMetadata:
    return KernelMetadata("k", registers, 0, 0, 0, 0, 0, shared_bytes, 0, threads, ())


@pytest.mark.parametrize("target", programs.TARGETS)
def test_one_workgroup_more_is_asked_for_where_registers_alone_are_in_the_way(target: str) -> None:
    spec, product = target_spec(target), emitted(target, programs.matmul(64, 64, 64, "f16", "f32").text)
    draw, asked = random.Random(f"registers {target}"), 0
    for _ in range(400):
        registers, shared_bytes = draw.randint(1, spec.max_registers_per_thread), draw.choice((0, 1 << draw.randint(10, 15)))
        warps = draw.choice((1, 2, 4, 8))
        held = metadata(registers, shared_bytes, warps * spec.subgroup_size)
        other, workgroups = in_more_waves(product, spec, held), occupancy(spec, held, warps)[0]
        fewer = [metadata(max(1, registers - saved), shared_bytes, warps * spec.subgroup_size) for saved in range(1, 17)]
        if all(occupancy(spec, one, warps)[0] <= workgroups for one in fewer):
            assert other is None, (registers, shared_bytes, warps)
            continue
        waves = -(-(workgroups + 1) * warps // spec.matrix_units)
        assert other is not None and f'"amdgpu-waves-per-eu"="{waves}"' in other.llvm_text, (registers, shared_bytes, warps)
        asked += 1
    assert asked > 20


def test_what_multiplies_nothing_is_left_alone() -> None:
    text = "func.func @f(%a: tensor<64xf32>) -> tensor<64xf32> {\n  %r = math.exp %a : tensor<64xf32>\n  return %r : tensor<64xf32>\n}\n"
    spec = target_spec("gfx942")
    assert in_more_waves(emitted("gfx942", text), spec, metadata(176, 0, 256)) is None
    assert in_more_waves(emitted("gfx942", programs.matmul(64, 64, 64, "f16", "f32").text), spec, metadata(176, 0, 256)) is not None


def test_a_unit_that_waits_for_loads_holds_more_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM's usual allocation leaves this loop one wave a unit by four registers; what is asked of the audit is what users get."""
    workload = find("linear-gate-2048x4096x4096")
    assert workload is not None
    (row,) = rows(workload.text, "gfx942", workload.options, bare=False)
    assert (row.loop.waves, row.loop.scratch, row.loop.broken) == (2, 0, ())
    tool, kernel = backend("gfx942"), emitted("gfx942", workload.text)
    assert tool.assemble(kernel).facts.registers == row.loop.registers
    monkeypatch.setattr("treadle.targets.amd.backend.GAIN", 9.0)
    (usual,) = rows(workload.text, "gfx942", workload.options, bare=False)
    assert usual.loop.waves == 1 and usual.loop.matrix_share < row.loop.matrix_share
    assert tool.assemble(kernel).facts.registers == usual.loop.registers
