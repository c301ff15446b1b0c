"""Arguments that a program changes in place: on the simulator, and on a GPU with stand-ins for its driver."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runtime.programs import vector_add_manifest
from runtime.test_calls import Machine, code_of, torch  # noqa: F401 # pyright: ignore[reportUnusedImport] - a fixture

import treadle
from treadle.artifact import Manifest
from treadle.driver.program import Program
from treadle.errors import TreadleError

ACCUMULATE = """
tile.kernel @accumulate(
  %x: !tile.ptr<{element}>, %sum: !tile.ptr<{element}>, %r: !tile.ptr<{element}>, %n: index, %step: index
) attributes {{
  arg_shapes = [["n"], ["n"], ["n"]], arg_strides = [["1"], ["step"], ["1"]], output_count = 2, in_place = array<i64: 1>,
  grid = ["(n + 255) // 256"], num_warps = 2, arg_align = array<i64: 4, 4, 256>
}} {{
  %vx = tile.view %x offset 0 : i64 align 4 : i64 sizes [%n] strides [] : !tile.ptr<{element}> -> memref<?x{element}, strided<[1]>>
  %vs = tile.view %sum offset 0 : i64 align 4 : i64 sizes [%n] strides [%step] : !tile.ptr<{element}> -> memref<?x{element}, strided<[?]>>
  %vr = tile.view %r offset 0 : i64 align 4 : i64 sizes [%n] strides [] : !tile.ptr<{element}> -> memref<?x{element}, strided<[1]>>
  %id = tile.program_id 0 : i64
  %c256 = arith.constant 256 : index
  %at = arith.muli %id, %c256 : index
  %a = tile.load %vx[%at] dims array<i64: 0> vector 1 : i64 : memref<?x{element}, strided<[1]>> -> tensor<256x{element}>
  %b = tile.load %vs[%at] dims array<i64: 0> vector 1 : i64 : memref<?x{element}, strided<[?]>> -> tensor<256x{element}>
  %c = {add} %a, %b : tensor<256x{element}>
  tile.store %b, %vr[%at] dims array<i64: 0> vector 1 : i64 : tensor<256x{element}>, memref<?x{element}, strided<[1]>>
  tile.store %c, %vs[%at] dims array<i64: 0> vector 1 : i64 : tensor<256x{element}>, memref<?x{element}, strided<[?]>>
  tile.return
}}
"""


@pytest.fixture(name="program", scope="module")
def fixture_program() -> Program:
    """Adds `x` to `sum` in place, and returns what `sum` was."""
    return treadle.compile(ACCUMULATE.format(element="f32", add="arith.addf"), target="sim")


@pytest.mark.parametrize("n", [1, 255, 700])
@pytest.mark.parametrize("step", [1, 3])
def test_the_array_is_changed(program: Program, n: int, step: int) -> None:
    rng = np.random.default_rng(n)
    x, whole = rng.standard_normal(n, np.float32), rng.standard_normal(n * step, np.float32)
    total, before = whole[::step], whole.copy()
    for times in (1, 2):
        (old,) = program(x, total)
        np.testing.assert_allclose(old, before[::step] + (times - 1) * x, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(total, before[::step] + times * x, rtol=1e-6, atol=1e-6)
    for beside in range(1, step):
        np.testing.assert_array_equal(whole[beside::step], before[beside::step])
    assert [record.in_place for record in program.manifest.inputs] == [False, True]


def test_an_empty_array(program: Program) -> None:
    assert program(np.empty(0, np.float32), np.empty(0, np.float32))[0].shape == (0,)


def test_other_views_of_the_same_bits_are_changed_too() -> None:
    program = treadle.compile(ACCUMULATE.format(element="i8", add="arith.addi"), target="sim")
    total = np.array([250, 3], np.uint8)
    program(np.array([10, 4], np.int8), total)
    np.testing.assert_array_equal(total, np.array([4, 7], np.uint8))


def test_binding_a_call_is_not_making_it(program: Program) -> None:
    x, total = np.ones(5, np.float32), np.zeros(5, np.float32)
    call = program.bind(x, total)
    np.testing.assert_array_equal(total, np.zeros(5))
    call()
    call()
    np.testing.assert_array_equal(total, np.full(5, 2))


def read_only() -> Any:
    made = np.zeros(4, np.float32)
    made.flags.writeable = False
    return made


WHOLE = np.zeros(12, np.float32)


@pytest.mark.parametrize(
    ("x", "total", "words"),
    [
        (np.ones(4, np.float32), read_only(), "is read-only"),
        (np.ones(4, np.float32), [0.0] * 4, "is a list, which is copied"),
        (np.ones(4, np.float32), np.broadcast_to(np.float32(1), 4).view(), "is read-only"),
        (np.ones(4, np.float32), np.lib.stride_tricks.as_strided(WHOLE, (4,), (0,), writeable=True), "its elements share memory"),
        (WHOLE[:4], WHOLE[3:7], "shares memory with argument 0"),
        (WHOLE[4:8], WHOLE[::3], "shares memory with argument 0"),
    ],
)
def test_what_cannot_be_changed(program: Program, x: Any, total: Any, words: str) -> None:
    with pytest.raises(TreadleError, match=words) as caught:
        program(x, total)
    assert caught.value.code == "TR737"
    assert not WHOLE.any()


def test_neighbours_do_not_overlap(program: Program) -> None:
    whole = np.ones(8, np.float32)
    program(whole[:4], whole[4:])
    np.testing.assert_array_equal(whole, [1] * 4 + [2] * 4)


# a GPU


def in_place_manifest() -> Manifest:
    """The array y becomes (x + y) + y, through the temporary of `vector_add_manifest`."""
    made = vector_add_manifest("sm_90a")
    first, second = made.launches
    x, y = made.inputs
    into_y = replace(second, args=(*second.args[:2], second.args[1], *second.args[3:]))
    buffers = tuple(b for b in made.buffers if b.role != "output")
    return replace(made, inputs=(x, replace(y, in_place=True)), outputs=(), buffers=buffers, launches=(first, into_y))


@pytest.fixture(name="machine")
def fixture_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    yield Machine(monkeypatch)


def test_tensors_are_changed_where_they_are(machine: Machine, torch: Any) -> None:  # noqa: F811
    program = machine.program(in_place_manifest())
    x, y = torch.tensor([1, 2, 3]), torch.tensor([10, 20, 30])
    for _ in range(3):
        assert program(x, y) == ()
    np.testing.assert_array_equal(y.memory, [7 + 80, 14 + 160, 21 + 240])


def test_arrays_of_the_host_are_copied_back(machine: Machine) -> None:
    program = machine.program(in_place_manifest())
    whole = np.arange(6, dtype=np.float32)
    x, y = np.array([1, 2, 3], np.float32), whole[::2]
    assert program(x, y) == ()
    np.testing.assert_array_equal(y, [1, 6, 11])
    np.testing.assert_array_equal(whole[1::2], [1, 3, 5])


def test_tensors_that_overlap(machine: Machine, torch: Any) -> None:  # noqa: F811
    program = machine.program(in_place_manifest())
    x = torch.tensor([1, 2, 3])
    assert code_of(lambda: program(x, x)) == "TR737"
