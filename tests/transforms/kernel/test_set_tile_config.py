"""set-tile-config: the choice in the attribute `config`, what it says, and why a contraction gets no roles."""

from typing import Any

import pytest

from treadle.bench.families import matmul
from treadle.dialects import dispatch
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.pipelines import tensor_passes
from treadle.remarks import collect_remarks
from treadle.transforms.kernel.set_tile_config import SetTileConfigPass

SCALED = """
func.func @f(%a: tensor<256x128xf16>, %s: tensor<256x128xf16>, %b: tensor<128x256xf16>) -> tensor<256x256xf32> {
  %ea = tensor.empty() : tensor<256x128xf16>
  %x = linalg.mul ins(%a, %s : tensor<256x128xf16>, tensor<256x128xf16>) outs(%ea : tensor<256x128xf16>) -> tensor<256x128xf16>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<256x256xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<256x256xf32>) -> tensor<256x256xf32>
  %c = linalg.matmul ins(%x, %b : tensor<256x128xf16>, tensor<128x256xf16>) outs(%z : tensor<256x256xf32>) -> tensor<256x256xf32>
  return %c : tensor<256x256xf32>
}
"""
EXP = """
func.func @f(%x: tensor<77x1001xf32>) -> tensor<77x1001xf32> {
  %e = tensor.empty() : tensor<77x1001xf32>
  %y = linalg.exp ins(%x : tensor<77x1001xf32>) outs(%e : tensor<77x1001xf32>) -> tensor<77x1001xf32>
  return %y : tensor<77x1001xf32>
}
"""


def product(m: int, n: int, k: int, dtype: str = "bf16") -> str:
    return matmul("test", "test", m, n, k, dtype, transposed=False).text


def dispatched(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "test.mlir")
    run_passes(module, tensor_passes())
    return module


def configured(text: str, target: str = "sm_90a", **options: Any) -> tuple[dict[str, Any], str]:
    """The config of the last kernel as plain values, and the remark on it."""
    module = dispatched(text)
    with collect_remarks() as log:
        run_passes(module, [SetTileConfigPass(target, **options)])
    kernel = kernels(module)[-1]
    config = kernel.attributes["config"]
    assert isinstance(config, builtin.DictionaryAttr)
    return {name: plain(value) for name, value in config.data.items()}, log.remarks[-1].text


def kernels(module: builtin.ModuleOp) -> list[Operation]:
    return [op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)]


def plain(value: Any) -> Any:
    if isinstance(value, builtin.DenseArrayBase):
        return value.get_values()
    return value.data if isinstance(value, builtin.StringAttr) else value.value.data


@pytest.mark.parametrize(
    ("text", "target", "why"),
    [
        (product(257, 264, 136), "sm_90a", ""),
        (product(256, 256, 129), "sm_90a", "operand m: a pitch of 129 elements is not known to be a multiple of 16 bytes"),
        (product(256, 257, 128), "sm_90a", "operand n: a pitch of 257 elements is not known to be a multiple of 16 bytes"),
        (product(256, 256, 128), "gfx942", "the machine has no bulk copies"),
        (product(256, 256, 128, "f32"), "sm_90a", "the machine has no bulk copies into buffers that its matrix instructions read"),
        (SCALED, "sm_90a", "operand m is computed inside the kernel"),
    ],
)
def test_roles_or_why_not(text: str, target: str, why: str) -> None:
    config, said = configured(text, target)
    assert ("stages" in config) == (not why)
    assert f"no roles: {why}" in said if why else "computing groups" in said


@pytest.mark.parametrize("dtype", ["bf16", "f16", "i8"])
@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
def test_tiles_are_made_of_instructions(target: str, dtype: str) -> None:
    config, _ = configured(product(1000, 520, 264, dtype), target)
    row = target_spec(target).instruction(config["instruction"])
    assert row.a_type == row.b_type == dtype
    assert config["tile_k"] % row.k == 0 and config["tile_m"] % (row.m * config["warps_m"] // row.warps) == 0
    assert config["num_warps"] == config["warps_m"] * config["warps_n"]


def test_a_named_tile_is_taken_as_it_is() -> None:
    asked: dict[str, Any] = {"tile_m": 64, "tile_n": 96, "tile_k": 32, "warps_m": 4, "warps_n": 1}
    config, _ = configured(product(300, 200, 128), **asked)
    assert {name: config[name] for name in asked} == asked
    assert "stages" not in config
    config, _ = configured(product(300, 200, 128), **asked, ring=3, groups=2, turns=2, pending=1)
    assert (config["stages"], config["groups"], config["turns"], config["pending"]) == (3, 2, 2, 1)


@pytest.mark.parametrize(
    ("n", "changed", "why"),
    [
        (2552, {}, ""),
        (2816, {}, "do not fill the last round"),
        (2552, {"late": False}, "do not leave late"),
        (2552, {"persistent": "never"}, "do not take tiles in turn"),
        (2551, {}, "whose results leave in boxes"),
    ],
)
def test_tiles_of_a_second_width_or_why_there_are_none(n: int, changed: dict[str, Any], why: str) -> None:
    how: dict[str, Any] = {"ring": 3, "groups": 2, "late": True, "narrow": 112}
    asked: dict[str, Any] = {"tile_m": 64, "tile_n": 128, "tile_k": 64, "warps_m": 4, "warps_n": 1, **how, **changed}
    config, remark = configured(product(1530, n, 136), **asked)
    assert ("blocks" in config) == (not why)
    assert why in remark
    assert ("no tiles of 112 columns" in remark) == bool(why)


@pytest.mark.parametrize("ring", [0, 4])
def test_persistence(ring: int) -> None:
    options: dict[str, Any] = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "warps_m": 4, "warps_n": 1, "ring": ring}
    text, units = product(2048, 2048, 128), target_spec("sm_90a").compute_units
    assert "workgroups" not in configured(text, **options)[0]
    assert configured(text, **options, persistent="never")[0]["workgroups"] == 0
    many = configured(text, **options, persistent="always")[0]["workgroups"]
    assert many == units if ring else many > 0 and many % units == 0


@pytest.mark.parametrize("target", ["sm_90a", "gfx1201"])
def test_elementwise_tiles(target: str) -> None:
    config, said = configured(EXP, target)
    assert config["kind"] == "elementwise" and said.startswith("elementwise over 77077: tile ")  # one axis: nothing tells them apart
    (extent,) = config["tile"]
    assert extent & (extent - 1) == 0
    assert config["num_warps"] * target_spec(target).subgroup_size <= 256


def test_a_config_that_is_there_is_left_alone() -> None:
    module = dispatched(product(300, 200, 128))
    run_passes(module, [SetTileConfigPass("sm_90a", tile_m=64, tile_n=64, tile_k=32)])
    before = [op.attributes["config"] for op in kernels(module)]
    with collect_remarks() as log:
        run_passes(module, [SetTileConfigPass("sm_90a")])
    assert [op.attributes["config"] for op in kernels(module)] == before and not log.remarks
