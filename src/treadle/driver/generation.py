"""Code for the kernels of a lowered module: the tools work on it while the schedules are proven.

Nothing leaves before the proof has ended: it is awaited whether the tools succeed or not, and its verdict goes before theirs.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from treadle.dialects.tile import KernelOp
from treadle.targets.interface import CompiledKernel, EmittedKernel, TargetBackend

_THREADS = 8  # they wait for processes


def emit_proven(kernels: Sequence[KernelOp], backend: TargetBackend, prove: Callable[[], None]) -> list[EmittedKernel]:
    """The kernels as LLVM text, after `prove` has returned."""
    try:
        return [backend.emit(kernel) for kernel in kernels]
    finally:
        prove()  # a fault of the schedule explains more than what the emitter says about it


def compile_proven(kernels: Sequence[KernelOp], backend: TargetBackend, prove: Callable[[], None]) -> list[CompiledKernel]:
    """Machine code of the kernels, audited. A kernel's tools run while the next is emitted, and while `prove` runs in this thread.

    Raises what `prove` raises, else the error of the first kernel that has one.
    """
    tasks: list[Future[CompiledKernel]] = []
    with ThreadPoolExecutor(min(len(kernels), _THREADS) or 1) as tools:
        try:
            for kernel in kernels:
                tasks.append(tools.submit(backend.assemble, backend.emit(kernel)))
        finally:
            prove()
    return [task.result() for task in tasks]
