"""Work handed to a process of its own, with a limit on its time: a crash or a hang costs one case, not the run."""

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Literal

Outcome = Literal["ok", "failed", "crashed", "timeout"]
WORKER = (sys.executable, "-m", "treadle.bench.worker")
_TAIL = 600


class Session:
    """A worker that is started when it is needed and again after a fault. Use as a context manager."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self._command = tuple(command)
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._errors: IO[str] | None = None
        self.starts = 0

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def ask(self, request: Mapping[str, Any], seconds: float) -> tuple[Outcome, Any]:
        """The answer to a request: ("ok", value), or what went wrong with a text.

        A worker that fails fatally or takes too long is ended, and the next request starts another.
        """
        process = self._running()
        if process.stdin is None:
            return "crashed", "the worker has no input"
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError:
            return "crashed", self._end_of_errors()
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.stop()
            return "timeout", f"no answer after {seconds:g} s"
        if line is None:
            text = self._end_of_errors()
            self.stop()
            return "crashed", text
        reply = json.loads(line)
        if "ok" in reply:
            return "ok", reply["ok"]
        if reply["fatal"]:
            self.stop()
        return "failed", reply["error"]

    def stop(self) -> None:
        """End the worker, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self.starts += 1
            self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - lives as long as the worker
            self._answers = queue.Queue()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8"
            )
            threading.Thread(target=_forward, args=(self._process.stdout, self._answers), daemon=True).start()
        return self._process

    def _end_of_errors(self) -> str:
        if self._errors is None:
            return "the worker has ended"
        if self._process is not None:
            self._process.wait(timeout=20)
        self._errors.seek(0)
        text = " ".join(self._errors.read()[-_TAIL:].split())
        status = self._process.returncode if self._process is not None else "unknown"
        return f"the worker ended with status {status}: {text}"


def _forward(lines: IO[str] | None, answers: "queue.Queue[str | None]") -> None:
    for line in lines or ():
        answers.put(line)
    answers.put(None)
