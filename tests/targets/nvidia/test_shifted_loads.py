"""Copies of rows that begin anywhere in Hopper's machine code: accesses of 16 bytes, all loads first, few instructions."""

import pytest
from transforms.kernel.test_set_access_widths import doubled

import treadle
from treadle.bench.named_shapes import named_workload
from treadle.options import CompileOptions
from treadle.targets.nvidia.sass import Instruction, parse
from treadle.targets.nvidia.toolchain import disassemble_cubin

MOST = 60
"""Instructions for 16 bytes, the ends of rows aside: about as many as where elements are loaded and stored one by one, by 16 accesses."""


def first_kernel(text: str) -> tuple[list[Instruction], int, str]:
    """The machine code of the first kernel of a program, a thread's registers, and the assembly of all kernels."""
    program = treadle.compile(text, target="sm_90a", options=CompileOptions(tuned=False))
    name = min(program.binaries)
    facts = next(kernel.facts for kernel in program.manifest.kernels if kernel.binary == name)
    return parse(disassemble_cubin(program.binaries[name])), int(facts["registers"]), program.stages["asm"]


def workload(name: str) -> str:
    found = named_workload(name)
    assert found is not None
    return found.text


@pytest.mark.parametrize(
    ("name", "groups", "narrow"),
    [
        ("gemm-bf16-nt-1000x1000x4099", 4, "U16"),  # both operands in one kernel
        ("gemm-f16-nt-1000x777x4099", 2, "U16"),
        ("gemm-f8E4M3FN-nt-1000x777x4099", 1, "U8"),
    ],
)
def test_copies_with_longer_rows_move_16_bytes_at_once(name: str, groups: int, narrow: str) -> None:
    code, registers, _ = first_kernel(workload(name))
    loads = [at for at, one in enumerate(code) if one.mnemonic == "LDG"]
    stores = [one for one in code if one.mnemonic == "STG"]
    assert len(loads) == 2 * groups and all(".128" in code[at].suffix for at in loads)
    assert sum(".128" in one.suffix for one in stores) == groups
    ends = [one for one in stores if ".128" not in one.suffix]
    assert all(narrow in one.suffix for one in ends) and len(ends) == groups * (8 if narrow == "U16" else 16)
    assert not any(one.mnemonic in ("SEL", "STG") for one in code[: loads[-1]]), "every load is in flight before anything waits"
    assert registers <= 64
    issued = len([one for one in code if one.mnemonic != "NOP"]) - 3 * len(ends)
    assert issued <= MOST * max(groups, 2)


@pytest.mark.parametrize(("element", "words"), [("i8", 4), ("f16", 4), ("bf16", 4)])
def test_pieces_are_aligned_and_of_whole_words(element: str, words: int) -> None:
    """The address is rounded down, and the one behind it is asked for under a predicate of its own."""
    code, _, asm = first_kernel(doubled(37, 128, 131, 1, element))
    assert asm.count(f"ld.global.nc.v{words}.b32") == 2 * sum(one.mnemonic == "STG" for one in code)
    assert "-16" in asm
    assert not any("U16" in one.suffix or "U8" in one.suffix for one in code)
