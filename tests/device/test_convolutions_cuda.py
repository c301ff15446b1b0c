"""Convolutions on the GPU, against NumPy in float64: copies of boxes, copies that walk pixels, and gathers."""

from random import Random

import numpy as np
import pytest
from generators.convolutions import Convolution, random_convolution
from numeric.test_convolutions import NHWC, ROLES, TILES, agrees

import treadle

LARGE = {
    "boxes": Convolution(NHWC, 2, (64, 64), 128, 320, (3, 3), low=(1, 1)),
    "every second pixel": Convolution("conv_2d_nhwc_fhwc", 2, (64, 64), 128, 256, (3, 3), (2, 2), low=(1, 1), tail="bias"),
    "walks": Convolution(NHWC, 3, (57, 45), 128, 192, (3, 3), low=(1, 1), tail="residual"),
    "walks every second pixel": Convolution(NHWC, 3, (57, 45), 128, 192, (3, 2), (2, 2), low=(1, 1)),
    "walks with spread windows": Convolution(NHWC, 2, (33, 47), 64, 192, (5, 3), (), (2, 3), low=(4, 3)),
    "channels in part": Convolution("conv_2d_nhwc_fhwc", 2, (31, 33), 200, 136, (3, 3), low=(1, 1), tail="silu"),
}


def check(convolution: Convolution, target: str) -> None:
    arrays = convolution.arrays()
    program = treadle.compile(convolution.text(), target=target)
    (got,) = program(*arrays)
    assert agrees(np.asarray(got), convolution, arrays), convolution


@pytest.mark.parametrize("name", [*ROLES, *TILES])
def test_odd_sizes(name: str, target: str) -> None:
    check((ROLES | TILES)[name], target)


@pytest.mark.parametrize("name", LARGE)
def test_many_tiles(name: str, target: str) -> None:
    check(LARGE[name], target)


@pytest.mark.parametrize("number", range(20))
def test_random_ones(number: int, target: str) -> None:
    check(random_convolution(Random(number).randrange(1 << 20), most_channels=160), target)
