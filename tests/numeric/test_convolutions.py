"""Convolutions as contractions on tiles of a folded view: right at odd sizes, proven, in the form that is meant, against NumPy in
float64.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from generators.convolutions import DTYPES, Array, Convolution, random_convolution

import treadle
from treadle import pipelines
from treadle.dialects.tile import KernelOp, ViewOp
from treadle.ir.dialects import builtin
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks
from treadle.sim.schedule.program import run_program_scheduled

NHWC = "conv_2d_nhwc_hwcf"
ROLES = {
    "a line of pixels a tile": Convolution(NHWC, 2, (18, 66), 64, 72, (3, 3)),
    "with zeros around": Convolution(NHWC, 2, (16, 16), 64, 72, (3, 3), low=(1, 1)),
    "odd sides": Convolution(NHWC, 2, (9, 7), 64, 40, (3, 3), low=(1, 1)),
    "filters first": Convolution("conv_2d_nhwc_fhwc", 2, (9, 7), 128, 40, (3, 3), low=(1, 1)),
    "every second pixel": Convolution(NHWC, 3, (11, 9), 64, 72, (3, 3), (2, 2), low=(0, 0), high=(1, 1)),
    "spread windows": Convolution(NHWC, 1, (12, 13), 64, 72, (3, 2), (1, 2), (2, 3), low=(2, 1)),
    "batch at run time": Convolution(NHWC, 2, (9, 7), 64, 40, (3, 3), low=(1, 1), is_dynamic=True),
    "one pixel, every second": Convolution(NHWC, 2, (9, 9), 128, 72, (1, 1), (2, 2)),
    "a line": Convolution("conv_1d_nwc_wcf", 3, (30,), 64, 72, (5,), (2,), (2,), low=(4,)),
    "volumes": Convolution("conv_3d_ndhwc_dhwcf", 1, (5, 6, 7), 64, 40, (3, 2, 3), low=(1, 0, 1)),
    "groups": Convolution("conv_2d_nhwgc_gfhwc", 2, (16, 16), 64, 64, (3, 3), low=(1, 1), groups=2),
    "channels in part": Convolution(NHWC, 2, (9, 7), 96, 40, (3, 3), low=(1, 1)),
    "few channels, filters first": Convolution("conv_2d_nhwc_fhwc", 2, (12, 11), 24, 72, (3, 3), (2, 2), low=(1, 1)),
    "bias": Convolution(NHWC, 2, (9, 7), 64, 72, (3, 3), low=(1, 1), tail="bias"),
    "residual": Convolution(NHWC, 2, (9, 7), 64, 72, (3, 3), low=(1, 1), tail="residual"),
    "silu": Convolution(NHWC, 2, (9, 7), 64, 72, (3, 3), low=(1, 1), tail="silu"),
    "bf16": Convolution(NHWC, 2, (9, 7), 64, 72, (3, 3), low=(1, 1), element="bf16", result="bf16"),
}
"""Whose operands descriptor copies bring, behind a ring."""
TILES = {
    "three channels": Convolution(NHWC, 2, (9, 7), 3, 40, (3, 3), low=(1, 1)),
    "channels first": Convolution("conv_2d_nchw_fchw", 2, (9, 7), 12, 40, (3, 3), low=(1, 1), tail="bias"),
    "an edge where nothing is read": Convolution("conv_2d_nchw_fchw", 3, (14, 1), 8, 56, (2, 1), (3, 3), (2, 1), (1, 1), (0, 0)),
    "groups first": Convolution("conv_2d_ngchw_gfchw", 2, (9, 7), 5, 3, (3, 2), low=(1, 1), groups=3),
    "f32": Convolution(NHWC, 1, (9, 7), 20, 24, (3, 3), element="f32", result="f32"),
    "i8": Convolution("conv_2d_nhwc_fhwc", 1, (9, 7), 20, 40, (3, 3), low=(1, 1), element="i8", result="i32"),
    "volumes, channels first": Convolution("conv_3d_ncdhw_fcdhw", 1, (5, 4, 6), 6, 9, (2, 2, 3), low=(1, 0, 1)),
}
"""Whose images the threads gather."""


def lowered(convolution: Convolution, target: str, **options: Any) -> builtin.ModuleOp:
    """At schedule level, proven."""
    module = parse_module(convolution.text(), "test.mlir")
    pipelines.lower(module, target_spec(target), CompileOptions(**options))
    return module


def folded(module: builtin.ModuleOp) -> list[ViewOp]:
    """The views that fold an array."""
    return [op for op in module.walk() if isinstance(op, ViewOp) and op.folding is not None]


def agrees(got: Array, convolution: Convolution, arrays: list[Array]) -> bool:
    """Sums of small whole numbers are exact; exponentials are not."""
    want = convolution.expected(arrays)
    if convolution.tail == "silu":
        return np.allclose(got.astype(np.float64), want, rtol=2e-3, atol=2e-3)
    return np.array_equal(got, want.astype(DTYPES[convolution.result]))


def judge(convolution: Convolution, target: str, **options: Any) -> builtin.ModuleOp:
    """Compile, execute and compare; the module."""
    module, arrays = lowered(convolution, target, **options), convolution.arrays()
    report = run_program_scheduled(module, arrays, "late")
    assert report.ok, str(report)
    assert agrees(report.outputs[0], convolution, arrays), convolution
    return module


def kernel_of(module: builtin.ModuleOp) -> KernelOp:
    """The only kernel: zeros around the image have none of their own."""
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    return kernel


@pytest.mark.parametrize("name", ROLES)
def test_descriptor_copies_bring_images(name: str) -> None:
    module = judge(ROLES[name], "sm_90a")
    assert str(kernel_of(module).config).startswith(("#tile.form<roles", "#tile.form<exchanged"))
    assert folded(module)
    assert print_module(parse_module(text := print_module(module), "again.mlir")) == text


@pytest.mark.parametrize("order", ["channels", "places"])
@pytest.mark.parametrize("name", sorted(set(ROLES) - {"residual", "channels in part"}))
def test_filters_are_rows_where_operands_are_exchanged(name: str, order: str) -> None:
    module = judge(ROLES[name], "sm_90a", form="exchanged", window_order=order, split_reduction="off")
    assert str(kernel_of(module).config).startswith("#tile.form<exchanged")
    assert folded(module)


@pytest.mark.parametrize("name", ["odd sides", "filters first", "volumes", "groups", "every second pixel"])
def test_machine_code_is_assembled(name: str) -> None:
    program = treadle.compile(ROLES[name].text(), target="sm_90a")
    assert "cp.async.bulk.tensor" in program.stages["asm"]


@pytest.mark.parametrize("name", ["odd sides", "volumes", "spread windows", "batch at run time"])
def test_machine_code_of_exchanged_operands_is_assembled(name: str) -> None:
    """Single images too: copies that walk pixels have an axis of images then as well."""
    program = treadle.compile(ROLES[name].text(), target="sm_90a", options=CompileOptions(form="exchanged", split_reduction="off"))
    assert "im2col" in program.stages["asm"]


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
def test_threads_gather_what_no_descriptor_brings(name: str, target: str) -> None:
    module = judge(TILES[name], target)
    assert str(kernel_of(module).config).startswith("#tile.form<tiles")
    assert folded(module)


@pytest.mark.parametrize("name", ["odd sides", "every second pixel", "volumes", "residual"])
@pytest.mark.parametrize("target", ["gfx950", "gfx1100"])
def test_other_machines_gather_them_all(name: str, target: str) -> None:
    judge(ROLES[name], target)


@pytest.mark.parametrize("tile", [(64, 64, 128), (128, 64, 64), (64, 128, 64)])
def test_other_tiles(tile: tuple[int, int, int]) -> None:
    """Two groups of rows, and steps that reach behind the last window."""
    for name in ("with zeros around", "odd sides"):
        options = {"tile": tile, "warps": (4, 1), "num_stages": 2, "consumer_warpgroups": 1 + (tile[0] == 64)}
        judge(ROLES[name], "sm_90a", **options)


def test_a_window_of_one_pixel_is_a_matrix_product() -> None:
    module = judge(Convolution(NHWC, 2, (9, 7), 64, 72, (1, 1)), "sm_90a")
    assert not folded(module)
    assert "126x64" in print_module(module)


def test_channels_of_their_own_stay_a_loop_nest() -> None:
    text = (
        replace(TILES["three channels"], low=())
        .text()
        .replace("3x3x3x40x", "3x3x3x")
        .replace("x40x", "x3x")
        .replace(NHWC, "depthwise_conv_2d_nhwc_hwc")
    )
    module = parse_module(text, "test.mlir")
    with collect_remarks() as log:
        pipelines.lower(module, target_spec("sm_90a"), CompileOptions())
    assert any("sums over no channel" in remark.text for remark in log.remarks)
    assert not str(kernel_of(module).config).startswith(("#tile.form<roles", "#tile.form<tiles"))
    assert not folded(module)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
@pytest.mark.parametrize("seed", range(12))
def test_random_convolutions(seed: int, target: str) -> None:
    judge(random_convolution(1000 * (target == "gfx942") + seed), target)
