"""Blocks in several processes that compile side by side and take the device in turn: most of a block's time is its compilation.

While a process compiles, the others measure; whatever is timed on the device, the choice of a compiler among its kernels included, is timed
by one process at a time. Times of the host mean less this way: the processor is shared.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import argparse
import fcntl
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

FEWEST_THREADS = 4
"""Of Inductor's own, in each process."""


class Turn:
    """The device, which one process at a time has: a lock of a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._is_held = False

    @contextmanager
    def taken(self) -> Generator[None]:
        """With the device."""
        if self._is_held:
            yield
            return
        self._take()
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def left(self) -> Generator[None]:
        """Without it, where it is held."""
        if not self._is_held:
            yield
            return
        self._leave()
        try:
            yield
        finally:
            self._take()

    def during(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function that has the device while it runs."""

        def run(*given: Any, **named: Any) -> Any:
            with self.taken():
                return call(*given, **named)

        return run

    def _take(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._is_held = True

    def _leave(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._is_held = False


_turn: Turn | None = None


def _begin(lock: Path, jobs: int) -> None:
    """What a process does first: all that it times takes turns."""
    global _turn
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(max(FEWEST_THREADS, (os.cpu_count() or 1) // jobs))
    import torch_block_rows as rows

    from treadle.torch import measuring

    benchmarker: Any = import_module("torch._inductor.runtime.benchmarking").benchmarker
    _turn = turn = Turn(lock)
    rows.compiling = turn.left
    measuring.timer = turn.during(measuring.timer)
    for name in ("benchmark", "benchmark_gpu", "benchmark_many_gpu"):
        if hasattr(benchmarker, name):
            setattr(benchmarker, name, turn.during(getattr(benchmarker, name)))


def _row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One block's row, in one of the processes."""
    import torch
    import torch_block_rows as rows

    if _turn is None:
        raise RuntimeError("this process has not begun")
    with _turn.taken():
        row = rows.measured(name, rows.chosen(options)[name], options, rows.clock_of(options))
        if torch.cuda.is_available():
            torch._dynamo.reset()
            torch.cuda.empty_cache()
    return row


def side_by_side(names: list[str], options: argparse.Namespace, is_late: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """The rows of these blocks as they come. No block is begun when it is late; one that fails is told, and the others go on."""
    with tempfile.TemporaryDirectory() as folder:
        lock = options.turns or Path(folder) / "device"
        with ProcessPoolExecutor(options.jobs, get_context("spawn"), _begin, (lock, options.jobs)) as pool:
            waiting = list(names)
            running: dict[Future[dict[str, Any]], str] = {}
            while waiting or running:
                while waiting and len(running) < options.jobs and not is_late():
                    name = waiting.pop(0)
                    running[pool.submit(_row, name, options)] = name
                if waiting and is_late():
                    print(f"deadline: {len(waiting)} not begun, from {waiting[0]!r} on", flush=True)
                    waiting = []
                for done in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                    name = running.pop(done)
                    if failed := done.exception():
                        print(f"FAILED  {name}: {type(failed).__name__}: {failed}", flush=True)
                    else:
                        yield done.result()
