"""Code for the kernels of a lowered module: the tools work on it while the schedules are proven.

Nothing leaves before the proof has ended: it is awaited whether the tools succeed or not, and its verdict goes before theirs.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from treadle.codegen.tools import stop_with
from treadle.dialects.tile import KernelOp
from treadle.errors import KernelRejected
from treadle.targets.interface import CompiledKernel, EmittedKernel, TargetBackend

_THREADS = 8  # they wait for processes


def emit_proven(kernels: Sequence[KernelOp], backend: TargetBackend, prove: Callable[[], None]) -> list[EmittedKernel]:
    """The kernels as LLVM text, after `prove` has returned."""
    try:
        return [backend.emit(kernel) for kernel in kernels]
    finally:
        prove()  # a fault of the schedule explains more than what the emitter says about it


def _outcome(task: Future[CompiledKernel]) -> CompiledKernel | KernelRejected:
    try:
        return task.result()
    except KernelRejected as rejected:
        return rejected


def compile_proven(kernels: Sequence[KernelOp], backend: TargetBackend, prove: Callable[[], None]) -> list[CompiledKernel | KernelRejected]:
    """Machine code of the kernels, audited, or why it is rejected. A kernel's tools run while the next is emitted, and while `prove` runs
    in this thread.

    Raises what `prove` raises, else the error of the first kernel that cannot be emitted, else that of the first whose tools fail.
    """
    tasks: list[Future[CompiledKernel]] = []
    stop = Event()
    tools = ThreadPoolExecutor(min(len(kernels), _THREADS) or 1, initializer=stop_with, initargs=(stop,))
    try:
        try:
            for kernel in kernels:
                tasks.append(tools.submit(backend.assemble, backend.emit(kernel)))
        except Exception:
            prove()
            raise
        prove()
        return [_outcome(task) for task in tasks]
    finally:
        stop.set()  # an error or an interrupt waits for no tool
        tools.shutdown(cancel_futures=True)
