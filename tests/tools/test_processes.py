"""The command as its own process: interrupted, killed, with its reader gone, with a tool that fails, with a damaged cache."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LINEAR = str(Path(__file__).parents[2] / "examples" / "linear_bias_gelu.mlir")
COMMAND = (sys.executable, "-c", "from treadle.tools.main import main; main()")
# A shell's background job starts with SIGINT ignored, and so do its children.
INTERRUPTIBLE = (sys.executable, "-c", f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {COMMAND[-1]}")
SLOW = "#!/bin/sh\necho started > started\nsleep 30\n"


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TREADLE_CACHE_DIR": str(folder / "cache"), "TREADLE_DEBUG": "0", **more}


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run to the end in `folder`."""
    env = environment(folder, **more)
    return subprocess.run([*COMMAND, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


def cached(folder: Path) -> list[Path]:
    """Entries and what is being built."""
    return [*folder.glob("cache/entries/*/*"), *folder.glob("cache/building/*")]


def tool(folder: Path, text: str) -> str:
    """An executable shell script."""
    path = folder / "tool"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_stopped_in_the_middle(tmp_path: Path, kind: signal.Signals) -> None:
    """Nothing of a compilation that is stopped stays in the cache, nor at the output's place; the next one works."""
    arguments = [*INTERRUPTIBLE, "compile", LINEAR, "--target", "sm_90a", "--emit", "artifact", "-o", "out"]
    slow = environment(tmp_path, TREADLE_PTXAS=tool(tmp_path, SLOW))
    process = subprocess.Popen(arguments, cwd=tmp_path, env=slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    assert (tmp_path / "started").exists(), process.communicate()[1] if process.poll() is not None else "the tool was not started"
    process.send_signal(kind)
    printed, complained = process.communicate(timeout=20)
    assert process.returncode == (130 if kind is signal.SIGINT else -kind)
    assert printed == ""
    assert "Traceback" not in complained
    assert not cached(tmp_path)
    assert not (tmp_path / "out").exists()
    done = run(tmp_path, "compile", LINEAR, "--target", "sm_90a", "--emit", "artifact", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "manifest.json").exists()


def test_a_tool_that_fails(tmp_path: Path) -> None:
    failing = tool(tmp_path, "#!/bin/sh\necho out of registers >&2\nexit 3\n")
    done = run(tmp_path, "compile", LINEAR, "--target", "sm_90a", "--emit", "binary", "-o", "out", TREADLE_PTXAS=failing)
    assert done.returncode == 2
    assert done.stderr.startswith("error TR552: ")
    assert "out of registers" in done.stderr
    assert "Traceback" not in done.stderr
    assert not cached(tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "opt", LINEAR], cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0


def test_a_damaged_cache_repairs_itself(tmp_path: Path) -> None:
    arguments = ("compile", LINEAR, "--target", "gfx942", "--emit", "artifact", "-o")
    assert run(tmp_path, *arguments, "first").returncode == 0
    (manifest,) = tmp_path.glob("cache/entries/*/*/manifest.json")
    manifest.write_bytes(manifest.read_bytes()[:100])
    done = run(tmp_path, *arguments, "second")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "second" / "manifest.json").read_bytes() == (tmp_path / "first" / "manifest.json").read_bytes()
