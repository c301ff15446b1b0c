"""set-instruction: contractions that name no instruction get one of the machine that fits; named ones must be there, and fit."""

import pytest
from generators.tile_kernel_texts import matmul

from treadle.dialects import tile
from treadle.errors import TreadleError
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.transforms.kernel.set_instruction import SetInstructionPass


def chosen(text: str) -> str:
    module = parse_module(text, "user.mlir")
    run_passes(module, [SetInstructionPass()])
    (op,) = (op for op in module.walk() if isinstance(op, tile.ContractOp))
    return op.instruction.data


@pytest.mark.parametrize(
    ("target", "element", "tiles", "expected"),
    [
        ("sm_90a", "f16", (64, 64, 64), "wgmma_m64k16_f32_f16_f16"),
        ("sm_90a", "bf16", (128, 8, 16), "wgmma_m64k16_f32_bf16_bf16"),
        ("gfx942", "f16", (64, 16, 16), "mfma_16x16x16_f32_f16"),
        ("gfx1100", "f16", (64, 48, 32), "wmma11_16x16x16_f32_f16"),
        ("gfx1201", "bf16", (128, 16, 16), "wmma12_16x16x16_f32_bf16"),
        ("sm_90a", "f16", (32, 64, 64), "fma"),
        ("sm_90a", "f16", (64, 4, 64), "fma"),
        ("sm_90a", "f16", (64, 64, 8), "fma"),
        ("gfx942", "f16", (32, 16, 16), "fma"),
        ("sm_90a", "f32", (64, 64, 64), "fma"),
    ],
)
def test_the_first_that_fits(target: str, element: str, tiles: tuple[int, int, int], expected: str) -> None:
    assert chosen(matmul(200, 200, 200, element=element, tile=tiles, target=target, instruction="")) == expected


def test_every_choice_fits_by_its_types_and_extents() -> None:
    """Whatever the extents, what is chosen is the machine's, and its extents divide the tile's."""
    for target in ("sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201"):
        for m in (16, 48, 64, 192):
            for n, k in ((8, 16), (24, 32), (64, 64), (20, 12)):
                name = chosen(matmul(300, 300, 300, tile=(m, n, k), target=target, instruction=""))
                if name != "fma":
                    row = target_spec(target).instruction(name)
                    assert (row.a_type, row.b_type, row.accumulator_type) == ("f16", "f16", "f32")
                    assert m % (row.m * (4 // row.warps)) == n % (row.n_step or row.n) == k % row.k == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (matmul(64, 64, 64, instruction="mfma_16x16x16_f32_f16"), "sm_90a has no instruction"),
        (matmul(64, 64, 64, instruction="wgmma_m64k16_f32_bf16_bf16"), "it multiplies bf16 and bf16 into f32"),
        (matmul(64, 64, 64, tile=(32, 64, 64)), "32 rows are no multiple of 64"),
        (matmul(64, 64, 64, tile=(64, 12, 64)), "12 columns are no multiple of 8"),
        (matmul(64, 64, 64, tile=(64, 64, 24)), "24 steps of k are no multiple of 16"),
    ],
)
def test_a_named_one_that_does_not_do(text: str, words: str) -> None:
    with pytest.raises(TreadleError, match=words) as caught:
        chosen(text)
    assert caught.value.code == "TR416"
    assert caught.value.location is not None and caught.value.location.line > 1


def test_leaves_named_ones_alone() -> None:
    for text in (matmul(64, 64, 64), matmul(64, 64, 64, instruction="fma")):
        module = parse_module(text, "user.mlir")
        run_passes(module, [SetInstructionPass()])
        assert print_module(module) == print_module(parse_module(text, "user.mlir"))
