"""Calls where no context, or another one, is current: on stream 0 it is changed first, on others when the driver refuses the launch."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cuda.bindings import driver
from device.test_launch_cuda import close, randn
from driver.layout_programs import K, M, N, matmul

import treadle
from treadle.errors import TreadleError

torch: Any = pytest.importorskip("torch")


pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(scope="module")
def product() -> treadle.Program:
    return treadle.compile(matmul("bf16"))


def ask(name: str, *args: Any) -> Any:
    status, *values = getattr(driver, name)(*args)
    assert status == driver.CUresult.CUDA_SUCCESS, (name, status)
    return values[0] if values else None


def current() -> int:
    return int(ask("cuCtxGetCurrent"))


@pytest.fixture
def other() -> Iterator[Any]:
    """Another context of the same device, not current."""
    before = ask("cuCtxGetCurrent")
    number = ask("cuDeviceGet", 0)
    try:
        made = ask("cuCtxCreate", None, 0, number)  # from cuda-bindings 13 on
    except TypeError:
        made = ask("cuCtxCreate", 0, number)
    ask("cuCtxSetCurrent", before)
    yield made
    ask("cuCtxSetCurrent", before)
    ask("cuCtxDestroy", made)


def nothing() -> Any:
    return driver.CUcontext(0)


class Ways:
    """The ways to call a program, warm, with their arguments and the result that they fill."""

    def __init__(self, product: treadle.Program) -> None:
        self.x, self.y = randn(M, K), randn(K, N)
        self.out = torch.empty_like(product(self.x, self.y)[0])
        self.bound: Any = product.bind(self.x, self.y)
        self.calls: dict[str, Callable[[], Any]] = {
            "fresh": lambda: product(self.x, self.y)[0],
            "given": lambda: product(self.x, self.y, out=self.out)[0],
            "bound": lambda: self.bound()[0],
        }
        for call in self.calls.values():
            for _ in range(3):
                call()
        torch.cuda.synchronize()

    def check(self, name: str) -> None:
        made = self.calls[name]()
        close(made, self.x, self.y)


WAYS = pytest.mark.parametrize("way", ["fresh", "given", "bound"])


@WAYS
def test_a_thread_without_a_context(product: treadle.Program, device: Any, way: str) -> None:
    ways, seen = Ways(product), []

    def work() -> None:
        seen.append(current())
        try:
            made = ways.calls[way]()
            seen.append(current())
            close(made, ways.x, ways.y)
        except Exception as problem:  # noqa: BLE001 - reported by the test
            seen.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0, int(device._context)]


@WAYS
@pytest.mark.parametrize("which", ["none", "other"])
def test_the_context_was_changed(product: treadle.Program, device: Any, other: Any, way: str, which: str) -> None:
    ways = Ways(product)
    ways.x.copy_(randn(M, K))
    torch.cuda.synchronize()
    ask("cuCtxSetCurrent", nothing() if which == "none" else other)
    made = ways.calls[way]()
    assert current() == int(device._context)
    close(made, ways.x, ways.y)


@pytest.mark.parametrize("stream", ["null", "side"])
@pytest.mark.parametrize("which", ["none", "other"])
def test_what_the_driver_does(product: treadle.Program, device: Any, other: Any, which: str, stream: str) -> None:
    """What the calls rely on: a launch goes to the context of its function, or is refused and has no effect."""
    ways = Ways(product)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side if stream == "side" else torch.cuda.default_stream()):
        ways.bound()
        torch.cuda.synchronize()
        (result,) = ways.bound.outputs
        result.fill_(float("nan"))
        torch.cuda.synchronize()
        launch = ways.bound._prepared[side.cuda_stream if stream == "side" else 0][-1]
        ask("cuCtxSetCurrent", nothing() if which == "none" else other)
        status = launch()
        ask("cuCtxSetCurrent", device._context)
        torch.cuda.synchronize()
    print(f"{which} context, {stream} stream: {driver.CUresult(status).name}")
    if status:
        assert result.isnan().all()
    else:
        close(result, ways.x, ways.y)


@WAYS
def test_capture_in_a_thread_without_a_context(product: treadle.Program, device: Any, way: str) -> None:
    """A launch that is refused and made again leaves the capture as it was."""
    ways = Ways(product)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if way != "fresh":
            ways.calls[way]()  # prepared for this stream
        ask("cuCtxSetCurrent", nothing())
        made = ways.calls[way]()
        ask("cuCtxSetCurrent", device._context)
    ways.x.copy_(randn(M, K))
    made.fill_(float("nan"))
    graph.replay()
    close(made, ways.x, ways.y)


@WAYS
def test_another_gpu_is_the_current_one(product: treadle.Program, way: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    ways = Ways(product)
    torch.zeros(1, device="cuda:1")
    with torch.cuda.device(1):
        made = ways.calls[way]()
        assert made.device.index == 0
        torch.cuda.synchronize(0)
        close(made, ways.x, ways.y)
    assert torch.equal(torch.zeros(3, device="cuda:1"), torch.zeros(3, device="cuda:1"))


def test_arrays_of_another_gpu_are_refused(product: treadle.Program) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    ways = Ways(product)
    with pytest.raises(TreadleError) as caught:
        product(ways.x.to("cuda:1"), ways.y)
    assert caught.value.code == "TR726"


def test_tensors_that_change_in_place(product: treadle.Program) -> None:
    ways = Ways(product)
    kept = ways.x.clone()
    ways.x.data = randn(M, K)
    for way in ("fresh", "given"):
        ways.check(way)
    ways.x.data = torch._neg_view(kept)
    for way in ("fresh", "given"):
        with pytest.raises(TreadleError) as caught:
            ways.calls[way]()
        assert caught.value.code == "TR729"
    ways.x.data = kept
    with torch.inference_mode():
        for way in ("fresh", "given") * 3:
            ways.check(way)
