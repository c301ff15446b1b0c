"""Running tools outside LLVM: to their end, within a time, or until they are stopped. Which tools there are, each vendor says."""

import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Final

from treadle import errors, knobs
from treadle.errors import TreadleError
from treadle.records import dataclass

_LOOK_SECONDS: Final = 0.1  # how often a thread with tools that can be stopped looks
_thread: Final = threading.local()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered."""

    status: int
    output: bytes
    errors: str


def run_tool(args: Sequence[str | Path], input: bytes | None = None, *, seconds: float | None = None, check: bool = True) -> ToolResult:
    """Run a tool to its end. Raises TR552 if it fails (and `check`), TR553 when it takes longer than `seconds`, TR551 if it is absent."""
    limit = knobs.TOOL_SECONDS.get() if seconds is None else seconds
    name = Path(args[0]).name
    try:
        done = _run([str(a) for a in args], input, limit)
    except subprocess.TimeoutExpired:
        raise TreadleError(errors.TOOL_TIMEOUT, tool=name, seconds=limit) from None
    except OSError as problem:
        raise TreadleError(
            errors.TOOL_MISSING, tool=name, reason=f"{args[0]}: {problem.strerror}", install=f"an executable {name}"
        ) from None
    text = done.stderr.decode(errors="replace")
    if check and done.returncode:
        words = (text + done.stdout.decode(errors="replace")).strip()
        raise TreadleError(errors.TOOL_FAILED, tool=name, status=done.returncode, output=words[:4000])
    return ToolResult(done.returncode, done.stdout, text)


def stop_with(event: threading.Event) -> None:
    """From now on, tools that this thread runs are ended once `event` is set; `run_tool` then raises `CancelledError`."""
    _thread.stop = event


def _run(args: list[str], input: bytes | None, limit: float) -> subprocess.CompletedProcess[bytes]:
    stop: threading.Event | None = getattr(_thread, "stop", None)
    if stop is None:
        return subprocess.run(args, input=input, capture_output=True, timeout=limit, check=False)
    deadline = time.monotonic() + limit
    stdin = None if input is None else subprocess.PIPE
    process = subprocess.Popen(args, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while not stop.is_set():
            try:
                output, complaints = process.communicate(input, max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic())))
                return subprocess.CompletedProcess(args, process.returncode, output, complaints)
            except subprocess.TimeoutExpired:
                if time.monotonic() >= deadline:
                    raise
                input = None  # it is being sent
        raise CancelledError
    except BaseException:
        process.kill()  # its pipes are left alone: a child of its own may hold them
        process.wait()
        raise


def configured(knob: knobs.Knob[Path | None], tool: str) -> Path | None:
    """The tool that a knob names; None where it is not set. Raises TR551 where that is no file."""
    path = knob.get()
    if path is not None and not path.is_file():
        raise TreadleError(
            errors.TOOL_MISSING, tool=tool, reason=f"{knob.name}={path} is no file", install=f"the right path in {knob.name}"
        )
    return path
