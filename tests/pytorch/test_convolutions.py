# pyright: reportUnknownLambdaType=false, reportMissingParameterType=false
"""Convolutions of random shapes, their transposes and gradients, against float64 on the simulator: static, and with dynamic images."""

import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

from pytorch.test_writer import array, check, dynamic, in_float64  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import treadle  # noqa: E402
from treadle.driver import trace  # noqa: E402
from treadle.torch.decompositions import everything  # noqa: E402
from treadle.torch.unsupported import Unsupported  # noqa: E402
from treadle.torch.writer import write  # noqa: E402

F = torch.nn.functional
CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


class Drawn:
    """A random convolution: groups of one channel, windows of one place, images of one pixel and channels last among them."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        torch.manual_seed(seed)
        self.rank = rng.choice([1, 2, 2, 3])
        groups, channels, filters = rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 5]), rng.choice([1, 2, 3])
        kernel = [rng.choice([1, 2, 3]) for _ in range(self.rank)]
        stride, dilation = ([rng.choice([1, 1, 2]) for _ in range(self.rank)] for _ in range(2))
        padding = [rng.randint(0, d * (k - 1)) for d, k in zip(dilation, kernel, strict=True)]
        reaches = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        sides: list[int] = []
        for reach, step, border in zip(reaches, stride, padding, strict=True):
            pixels = -(-max(0, 2 * border - reach) // step)  # besides the first: fewer would leave a transposed one nothing
            sides.append(max(1, pixels * step + reach + 1 - 2 * border) + rng.randint(0, 4))
        self.image = torch.randn(rng.choice([1, 2, 3]), groups * channels, *sides)
        if self.rank == 2 and rng.random() < 0.5:
            self.image = self.image.to(memory_format=torch.channels_last)
        self.filters, self.bias = torch.randn(groups * filters, channels, *kernel), torch.randn(groups * filters)
        self.window = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        print(f"seed {seed}: {list(self.image.shape)} {list(self.filters.shape)} {self.window}")

    def forward(self, x: Any, w: Any, b: Any) -> Any:
        return CONVOLUTIONS[self.rank - 1](x, w, b, **self.window)

    def pixels(self) -> Any:
        """Random numbers in the shape of the result."""
        return torch.randn_like(self.forward(self.image, self.filters, None))

    def transposed(self, y: Any, w: Any) -> Any:
        return TRANSPOSED[self.rank - 1](y, w, **self.window)

    def gradients(self, x: Any, w: Any, y: Any) -> list[Any]:
        numbers = (self.window["stride"], self.window["padding"], self.window["dilation"], False, [0] * self.rank, self.window["groups"])
        return list(torch.ops.aten.convolution_backward(y, x, w, [w.shape[0]], *numbers, [True] * 3))


@pytest.fixture(params=range(4))
def drawn(request: Any) -> Drawn:
    return Drawn(int(np.random.SeedSequence().generate_state(1)[0]))


def test_convolutions(drawn: Drawn) -> None:
    check(lambda x, w, b: drawn.forward(x, w, b), [drawn.image, drawn.filters, drawn.bias], "fake", 1e-5)


def test_one_pixel_of_a_larger_image() -> None:
    """A single place of the result: the window alone reads the image, which goes on behind it."""
    check(lambda x, w: F.conv1d(x, w, stride=2, groups=3), [torch.randn(2, 3, 3), torch.randn(6, 1, 2)], "fake")
    check(lambda x: F.max_pool2d(x, (2, 1), 3), [torch.randn(2, 3, 4, 2)], "fake")


def test_gradients(drawn: Drawn) -> None:
    check(lambda x, w, y: drawn.gradients(x, w, y), [drawn.image, drawn.filters, drawn.pixels()], "fake", 1e-5)


def test_transposed_ones_and_their_gradients(drawn: Drawn) -> None:
    pixels = drawn.pixels()
    check(lambda y, w: drawn.transposed(y, w), [pixels, drawn.filters], "fake", 1e-5)
    numbers = (drawn.window["stride"], drawn.window["padding"], drawn.window["dilation"], True, [0] * drawn.rank, drawn.window["groups"])

    def gradients(x: Any, w: Any, y: Any) -> list[Any]:
        return list(torch.ops.aten.convolution_backward(y, x, w, None, *numbers, [True, True, False]))[:2]

    check(gradients, [pixels, drawn.filters, torch.randn_like(drawn.transposed(pixels, drawn.filters))], "fake", 1e-5)


@pytest.mark.parametrize(("stride", "dims"), [(1, (0,)), (1, (0, 2, 3)), (2, (0, 2, 3))])
def test_images_of_any_size(stride: int, dims: tuple[int, ...]) -> None:
    def forward(x: Any, w: Any, b: Any) -> Any:
        return F.silu(F.conv2d(x, w, b, stride=stride, padding=1))

    def make(batch: int, height: int, width: int) -> list[Any]:
        return [torch.randn(batch, 3, height, width), torch.randn(5, 3, 3, 3), torch.randn(5)]

    program = dynamic(forward, make(2, 7, 9), (dict.fromkeys(dims, torch.export.Dim.DYNAMIC), {}, {}))
    for sizes in ((2, 7, 9), (3, 7, 9) if len(dims) == 1 else (3, 4, 8)):
        arguments = make(*sizes)
        (right,) = in_float64(forward, arguments)
        (found,) = program(*arguments)
        assert found.shape == right.shape
        assert (found - right).abs().max() <= 1e-5 * right.abs().max()


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_for_any_batch(stride: int) -> None:
    def backward(y: Any, x: Any, w: Any) -> Any:
        return torch.ops.aten.convolution_backward(y, x, w, [5], [stride] * 2, [1] * 2, [1] * 2, False, [0] * 2, 1, [True] * 3)

    def make(batch: int) -> list[Any]:
        return [torch.randn(batch, 5, (7 - 1) // stride + 1, (6 - 1) // stride + 1), torch.randn(batch, 3, 7, 6), torch.randn(5, 3, 3, 3)]

    batch = {0: torch.export.Dim("batch", min=2)}
    program = dynamic(backward, make(2), (batch, batch, {}))
    for size in (2, 4):
        arguments = make(size)
        for found, right in zip(program(*arguments), in_float64(backward, arguments), strict=True):
            assert found.shape == right.shape
            assert (found - right).abs().max() <= 1e-5 * right.abs().max()


def test_narrow_ones_are_rounded_once() -> None:
    x, w, b = torch.randn(2, 33, 6, 5).bfloat16(), torch.randn(7, 33, 3, 3).bfloat16(), torch.randn(7).bfloat16()
    graph = make_fx(lambda x, w, b: torch.relu(F.conv2d(x, w, b, padding=1)) * 3, tracing_mode="fake", decomposition_table=everything())(
        x, w, b
    ).graph
    (found,) = treadle.compile(write(graph).module, target="sim")(x, w, b)
    right = torch.relu(F.conv2d(x.double(), w.double(), b.double(), padding=1)) * 3
    assert ((array(found) - right).abs() <= 2.0**-8 * right.abs() + 1e-4).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_a_padded_convolution_with_its_epilogue_is_one_kernel(dtype: Any, layout: Any) -> None:
    x, w, b = torch.randn(2, 64, 16, 16).to(dtype).to(memory_format=layout), torch.randn(64, 64, 3, 3).to(dtype), torch.randn(64).to(dtype)
    w = w.to(memory_format=layout)

    def block(x: Any, w: Any, b: Any, residual: Any) -> Any:
        return F.silu(F.conv2d(x, w, b, padding=1)) + residual

    graph = make_fx(block, tracing_mode="fake", decomposition_table=everything())(x, w, b, x).graph
    module = write(graph).module
    remarks = trace(str(module), target="sm_90a", until="schedule").remarks
    kernels = {remark.subject for remark in remarks if remark.pass_name == "set-kernel-form"}
    print(*remarks, sep="\n")
    assert len(kernels) == 1


def test_a_window_of_unknown_size_is_refused() -> None:
    def gradient(y: Any, x: Any, w: Any) -> Any:
        numbers = ([1] * 2, [0] * 2, [1] * 2, False, [0] * 2, 1)
        return torch.ops.aten.convolution_backward(y, x, w, None, *numbers, [True, False, False])[0]

    arguments = [torch.randn(2, 5, 5, 5), torch.randn(2, 3, 7, 7), torch.randn(5, 3, 3, 3)]
    graph = make_fx(gradient, tracing_mode="symbolic")(*arguments).graph
    with pytest.raises(Unsupported, match="convolution_backward"):
        write(graph)
