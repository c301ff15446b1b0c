"""The mended emulator executes single instructions as AMD's manuals state them."""

import ctypes

import numpy as np
import pytest
from targets.amd import emulator

pytestmark = pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")

V_CVT_F16_F32, V_CVT_F32_F16 = 10, 11
EXEC = 126


def executed(architecture: str, word: int, registers: dict[int, float]) -> np.ndarray:
    """All vector registers as words [256, lanes] behind one instruction, before which these held the number in every lane and others 0."""
    module = emulator.load()
    lanes = 64 if architecture == "cdna" else 32
    vectors = np.zeros((256, lanes), np.uint32)
    for register, number in registers.items():
        vectors[register] = np.float32(number).view(np.uint32)
    scalars = np.zeros(module.SGPR_COUNT, np.uint32)
    scalars[EXEC : EXEC + 2] = 0xFFFFFFFF
    code = np.array([word, *[emulator.S_NOP] * 7], np.uint32)
    at = [int(code.ctypes.data) & 0xFFFFFFFF, int(code.ctypes.data) >> 32]
    scalars[[module.PC_LO_IDX, module.PC_HI_IDX]] = at
    (program, runtime), _ = module._decode_at(code.ctypes.data, architecture)
    buffers = [scalars.ctypes.data, vectors.ctypes.data, 0, 0, 0, vectors.ctypes.data]
    runtime.fxn(*(ctypes.c_uint64(buffers[number]) for number in program.arg.globals))
    return vectors


def vop1(operation: int, into: int, source: int) -> int:
    """An instruction of one operand, a vector register."""
    return 0x7E000000 | into << 17 | operation << 9 | 256 + source


def test_halves_in_high_registers_of_cdna() -> None:
    """A register from 128 on is no upper half of one of the first 128, where the emulator once put the result, destroying another value."""
    found = executed("cdna", vop1(V_CVT_F16_F32, 134, 150), {150: 1.5, 6: 3.0, 22: 7.0})
    assert (found[134] == np.float16(1.5).view(np.uint16)).all()
    assert (found[6].view(np.float32) == 3).all()
    wide = executed("cdna", vop1(V_CVT_F32_F16, 3, 150), {150: float(np.uint32(0x3E00).view(np.float32)), 22: 7.0})
    assert (wide[3].view(np.float32) == 1.5).all()


def test_upper_halves_of_rdna() -> None:
    """On RDNA3 they are: the lower half of register 6 stays."""
    found = executed("rdna3", vop1(V_CVT_F16_F32, 134, 6), {6: 1.5})
    assert (found[134] == 0).all()
    assert (found[6] >> 16 == np.float16(1.5).view(np.uint16)).all()
