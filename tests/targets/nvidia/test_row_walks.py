"""Long rows of odd pitch in Hopper's machine code: accesses of 16 bytes, all of a turn's loads first, few instructions an element."""

import pytest
from transforms.row_texts import rows_text

import treadle
from treadle.options import CompileOptions
from treadle.targets.nvidia.sass import Instruction, parse
from treadle.targets.nvidia.toolchain import disassemble_cubin

MOST = {"pass over the row": 9.0, "pass that stores": 13.0}
"""Instructions for each element: 36 and 19 where elements were loaded, masked and rescaled one by one."""


def turns(text: str) -> list[list[Instruction]]:
    """The loops over whole tiles of the one kernel: those that load 64 bytes a thread."""
    (binary,) = treadle.compile(text, target="sm_90a", options=CompileOptions(tuned=False)).binaries.values()
    code = parse(disassemble_cubin(binary))
    loops = [code[one.target : at + 1] for at, one in enumerate(code) if one.target is not None and one.target <= at]
    return [loop for loop in loops if sum(one.mnemonic == "LDG" for one in loop) == 4]


@pytest.mark.parametrize(("element", "sizes"), [("f16", (437, 300153)), ("bf16", (611, 111789)), ("f16", (-1, -1))])
def test_a_turn_is_four_wide_loads_and_little_else(element: str, sizes: tuple[int, int]) -> None:
    found = turns(rows_text("softmax", sizes, element))
    assert len(found) == 2
    for loop, most in zip(found, MOST.values(), strict=True):
        loads = [at for at, one in enumerate(loop) if one.mnemonic == "LDG"]
        others = [at for at, one in enumerate(loop) if one.mnemonic in ("HADD2", "FADD", "MUFU", "STG")]
        assert all(".128" in loop[at].suffix and not loop[at].is_predicated for at in loads)
        assert sum(at < max(loads) for at in others) <= 2, "every load is in flight before anything waits"
        assert all(".128" in one.suffix for one in loop if one.mnemonic == "STG")
        assert len(loop) / 32 <= most
