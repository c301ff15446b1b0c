"""Descriptor copies of images: what the hardware does with a map and a place (as its manual says, in NumPy) is the tile of the folded
view.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from generators.convolutions import Convolution, random_convolution

from treadle import pipelines
from treadle.artifact import TensorMap
from treadle.bench.convolutions import named_convolution
from treadle.dialects.tile import CopyOp, KernelOp, ViewOp, ints, memref_type
from treadle.errors import InternalError
from treadle.ir.text import parse_module
from treadle.layout.windows import Windows
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.expr import as_expr
from treadle.sim.memory import FoldedView, Pointer, Window
from treadle.targets.nvidia.folded_map import folded_map, folding_of
from treadle.targets.nvidia.tensor_map import plan_copy

SPEC = target_spec("sm_90a")
BOXES = {
    "lines": Convolution("conv_2d_nhwc_hwcf", 2, (16, 16), 64, 64, (3, 3), low=(1, 1)),
    "parts of lines": Convolution("conv_2d_nhwc_hwcf", 1, (3, 128), 64, 64, (3, 3), low=(1, 1)),
    "images": Convolution("conv_2d_nhwc_fhwc", 3, (8, 8), 64, 64, (3, 3), low=(1, 1)),
    "every second pixel": Convolution("conv_2d_nhwc_hwcf", 2, (16, 32), 64, 64, (3, 3), (2, 2), low=(0, 0), high=(1, 1)),
    "spread": Convolution("conv_2d_nhwc_hwcf", 2, (16, 16), 128, 64, (3, 3), (), (2, 2), low=(2, 2)),
    "channels in part": Convolution("conv_2d_nhwc_hwcf", 2, (16, 16), 96, 72, (3, 3), low=(1, 1)),
    "few channels, filters first": Convolution("conv_2d_nhwc_fhwc", 2, (16, 16), 24, 72, (3, 3), low=(1, 1)),
    "groups": Convolution("conv_2d_nhwgc_gfhwc", 2, (16, 16), 64, 64, (3, 3), low=(1, 1), groups=2),
}
WALKS = {
    "odd sides": Convolution("conv_2d_nhwc_hwcf", 2, (9, 7), 64, 64, (3, 3), low=(1, 1)),
    "odd sides, every second pixel": Convolution("conv_2d_nhwc_hwcf", 3, (11, 14), 64, 64, (3, 2), (2, 2), low=(1, 0), high=(0, 1)),
    "a line": Convolution("conv_1d_nwc_wcf", 3, (30,), 64, 64, (5,), (3,), (2,), low=(4,)),
    "odd sides, channels in part": Convolution("conv_2d_nhwc_fhwc", 2, (9, 7), 72, 40, (3, 2), low=(1, 0)),
    "volumes, channels in part": Convolution("conv_3d_ndhwc_dhwcf", 1, (5, 6, 7), 72, 40, (3, 2, 3), low=(1, 0, 1)),
    "volumes": Convolution("conv_3d_ndhwc_dhwcf", 2, (5, 6, 7), 64, 64, (3, 2, 3), (), (1, 2, 1), low=(1, 1, 0), high=(0, 1, 2)),
    "far apart": Convolution("conv_2d_nhwc_hwcf", 1, (40, 25), 64, 64, (2, 2), (3, 1), (5, 9), low=(2, 7)),
}


def copied(seen: TensorMap, array: np.ndarray, start: list[int], window: list[int]) -> np.ndarray:
    """The elements of a copy, pixel by pixel, with the coordinates innermost first. PTX ISA, "Tensor copy modes"."""
    extents = [as_expr(size).as_int() or 0 for size in seen.global_dim]
    strides = [1, *((as_expr(size).as_int() or 0) // array.itemsize for size in seen.global_stride_bytes)]

    def element(place: list[int]) -> Any:
        inside = all(0 <= at < size for at, size in zip(place, extents, strict=True))
        return array[sum(at * stride for at, stride in zip(place, strides, strict=True))] if inside else 0

    if not seen.lower_corner:
        sides = [range(0, box, step) for box, step in zip(seen.box_dim, seen.element_stride, strict=True)]
        grid = np.stack(np.meshgrid(*[np.array(side) for side in sides[::-1]], indexing="ij"), axis=-1).reshape(-1, len(sides))[:, ::-1]
        return np.array([element([a + int(b) for a, b in zip(start, at, strict=True)]) for at in grid])
    channels, pixels = seen.box_dim
    found, base = list[Any](), list(start)
    for _ in range(pixels):
        pixel = [base[0], *(at + far for at, far in zip(base[1:-1], window, strict=True)), base[-1]]
        found += [element([pixel[0] + c, *pixel[1:]]) for c in range(channels)]
        for axis in range(1, len(base) - 1):  # on to the next pixel of the bounding box
            base[axis] += seen.element_stride[axis]
            if base[axis] < extents[axis] + seen.upper_corner[axis - 1]:
                break
            base[axis] = seen.lower_corner[axis - 1]
        else:
            base[-1] += 1
    return np.array(found)


def copies(convolution: Convolution) -> tuple[KernelOp, list[CopyOp]]:
    """The kernel, and its copies of the image."""
    module = parse_module(convolution.text(), "test.mlir")
    pipelines.lower(module, SPEC, CompileOptions(verify=False))
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    found = [op for op in kernel.walk() if isinstance(op, CopyOp) and op.is_bulk]
    return kernel, [op for op in found if isinstance(view := op.view.owner, ViewOp) and view.folding is not None]


def place(windows: Windows, dim: int, index: int, axes: int) -> list[int]:
    found = [0] * axes
    for axis, steps in windows.taken_apart(dim, index):
        found[axis] += steps
    return found


def check_copies(convolution: Convolution, is_walk: bool | None) -> None:
    assert SPEC.bulk_tensor is not None
    kernel, images = copies(convolution)
    assert images
    for op in images:
        check_copy(kernel, op, convolution, is_walk)


def check_copy(kernel: KernelOp, op: CopyOp, convolution: Convolution, is_walk: bool | None) -> None:
    assert SPEC.bulk_tensor is not None
    view, plan = op.view.owner, plan_copy(kernel, op, SPEC.bulk_tensor)
    assert isinstance(view, ViewOp)
    assert plan.folded is not None
    which = int(view.pointer is kernel.body.block.args[1])
    assert is_walk is None or plan.folded.is_walk == (is_walk and not which)
    windows, seen, (column, row) = folding_of(view), plan.param.map, plan.view_dims[:2]
    array = np.arange(1, 1 + np.prod(convolution.shape(which, convolution.kernel if which else convolution.sides)), dtype=np.float64)
    sizes, strides = ([int(s) for s in row if isinstance(s, int)] for row in (view.size_values(), view.stride_values()))
    whole = FoldedView(Pointer(array), view.offset.value.data, sizes, strides, 1, windows)
    scaled = replace_strides(seen, 2, array.itemsize)
    assert plan.param.byte_offset == 0  # the map begins where the array does, whatever zeros are before it
    extents = dict(zip(ints(op.dims), memref_type(op.destination).get_shape(), strict=True))
    width = seen.box_dim[0]
    generator = np.random.default_rng(0)
    for _ in range(8):
        at = [int(generator.integers(0, size)) for size in sizes]
        at[row] = int(generator.integers(0, -(-sizes[row] // extents[row]))) * extents[row]
        at[column] = int(generator.integers(0, -(-sizes[column] // extents[column]))) * extents[column]
        for box in plan.boxes:
            starts = list(at)
            starts[column], starts[row] = at[column] + box.start[0], at[row] + box.start[1]
            rows = seen.box_dim[1] if plan.folded.is_walk else np.prod([axis.count for axis in plan.folded.axes[1:]])
            want = Window((row, column), (int(rows), width), len(at), 1).read(whole, starts, 0)
            pixel, window = (place(windows, dim, starts[dim], len(windows.axes)) for dim in (row, column))
            coordinates, far = list[int](), list[int]()
            for number, axis in enumerate(plan.folded.axes):
                if axis.axis < 0:
                    coordinates.append(starts[axis.dim])
                    continue
                here, there = pixel[axis.axis] - windows.axes[axis.axis].low, window[axis.axis]
                if plan.folded.is_walk and 0 < number <= len(plan.folded.lines):
                    coordinates.append(here)
                    far.append(there)
                else:
                    coordinates.append(here + there)
                behind = starts[column] >= sizes[column] and windows.dims[column]
                if behind and windows.dims[row] and axis.axis == windows.dims[row][0].axis:
                    coordinates[-1] = -1
            assert np.array_equal(copied(scaled, array, coordinates, far).reshape(want.shape), want)


def replace_strides(seen: TensorMap, old: int, new: int) -> TensorMap:
    """The map for elements of another size."""
    return seen.with_sizes(seen.global_dim, tuple((as_expr(size) // old) * new for size in seen.global_stride_bytes))


@pytest.mark.parametrize("name", BOXES)
def test_rows_that_are_a_box_are_copied_as_one(name: str) -> None:
    check_copies(BOXES[name], is_walk=False)


@pytest.mark.parametrize("name", WALKS)
def test_other_rows_are_walked(name: str) -> None:
    check_copies(WALKS[name], is_walk=True)


def with_whole_steps(seed: int) -> Convolution:
    """A random convolution whose channels lie side by side, in whole steps."""
    made = random_convolution(seed)
    last = {1: "conv_1d_nwc_wcf", 2: "conv_2d_nhwc_fhwc", 3: "conv_3d_ndhwc_dhwcf"}[len(made.sides)]
    return replace(made, name=last, groups=1, channels=64, filters=72, element="f16", result="f16", tail="", is_dynamic=False)


@pytest.mark.parametrize("seed", range(24))
def test_random_images(seed: int) -> None:
    convolution = with_whole_steps(seed)
    if not copies(convolution)[1]:
        pytest.skip("a matrix product, or too wide a window: no image is copied by descriptors")
    check_copies(convolution, None)


@pytest.mark.parametrize("name", ["conv-f16-21x8x435x328-1784-k2-s2-p1", "conv-bf16-4x28x145x280-1224-k6-p3"])
def test_filters_begin_anywhere(name: str) -> None:
    """Rows of filters are no pixels: tiles of two widths begin within one another's multiples."""
    workload = named_convolution(name)
    assert workload is not None
    module = parse_module(workload.text, "test.mlir")
    pipelines.lower(module, SPEC, CompileOptions(verify=False))
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    assert any(op.name == "pipe.roles" for op in kernel.walk())


def test_what_no_copy_brings_is_no_map() -> None:
    _, images = copies(WALKS["odd sides"])
    view = images[0].view.owner
    assert isinstance(view, ViewOp)
    assert SPEC.bulk_tensor is not None
    with pytest.raises(InternalError, match="no whole steps of 48"):
        folded_map(view, (0, 1), 64, 48, SPEC.bulk_tensor, lambda value: as_expr(value if isinstance(value, int) else 0))
