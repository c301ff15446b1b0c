"""Bad input on the command line: a stable code, the user's line, exit status 2, no traceback, nothing half-written in the cache."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from treadle.runtime import host_memory
from treadle.runtime.device import survey
from treadle.tools.main import invoke

MATMUL = """
func.func @f(%a: tensor<?x5xf32>, %b: tensor<5x7xf32>) -> tensor<?x7xf32> {
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x5xf32>
  %e = tensor.empty(%m) : tensor<?x7xf32>
  %i = linalg.fill ins(%z : f32) outs(%e : tensor<?x7xf32>) -> tensor<?x7xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x5xf32>, tensor<5x7xf32>) outs(%i : tensor<?x7xf32>) -> tensor<?x7xf32>
  return %0 : tensor<?x7xf32>
}
""".lstrip()
UNKNOWN = MATMUL.replace("linalg.matmul", "linalg.mattmul")
UNPARSABLE = MATMUL.replace("tensor<5x7xf32>)", "tensor<5x7xf32>", 1)
INVALID = MATMUL.replace("%b : tensor<?x5xf32>, tensor<5x7xf32>", "%b : tensor<?x5xf32>, tensor<6x7xf32>").replace(
    "%b: tensor<5x7", "%b: tensor<6x7"
)
TWO = MATMUL + MATMUL.replace("@f", "@g")

Fail = Callable[..., str]


@pytest.fixture(name="fail")
def fixture_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fail:
    """Run the command, which must fail as a user error; returns what it wrote to stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "cache"))

    def run(code: str, *arguments: str, text: str = MATMUL) -> str:
        Path("in.mlir").write_text(text, encoding="utf-8")
        status = invoke(list(arguments))
        shown = capsys.readouterr()
        assert status == 2, shown.err
        assert f"error {code}: " in shown.err.splitlines()[0]
        assert re.search(r"^  fix: .{8}", shown.err, re.MULTILINE)
        assert "Traceback" not in shown.err + shown.out
        assert shown.out == ""
        assert not list((tmp_path / "cache").glob("building/*")), "something half-written is in the cache"
        return shown.err

    return run


@pytest.mark.parametrize(
    ("code", "text", "line", "under"),
    [
        ("TR101", UNPARSABLE, 1, "->"),
        ("TR102", UNKNOWN, 7, "linalg.mattmul"),
        ("TR201", INVALID, 7, "linalg.matmul"),
    ],
)
def test_the_users_line_is_shown_with_a_caret(fail: Fail, code: str, text: str, line: int, under: str) -> None:
    shown = fail(code, "compile", "in.mlir", "--target", "sm_90a", "--emit", "tile", text=text).splitlines()
    source = text.splitlines()[line - 1]
    assert shown[0].startswith(f"in.mlir:{line}:{source.index(under) + 1}: error {code}: ")
    assert shown[1] == f"  {line} | {source}"
    assert shown[2].index("^") - len(f"  {line} | ") == source.index(under)


@pytest.mark.parametrize(
    ("code", "inputs", "names"),
    [
        ("TR804", [], ["'a'", "?x5xf32", "64x5xf32"]),
        ("TR803", ["3x5xf32"], ["'f'", "2"]),
        ("TR723", ["3x6xf32", "5x7xf32"], ["'a'", "3x6"]),
        ("TR723", ["3x5xf32", "5x8xf32"], ["'b'", "5x8", "5x7"]),
        ("TR722", ["3xf32", "5x7xf32"], ["'a'"]),
        ("TR725", ["3x5xf16", "5x7xf32"], ["'a'", "f16", "f32"]),
        ("TR802", ["3x5xq32", "5x7xf32"], ["q32"]),
        ("TR802", ["3x5 xf32", "5x7xf32"], []),
        ("TR901", ["none.npy", "5x7xf32"], ["none.npy"]),
        ("TR802", ["in.mlir.npy", "5x7xf32"], ["in.mlir.npy"]),
    ],
)
def test_inputs(fail: Fail, code: str, inputs: list[str], names: list[str]) -> None:
    Path("in.mlir.npy").write_bytes(b"not an array")
    given = [word for text in inputs for word in ("--input", text)]
    shown = fail(code, "run", "in.mlir", "--device", "sim", *given)
    assert all(name in shown for name in names)


def test_an_array_of_objects_is_refused(fail: Fail) -> None:
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    fail("TR802", "run", "in.mlir", "--device", "sim", "--input", "objects.npy", "--input", "5x7xf32")


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("TR501", ["compile", "in.mlir", "--target", "sm_10"]),
        ("TR806", ["compile", "in.mlir", "--target", "sim", "--emit", "asm"]),
        ("TR806", ["compile", "in.mlir", "--target", "sim", "--emit", "artifact", "-o", "out"]),
        ("TR806", ["compile", "in.mlir", "--target", "sim", "--emit", "binary", "-o", "out"]),
        ("TR805", ["compile", "in.mlir", "--target", "sm_90a", "--emit", "artifact"]),
        ("TR801", ["compile", "in.mlir"]),
        ("TR801", ["compile", "in.mlir", "--target", "sm_90a", "--emit", "sass"]),
        ("TR801", ["run", "in.mlir", "--device", "abacus"]),
        ("TR801", ["run", "in.mlir", "--seed", "-1"]),
        ("TR801", ["weave", "in.mlir"]),
        ("TR801", ["run", "--shuttle", "in.mlir"]),
        ("TR801", ["run"]),
        ("TR801", ["opt"]),
        ("TR901", ["run", "missing.mlir"]),
        ("TR901", ["opt", "missing.mlir"]),
        ("TR901", ["run", "."]),
        ("TR104", ["run", "in.mlir", "--function", "h"]),
        ("TR811", ["opt", "in.mlir", "--passes", "weave"]),
        ("TR812", ["opt", "in.mlir", "--passes", "set-kernel-form{shuttle=3}"]),
        ("TR813", ["opt", "in.mlir", "--passes", "set-kernel-form{"]),
        ("TR902", ["compile", "in.mlir", "--target", "sm_90a", "--emit", "tile", "-o", "no/such/folder"]),
    ],
)
def test_choices(fail: Fail, code: str, arguments: list[str]) -> None:
    fail(code, *arguments)


HUGE = """
func.func @f(%a: tensor<2147483647xf32>) -> tensor<2147483647xf32> {
  %b = math.absf %a : tensor<2147483647xf32>
  return %b : tensor<2147483647xf32>
}
"""


def test_arrays_that_the_machine_does_not_hold(fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 3 << 30)
    shown = fail("TR609", "run", "in.mlir", "--device", "sim", text=HUGE)
    assert "2147483647xf32" in shown and "3.0 GiB free" in shown


def test_an_allocation_that_fails(fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise MemoryError("Unable to allocate 1.00 TiB")

    monkeypatch.setattr("treadle.tools.run.make_inputs", none_left)
    assert "1.00 TiB" in fail("TR609", "run", "in.mlir", "--device", "sim", text=HUGE)


def test_two_functions_need_a_choice(fail: Fail) -> None:
    shown = fail("TR104", "run", "in.mlir", text=TWO)
    assert "f, g" in shown


@pytest.mark.parametrize(("knob", "target", "tool"), [("TREADLE_PTXAS", "sm_90a", "ptxas"), ("TREADLE_LLD", "gfx942", "ld.lld")])
def test_missing_tools(fail: Fail, monkeypatch: pytest.MonkeyPatch, knob: str, target: str, tool: str) -> None:
    monkeypatch.setenv(knob, "no-such-tool")
    shown = fail("TR551", "compile", "in.mlir", "--target", target, "--emit", "artifact", "-o", "out")
    assert tool in shown
    assert not Path("out").exists()
    assert not list(Path("cache").glob("entries/*/*")), "a failed compilation left an entry"


def test_a_cache_that_cannot_be_written(fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("TREADLE_CACHE_DIR", "file/cache")
    fail("TR902", "run", "in.mlir", "--device", "sim", "--input", "3x5xf32", "--input", "5x7xf32")


def test_no_gpu(fail: Fail) -> None:
    absent = [one.kind for one in survey() if not one.available]
    if not absent:
        pytest.skip("this machine has every kind of device")
    for kind in absent:
        assert f"'{kind}'" in fail("TR601", "run", "in.mlir", "--device", kind)


def test_internal_errors_are_ours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from treadle.tools import devices

    def broken() -> None:
        raise AssertionError("a state that must not be")

    monkeypatch.setattr(devices, "survey", broken)
    assert invoke(["devices"]) == 70
    shown = capsys.readouterr().err
    assert "internal error TR000" in shown
    assert "Traceback" not in shown
