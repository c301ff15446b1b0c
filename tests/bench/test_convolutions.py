"""Workloads that are convolutions: their text computes what the name says, and so does the peer's arithmetic; other names say nothing."""

from random import Random

import numpy as np
import pytest

from treadle.bench.convolutions import named_convolution
from treadle.bench.peers import convolution_peer
from treadle.bench.suite import choose, find
from treadle.frontends import mlir
from treadle.sim.reference import evaluate_module
from treadle.tools.inputs import random_array


@pytest.mark.parametrize("seed", range(8))
def test_the_text_computes_what_the_name_says(seed: int) -> None:
    draw = Random(seed)
    n, h, w, c, f, k = (
        draw.randint(1, 3),
        draw.randint(5, 9),
        draw.randint(5, 9),
        draw.randint(1, 5),
        draw.randint(1, 5),
        draw.randint(1, 3),
    )
    step, spread, pad = draw.randint(1, 3), draw.randint(1, 2), draw.choice([None, 0, 1, 2])
    tail = draw.choice(["", "bias", "silu"])
    parts = ["conv-f16", f"{n}x{h}x{w}x{c}", str(f), f"k{k}", f"s{step}", f"d{spread}", *([] if pad is None else [f"p{pad}"])]
    workload = find("-".join([*parts, *([tail] if tail else [])]))
    assert workload is not None
    generator = np.random.default_rng(seed)
    arrays = [random_array(spec.shape, spec.dtype, generator) for spec in workload.inputs]
    (found,) = evaluate_module(mlir.load(workload.text, workload.name), arrays)
    zeros = (k - 1) * spread // 2 if pad is None else pad
    x = np.pad(arrays[0].astype(np.float64), [(0, 0), (zeros, zeros), (zeros, zeros), (0, 0)])
    oh, ow = workload.outputs[0].shape[1:3]
    y = np.zeros((n, oh, ow, f))
    for i in range(k):
        for j in range(k):
            part = x[:, i * spread :: step, j * spread :: step][:, :oh, :ow]
            y += part @ arrays[1][:, i, j].astype(np.float64).T
    assert workload.flop == 2 * y.size * c * k * k
    if tail:
        y = y + arrays[2].astype(np.float64) if tail == "bias" else y / (1 + np.exp(-y))
    np.testing.assert_allclose(np.asarray(found.value, np.float64), y, rtol=0.01, atol=0.02)


def test_those_of_sdxl_are_a_group() -> None:
    workloads = choose(["convolution"])
    assert workloads[0].title == "2x64x64x640 -> 640, 3x3 f16"
    assert workloads[0].flop == 2 * 8192 * 640 * 5760
    assert "tensor.pad" in workloads[0].text


def test_the_peer_takes_channels_last() -> None:
    calls: list[tuple[object, ...]] = []

    class Array:
        dtype = "f16"

        def permute(self, *order: int) -> "Array":
            calls.append(order)
            return self

    class Functional:
        @staticmethod
        def conv2d(*arguments: object) -> Array:
            calls.append(arguments[2:])
            return Array()

    class Torch:
        class nn:
            functional = Functional

    convolution_peer(Torch, "convolution_2_1_3")(Array(), Array())
    assert calls == [(0, 3, 1, 2), (0, 3, 1, 2), (None, 2, 3, 1), (0, 2, 3, 1)]


def test_other_names_say_nothing() -> None:
    for name in (
        "conv-f16-2x64x64x640-640",
        "conv-i8-2x8x8x4-4-k3",
        "conv-f16-2x8x8x4-4-k0",
        "conv-f16-2x8x8x4-4-k3-s0",
        "conv-f16-1x3x3x4-4-k5-p0",
        "conv-f16-1x3x3x4-4-k3-tanh",
    ):
        assert named_convolution(name) is None
