"""Mutated texts through the command line: exit status 0 or 2 (1 where `verify` finds a schedule wrong), within 5 s of computing."""

import contextlib
import io
import random
import re
import resource
import tempfile
import time
from pathlib import Path

from fuzz.kinds import Kind
from fuzz.outcomes import Outcome, Settings, Status
from generators.contractions import TARGETS
from generators.corpus import random_text
from generators.mutations import mutate

from treadle.tools.diagnostics import EXIT_INTERNAL_ERROR, EXIT_USER_ERROR, EXIT_WRONG_RESULT
from treadle.tools.main import invoke

SECONDS = 5.0
MEMORY_BYTES = 16 << 30
_ERROR = re.compile(r"^(\S.*:\d+(:\d+)?: )?error TR\d{3}: ", re.MULTILINE)
_ADVICE = re.compile(r"^  fix: .{8}", re.MULTILINE)


def run(seed: int, settings: Settings) -> Outcome:
    """One mutation through one verb, in this process."""
    rng = random.Random(f"text {seed}")
    text, names = mutate(rng, random_text(rng))
    verb = "verify" if "tile.kernel" in text else "compile"
    target = (*(settings.targets or TARGETS), "sim")[seed % (len(settings.targets or TARGETS) + 1)]
    _bound_memory()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "in.mlir")
        file.write_bytes(text.encode("utf-8", errors="surrogateescape"))
        options = ["--target", target, "--emit", "tile" if target == "sim" else "asm", "--no-tuned"] if verb == "compile" else []
        before = _computing()
        status, shown = _invoked([verb, str(file), *options])
        seconds = _computing() - before
    label = f"{names}: {verb} {target if options else ''}"
    return Outcome(seed, *_judged(verb, status, shown, seconds, label), text.encode(errors="surrogateescape").decode(errors="replace"))


def _judged(verb: str, status: int, shown: str, seconds: float, label: str) -> tuple[Status, str, str]:
    expected = (0, EXIT_USER_ERROR, EXIT_WRONG_RESULT) if verb == "verify" else (0, EXIT_USER_ERROR)
    if status == EXIT_INTERNAL_ERROR:
        return "internal", label, shown
    if status not in expected:
        return "wrong", label, f"exit status {status}: {shown}"
    if seconds > SECONDS:
        return "slow", label, f"{seconds:.1f} s; {shown}"
    if status == EXIT_USER_ERROR:
        return ("refused" if _ERROR.search(shown) and _ADVICE.search(shown) else "unhelpful"), label, shown
    return "right", label, ""


def _invoked(words: list[str]) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = invoke(words)
    return status, err.getvalue()


def _computing() -> float:
    """Seconds of processor time of this process and of the tools that it ran: other loads of the machine do not count."""
    tools = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + tools.ru_utime + tools.ru_stime


def _bound_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


KIND = Kind(run, seconds=60.0)
