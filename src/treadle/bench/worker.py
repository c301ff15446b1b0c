"""The process that measures: one request a line on stdin, one answer a line on stdout, until a fault makes its device unusable.

Run as `python -m treadle.bench.worker`. A request is {"kind", ..}; answers are {"ok": value}, or {"error": text, "fatal": bool}.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TextIO

from treadle import driver
from treadle.bench import suite
from treadle.bench.case import CompilationFailed, run_case
from treadle.bench.environment import environment
from treadle.bench.machine import TorchMachine
from treadle.bench.option_text import options_from_plain
from treadle.bench.peers import make_peer
from treadle.bench.protocol import MeasureOptions
from treadle.bench.tuning import measure_candidates
from treadle.errors import DEVICE_CALL, InternalError, TreadleError
from treadle.options import CompileOptions


def _compile(device: str, text: str, options: CompileOptions) -> driver.Program:
    # What is measured is what the request says, tuned or not.
    return driver.compile(text, target=driver.target_of_device(device), options=replace(options, tuned=False))


class Server:
    """Answers requests; keeps the machine between them."""

    def __init__(self) -> None:
        self._machine: TorchMachine | None = None
        self._bytes = 0

    def machine(self, flush_bytes: int) -> TorchMachine:
        """The machine with a sweep of that size."""
        if self._machine is None or self._bytes != flush_bytes:
            self._machine, self._bytes = None, flush_bytes
            self._machine = TorchMachine(flush_bytes)
        return self._machine

    def answer(self, request: Mapping[str, Any]) -> Any:
        """The value for a request."""
        kinds: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "environment": lambda _: environment(),
            "case": self._case,
            "tune": self._tune,
        }
        return kinds[request["kind"]](request)

    def _case(self, request: Mapping[str, Any]) -> Any:
        workload = suite.find(request["name"])
        if workload is None:
            raise InternalError(f"no workload {request['name']}")
        measuring = MeasureOptions(**request["measure"])
        peers = {kind: partial(make_peer, kind, workload) for kind in request["peers"]}
        changed = options_from_plain(workload.options, request["options"])
        record = run_case(workload, self.machine(measuring.flush_bytes), partial(_compile, request["device"]), peers, measuring, changed)
        return record.plain()

    def _tune(self, request: Mapping[str, Any]) -> Any:
        measuring = MeasureOptions(**request["measure"])
        candidates = [options_from_plain(CompileOptions(), plain) for plain in request["candidates"]]
        machine = self.machine(measuring.flush_bytes)
        return measure_candidates(request["text"], candidates, machine, partial(_compile, request["device"]), measuring)


def is_fatal(problem: Exception) -> bool:
    """Whether the device may be unusable after this: everything but what the compiler says, and what Treadle refuses."""
    if isinstance(problem, CompilationFailed):
        return False
    return not isinstance(problem, TreadleError) or problem.entry is DEVICE_CALL


def described(problem: Exception) -> str:
    """One line for the record."""
    match problem:
        case TreadleError():
            return f"{problem.code}: {problem.message}"
        case CompilationFailed():
            return f"compiling: {problem}"
        case _:
            return f"{type(problem).__name__}: {problem}"


def serve(lines: TextIO, channel: TextIO, answer: Callable[[Mapping[str, Any]], Any]) -> None:
    """Answer each line until the input or the device ends."""
    for line in lines:
        try:
            reply: dict[str, Any] = {"ok": answer(json.loads(line))}
        except Exception as problem:  # noqa: BLE001 - one case must not end the run, whatever goes wrong in it
            traceback.print_exc()
            reply = {"error": " ".join(described(problem).split())[:600], "fatal": is_fatal(problem)}
        channel.write(json.dumps(reply) + "\n")
        channel.flush()
        if reply.get("fatal"):
            return


def main() -> None:
    """Serve on this process's stdin and stdout; whatever else is printed goes to stderr."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin, channel, Server().answer)


if __name__ == "__main__":
    main()
