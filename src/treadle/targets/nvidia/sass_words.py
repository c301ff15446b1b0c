"""Reading sm_90 machine code where it lies: what the audit asks about each instruction, from its 128 bits.

nvdisasm takes half a second to start; this takes milliseconds. It knows the operation codes in `_CODES` and `_ARITHMETIC` (found by
comparing cubins with nvdisasm's text, as the tests do again) and answers None for a kernel with any other, which is then disassembled. The
registers of an instruction are a superset of those it touches: whoever is to act on a finding must look at the disassembly.

An instruction is two little-endian words: operation code in bits 0-11, guard in 12-15, register operands in the bytes at 16, 24, 32 and 64,
scheduling from 105. Of arithmetic, bits 0-8 of the code name the operation, and 9-11 the form: what the operand at 32 is.
"""

import struct
from typing import Final

from treadle.targets.nvidia.sass import MATRIX

_CODES: Final = {
    "ACQBULK": (0x82E,),
    "ATOMG": (0x9A8,),
    "BAR": (0x51D, 0xB1D),
    "BRA": (0x947,),
    "BREAK": (0x942,),
    "BSSY": (0x945,),
    "BSYNC": (0x941,),
    "CALL": (0x944,),
    "CCTL": (0x98F,),
    "CGAERRBAR": (0x5AB,),
    "CS2R": (0x805,),
    "DEPBAR": (0x91A,),
    "ELECT": (0x82F,),
    "ENDCOLLECTIVE": (0x91B,),
    "ERRBAR": (0x9AB,),
    "EXIT": (0x94D,),
    "FENCE": (0x3C6,),
    "HGMMA": (0x9F0, 0xDF0),
    "LD": (0x980,),
    "LDC": (0xB82,),
    "LDG": (0x981,),
    "LDGDEPBAR": (0x9AF,),
    "LDGSTS": (0xFAE,),
    "LDL": (0x983,),
    "LDS": (0x984,),
    "LDSM": (0x83B,),
    "MEMBAR": (0x992,),
    "NOP": (0x918,),
    "PLOP3": (0x81C,),
    "PREEXIT": (0x82D,),
    "QGMMA": (0x9F3,),
    "R2UR": (0x2CA,),
    "RET": (0x950,),
    "S2R": (0x919,),
    "S2UR": (0x9C3,),
    "SHFL": (0x589, 0xF89),
    "STG": (0x986,),
    "STL": (0x387,),
    "STS": (0x388, 0x988),
    "STSM": (0x844,),
    "SYNCS": (0x5A7, 0x5B2, 0x9A7),
    "UCGABAR_ARV": (0x9C7,),
    "UCGABAR_WAIT": (0xDC7,),
    "UIADD3": (0x290, 0x297, 0x890),
    "UIMAD": (0x2A4, 0x2A5, 0x4A4, 0x8A4, 0x8A5),
    "UISETP": (0x28C, 0x88C),
    "ULDC": (0xAB9,),
    "ULEA": (0x291, 0x891),
    "ULOP3": (0x292, 0x892),
    "UMOV": (0x882, 0xC82),
    "UPRMT": (0x896,),
    "USEL": (0x287, 0x887),
    "USETMAXREG": (0x9C8,),
    "USGXT": (0x89A,),
    "USHF": (0x299, 0x499, 0x899),
    "UTMACCTL": (0x9B9,),
    "UTMACMDFLUSH": (0x9B7,),
    "UTMALDG": (0x3B4, 0x5B4),
    "UTMASTG": (0x3B5,),
    "VOTEU": (0x886,),
    "WARPGROUP": (0x9C5,),
    "WARPSYNC": (0x348, 0x948),
    "YIELD": (0x946,),
}
_ARITHMETIC: Final = {
    "DADD": (0x029,),
    "DFMA": (0x02B,),
    "DMUL": (0x028,),
    "DSETP": (0x02A,),
    "F2F": (0x104, 0x110),
    "F2FP": (0x03E,),
    "F2I": (0x105, 0x111),
    "FADD": (0x021,),
    "FCHK": (0x102,),
    "FFMA": (0x023,),
    "FMNMX": (0x009,),
    "FMUL": (0x020,),
    "FSEL": (0x008,),
    "FSETP": (0x00B,),
    "HADD2": (0x030,),
    "HFMA2": (0x031, 0x035),
    "HMUL2": (0x032,),
    "I2F": (0x106, 0x112),
    "I2FP": (0x045,),
    "IADD3": (0x010,),
    "IMAD": (0x024, 0x025, 0x027),
    "ISETP": (0x00C,),
    "LEA": (0x011,),
    "LOP3": (0x012,),
    "MOV": (0x002,),
    "MUFU": (0x108,),
    "P2R": (0x003,),
    "PRMT": (0x016,),
    "SEL": (0x007,),
    "SGXT": (0x01A,),
    "SHF": (0x019,),
    "VHMNMX": (0x047,),
    "VIADD": (0x036,),
    "VIADDMNMX": (0x046,),
    "VIMNMX": (0x048,),
    "VIMNMX3": (0x00F,),
}
"""Bits 0-8 of the codes. Each operation has the same name and places of its registers in all forms: where bits 9-11 are 1, the byte at 32
names a register; else it belongs to a constant, or names a uniform register, and what it would name is at 64."""
_FORMS: Final = range(1, 8)
_MNEMONICS: Final = {code: mnemonic for mnemonic, codes in _CODES.items() for code in codes} | {
    form << 9 | operation: mnemonic for mnemonic, operations in _ARITHMETIC.items() for operation in operations for form in _FORMS
}
_NO_VECTOR_REGISTERS: Final = frozenset(
    (
        "ACQBULK",
        "BAR",
        "BRA",
        "BREAK",
        "BSSY",
        "BSYNC",
        "CALL",
        "CGAERRBAR",
        "DEPBAR",
        "ELECT",
        "ENDCOLLECTIVE",
        "ERRBAR",
        "EXIT",
        "FENCE",
        "LDGDEPBAR",
        "MEMBAR",
        "NOP",
        "PLOP3",
        "PREEXIT",
        "S2UR",
        "USETMAXREG",
        "VOTEU",
        "WARPGROUP",
        "WARPSYNC",
        "YIELD",
        "UCGABAR_ARV",
        "UCGABAR_WAIT",
        "UIADD3",
        "UIMAD",
        "UISETP",
        "ULDC",
        "ULEA",
        "ULOP3",
        "UMOV",
        "UPRMT",
        "USEL",
        "USGXT",
        "USHF",
        "UTMACCTL",
        "UTMACMDFLUSH",
        "UTMALDG",
        "UTMASTG",
    )
)
_FOUR_REGISTERS: Final = frozenset(("CCTL", "LDC", "SYNCS"))
_MEMORY: Final = {
    "ATOMG": ((16, 2), (24, 2), (32, 2), (64, 2)),
    "LD": ((16, 0), (24, 2)),
    "LDG": ((16, 0), (24, 2)),
    "LDGSTS": ((16, 1), (24, 2)),
    "LDL": ((16, 0), (24, 1)),
    "LDS": ((16, 0), (24, 1)),
    "LDSM": ((16, 4), (24, 1)),
    "STG": ((24, 2), (32, 0)),
    "STL": ((24, 1), (32, 0)),
    "STS": ((24, 1), (32, 0)),
    "STSM": ((24, 1), (32, 4)),
}
"""Where accesses name registers, and how many at most, 0 for data as long as the instruction says. The other bytes hold offsets."""
_SHARED_BARRIERS: Final = {0x5A7: ((24, 1), (32, 1)), 0x9A7: ((16, 2), (24, 1), (32, 1))}
"""The same for the SYNCS that test and arrive, whose base address is uniform."""
_TWO_REGISTERS: Final = frozenset((0x005, 0x025, 0x027, 0x028, 0x029, 0x02A, 0x02B, 0x105, 0x106, 0x108, 0x110, 0x111, 0x112))
"""Bits 0-8 of the codes with operands of 64 bits, or with either size."""
_COMPARISONS: Final = frozenset(("DSETP", "FSETP", "ISETP"))
_OPERATION: Final = 0x1FF
_ONE_OPERAND: Final = {0x51D: 32, 0x348: 24}
"""Where a barrier has its number in a register, and a meeting of a warp's threads names them in one."""
_ZERO_REGISTER: Final = 0xFF
_BELOW_SCHEDULING: Final = (1 << 41) - 1
_CTA_MEMBAR: Final = 0x8000
_ALWAYS: Final = 7


class Unknown(Exception):
    """An encoding that is not known here."""


class Word:
    """One instruction, with the questions of `sass.Instruction`. `target`: index of the instruction a branch goes to."""

    __slots__ = ("high", "is_predicated", "line", "low", "mnemonic", "target")

    def __init__(self, index: int, low: int, high: int) -> None:
        mnemonic = _MNEMONICS.get(low & 0xFFF)
        if mnemonic is None:
            raise Unknown(f"operation code {low & 0xFFF:#x}")
        self.low, self.high, self.mnemonic, self.line = low, high & _BELOW_SCHEDULING, mnemonic, 0
        self.is_predicated = low >> 12 & 15 != _ALWAYS
        self.target: int | None = None
        if mnemonic == "BRA":
            # Forms with a predicate operand or a vote differ from the plain one above the 48 bits of the distance.
            self.is_predicated = self.is_predicated or self.high >> 18 != 0x3800000 >> 18
            distance = (low >> 34 | (high & 0x3FFFF) << 30) << 8 | low >> 16 & 0xFF
            self.target = index + 1 + (distance - (1 << 56) * (distance >> 55)) // 4

    @property
    def is_matrix(self) -> bool:
        """Whether it is a warpgroup matrix instruction."""
        return self.mnemonic in MATRIX

    @property
    def closes_group(self) -> bool:
        """Whether a commit stands behind this matrix instruction."""
        if self.mnemonic not in MATRIX:
            return False
        number = self.high >> 20 & 7
        if number not in (0, _ALWAYS):
            raise Unknown(f"scoreboard {number} of a matrix instruction")
        return number == 0

    @property
    def pending(self) -> int | None:
        """The groups that a wait for matrix instructions leaves pending; None for other instructions."""
        if self.mnemonic != "WARPGROUP" or self.high == 0:
            return None
        if self.high & ~0xFF00 != 0x10000 or self.low != 0x8000_0000_79C5:
            raise Unknown("a wait for matrix instructions in another form")
        return self.high >> 8 & 0xFF

    @property
    def suffix(self) -> str:
        """`.CTA` for a fence within the workgroup; nothing else is read."""
        return ".CTA" if self.mnemonic == "MEMBAR" and self.high == _CTA_MEMBAR else ""

    @property
    def operands(self) -> str:
        """What there is to say of them."""
        return f" of {self.high:#x}_{self.low:016x}"

    def accumulator(self) -> range:
        """The registers that a matrix instruction writes: half as many as it has columns (accumulators are 32 bits wide)."""
        start = self.low >> 16 & 0xFF
        return range(start, start + 4 * ((self.low >> 53 & 31) + 1))

    def _data_registers(self) -> int:
        """How many registers the data of a load or store take: sizes are 8 bits (0, 1), 16 (2, 3), 32, 64, 128."""
        return {5: 2, 6: 4, 7: 4}.get(self.high >> 9 & 7, 1)

    def registers(self) -> set[int]:
        """The vector registers it may touch."""
        low, code = self.low, self.low & 0xFFF
        if (at := _ONE_OPERAND.get(code)) is not None:
            return {low >> at & 0xFF}
        if self.mnemonic in _NO_VECTOR_REGISTERS:
            return set()
        if (named := _SHARED_BARRIERS.get(code) or _MEMORY.get(self.mnemonic)) is not None:
            both, data = low | self.high << 64, self._data_registers()
            return {start + i for at, width in named if (start := both >> at & 0xFF) != _ZERO_REGISTER for i in range(width or data)}
        # A comparison names predicates where others name a result and an addend.
        starts = [low >> 24 & 0xFF, *(() if self.mnemonic in _COMPARISONS else (low >> 16 & 0xFF, self.high & 0xFF))]
        if self.mnemonic not in _ARITHMETIC or code >> 9 == 1:
            starts.append(low >> 32 & 0xFF)
        width = 4 if self.mnemonic in _FOUR_REGISTERS else 2 if code & _OPERATION in _TWO_REGISTERS else 1
        return {start + i for start in starts if start != _ZERO_REGISTER for i in range(width)}


def decode(cubin: bytes, symbol: str) -> list[Word] | None:
    """The instructions of a kernel, in order; None where not all of them are known here."""
    code = _section(cubin, f".text.{symbol}".encode())
    if code is None or len(code) % 16:
        return None
    try:
        words = [Word(index, low, high) for index, (low, high) in enumerate(struct.iter_unpack("<QQ", code))]
        for word in words:  # whether what is asked later can be answered
            _ = word.closes_group, word.pending
    except Unknown:
        return None
    return words if all(word.target is None or 0 <= word.target < len(words) for word in words) else None


def _section(elf: bytes, name: bytes) -> bytes | None:
    """The contents of the section of an ELF file, 64 bits, little-endian."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    rows = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    strings = elf[rows[names][4] : rows[names][4] + rows[names][5]]
    return next((elf[row[4] : row[4] + row[5]] for row in rows if _text(strings, row[0]) == name), None)


def _text(strings: bytes, start: int) -> bytes:
    return strings[start : strings.index(b"\0", start)]
