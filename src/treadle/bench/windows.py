"""Single results of a convolution, to be compared: each with the part of the image that it is computed from as an image of its own.

Whole images in float64 take longer than all else that is done with them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.bench.machine import Machine
from treadle.bench.workload import TensorSpec, Window
from treadle.runtime.arrays import numpy_dtype

Array = NDArray[Any]
Place = tuple[int, int, int]
"""The image, the line and the column of a result."""


def places_of(numbers: Sequence[int], sides: tuple[int, int]) -> list[Place]:
    """The places of results by their numbers, all those of an image after one another."""
    return [(number // (sides[0] * sides[1]), number // sides[1] % sides[0], number % sides[1]) for number in numbers]


def _along(start: int, window: Window, size: int) -> tuple[int, list[int]]:
    """How many of a window's pixels lie before the first one of an axis, and those within it."""
    wanted = range(start * window.step - window.pad, start * window.step - window.pad + window.side)
    inside = [pixel for pixel in wanted if 0 <= pixel < size]
    return (inside[0] - wanted[0] if inside else 0), inside


def sampled_images(machine: Machine, array: Any, spec: TensorSpec, window: Window, places: Sequence[Place]) -> Array:
    """What each result is computed from: (places, side, side, channels), zero where the window lies beyond the image."""
    _, height, width, channels = spec.shape
    found = np.zeros((len(places), window.side, window.side, channels), numpy_dtype(spec.dtype))
    for number, (image, line, column) in enumerate(places):
        (top, lines), (left, columns) = _along(line, window, height), _along(column, window, width)
        if lines and columns:
            part = machine.sample(array, [(0, [image]), (1, lines), (2, columns)], spec.dtype)
            found[number, top : top + len(lines), left : left + len(columns)] = part[0]
    return found


def sampled_results(machine: Machine, array: Any, spec: TensorSpec, columns: Sequence[int], places: Sequence[Place]) -> Array:
    """The results themselves: (places, 1, 1, columns)."""
    parts = [machine.sample(array, [*((axis, [at]) for axis, at in enumerate(place)), (3, columns)], spec.dtype) for place in places]
    return np.concatenate(parts)
