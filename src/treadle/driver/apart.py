"""Compilations in processes of their own, side by side: the compiler is Python, of which a process runs one thread at a time.

What they compile lies in the disk cache, from which the caller loads it. A process is started for the first request that finds none idle,
answers one request after the other, and ends when the caller does, or when it was idle for a while. A request is a pickled tuple, the
answer the pickled reason why there is no program, or None. Where processes cannot be started, or one ends before its answer, nothing is
lost but time: the caller compiles by itself.
"""

import atexit
import os
import pickle
import select
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from treadle import knobs
from treadle.errors import InternalError, TreadleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.options import CompileOptions

IDLE_SECONDS: Final = 60.0
FEWEST_CORES: Final = 4
"""On fewer, what processes need to start takes more than they gain."""
_MOST: Final = 8


class Unanswered(Exception):
    """A process that could not be started, or ended before its answer."""


def is_worthwhile() -> bool:
    """Whether this machine has cores for processes beside the caller's."""
    return (os.cpu_count() or 1) >= FEWEST_CORES


def outcome(text: str, target: str, options: "CompileOptions") -> Any:
    """The program of a text, or why there is none, as text."""
    from treadle.driver import compile

    try:
        return compile(text, target, options)
    except TreadleError as refused:
        return f"{refused.code}: {refused.message}"
    except InternalError as defect:
        return f"a defect of the compiler: {str(defect).splitlines()[0]}"


class _Process:
    """One process, lent to one thread at a time. `target`: what it gets ready for before it is asked ("": it imports what all share)."""

    def __init__(self, target: str = "") -> None:
        self.served = 0
        home = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), home)))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, *filter(None, [target])],  # -P: the working directory must not become an import path
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C ends the caller, which ends the process
            )
        except OSError as problem:
            raise Unanswered(str(problem)) from None

    def ask(self, request: tuple[str, str, "CompileOptions"]) -> str | None:
        """Why there is no program, or None. Raises Unanswered."""
        sent, received = self._process.stdin, self._process.stdout
        if sent is None or received is None:
            raise Unanswered("a process without pipes")
        try:
            pickle.dump(request, sent)
            sent.flush()
            self.served += 1
            return pickle.load(received)
        except (OSError, EOFError, pickle.UnpicklingError) as problem:
            raise Unanswered(str(problem)) from None

    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it without waiting for its end."""
        self._process.kill()
        threading.Thread(target=self.close, daemon=True).start()

    def close(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.kill()
        self._process.wait()


class Compilers:
    """Processes that compile, at most `size` (0: one a core beside the caller's, at most 8). Safe for threads; a forked child has none."""

    def __init__(self, size: int = 0) -> None:
        self._size = size
        self._idle: list[_Process] = []
        self._change = threading.Lock()
        self._owner = 0
        self._is_spared = False
        self._threads: ThreadPoolExecutor | None = None

    def begin(self, text: str, target: str, options: "CompileOptions") -> "Future[str | None]":
        """Compile beside the caller: why there is no program, or None; Unanswered where no process told."""
        return self._pool().submit(self._ask, (text, target, options))

    def prepare(self, count: int, target: str = "") -> None:
        """Have so many processes idle that get ready for a target meanwhile; none where the last ones were not asked for anything."""
        self._pool()
        if self._is_spared:
            return
        with suppress(Unanswered):
            for _ in range(count - len(self._idle)):
                self._idle.append(_Process(target))

    def spare(self) -> None:
        """End those that were never asked."""
        with self._change:
            unused = [process for process in self._idle if not process.served]
            self._idle = [process for process in self._idle if process.served]
        for process in unused:
            process.stop()
        self._is_spared |= bool(unused) and not self._idle

    def close(self) -> None:
        """End those that are idle, and wait for the others."""
        if self._threads is not None and self._owner == os.getpid():
            self._threads.shutdown(cancel_futures=True)
            for process in self._idle:
                process.close()
        self._idle, self._threads = [], None

    def _pool(self) -> ThreadPoolExecutor:
        with self._change:
            if self._owner != os.getpid():  # forked: the processes belong to the parent
                self._idle, self._threads, self._owner = [], None, os.getpid()
            if self._threads is None:
                count = self._size or knobs.WORKERS.get() or max(1, min(_MOST, (os.cpu_count() or 2) - 1))
                self._threads = ThreadPoolExecutor(count, "treadle-compile")
            return self._threads

    def _ask(self, request: tuple[str, str, "CompileOptions"]) -> str | None:
        while True:
            kept = self._take()
            process = kept or _Process()
            try:
                answer = process.ask(request)
            except Unanswered:
                process.close()
                if kept is None:
                    raise  # one that had ended while it was idle is replaced
            else:
                with self._change:
                    self._idle.append(process)
                return answer

    def _take(self) -> _Process | None:
        with self._change:
            while self._idle:
                process = self._idle.pop()
                if process.is_alive():
                    return process
                process.close()
        return None


COMPILERS: Final = Compilers()
"""Those of this process."""
atexit.register(COMPILERS.close)


# --- the other side


def _requests(stream: BinaryIO) -> Any:
    """Requests until the input ends, or none comes for a while. None is sent before the last one is answered, so none waits in a buffer."""
    with suppress(EOFError):
        while select.select([stream], [], [], IDLE_SECONDS)[0]:
            yield pickle.load(stream)


def _serve(targets: "Sequence[str]") -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed may get between the answers
    lowering = import_module("treadle.driver.lowering")
    for target in targets:
        with suppress(TreadleError):  # a request for it will say so
            lowering.get_ready(target)
    for request in _requests(sys.stdin.buffer):
        found = outcome(*request)
        pickle.dump(found if isinstance(found, str) else None, answers)
        answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1:])
