"""LLVM in worker processes.

LLVM ends its process on what it calls fatal errors, and keeps state that one kernel can leave bad for the next. So it runs in children
(`worker_main`), which live on between requests and start in about 0.1 s. A child that dies is replaced; the request is tried once more in a
fresh child if the dead one had served before, since then the fault may have been left behind by another kernel.
"""

import atexit
import contextlib
import os
import pickle
import re
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from treadle import knobs
from treadle.errors import InternalError
from treadle.records import dataclass

Emit = Literal["asm", "object", "ir"]
Passes = Literal["O1", "O2", "O3"]
_MAIN: Final = str(Path(__file__).with_name("worker_main.py"))


@dataclass(frozen=True, slots=True)
class LlvmJob:
    """One code generation: LLVM `text` for a machine, and what to emit. `passes` None runs no IR passes.

    `opt_level` is that of instruction selection and register allocation. `llvm_options` are command-line options of LLVM; they are
    process-wide, so jobs with other options run in other processes.
    """

    text: str
    triple: str
    cpu: str
    features: str = ""
    opt_level: int = 3
    emit: Emit = "asm"
    passes: Passes | None = None
    llvm_options: tuple[str, ...] = ()


class _Crash(Exception):
    """The child ended or hung in the middle of a request; the message is what it wrote to its error output. `is_late`: it hung."""

    is_late = False


class _Worker:
    """One child process. Not safe for several threads at once: the pool lends it to one."""

    def __init__(self, options: tuple[str, ...]) -> None:
        self.options = options
        self.served = 0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        spec = find_spec("llvmlite")
        if spec is None or spec.origin is None:
            raise InternalError("llvmlite is not installed")
        found_in = str(Path(spec.origin).parents[1])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), found_in)))}
        # -P: the folder of worker_main.py must not become an import path.
        self._process = subprocess.Popen(
            [sys.executable, "-P", _MAIN, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,  # Ctrl-C ends the parent, which ends the child; the child prints no traceback
        )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def request(self, job: LlvmJob, seconds: float) -> tuple[str, str | bytes]:
        """Send one job and wait. Raises `_Crash`."""
        self._errors.seek(0)
        self._errors.truncate()
        record = asdict(job)
        del record["llvm_options"]
        data = pickle.dumps(record)
        sent, received = self._process.stdin, self._process.stdout
        if sent is None or received is None:
            raise InternalError("a worker without pipes")
        deadline = time.monotonic() + seconds
        try:
            sent.write(struct.pack(">I", len(data)) + data)
            sent.flush()
        except BrokenPipeError:
            raise self._crash("ended") from None
        (size,) = struct.unpack(">I", self._receive(received.fileno(), 4, deadline))
        self.served += 1
        return pickle.loads(self._receive(received.fileno(), size, deadline))

    def _receive(self, fd: int, size: int, deadline: float) -> bytes:
        parts: list[bytes] = []
        while size:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                late = self._crash("took too long and was stopped")
                late.is_late = True
                raise late
            data = os.read(fd, min(size, 1 << 20))
            if not data:
                raise self._crash("ended")
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def _crash(self, how: str) -> _Crash:
        self.close()
        with contextlib.suppress(ValueError):
            self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        self._errors.close()
        return _Crash(f"code generation {how} (status {self._process.returncode})\n{text}")

    def close(self) -> None:
        """End the child and collect it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.kill()
        self._process.wait()


class WorkerPool:
    """Worker processes, started when needed, at most `size`; safe for threads, and empty again in a forked child."""

    def __init__(self, size: int = 0) -> None:
        self._size = size
        self._changed = threading.Condition()
        self._idle: list[_Worker] = []
        self._live: set[_Worker] = set()
        self._owner = os.getpid()

    @property
    def size(self) -> int:
        """Processes at most."""
        return self._size or knobs.WORKERS.get() or max(1, min(8, os.cpu_count() or 1))

    def pids(self) -> list[int]:
        """Process ids of the children now alive."""
        with self._changed:
            return [w.pid for w in self._live]

    def run(self, job: LlvmJob, seconds: float | None = None) -> str | bytes:
        """Generate code, in at most `seconds` (by default the tools' limit); raises `InternalError` with LLVM's words and the offending
        line of the text.
        """
        limit = knobs.TOOL_SECONDS.get() if seconds is None else seconds
        worker = self._take(job.llvm_options)
        fresh = worker.served == 0
        try:
            try:
                kind, result = worker.request(job, limit)
            except _Crash as crash:
                self._drop(worker)
                if fresh or crash.is_late:
                    raise
                worker = self._take(job.llvm_options, fresh=True)
                kind, result = worker.request(job, limit)
        except _Crash as crash:
            self._drop(worker)
            raise InternalError(f"LLVM failed for {job.cpu}: {crash}") from None
        except BaseException:  # interrupted between request and answer: the stream is out of step
            self._drop(worker)
            raise
        self._give(worker)
        if kind == "ok":
            return result
        raise InternalError(_explain(kind, str(result), job.text))

    def warm_up(self, llvm_options: tuple[str, ...] = (), count: int = 1) -> None:
        """Have `count` idle workers, as far as the pool has room (returns at once; new ones get ready beside the caller)."""
        self._give(self._take(llvm_options))
        with self._changed:
            idle = sum(worker.options == llvm_options for worker in self._idle)
            for _ in range(min(count - idle, self.size - len(self._live))):
                worker = _Worker(llvm_options)
                self._live.add(worker)
                self._idle.append(worker)

    def close(self) -> None:
        """End all children."""
        with self._changed:
            if os.getpid() == self._owner:
                for worker in self._live:
                    worker.close()
            self._idle.clear()
            self._live.clear()
            self._changed.notify_all()

    def _take(self, options: tuple[str, ...], fresh: bool = False) -> _Worker:
        with self._changed:
            if os.getpid() != self._owner:  # forked: the children belong to the parent
                self._idle, self._live, self._owner = [], set(), os.getpid()
            while True:
                for worker in reversed(self._idle):
                    if worker.options == options and not fresh:
                        self._idle.remove(worker)
                        return worker
                if len(self._live) >= self.size and self._idle:
                    other = self._idle.pop(0)
                    self._live.discard(other)
                    other.close()
                if len(self._live) < self.size:
                    worker = _Worker(options)
                    self._live.add(worker)
                    return worker
                self._changed.wait()

    def _give(self, worker: _Worker) -> None:
        with self._changed:
            if worker in self._live:
                self._idle.append(worker)
            self._changed.notify()

    def _drop(self, worker: _Worker) -> None:
        with self._changed:
            self._live.discard(worker)
            self._changed.notify()
        worker.close()


def _explain(kind: str, message: str, text: str) -> str:
    """LLVM's message with the line it is about: by its number, or by the instruction that it quotes."""
    lines = text.split("\n")
    number = 0
    if placed := re.search(r"<string>:(\d+):", message):
        number = int(placed.group(1))
    else:
        quoted = [q.strip() for q in message.split("\n")[1:] if q.strip()]
        number = next((i + 1 for q in quoted for i, line in enumerate(lines) if line.strip().startswith(q.split(" #")[0])), 0)
    shown = "\n".join(
        f"{i + 1:6d}{'>' if i + 1 == number else ' '} {lines[i]}" for i in range(max(0, number - 4), min(len(lines), number + 2))
    )
    heading = {"parse": "generated LLVM text does not parse", "verify": "generated LLVM text does not verify"}.get(
        kind, "LLVM has no such target"
    )
    return f"{heading}: {message.strip()}" + (f"\n{shown}" if number else "")


_pool: Final = WorkerPool()
atexit.register(_pool.close)


def compile_llvm(
    text: str,
    *,
    triple: str,
    cpu: str,
    features: str = "",
    opt_level: int = 3,
    emit: Emit = "asm",
    passes: Passes | None = None,
    llvm_options: tuple[str, ...] = (),
) -> str | bytes:
    """Generate code from LLVM text: assembly or (`emit="ir"`) optimised IR as str, an object file as bytes. Raises `InternalError`."""
    return _pool.run(LlvmJob(text, triple, cpu, features, opt_level, emit, passes, llvm_options))


def emit_assembly(text: str, *, triple: str, cpu: str, features: str = "", opt_level: int = 3, passes: Passes | None = None) -> str:
    """`compile_llvm` to assembly text (PTX for NVIDIA)."""
    result = compile_llvm(text, triple=triple, cpu=cpu, features=features, opt_level=opt_level, passes=passes)
    return result if isinstance(result, str) else result.decode()


def emit_object(text: str, *, triple: str, cpu: str, features: str = "", opt_level: int = 3, passes: Passes | None = None) -> bytes:
    """`compile_llvm` to an object file."""
    result = compile_llvm(text, triple=triple, cpu=cpu, features=features, opt_level=opt_level, emit="object", passes=passes)
    return result if isinstance(result, bytes) else result.encode()


def compile_many(jobs: Sequence[LlvmJob], seconds: float | None = None) -> list[str | bytes]:
    """All jobs, in parallel over the worker processes, each in at most `seconds`; results in order. Raises the first error after all have
    ended.
    """
    if len(jobs) <= 1:
        return [_pool.run(job, seconds) for job in jobs]
    with ThreadPoolExecutor(min(len(jobs), _pool.size)) as threads:
        futures = [threads.submit(_pool.run, job, seconds) for job in jobs]
    return [future.result() for future in futures]


def warm_up(llvm_options: tuple[str, ...] = (), count: int = 1) -> None:
    """Start workers for jobs with these options now, so that the first compilation does not wait for them."""
    _pool.warm_up(llvm_options, count)
