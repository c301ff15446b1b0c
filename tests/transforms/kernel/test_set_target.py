"""set-target: kernels for any machine get the one they are compiled for; kernels for another one are refused."""

import pytest
from generators.tile_kernel_texts import matmul

from treadle.errors import TreadleError
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.transforms.kernel.kernel_ir import kernels
from treadle.transforms.kernel.set_target import SetTargetPass

ANY = matmul(64, 64, 64).replace('target = "sm_90a"', 'target = "any"').replace("wgmma_m64k16_f32_f16_f16", "fma")


def target_after(text: str, target: str, *, exact: bool = True) -> str:
    module = parse_module(text, "user.mlir")
    run_passes(module, [SetTargetPass(target, exact)])
    (kernel,) = kernels(module)
    return kernel.target.data


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201", "sm_90a:h100-pcie"])
def test_a_kernel_for_any_machine(target: str) -> None:
    assert target_after(ANY, target) == target


def test_a_kernel_for_an_architecture_is_for_its_products() -> None:
    assert target_after(matmul(64, 64, 64), "sm_90a:h100-pcie") == "sm_90a:h100-pcie"


def test_a_kernel_for_another_machine() -> None:
    text = matmul(64, 64, 64, target="gfx942", instruction="mfma_16x16x16_f32_f16")
    with pytest.raises(TreadleError, match="written for gfx942, not for gfx950") as caught:
        target_after(text, "gfx950")
    assert (caught.value.code, caught.value.location and caught.value.location.file) == ("TR504", "user.mlir")
    assert target_after(text, "sm_90a", exact=False) == "gfx942", "the simulator executes it as it is"


def test_leaves_the_rest_alone() -> None:
    text = matmul(64, 64, 64)
    module = parse_module(text, "user.mlir")
    run_passes(module, [SetTargetPass("sm_90a")])
    assert print_module(module) == print_module(parse_module(text, "user.mlir"))


@pytest.mark.parametrize(("target", "most"), [("sm_90a", 32), ("gfx942", 16), ("gfx1100", 32)])
def test_warps_of_a_workgroup(target: str, most: int) -> None:
    assert target_after(ANY.replace("num_warps = 4", f"num_warps = {most}"), target) == target
    with pytest.raises(TreadleError, match=f"use at most {most} warps") as caught:
        target_after(ANY.replace("num_warps = 4", f"num_warps = {2 * most}"), target)
    assert caught.value.code == "TR107"
