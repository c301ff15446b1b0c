"""Multiply-adds in Hopper's machine code read registers of both banks."""

import re

import pytest

import treadle
from treadle.bench.calibration import workload_of
from treadle.options import CompileOptions
from treadle.targets.nvidia.toolchain import disassemble_cubin

MULTIPLY_ADD = re.compile(r"\bFFMA R\d+, R(\d+)(?:\.reuse)?, R(\d+)(?:\.reuse)?, R(\d+)(?:\.reuse)? ?;")
FEW = 0.01
"""Of the multiply-adds, those whose operands may be of one bank: without the moves 3 to 48 % were."""


def banks(name: str, options: CompileOptions) -> tuple[int, int]:
    """How many multiply-adds the code has, and how many read three registers of one bank."""
    binaries = treadle.compile(workload_of(name).text, "sm_90a", options=options).binaries
    code = "".join(map(disassemble_cubin, binaries.values()))
    found = [{int(register) % 2 for register in registers} for registers in MULTIPLY_ADD.findall(code)]
    return len(found), sum(len(each) == 1 for each in found)


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("gemm-f32-nt-4096x4096x4096", ()),
        ("gemm-f32-tn-2048x2048x2048", (256, 128, 16)),
        ("gemm-f32-nn-777x1234x999", ()),
        ("gemm-f32-tt-5000x130x700", ()),
        ("gemm-f32-nn-123x456x51234", ()),
    ],
)
def test_multiply_adds_read_both_banks(name: str, tile: tuple[int, ...]) -> None:
    count, alike = banks(name, CompileOptions(tile=tile, tuned=False))
    assert count >= 256
    assert alike <= FEW * count


@pytest.mark.parametrize(("element", "moves"), [("f32", True), ("f64", False)])
def test_accumulators_of_one_register_are_moved(element: str, moves: bool) -> None:
    text = workload_of("gemm-f32-nn-96x64x80").text.replace("f32", element)
    assert ("%ctaid.z" in treadle.compile(text, "sm_90a").stages["asm"]) is moves
