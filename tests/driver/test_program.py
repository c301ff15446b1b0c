"""A program as an object: what it says it is, its copies, and its life in another process."""

import copy
import multiprocessing
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from treadle.ir.text import parse_module

ROWS = """
func.func @scaled(%x: tensor<?x7xf32>, %y: tensor<7xf32>) -> tensor<?x7xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x7xf32>
  %e = tensor.empty(%n) : tensor<?x7xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<?x7xf32>, tensor<7xf32>) outs(%e : tensor<?x7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<?x7xf32>
  return %r : tensor<?x7xf32>
}
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "row_softmax.mlir"
RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((5, 7), np.float32), RNG.standard_normal(7, np.float32)


@pytest.fixture(name="program")
def fixture_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> treadle.Program:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    return treadle.compile(ROWS, target="sim")


def pickled(program: treadle.Program) -> treadle.Program:
    return pickle.loads(pickle.dumps(program))


COPIES: list[Callable[[treadle.Program], treadle.Program]] = [copy.copy, copy.deepcopy, pickled]


def call(program: treadle.Program, *arrays: Any) -> Any:
    return program(*arrays)[0]


def test_it_says_what_it_is(program: treadle.Program) -> None:
    text = repr(program)
    assert text == "<treadle.Program scaled(x: f32[s0, 7], y: f32[7]) -> (f32[s0, 7]) for sim, kernels: scaled_k0>"
    assert str(program) == text


@pytest.mark.parametrize("make", COPIES)
def test_a_copy_is_a_program_of_its_own(program: treadle.Program, make: Callable[[treadle.Program], treadle.Program]) -> None:
    """Also after calls, which leave device handles, caches of calls and variants for other layouts behind."""
    for arrays in ((X, Y), (np.asfortranarray(X), Y)):
        np.testing.assert_array_equal(call(program, *arrays), X * Y)
    assert program.variant_for(np.asfortranarray(X), Y) is not program
    again = make(program)
    assert again is not program and repr(again) == repr(program)
    assert again.files == program.files and again.manifest == program.manifest and again.remarks == program.remarks
    for arrays in ((X, Y), (np.asfortranarray(X), Y)):
        np.testing.assert_array_equal(call(again, *arrays), X * Y)
    assert again.stages.keys() == program.stages.keys()
    np.testing.assert_allclose(again.reference(X, Y)[0].value, X.astype(np.float64) * Y)


def test_a_copy_without_its_source_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may be gone, and the module that a program was made of is no part of it."""
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    from_module = treadle.compile(parse_module(ROWS, "rows.mlir"), target="sim")
    np.testing.assert_array_equal(call(pickled(from_module), X, Y), X * Y)
    path = tmp_path / "rows.mlir"
    path.write_text(ROWS, encoding="utf-8")
    from_path = pickled(treadle.compile(path, target="sim"))
    path.unlink()
    np.testing.assert_array_equal(call(from_path, np.asfortranarray(X), Y), X * Y)


def test_a_program_for_a_gpu_is_pickled_where_there_is_none() -> None:
    program = treadle.compile(EXAMPLE, target="gfx1100")
    again = pickled(program)
    assert again.binaries == program.binaries and repr(again) == repr(program)


def test_programs_go_to_workers(program: treadle.Program) -> None:
    """A process that starts from nothing, as workers of data loaders do."""
    np.testing.assert_array_equal(call(program, X, Y), X * Y)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        place, result = pool.apply(work, (program, X, Y))
    assert place != os.getpid()
    np.testing.assert_array_equal(result, X * Y)


def work(program: treadle.Program, *arrays: Any) -> tuple[int, Any]:
    return os.getpid(), call(program, *arrays)
