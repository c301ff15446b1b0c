"""Cost and order of a compilation, without clocks: what is verified how often, what runs beside what, and what is awaited."""

import gc
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

import treadle
from treadle import pipelines
from treadle.codegen import tools
from treadle.dialects.tile import KernelOp
from treadle.driver import generation
from treadle.driver.generation import compile_proven, emit_proven
from treadle.driver.lowering import Stage, lower
from treadle.driver.sources import Source
from treadle.errors import InternalError
from treadle.ir import passes
from treadle.ir.core import Operation
from treadle.options import CompileOptions
from treadle.targets.interface import EmittedKernel, TargetBackend

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
    return list(compile_proven(cast("list[KernelOp]", kernels), cast("TargetBackend", tools), prove))


def test_the_proof_runs_while_the_tools_do() -> None:
    tools = Tools()

    def prove() -> None:
        assert tools.started.wait(SECONDS)
        assert not tools.finished
        provers.append(threading.current_thread())
        tools.ready.set()  # the tools end after the proof has begun, or never

    provers: list[threading.Thread] = []
    assert compiled(tools, ["a", "b", "c"], prove) == ["a", "b", "c"]
    assert provers == [threading.current_thread()]  # remarks and errors of a proof are its caller's


class Impatient(Tools):
    """A backend whose second kernel is emitted once the first one's tools have begun, and whose first is done once the second's have."""

    def emit(self, kernel: Any) -> Any:
        assert kernel == "a" or self.started.wait(SECONDS)
        return kernel

    def assemble(self, emitted: Any) -> Any:
        (self.ready if emitted == "b" else self.started).set()
        assert self.ready.wait(SECONDS)
        return emitted


def test_tools_run_beside_emission_and_one_another() -> None:
    assert compiled(Impatient(), ["a", "b"], lambda: None) == ["a", "b"]


@dataclass
class Endless(Tools):
    """A backend whose tools never end by themselves."""

    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ended: list[Any] = field(default_factory=list[Any])

    def assemble(self, emitted: Any) -> Any:
        self.begun.release()
        try:
            tools.run_tool([sys.executable, "-c", f"import time; time.sleep({SECONDS})"])
        except CancelledError:
            self.ended.append(emitted)
            raise


def test_a_fault_ends_the_tools() -> None:
    """Those that run are stopped, and have stopped when the fault is told; those that wait for a thread never start."""
    tools, threads = Endless(), generation._THREADS  # pyright: ignore[reportPrivateUsage]
    kernels = [f"k{i}" for i in range(3 * threads)]

    def prove() -> None:
        for _ in range(threads):
            assert tools.begun.acquire(timeout=SECONDS)
        raise Fault

    with pytest.raises(Fault):
        compiled(tools, kernels, prove)
    assert sorted(tools.ended) == sorted(kernels[:threads])
    assert not tools.begun.acquire(blocking=False)


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
    for kernels, words in ((["a", "spills"], "spills"), (["a", "unknown"], "cannot emit"), (["spills", "unknown"], "cannot emit")):
        with pytest.raises(InternalError, match=words):
            compiled(tools, kernels, lambda: proofs.append(1))
    with pytest.raises(InternalError, match="cannot emit"):
        emit_proven(cast("list[KernelOp]", ["unknown"]), cast("TargetBackend", tools), lambda: proofs.append(1))
    assert len(proofs) == 4


def test_a_fault_of_the_schedule_reaches_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(module: Operation, options: CompileOptions, door: pipelines.Door) -> None:
        raise Fault

    monkeypatch.setattr(pipelines, "prove", prove)
    for until in ("schedule", "llvm", "asm", None):
        with pytest.raises(Fault):
            lower(Source(PROGRAM, "f.mlir"), "sm_90a", CompileOptions(), None, until=until)
    lower(Source(PROGRAM, "f.mlir"), "sm_90a", CompileOptions(), None, until="tile")  # has no schedule yet


def test_a_schedule_is_proven_once(monkeypatch: pytest.MonkeyPatch) -> None:
    proofs: list[Operation] = []

    def prove(module: Operation, options: CompileOptions, door: pipelines.Door) -> None:
        proofs.append(module)

    monkeypatch.setattr(pipelines, "prove", prove)
    untils: tuple[Stage | None, ...] = ("schedule", "llvm", "asm", None)
    for until in untils:
        lower(Source(PROGRAM, "f.mlir"), "sm_90a", CompileOptions(), None, until=until)
    assert len(proofs) == len(untils)


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

    def prove(module: Operation, options: CompileOptions, door: pipelines.Door) -> None:
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
