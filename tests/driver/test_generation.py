"""Cost and order of a compilation, without clocks: what is verified how often, what runs beside what, and what is awaited."""

import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

import treadle
from treadle import pipelines
from treadle.dialects.tile import KernelOp
from treadle.driver.generation import compile_proven, emit_proven
from treadle.driver.lowering import lower
from treadle.driver.sources import Source
from treadle.errors import InternalError
from treadle.ir import passes
from treadle.ir.core import Operation
from treadle.options import CompileOptions
from treadle.targets.interface import CompiledKernel, EmittedKernel, TargetBackend

PROGRAM = """
func.func @f(%a: tensor<77x33xf16>, %b: tensor<33x45xf16>) -> tensor<77x45xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<77x45xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<77x45xf32>) -> tensor<77x45xf32>
  %c = linalg.matmul ins(%a, %b : tensor<77x33xf16>, tensor<33x45xf16>) outs(%z : tensor<77x45xf32>) -> tensor<77x45xf32>
  return %c : tensor<77x45xf32>
}
"""
SECONDS = 30.0  # after which a test that should not wait has failed


class Fault(Exception):
    """What a test's proof finds."""


@dataclass
class Tools:
    """A backend that emits names, and whose tools wait for `ready`."""

    ready: threading.Event = field(default_factory=threading.Event)
    started: threading.Event = field(default_factory=threading.Event)
    finished: list[Any] = field(default_factory=list[Any])

    def emit(self, kernel: Any) -> Any:
        if kernel == "unknown":
            raise InternalError("cannot emit")
        return kernel

    def assemble(self, emitted: Any) -> Any:
        self.started.set()
        assert self.ready.wait(SECONDS)
        if emitted == "spills":
            raise InternalError("spills")
        self.finished.append(emitted)
        return emitted


def compiled(tools: Tools, kernels: list[str], prove: Callable[[], None]) -> list[Any]:
    found: list[CompiledKernel] = compile_proven(cast("list[KernelOp]", kernels), cast("TargetBackend", tools), prove)
    return found


def test_the_proof_runs_while_the_tools_do() -> None:
    tools = Tools()

    def prove() -> None:
        assert tools.started.wait(SECONDS)
        assert not tools.finished
        tools.ready.set()  # the tools end after the proof has begun, or never

    assert compiled(tools, ["a", "b", "c"], prove) == ["a", "b", "c"]


def test_nothing_leaves_without_proof() -> None:
    tools = Tools()
    tools.ready.set()

    def prove() -> None:
        raise Fault

    for kernels in (["a"], ["spills"], ["unknown"], []):
        with pytest.raises(Fault):  # whatever else is wrong, the proof's verdict comes first
            compiled(tools, kernels, prove)
        with pytest.raises(Fault):
            emit_proven(cast("list[KernelOp]", kernels), cast("TargetBackend", tools), prove)


def test_errors_of_the_backend_come_after_the_proof() -> None:
    tools = Tools()
    tools.ready.set()
    proofs: list[int] = []
    for kernels, words in ((["a", "spills"], "spills"), (["a", "unknown"], "cannot emit")):
        with pytest.raises(InternalError, match=words):
            compiled(tools, kernels, lambda: proofs.append(1))
    with pytest.raises(InternalError, match="cannot emit"):
        emit_proven(cast("list[KernelOp]", ["unknown"]), cast("TargetBackend", tools), lambda: proofs.append(1))
    assert len(proofs) == 3


def test_a_fault_of_the_schedule_reaches_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(module: Operation, options: CompileOptions) -> None:
        raise Fault

    monkeypatch.setattr(pipelines, "prove", prove)
    for until in ("llvm", "asm", None):
        with pytest.raises(Fault):
            lower(Source(PROGRAM, "f.mlir"), "sm_90a", CompileOptions(), None, until=until)


@pytest.mark.parametrize("each", [False, True])
def test_modules_are_verified_once_a_level(each: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    verified = passes._verify  # pyright: ignore[reportPrivateUsage]

    def count(module: Any, when: str) -> None:
        seen.append(when)
        verified(module, when)

    monkeypatch.setenv("TREADLE_VERIFY_EACH_PASS", "1" if each else "")
    monkeypatch.setattr(passes, "_verify", count)
    lower(Source(PROGRAM, "f.mlir"), "sm_90a", CompileOptions(), None, until="schedule")
    below_tensor = pipelines.LEVELS[1:]
    assert len(seen) > 3 * len(below_tensor) if each else len(seen) == len(below_tensor)


def test_emitted_text_needs_no_tools() -> None:
    emitted: list[EmittedKernel] = emit_proven(cast("list[KernelOp]", ["a"]), cast("TargetBackend", Tools()), lambda: None)
    assert emitted == ["a"]


def test_garbage_is_collected_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    seen: list[bool] = []

    def prove(module: Operation, options: CompileOptions) -> None:
        seen.append(gc.isenabled())
        raise Fault

    monkeypatch.setattr(pipelines, "prove", prove)
    assert gc.isenabled()
    with pytest.raises(Fault):
        treadle.compile(PROGRAM, target="sm_90a")
    assert seen == [False] and gc.isenabled()
    gc.disable()
    try:
        with pytest.raises(Fault):
            treadle.compile(PROGRAM, target="sm_90a")
        assert not gc.isenabled()
    finally:
        gc.enable()
