"""lower-layout-conversions on text."""

from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find, lowered

from treadle.dialects import tile
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.transforms.kernel.assign_layouts import AssignLayoutsPass
from treadle.transforms.kernel.lower_layout_conversions import LowerLayoutConversionsPass

A = "#tile.layout<register = [[0, 1]], lane = [[0, 2], [0, 4], [0, 8], [0, 16], [1, 0]], warp = [[2, 0], [4, 0]], repeat = [1, 1]>"
B = "#tile.layout<register = [[1, 0]], lane = [[0, 2], [0, 4], [0, 8], [0, 16], [0, 1]], warp = [[2, 0], [4, 0]], repeat = [1, 1]>"
C = "#tile.layout<register = [[4, 0]], lane = [[0, 2], [0, 4], [0, 8], [0, 16], [0, 1]], warp = [[1, 0], [2, 0]], repeat = [1, 1]>"


def conversion(source: str, result: str) -> str:
    body = (
        f"  %t = arith.constant dense<0.000000e+00> : tensor<8x32xf32, {source}>\n"
        f"  %u = tile.convert_layout %t : tensor<8x32xf32, {source}> -> tensor<8x32xf32, {result}>\n"
        f"  %v = arith.addf %u, %u : tensor<8x32xf32, {result}>"
    )
    return kernel_texts.kernel("convert", "%a: !tile.ptr<f32>", body, warps=4, target="sm_90a", pointers=1)


def names(source: str, result: str) -> list[str]:
    module = parse_module(conversion(source, result), "test")
    for kernel in find(module, tile.KernelOp):
        LowerLayoutConversionsPass().run(kernel, target_spec("sm_90a"))
    return [op.name for op in module.walk() if op.name.startswith("tile.") and op.name not in ("tile.kernel", "tile.return")]


def test_conversions_across_warps_use_a_scratch_buffer() -> None:
    assert names(A, C) == ["tile.alloc", "tile.local_store", "tile.local_load"]


def test_conversions_within_warps_are_left_alone() -> None:
    assert names(A, B) == ["tile.convert_layout"]


def test_identities_vanish() -> None:
    assert names(A, A) == []


def test_epilogue_conversion() -> None:
    text = kernel_texts.matmul(512, 512, 512, out="f16")
    assert len(find(lowered(text, AssignLayoutsPass), tile.ConvertLayoutOp)) == 1
    module = lowered(text, LowerLayoutConversionsPass)
    assert not find(module, tile.ConvertLayoutOp)
    (load,) = find(module, tile.LocalLoadOp)
    (store,) = find(module, tile.StoreOp)
    assert store.value is load.result
