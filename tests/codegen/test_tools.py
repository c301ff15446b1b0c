"""What happens when a tool hangs, or is not wanted any more."""

import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle.codegen import tools
from treadle.errors import TreadleError


def code_of(caught: pytest.ExceptionInfo[TreadleError]) -> str:
    return caught.value.code


def test_a_tool_that_hangs_is_stopped() -> None:
    with pytest.raises(TreadleError) as caught:
        tools.run_tool(["sleep", "30"], seconds=0.05)
    assert code_of(caught) == "TR553"


def test_tools_end_when_they_are_stopped(tmp_path: Path) -> None:
    """Also those that have started a process of their own, which keeps their pipes open."""
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\nsleep 30\n", encoding="utf-8")
    slow.chmod(0o755)
    stop = threading.Event()
    with ThreadPoolExecutor(1, initializer=tools.stop_with, initargs=(stop,)) as pool:
        assert pool.submit(tools.run_tool, ["/bin/cat"], b"x" * 100_000).result().output == b"x" * 100_000
        with pytest.raises(TreadleError) as caught:
            pool.submit(tools.run_tool, [slow], seconds=0.3).result()
        assert code_of(caught) == "TR553"
        running = pool.submit(tools.run_tool, [slow])
        start = time.monotonic()
        stop.set()
        with pytest.raises(CancelledError):
            running.result()
        assert time.monotonic() - start < 15
