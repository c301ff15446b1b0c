"""Compilations in other processes: what they leave in the cache, what they refuse, and processes that end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver.compilations import counter

import treadle
from treadle.driver import apart, is_kept
from treadle.options import CompileOptions

OPTIONS = CompileOptions()


def program(rows: int) -> str:
    """Rows of 19 elements that are doubled."""
    return f"""
func.func @main(%x: tensor<{rows}x19xf32>) -> tensor<{rows}x19xf32> {{
  %e = tensor.empty() : tensor<{rows}x19xf32>
  %y = linalg.add ins(%x, %x : tensor<{rows}x19xf32>, tensor<{rows}x19xf32>) outs(%e : tensor<{rows}x19xf32>) -> tensor<{rows}x19xf32>
  return %y : tensor<{rows}x19xf32>
}}
"""


PRODUCT = """
func.func @main(%a: tensor<77x130xf16>, %b: tensor<130x88xf16>) -> tensor<77x88xf16> {
  %e = tensor.empty() : tensor<77x88xf32>
  %z = arith.constant 0.0 : f32
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<77x88xf32>) -> tensor<77x88xf32>
  %p = linalg.matmul ins(%a, %b : tensor<77x130xf16>, tensor<130x88xf16>) outs(%f : tensor<77x88xf32>) -> tensor<77x88xf32>
  %g = tensor.empty() : tensor<77x88xf16>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
    iterator_types = ["parallel", "parallel"]}
    ins(%p : tensor<77x88xf32>) outs(%g : tensor<77x88xf16>) {
  ^bb0(%x: f32, %o: f16):
    %s = math.tanh %x : f32
    %t = arith.truncf %s : f32 to f16
    linalg.yield %t : f16
  } -> tensor<77x88xf16>
  return %y : tensor<77x88xf16>
}
"""


@pytest.fixture(name="compilers")
def fixture_compilers() -> Iterator[apart.Compilers]:
    """Two processes at most, ended behind the test."""
    compilers = apart.Compilers(2)
    yield compilers
    compilers.close()


def test_programs_come_from_the_cache(compilers: apart.Compilers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled_here = counter(monkeypatch, tmp_path)
    texts = [program(rows) for rows in (3, 5, 7)]
    begun = [compilers.begin(text, "sm_90a", OPTIONS) for text in texts]
    assert [one.result(120) for one in begun] == [None, None, None]
    assert all(is_kept(text, "sm_90a", OPTIONS) for text in texts)
    assert not is_kept(program(9), "sm_90a", OPTIONS)
    assert all(treadle.compile(text, "sm_90a").manifest.kernels for text in texts)
    assert compiled_here() == 0


def test_refusals_come_with_their_reason(compilers: apart.Compilers) -> None:
    assert str(compilers.begin("func.func @main(", "sm_90a", OPTIONS).result(120)).startswith("TR")
    assert "TR501" in str(compilers.begin(program(3), "sm_1", OPTIONS).result(120))
    assert compilers.begin(program(3), "sm_90a", OPTIONS).result(120) is None  # the process answers on


def test_a_process_that_ended_is_replaced(compilers: apart.Compilers) -> None:
    assert compilers.begin(program(3), "sm_90a", OPTIONS).result(120) is None
    (process,) = compilers._idle  # pyright: ignore[reportPrivateUsage]
    process._process.kill()  # pyright: ignore[reportPrivateUsage]
    assert compilers.begin(program(5), "sm_90a", OPTIONS).result(120) is None


def test_where_no_process_starts_nothing_is_answered(compilers: apart.Compilers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(apart.Unanswered):
        compilers.begin(program(3), "sm_90a", OPTIONS).result(120)
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(apart.Unanswered):
        compilers.begin(program(3), "sm_90a", OPTIONS).result(120)


def test_a_working_directory_is_no_import_path(compilers: apart.Compilers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise RuntimeError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    assert compilers.begin(program(11), "sm_90a", OPTIONS).result(120) is None


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_who_is_ready_imports_nothing_more(target: str, tmp_path: Path) -> None:
    """What a process imports before it is asked is all that compiling a contraction with an epilogue needs."""
    ask = f"""
import sys
from treadle import compile
from treadle.driver.lowering import get_ready
get_ready({target!r})
before = set(sys.modules)
compile({PRODUCT!r}, {target!r})
print(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in ("treadle", "xdsl")))
"""
    there = {**os.environ, "TREADLE_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(treadle.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, env=there)
    assert done.stdout.strip() == "[]"


def test_processes_get_ready_for_a_target(compilers: apart.Compilers) -> None:
    for target in ("sm_90a", "sm_1"):  # one that is unknown ends no process
        compilers.prepare(len(compilers._idle) + 1, target)  # pyright: ignore[reportPrivateUsage]
    assert [compilers.begin(program(rows), "sm_90a", OPTIONS).result(120) for rows in (3, 5)] == [None, None]
    assert len(compilers._idle) == 2  # pyright: ignore[reportPrivateUsage]


def test_it_is_worth_processes_where_cores_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, worthwhile in ((1, False), (2, False), (4, True), (None, False)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert apart.is_worthwhile() == worthwhile
