"""Calls with PyTorch tensors on a real GPU: results, streams, graphs, given results, bound calls, threads, and what a call costs."""

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from driver.layout_programs import K, M, N, elementwise, matmul, reduction
from generators.convolutions import Convolution

import treadle
from treadle.errors import TreadleError

torch: Any = pytest.importorskip("torch")


pytestmark = pytest.mark.usefixtures("device")


def randn(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)


def close(got: Any, x: Any, y: Any) -> None:
    want = x.double() @ y.double()
    assert not got.isnan().any()
    assert ((got.double() - want).abs().max() / want.abs().max()).item() < 1e-2


@pytest.fixture(scope="module")
def product() -> treadle.Program:
    return treadle.compile(matmul("bf16"))


def test_tensors_in_tensors_out(product: treadle.Program, device: Any) -> None:
    x, y = randn(M, K), randn(K, N)
    (first,) = product(x, y)
    assert type(first) is torch.Tensor
    before, room = device.pool.allocations, torch.cuda.memory_allocated()
    results = [product(x, y)[0] for _ in range(8)]
    assert len({r.data_ptr() for r in results}) == 8
    assert torch.cuda.memory_allocated() > room
    assert device.pool.allocations == before
    x.copy_(randn(M, K))
    for made in (product(x, y)[0], product(x.clone(), y)[0]):  # new contents, new memory
        close(made, x, y)
    assert all(torch.equal(r, first) for r in results)


def test_given_results(product: treadle.Program) -> None:
    x, y, out = randn(M, K), randn(K, N), torch.full_like(product(randn(M, K), randn(K, N))[0], float("nan"))
    for _ in range(3):
        (made,) = product(x, y, out=out)
        assert made is out
        close(out, x, y)
        out.fill_(float("nan"))
    with pytest.raises(TreadleError) as caught:
        product(x, y, out=out[:, 1:])
    assert caught.value.code == "TR731"


@pytest.mark.usefixtures("hopper")
def test_inputs_that_lie_in_the_cache() -> None:
    """What copies bring comes at once then, into slots of shared memory that threads have only just read."""
    convolution = Convolution("conv_2d_nhwc_fhwc", 2, (64, 64), 320, 640, (1, 1), tail="residual")
    program = treadle.compile(convolution.text())
    arrays = [torch.from_numpy(array).cuda() for array in convolution.arrays()]
    first = program(*arrays)[0].clone()
    assert all(torch.equal(program(*arrays)[0], first) for _ in range(1000))


@pytest.mark.parametrize("way", ["call", "out", "bound"])
def test_capture(product: treadle.Program, way: str) -> None:
    x, y = randn(M, K), randn(K, N)
    out = torch.empty_like(product(x, y)[0])
    product(x, y, out=out)
    bound = product.bind(x, y)
    call: dict[str, Callable[[], Any]] = {"call": lambda: product(x, y), "out": lambda: product(x, y, out=out), "bound": bound}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (made,) = call[way]()
        doubled = made * 2
    others = [product(randn(M, K), y)[0] for _ in range(4)]  # must not get the graph's memory
    kept = [other.clone() for other in others]
    for _ in range(3):
        x.copy_(randn(M, K))
        made.fill_(float("nan"))
        graph.replay()
        close(made, x, y)
        assert torch.equal(doubled, made * 2)
    assert all(torch.equal(*pair) for pair in zip(others, kept, strict=True))


def test_capture_on_new_memory_of_a_program_with_temporaries() -> None:
    """Argument blocks and tensor maps made during the capture; results and temporaries of the graph's own pool."""
    program = treadle.compile(reduction("f32", 0))
    program(randn(M, K, dtype=torch.float32))
    graph = torch.cuda.CUDAGraph()
    x = randn(M, K, dtype=torch.float32)
    with torch.cuda.graph(graph):
        results = [program(x)[0], program(x)[0]]
    x.copy_(randn(M, K, dtype=torch.float32))
    graph.replay()
    for result in results:
        assert torch.allclose(result, x.sum(0), rtol=1e-4, atol=1e-4)


SPLIT = """
func.func @main(%a: tensor<1707x72xf32>, %b: tensor<1707x120xf32>) -> tensor<72x120xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<72x120xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<72x120xf32>) -> tensor<72x120xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>],
    iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : tensor<1707x72xf32>, tensor<1707x120xf32>) outs(%f : tensor<72x120xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32):
    %m = arith.mulf %p, %q : f32
    %s = arith.addf %r, %m : f32
    linalg.yield %s : f32
  } -> tensor<72x120xf32>
  return %y : tensor<72x120xf32>
}
"""


def test_graphs_of_split_reductions_run_beside_one_another() -> None:
    """Two graphs, on two streams, and calls on a third one between their launches: the workgroups of each count by themselves."""
    program = treadle.compile(SPLIT)
    assert any(buffer.kept for buffer in program.manifest.buffers)
    x = [torch.randn(1707, 72, device="cuda") for _ in range(3)]
    y = torch.randn(1707, 120, device="cuda")
    want = [each.T.double() @ y.double() for each in x]
    program(x[0], y)
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    made: list[list[Any]] = []
    for graph, each in zip(graphs, x, strict=False):
        with torch.cuda.graph(graph):
            made.append([program(each, y)[0] for _ in range(3)])
    streams, between = [torch.cuda.Stream() for _ in range(2)], []
    for _ in range(200):
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        between = program(x[2], y)
    torch.cuda.synchronize()
    for results, right in zip([*made, between], want, strict=True):
        for result in results:
            assert (result.double() - right).abs().max() < 1e-2


def test_streams(product: treadle.Program) -> None:
    """Work of a side stream is ordered with what it produced and consumes: a long kernel ahead of it would show a race."""
    side = torch.cuda.Stream()
    a = torch.randn(6000, 6000, device="cuda")
    bound = product.bind(randn(M, K), y := randn(K, N))
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(3):
            (a @ a).sum()
            x = randn(M, K)
            close(product(x, y)[0], x, y)
        bound()
    side.synchronize()
    outputs: tuple[Any, ...] = bound.outputs  # type: ignore[attr-defined]
    assert not outputs[0].isnan().any()


def test_threads(product: treadle.Program) -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                x, y = randn(M, K), randn(K, N)
                results = [product(x, y)[0] for _ in range(50)]
                close(results[-1], x, y)
                torch.cuda.current_stream().synchronize()
                if not all(torch.equal(r, results[0]) for r in results):
                    wrong.append((number, "results differ"))
        except Exception as problem:  # noqa: BLE001 - reported by the test
            wrong.append((number, problem))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def cost(call: Callable[[], Any], calls: int = 2000) -> float:
    """Microseconds of host time a call, the median of calls; the device is never so far behind that a launch waits."""
    spent: list[float] = []
    for i in range(calls):
        if i % 100 == 0:
            torch.cuda.synchronize()
        start = time.perf_counter_ns()
        call()
        spent.append(time.perf_counter_ns() - start)
    return statistics.median(spent) / 1e3


def test_cost() -> None:
    """A one-kernel program; the bound is loose, for machines of all kinds (the table is what counts)."""
    program = treadle.compile(elementwise("bf16"))
    x, y = randn(M, K), randn(M, K)
    (out,) = program(x, y)
    bound = program.bind(x, y)
    assert len(program.manifest.launches) == 1
    many = [(randn(M, K), randn(M, K)) for _ in range(64)]
    pairs, fresh = iter(many * 40), iter([randn(M, K) for _ in range(1000)])
    kept: list[Any] = []
    (a,) = program(*(np.ones((M, K), ml_dtypes.bfloat16),) * 2)  # no tensor among the arguments: results are Treadle's own
    apart = (a, a)
    rows: dict[str, float] = {
        "perf_counter_ns": cost(lambda: None),
        "torch add": cost(lambda: x + y),
        "torch add out": cost(lambda: torch.add(x, y, out=out)),
        "call": cost(lambda: program(x, y)),
        "call, result kept": cost(lambda: kept.append(program(x, y)), 200),
        "call, 64 sets of arguments": cost(lambda: program(*next(pairs))),
        "call, new argument": cost(lambda: program(next(fresh), y), 1000),
        "call with out": cost(lambda: program(x, y, out=out)),
        "bound": cost(bound),
        "device arrays": cost(lambda: program(*apart)),
    }
    for name, spent in rows.items():
        print(f"{name:30} {spent:6.2f} us")
    assert rows["call"] < 40
    assert rows["bound"] < 20
