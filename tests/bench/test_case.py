"""A workload from text to record on the simulator, with peers in NumPy: right and wrong results, facts of the record."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bench.fakes import FakeMachine

from treadle import driver
from treadle.bench.case import CompilationFailed, run_case
from treadle.bench.families import batch_matmul, block_scaled, epilogue, gated, matmul, row_scaled
from treadle.bench.protocol import MIN_ROUNDS, MeasureOptions
from treadle.bench.records import COPY, OURS
from treadle.bench.reductions import argmax, column_sums, layer_norm, row_sums, softmax
from treadle.bench.worker import described, is_fatal
from treadle.bench.workload import Workload
from treadle.errors import UNSUPPORTED, InternalError, TreadleError
from treadle.options import CompileOptions

QUICK = MeasureOptions(rounds=1, warm_seconds=0.0, pause_seconds=0.0, rows=5, columns=7)
Peer = Callable[..., Any]


def f32(array: Any) -> Any:
    return np.asarray(array, np.float32)


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def tanh_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def stable_softmax(x: Any) -> Any:
    e = np.exp(f32(x) - f32(x).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def column_totals(x: Any) -> Any:
    return f32(x).sum(0)


def places(x: Any) -> Any:
    return f32(x).argmax(-1)


def normal(x: Any, weight: Any, bias: Any) -> Any:
    far = f32(x) - f32(x).mean(-1, keepdims=True)
    return far / np.sqrt((far**2).mean(-1, keepdims=True) + 1e-5) * f32(weight) + f32(bias)


def linear(x: Any, w: Any) -> Any:
    return f32(x) @ f32(w).T


def product(x: Any, w: Any) -> Any:
    return f32(x) @ f32(w)


def rows_scaled(x: Any, w: Any, sx: Any, sw: Any) -> Any:
    return linear(x, w) * sx[:, None] * sw[None, :]


def blocks_scaled(x: Any, w: Any, sx: Any, sw: Any) -> Any:
    return linear(f32(x) * np.repeat(sx.T, 128, axis=1), f32(w) * np.repeat(np.repeat(sw, 128, axis=0), 128, axis=1))


def integers(x: Any, w: Any) -> Any:
    return x.astype(np.int32) @ w.astype(np.int32).T


def linear_gelu(x: Any, w: Any, b: Any) -> Any:
    return tanh_gelu(linear(x, w) + f32(b))


def linear_bias(x: Any, w: Any, b: Any) -> Any:
    return linear(x, w) + f32(b)


def linear_silu_two(x: Any, w: Any) -> Any:
    return linear(x, w), silu(linear(x, w))


def both(x: Any, wg: Any, wu: Any) -> Any:
    return silu(linear(x, wg)) * linear(x, wu)


def three(x: Any, wg: Any, wu: Any) -> Any:
    return linear(x, wg), linear(x, wu), both(x, wg, wu)


def sums(x: Any) -> Any:
    return x.sum(-1)


CASES: list[tuple[Workload, Peer]] = [
    (matmul("nk", "g", 13, 9, 21, "bf16"), linear),
    (matmul("kn", "g", 5, 17, 33, "f16", transposed=False), product),
    (matmul("tf32", "g", 7, 3, 19, "f32", options=CompileOptions(f32_precision="tf32")), linear),
    (matmul("3xtf32", "g", 7, 3, 19, "f32", options=CompileOptions(f32_precision="3xtf32")), linear),
    (matmul("fp8", "g", 7, 11, 19, "f8E4M3FN"), linear),
    (matmul("promoted", "g", 7, 11, 19, "f8E4M3FN", options=CompileOptions(fp8_accumulation="promoted")), linear),
    (row_scaled("rows", "g", 7, 11, 19, "f8E4M3FN"), rows_scaled),
    (block_scaled("blocks", "g", 7, 256, 384, "f8E4M3FN"), blocks_scaled),
    (matmul("int8", "g", 9, 6, 40, "i8"), integers),
    (matmul("one-row", "g", 1, 9, 21, "f16"), linear),
    (epilogue("gelu", "g", "linear_bias_gelu", 6, 10, 15, "bf16"), linear_gelu),
    (epilogue("bias", "g", "linear_bias", 6, 10, 15, "f16"), linear_bias),
    (epilogue("two", "g", "linear_silu_two", 6, 10, 15, "bf16"), linear_silu_two),
    (gated("gated", "g", 7, 9, 11, "bf16"), both),
    (gated("three", "g", 7, 9, 11, "bf16", outputs=3), three),
    (batch_matmul("batch", "g", 3, 5, 9, 7, "bf16"), product),
    (row_sums("sums", "g", 19, 77, "f32"), sums),
    (softmax("softmax", "g", 11, 30, "bf16"), stable_softmax),
    (column_sums("columns", "g", 77, 19, "f32"), column_totals),
    (layer_norm("norm", "g", 11, 30, "bf16"), normal),
    (argmax("argmax", "g", 19, 77, "f16"), places),
]


def simulate(text: str, options: CompileOptions) -> driver.Program:
    return driver.compile(text, target="sim", options=options)


@pytest.mark.parametrize(("workload", "peer"), CASES, ids=[w.name for w, _ in CASES])
def test_every_family_is_right(workload: Workload, peer: Peer) -> None:
    record = run_case(workload, FakeMachine(mark_ms=1.0), simulate, {"numpy": lambda: peer}, QUICK)
    assert record.status == "ok", record.message
    assert record.peer_difference["numpy"] < 0.05
    assert record.worst <= 1.0
    assert record.rounds == MIN_ROUNDS
    assert set(record.ms) == {OURS, "numpy"}
    assert record.kernels
    assert record.from_plain(record.plain()) == record


def _broken(place: int) -> Callable[[str, CompileOptions], Any]:
    class Broken:
        def __init__(self, program: driver.Program) -> None:
            self.manifest = program.manifest
            self._program = program

        def __call__(self, *arrays: Any) -> tuple[Any, ...]:
            (result,) = self._program(*arrays)
            result.reshape(-1)[place] += np.asarray(100, result.dtype)
            return (result,)

    return lambda text, options: Broken(simulate(text, options))


def test_an_element_outside_its_bounds_is_wrong() -> None:
    workload = matmul("nk", "g", 13, 9, 21, "bf16")
    record = run_case(workload, FakeMachine(mark_ms=1.0), _broken(-1), {}, QUICK)
    assert (record.status, record.best_ratio) == ("wrong", None)
    assert "outside its bounds" in record.message


def test_what_the_sample_misses_the_peer_shows() -> None:
    workload = matmul("nk", "g", 50, 60, 21, "bf16")
    machine = FakeMachine(mark_ms=1.0)
    peers = {"numpy": lambda: linear}
    found = {place: run_case(workload, machine, _broken(place), peers, QUICK) for place in (60 * 20 + 31, 60 * 21 + 31, 60 * 22 + 31)}
    assert all(record.status == "wrong" and "not what numpy gives" in record.message for record in found.values())
    assert any("bounds" not in record.message for record in found.values())


def test_bind_is_used_where_there_is_one() -> None:
    class Bound:
        calls = 0

        def __init__(self, program: driver.Program) -> None:
            self.manifest = program.manifest
            self._program = program

        def bind(self, *arrays: Any) -> Callable[[], Any]:
            results = self._program(*arrays)

            def call() -> Any:
                Bound.calls += 1
                return results

            return call

    workload: Any = matmul("nk", "g", 13, 9, 21, "bf16")
    record = run_case(workload, FakeMachine(mark_ms=1.0), lambda text, options: Bound(simulate(text, options)), {}, QUICK)  # pyright: ignore[reportArgumentType]
    assert record.status == "ok"
    assert Bound.calls > MIN_ROUNDS


@pytest.mark.parametrize("group", ["decode", "reduction", "square"])
def test_memory_bound_workloads_are_measured_beside_a_copy(group: str) -> None:
    workload = matmul("nk", group, 1, 9, 21, "bf16")
    machine = FakeMachine(mark_ms=1.0)
    record = run_case(workload, machine, simulate, {"numpy": lambda: linear}, QUICK)
    assert record.status == "ok", record.message
    assert set(record.ratio) == set(record.peer_difference) == {"numpy"}
    assert record.best_peer == "numpy"
    if group == "square":
        assert record.of_copy is None
        assert set(record.ms) == {OURS, "numpy"}
    else:
        assert machine.log.count(f"copy of {workload.bytes}") == 1
        assert machine.log.count("copy") >= MIN_ROUNDS
        assert set(record.ms) == {OURS, "numpy", COPY}
        # Both calls take the second mark's millisecond, the copy two of its own beside it.
        assert (record.ms[OURS], record.ms[COPY], record.of_copy) == (1.0, 3.0, 3.0)
    assert record.from_plain(record.plain()) == record


def test_a_peer_that_fails_is_left_out() -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("no such\nkernel")

    def make() -> Peer:
        raise OSError("no compiler")

    peers = {"fine": lambda: linear, "calls": lambda: broken, "makes": make}
    record = run_case(matmul("nk", "g", 13, 9, 21, "bf16"), FakeMachine(mark_ms=1.0), simulate, peers, QUICK)
    assert record.status == "ok"
    assert set(record.ratio) == {"fine"}
    assert record.peer_problems == {"calls": "ValueError: no such kernel", "makes": "OSError: no compiler"}


@pytest.mark.parametrize(
    "problem", [InternalError("registers do not hold"), TreadleError(UNSUPPORTED, what="this", hint="-"), KeyError("x")]
)
def test_what_stops_the_compiler_leaves_the_device_alone(problem: Exception) -> None:
    def fails(text: str, options: CompileOptions) -> driver.Program:
        raise problem

    with pytest.raises(CompilationFailed) as error:
        run_case(matmul("nk", "g", 13, 9, 21, "bf16"), FakeMachine(mark_ms=1.0), fails, {}, QUICK)
    assert not is_fatal(error.value)
    assert described(error.value).startswith("compiling: ")
