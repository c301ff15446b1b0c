"""Cases in processes of their own, each with a time limit: what hangs is ended, what dies is noticed, and the next goes on."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz.outcomes import Outcome, Settings

ROOT = Path(__file__).parents[2]
START_SECONDS = 120.0
CASES_OF_A_WORKER = 100
"""Then the next process: memory that LLVM and the IR framework keep goes back."""


class Worker:
    """One process that answers seeds. It leads a session of its own, so that its tools end with it."""

    def __init__(self, kind: str, settings: Settings) -> None:
        paths = [str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "fuzz.worker", kind, settings.line()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT, start_new_session=True
        )
        self._left = b""
        self.answered = 0
        if self._line(START_SECONDS) != "ready":
            self.end()
            raise RuntimeError(f"a worker for {kind} does not start; `{' '.join(command)}` says why")

    def ask(self, seed: int, seconds: float) -> Outcome:
        """The outcome of a seed; "hang" or "crash", with the process at its end, where none comes."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{seed}\n".encode())
            self._process.stdin.flush()
            line = self._line(seconds)
        except (BrokenPipeError, EOFError):
            self.end()
            return Outcome(seed, "crash", detail=f"exit status {self._process.returncode}")
        if line is None:
            self.end()
            return Outcome(seed, "hang", detail=f"no answer within {seconds:g} s", seconds=seconds)
        self.answered += 1
        return Outcome.read(line)

    def _line(self, seconds: float) -> str | None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._left:
            ready, _, _ = select.select([descriptor], [], [], seconds)
            if not ready:
                return None
            read = os.read(descriptor, 1 << 16)
            if not read:
                raise EOFError
            self._left += read
        line, _, self._left = self._left.partition(b"\n")
        return line.decode()

    @property
    def is_alive(self) -> bool:
        """Whether it takes further seeds."""
        return self._process.poll() is None

    def close(self) -> None:
        """Let it clean up and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self.end()

    def end(self) -> None:
        """End the process and everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def run_cases(
    kind: str, seeds: Iterable[int], settings: Settings, *, seconds: float, jobs: int = 1, seen: Callable[[Outcome], None] | None = None
) -> list[Outcome]:
    """All outcomes, in the order of the seeds; `seen` is called with each as it comes, from one thread at a time."""
    stop, lock = threading.Event(), threading.Lock()
    pending = iter(seeds)
    found: list[Outcome] = []

    def next_seed() -> int | None:
        with lock:
            return None if stop.is_set() else next(pending, None)

    def work() -> None:
        worker: Worker | None = None
        try:
            while (seed := next_seed()) is not None:
                if worker is None:
                    worker = Worker(kind, settings)
                outcome = worker.ask(seed, seconds)
                with lock:
                    found.append(outcome)
                    if seen is not None:
                        seen(outcome)
                worker = _retired(worker)
        except BaseException:
            stop.set()
            raise
        finally:
            if worker is not None:
                worker.end() if stop.is_set() else worker.close()

    with ThreadPoolExecutor(jobs) as executor:
        futures = [executor.submit(work) for _ in range(jobs)]
        try:
            for future in futures:
                future.result()
        except BaseException:
            stop.set()
            raise
    return sorted(found, key=lambda outcome: outcome.seed)


def _retired(worker: Worker) -> Worker | None:
    if not worker.is_alive:
        return None
    if worker.answered < CASES_OF_A_WORKER:
        return worker
    worker.close()
    return None


def not_done(seeds: Iterable[int], done: set[int]) -> Iterator[int]:
    """The seeds that an earlier campaign has not answered."""
    return (seed for seed in seeds if seed not in done)
