"""What registers hold in each lane: address arithmetic of a listing, followed from its start on known thread ids.

Vector registers that anything else has written (loads, conversions, compares) are unknown. Scalars that are unknown (arguments, workgroup
ids) count as 0: addresses of one access that differ by the same amount in all lanes meet in the same banks.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import field

from treadle.layout.access import wavefronts
from treadle.machine import SharedBanks
from treadle.records import dataclass
from treadle.targets.amd.assembly import Instruction, Listing
from treadle.targets.amd.counters import access_bytes, kind_of
from treadle.targets.amd.flow import blocks

Lanes = tuple[int, ...]
_WORD = (1 << 32) - 1
_REGISTER = re.compile(r"^([asv])(?:(\d+)|\[(\d+):(\d+)\])$")
_NUMBER = re.compile(r"^-?(0x[0-9a-f]+|\d+)$")
_OFFSET = re.compile(r"\boffset([01]?):(\d+)")
_NO_RESULT = re.compile(r"s_(wait|cbranch|branch|cmp|barrier|nop|endpgm|setprio|sched)|(global|buffer|flat|scratch|ds)_(store|write)")
_HALF = 32
"""Lanes that one of the two instructions counts that number the lanes of a wave."""


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


_UNARY: dict[str, Callable[[int], int]] = {
    "mov_b32": lambda a: a,
    "accvgpr_write_b32": lambda a: a,
    "accvgpr_read_b32": lambda a: a,
    "readfirstlane_b32": lambda a: a,
    "movk_i32": lambda a: a,
    "not_b32": lambda a: ~a,
}
_BINARY: dict[str, Callable[[int, int], int]] = {
    "lshlrev_b32": lambda n, a: a << (n & 31),
    "lshrrev_b32": lambda n, a: a >> (n & 31),
    "ashrrev_i32": lambda n, a: _signed(a) >> (n & 31),
    "lshl_b32": lambda a, n: a << (n & 31),
    "lshr_b32": lambda a, n: a >> (n & 31),
    "and_b32": lambda a, b: a & b,
    "or_b32": lambda a, b: a | b,
    "xor_b32": lambda a, b: a ^ b,
    "add_u32": lambda a, b: a + b,
    "add_i32": lambda a, b: a + b,
    "add_nc_u32": lambda a, b: a + b,
    "sub_u32": lambda a, b: a - b,
    "sub_i32": lambda a, b: a - b,
    "sub_nc_u32": lambda a, b: a - b,
    "subrev_u32": lambda a, b: b - a,
    "subrev_nc_u32": lambda a, b: b - a,
    "mul_i32": lambda a, b: a * b,
    "mul_lo_u32": lambda a, b: a * b,
    "mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "mul_i32_i24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
}
_TERNARY: dict[str, Callable[[int, int, int], int]] = {
    "mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "lshl_or_b32": lambda a, n, c: a << (n & 31) | c,
    "lshl_add_u32": lambda a, n, c: (a << (n & 31)) + c,
    "add_lshl_u32": lambda a, b, n: (a + b & _WORD) << (n & 31),
    "and_or_b32": lambda a, b, c: a & b | c,
    "or3_b32": lambda a, b, c: a | b | c,
    "xor3_b32": lambda a, b, c: a ^ b ^ c,
    "xad_u32": lambda a, b, c: (a ^ b) + c,
    "add3_u32": lambda a, b, c: a + b + c,
    "bfe_u32": lambda a, n, width: a >> (n & 31) & (1 << (width & 31)) - 1,
}


def _bit_operation(table: int, a: int, b: int, c: int) -> int:
    """Each bit of the result is the bit of `table` that the words' bits at its place number, that of `a` the highest."""
    rows = [row for row in range(8) if table >> row & 1]
    found = 0
    for row in rows:
        found |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return found


@dataclass(slots=True)
class LaneValues:
    """The registers of one wave of `lanes` lanes, the first of its workgroup."""

    lanes: int
    _vectors: dict[str, Lanes] = field(default_factory=dict[str, Lanes])
    _scalars: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self._vectors["v0"] = tuple(range(self.lanes))

    def step(self, one: Instruction) -> None:
        """Execute an instruction as far as it is address arithmetic."""
        for part in f"{one.mnemonic} {one.operands}".split("::"):
            mnemonic, _, operands = part.strip().partition(" ")
            self._one(mnemonic, [text.strip() for text in re.split(r",(?![^\[]*\])", operands)])

    def _one(self, mnemonic: str, operands: Sequence[str]) -> None:
        name = re.sub(r"^(v_dual_|v_|s_)|_e(32|64)$", "", mnemonic)
        if not operands or _NO_RESULT.match(mnemonic):
            return
        target, sources = operands[0], list(operands[1:])
        table = 0
        if name == "bitop3_b32" and (found := re.search(r"bitop3:(\S+)", sources[-1])):
            table, sources[-1] = int(found.group(1), 0), sources[-1].split()[0]
        values = [self.value(text) for text in sources]
        known = [value for value in values if value is not None]
        result = self._result(name, table, known) if len(known) == len(values) else None
        self._write(target, result)

    def _result(self, name: str, table: int, values: Sequence[Lanes]) -> Lanes | None:
        """What an instruction computes of known values; None where it is none of address arithmetic."""
        match values:
            case [a] if operation := _UNARY.get(name):
                found = (operation(x) for x in a)
            case [_, before] if name.startswith("mbcnt_"):
                found = (self._counted(name, lane) + start for lane, start in enumerate(before))
            case [a, b] if operation := _BINARY.get(name):
                found = (operation(x, y) for x, y in zip(a, b, strict=True))
            case [a, b, c] if name == "bitop3_b32":
                found = (_bit_operation(table, x, y, z) for x, y, z in zip(a, b, c, strict=True))
            case [a, b, c] if operation := _TERNARY.get(name):
                found = (operation(x, y, z) for x, y, z in zip(a, b, c, strict=True))
            case _:
                return None
        return tuple(value & _WORD for value in found)

    @staticmethod
    def _counted(name: str, lane: int) -> int:
        return min(lane, _HALF) if "_lo_" in name else max(lane - _HALF, 0)

    def value(self, text: str) -> Lanes | None:
        """What an operand is in each lane, None where that is not known."""
        if _NUMBER.match(text):
            return (int(text, 0) & _WORD,) * self.lanes
        register = _REGISTER.match(text)
        if register is None:
            return None
        if register.group(1) == "s":
            return (self._scalars.get(text, 0),) * self.lanes
        return self._vectors.get(text)

    def _write(self, text: str, value: Lanes | None) -> None:
        register = _REGISTER.match(text)
        if register is None:
            return
        kind, single, first, last = (register.group(number) for number in range(1, 5))
        if single is None:
            for number in range(int(first), int(last) + 1):
                self._vectors.pop(f"{kind}{number}", None)
                self._scalars.pop(f"{kind}{number}", None)
        elif kind == "s":
            self._scalars[text] = 0 if value is None else value[0]
        elif value is None:
            self._vectors.pop(text, None)
        else:
            self._vectors[text] = value


def _path_to(listing: Listing, goal: int) -> list[int]:
    """Instructions from the start to the block of instruction `goal`, by as few blocks as can be."""
    found = blocks(listing)
    number = next(n for n, block in enumerate(found) if block.first <= goal <= block.last)
    before: dict[int, int] = {0: 0}
    todo = [0]
    while todo and number not in before:
        at = todo.pop(0)
        for successor in found[at].successors:
            if successor not in before:
                before[successor] = at
                todo.append(successor)
    path: list[int] = []
    at = number
    while at != before.get(at, at):
        at = before[at]
        path[:0] = range(found[at].first, found[at].last + 1)
    return path


def _starts(one: Instruction, values: LaneValues) -> list[tuple[int, Lanes]]:
    """The accesses of an instruction of shared memory: bytes of each, and where each lane's begins. Empty where that is not known."""
    operands = [text.strip() for text in re.split(r",(?![^\[]*\])", one.operands)]
    place = operands[0 if kind_of(one) == "local_store" else 1].split()[0]
    address = values.value(place)
    if address is None:
        return []
    size, offsets = access_bytes(one), {name: int(number) for name, number in _OFFSET.findall(one.operands)}
    if not re.search(r"(read|write)2|2addr", one.mnemonic):
        return [(size, tuple(start + offsets.get("", 0) for start in address))]
    unit = size // 2 * (64 if "st64" in one.mnemonic or "stride64" in one.mnemonic else 1)
    return [(size // 2, tuple(start + unit * offsets.get(name, 0) for start in address)) for name in "01"]


@dataclass(frozen=True, slots=True)
class BankUse:
    """Of one access: `wavefronts` it takes, `extra` of them for bank conflicts."""

    wavefronts: int
    extra: int


def bank_uses(listing: Listing, loop: frozenset[int], banks: SharedBanks, lanes: int) -> dict[int, BankUse | None]:
    """By instruction, how the accesses to shared memory of a loop use its banks, in the first wave; None where addresses are not known."""
    values = LaneValues(lanes)
    for at in _path_to(listing, min(loop)):
        values.step(listing.instructions[at])
    found: dict[int, BankUse | None] = {}
    for at in sorted(loop):
        one = listing.instructions[at]
        if kind_of(one) in ("local_load", "local_store"):
            found[at] = _bank_use(_starts(one, values), banks)
        values.step(one)
    return found


def _bank_use(accesses: Sequence[tuple[int, Lanes]], banks: SharedBanks) -> BankUse | None:
    if not accesses:
        return None
    total = extra = 0
    for size, starts in accesses:
        together = max(1, banks.count * banks.bytes // max(size, banks.bytes))
        taken = [wavefronts(starts[first : first + together], size, banks.count, banks.bytes) for first in range(0, len(starts), together)]
        total += sum(taken)
        extra += sum(taken) - len(taken)
    return BankUse(total, extra)
