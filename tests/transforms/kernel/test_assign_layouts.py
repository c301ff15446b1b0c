"""assign-layouts on text."""

import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find, lowered

from treadle.dialects import tile
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.layout.tile_layout import TileLayout, broadcast_registers
from treadle.machine import target_spec
from treadle.plan.contract_layouts import matrix_layouts
from treadle.transforms.kernel.assign_layouts import AssignLayoutsPass

SPECS = {"sm_90a": target_spec("sm_90a")}


def layout(value: SSAValue | Operation) -> TileLayout:
    found = tile.layout_of(value)
    assert found is not None
    return found


def check_consistent(module: Operation) -> None:
    """Every tile has a layout of its shape and threads; elementwise operations keep it; broadcasts and reductions project it."""
    for kernel in find(module, tile.KernelOp):
        warps = kernel.num_warps.value.data
        for op in kernel.body.walk():
            tiles = [v for v in (*op.operands, *op.results) if isinstance(v.type, builtin.TensorType)]
            for value in tiles:
                assert layout(value).shape == tuple(tile.tile_type(value).get_shape())
                assert layout(value).num_warps == warps
            match op:
                case tile.BroadcastOp():
                    assert broadcast_registers(layout(op.source), layout(op.result)) is not None
                case tile.ReduceOp():
                    for source, result in zip(op.inputs, op.results, strict=True):
                        assert layout(result) == layout(source).with_unit_dim(op.axis.value.data)
                case tile.ConvertLayoutOp():
                    assert layout(op.source) != layout(op.result)
                case tile.PermuteOp() | tile.ContractOp():
                    pass
                case _:
                    assert len({layout(v) for v in tiles}) <= 1, op.name


CASES = {
    "wgmma": kernel_texts.matmul(512, 512, 512),
    "wgmma bias f16": kernel_texts.matmul(512, 512, 512, bias=True, out="f16", b_transposed=True),
    "wgmma 192": kernel_texts.matmul(123, 457, 511, tile=(128, 192, 64), bias=True),
    "two groups": kernel_texts.matmul(512, 512, 512, tile=(128, 256, 64), warps=(8, 1)),
    "fma": kernel_texts.matmul(123, 456, 51234, element="f32", instruction="fma", tile=(64, 64, 32), warps=(2, 2), bias=True),
    "fma small": kernel_texts.matmul(3, 5, 7, element="f32", instruction="fma", tile=(4, 8, 8), warps=(1, 2)),
    "mfma": kernel_texts.matmul(
        99, 99, 99, target="gfx942", instruction="mfma_16x16x16_f32_f16", tile=(64, 64, 32), warps=(2, 2), bias=True, out="f16"
    ),
    "wmma": kernel_texts.matmul(99, 99, 99, target="gfx1100", instruction="wmma11_16x16x16_f32_f16", tile=(32, 64, 32), warps=(2, 2)),
    "softmax": kernel_texts.row_softmax(100, 1000, (4, 1024)),
    "softmax one row": kernel_texts.row_softmax(100, 999, (1, 1024)),
    "transpose": kernel_texts.transpose(1000, 999, (32, 64), element="f16"),
}


@pytest.mark.parametrize("name", CASES)
def test_layouts_are_consistent(name: str) -> None:
    check_consistent(lowered(CASES[name], AssignLayoutsPass))


def test_accumulators_have_the_instructions_layout() -> None:
    module = lowered(CASES["two groups"], AssignLayoutsPass)
    (contract,) = find(module, tile.ContractOp)
    row = SPECS["sm_90a"].instruction(contract.instruction.data)
    assert layout(contract.result) == matrix_layouts(row, 128, 256, 8, 1).accumulator


def test_epilogue_operands_are_loaded_in_the_projected_accumulator_layout() -> None:
    module = lowered(CASES["wgmma bias f16"], AssignLayoutsPass)
    (contract,), (bias,) = find(module, tile.ContractOp), find(module, tile.LoadOp)
    assert layout(bias.result) == layout(contract.result).with_unit_dim(0)


def test_narrow_results_are_converted_after_the_cast() -> None:
    (convert,) = find(lowered(CASES["wgmma bias f16"], AssignLayoutsPass), tile.ConvertLayoutOp)
    assert tile.tile_type(convert.source).element_type == builtin.f16
    assert isinstance(next(iter(convert.result.uses)).operation, tile.StoreOp)


def test_rows_stay_within_a_warp_where_there_are_enough_rows() -> None:
    (load,) = find(lowered(CASES["softmax"], AssignLayoutsPass), tile.LoadOp)
    assert layout(load.result).warp_bits_along(1) == ()
    assert layout(load.result).contiguous(1) == 4
    (load,) = find(lowered(CASES["softmax one row"], AssignLayoutsPass), tile.LoadOp)
    assert layout(load.result).warp_bits_along(1) == (0, 1)


def test_transposes_are_coalesced_on_both_sides() -> None:
    from treadle.analysis.layout_classes import access_of
    from treadle.plan.layout_choice import global_cost

    module = lowered(CASES["transpose"], AssignLayoutsPass)
    (load,), (store,) = find(module, tile.LoadOp), find(module, tile.StoreOp)
    for op, value in ((load, load.result), (store, store.value)):
        access = access_of(op)
        sectors = 32 * 64 * 2 // 32 // 4
        assert global_cost(layout(value), access) <= 3 * sectors


def test_a_shared_constant_does_not_tie_layouts_together() -> None:
    text = kernel_texts.transpose(64, 64, (64, 64)).replace(
        "  %two = arith.addf %t, %t : tensor<64x64xf32>",
        "  %one = arith.constant dense<1.000000e+00> : tensor<64x64xf32>\n"
        "  %half = arith.mulf %t, %one : tensor<64x64xf32>\n"
        "  %two = arith.addf %half, %one : tensor<64x64xf32>",
    )
    check_consistent(lowered(text, AssignLayoutsPass))


def test_kernels_with_layouts_are_left_alone() -> None:
    module = lowered(CASES["softmax"], AssignLayoutsPass)
    before = str(module)
    for kernel in find(module, tile.KernelOp):
        AssignLayoutsPass().run(kernel, SPECS["sm_90a"])
    assert str(module) == before
