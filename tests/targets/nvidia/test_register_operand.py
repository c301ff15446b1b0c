"""A of warpgroup instructions from registers: the words of each instruction hold what PTX prescribes, for tiles of any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import InternalError
from treadle.machine import MatrixInstruction, target_spec
from treadle.plan.contract_layouts import matrix_layouts
from treadle.targets.nvidia.register_operand import WORDS, operand_registers

ROWS = [row for row in target_spec("sm_90a").matrix_instructions if row.may_read(0, "registers")]


def prescribed(row: MatrixInstruction, lane: int, warp: int, word: int, part: int) -> tuple[int, int]:
    """Row and column of an element of A in its instruction (PTX ISA, register fragments of wgmma's matrix A)."""
    packed = row.k // 8  # elements of a word: k is 32 bytes
    return 16 * (warp % 4) + lane // 4 + 8 * (word % 2), packed * (lane % 4) + part + 4 * packed * (word // 2)


@given(st.sampled_from(ROWS), st.integers(1, 3), st.integers(1, 9), st.sampled_from((1, 2, 4)), st.integers(0, 31), st.integers(0, 15))
def test_words_hold_what_the_instruction_reads(row: MatrixInstruction, rows: int, steps: int, groups: int, lane: int, warp: int) -> None:
    warp %= 4 * groups
    m, k = 64 * groups * rows, row.k * steps
    layout = matrix_layouts(row, m, row.n_step, 4 * groups, 1, k).a
    assert layout is not None and row.layouts.a is not None
    origins = [64 * groups * at for at in range(rows)]
    found = operand_registers(layout, row.layouts.a(), row.k, origins)
    assert list(found) == [(at, step) for at in origins for step in range(0, k, row.k)]
    for (at, step), registers in found.items():
        each = len(registers) // WORDS
        for number, register in enumerate(registers):
            across, along = prescribed(row, lane, warp, *divmod(number, each))
            assert layout.coordinates(register, lane, warp) == (at + 64 * (warp // 4) + across, step + along)


def test_another_layout_is_refused() -> None:
    row = target_spec("sm_90a").instruction("wgmma_m64k16_f32_f16_f16")
    layout = matrix_layouts(row, 64, 64, 4, 1, 64).a
    assert layout is not None and row.layouts.a is not None
    with pytest.raises(InternalError, match="A of a warpgroup"):
        operand_registers(layout.permute((1, 0)), row.layouts.a(), row.k, [0])
