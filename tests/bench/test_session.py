"""The worker process: answers, faults, hangs and crashes, and what follows them."""

import io
import json
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from treadle.bench.session import Session
from treadle.bench.worker import is_fatal, serve
from treadle.errors import DEVICE_CALL, UNSUPPORTED, TreadleError

SCRIPT = """
import json, os, sys, time
from treadle.bench.worker import serve

def answer(request):
    match request["do"]:
        case "echo": return {"pid": os.getpid(), "value": request["value"]}
        case "fail": raise ValueError("two\\nlines")
        case "sleep": time.sleep(60)
        case "crash":
            print("about to crash", file=sys.stderr, flush=True)
            os._exit(11)

serve(sys.stdin, sys.stdout, answer)
"""


@pytest.fixture(name="session")
def fixture_session(tmp_path: Path) -> Any:
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(SCRIPT))
    with Session((sys.executable, str(script))) as session:
        yield session


def test_one_process_answers_many(session: Session) -> None:
    answers = [session.ask({"do": "echo", "value": v}, 60) for v in (1, "two", [3])]
    assert [outcome for outcome, _ in answers] == ["ok"] * 3
    assert [value["value"] for _, value in answers] == [1, "two", [3]]
    assert len({value["pid"] for _, value in answers}) == 1
    assert session.starts == 1


def test_a_fault_ends_the_worker_and_the_next_one_answers(session: Session) -> None:
    assert session.ask({"do": "fail"}, 60) == ("failed", "ValueError: two lines")
    assert session.ask({"do": "echo", "value": 1}, 60)[0] == "ok"
    assert session.starts == 2


def test_a_crash_is_told_with_its_last_words(session: Session) -> None:
    outcome, text = session.ask({"do": "crash"}, 60)
    assert outcome == "crashed"
    assert "status 11" in text
    assert "about to crash" in text
    assert session.ask({"do": "echo", "value": 1}, 60)[0] == "ok"


def test_a_hang_is_ended(session: Session) -> None:
    assert session.ask({"do": "echo", "value": 1}, 60)[0] == "ok"
    assert session.ask({"do": "sleep"}, 0.2)[0] == "timeout"
    assert session.ask({"do": "echo", "value": 1}, 60)[0] == "ok"
    assert session.starts == 2


def test_a_command_that_is_none() -> None:
    with Session((sys.executable, "-c", "raise SystemExit(3)")) as session:
        outcome, text = session.ask({"do": "echo"}, 60)
    assert outcome == "crashed"
    assert "status 3" in text


def test_what_the_compiler_refuses_leaves_the_worker_alive() -> None:
    refused = TreadleError(UNSUPPORTED, what="this", hint="use that")

    def answer(request: Mapping[str, Any]) -> Any:
        if request["n"] == 1:
            raise refused
        if request["n"] == 2:
            raise TreadleError(DEVICE_CALL, call="cuLaunchKernel", reason="an illegal address", hint="-")
        return request["n"]

    out = io.StringIO()
    serve(io.StringIO("".join(f'{{"n": {n}}}\n' for n in (0, 1, 2, 3))), out, answer)
    replies = [json.loads(line) for line in out.getvalue().splitlines()]
    assert replies[0] == {"ok": 0}
    assert replies[1] == {"error": "TR301: this cannot be compiled yet", "fatal": False}
    assert replies[2]["fatal"]
    assert len(replies) == 3, "nothing is answered after a fatal fault"
    assert not is_fatal(refused)
    assert is_fatal(ValueError())
