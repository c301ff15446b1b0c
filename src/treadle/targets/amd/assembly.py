"""AMDGPU assembly text as instructions, branches and loops. Reads what LLVM prints, and foreign listings of the same syntax."""

import re
from collections.abc import Sequence

from treadle.errors import InternalError
from treadle.records import dataclass

_LABEL = re.compile(r"^(?:[0-9a-f]+ <)?([A-Za-z_.$][\w.$@]*)>?:")
_ADDRESS = re.compile(r"//\s*([0-9A-Fa-f]{8,16}):")
_KERNEL = re.compile(r"^\s*\.amdhsa_kernel\s+(\S+)", re.MULTILINE)
_DISASSEMBLED = re.compile(r"^[0-9a-f]{8,16} <([\w.$@]+)>:", re.MULTILINE)
_BRANCH_UNIT = 4
"""Bytes in which disassembled branches count their distance from the instruction behind them."""
_INSTRUCTION = re.compile(r"^\s+([a-z][a-z0-9_]+)\b\s*(.*)$")
_LOCATION = re.compile(r"^\s+\.loc\s+\d+\s+(\d+)")
_END = re.compile(r"^\.Lfunc_end\d+:|^\s*\.section\b|^\s*\.size\b|^\s*\.amdhsa_kernel\b")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction: `operands` as written, `line` of the text (from 1), `target` the index that a branch goes to.

    `source`: the line of the line table that it comes from, 0 where none is known.
    """

    mnemonic: str
    operands: str
    line: int
    target: int | None = None
    source: int = 0

    @property
    def ends(self) -> bool:
        """Whether the next instruction never follows it."""
        return self.mnemonic in ("s_endpgm", "s_branch", "s_setpc_b64", "s_trap")


@dataclass(frozen=True, slots=True)
class Listing:
    """One kernel's instructions in order. `sources`: what each line of the line table comes from."""

    kernel: str
    instructions: tuple[Instruction, ...]
    sources: tuple[str, ...] = ()

    def named(self, at: int) -> str:
        """Instruction `at` and the operation it comes from, in words."""
        one = self.instructions[at]
        return f"{one.mnemonic}{self.origin(one.source)}"

    def origin(self, source: int) -> str:
        """The operation of a line of the line table, in words; empty where none is known."""
        return f" (from {self.sources[source - 1]})" if 0 < source <= len(self.sources) else ""

    @property
    def loops(self) -> tuple[tuple[int, int], ...]:
        """Backward branches as (target, branch)."""
        found = enumerate(self.instructions)
        return tuple((one.target, at) for at, one in found if one.target is not None and one.target <= at)

    def successors(self, at: int) -> tuple[int, ...]:
        """Indices that may be executed after instruction `at`."""
        one = self.instructions[at]
        follow = () if one.ends or at + 1 == len(self.instructions) else (at + 1,)
        return follow if one.target is None else (*follow, one.target)

    def counts(self) -> dict[str, int]:
        """How often each mnemonic stands in the text."""
        found: dict[str, int] = {}
        for one in self.instructions:
            found[one.mnemonic] = found.get(one.mnemonic, 0) + 1
        return found


def kernel_names(assembly: str) -> tuple[str, ...]:
    """The kernels of a text: those that it declares, else (disassembled code objects) all its symbols."""
    return tuple(dict.fromkeys(_KERNEL.findall(assembly) or _DISASSEMBLED.findall(assembly)))


def parse(assembly: str, kernel: str, sources: Sequence[str] = ()) -> Listing:
    """The instructions of one kernel; raises InternalError where the text has no such label, or a branch leaves it."""
    labels: dict[str, int] = {}
    found: list[tuple[str, str, int, int]] = []
    addresses: list[int] = []
    inside, source = False, 0
    for number, raw in enumerate(assembly.splitlines(), 1):
        line = re.split(r";|//", raw, maxsplit=1)[0].rstrip()
        label = _LABEL.match(line)
        if not inside:
            inside = label is not None and label.group(1) == kernel
            continue
        if _END.match(line) or (label is not None and "<" in line):
            break
        if named := _LOCATION.match(line):
            source = int(named.group(1))
            continue
        if label is not None:
            labels[label.group(1)] = len(found)
            line = line[label.end() :]
        if instruction := _INSTRUCTION.match(line):
            found.append((instruction.group(1), instruction.group(2).strip(), number, source))
            if address := _ADDRESS.search(raw):
                addresses.append(int(address.group(1), 16))
    if not found:
        raise InternalError(f"assembly holds no instructions of kernel {kernel}")
    places = {address: at for at, address in enumerate(addresses)} if len(addresses) == len(found) else {}
    made: list[Instruction] = []
    for at, (mnemonic, operands, number, source) in enumerate(found):
        target = None
        if mnemonic == "s_branch" or mnemonic.startswith("s_cbranch"):
            target = labels.get(operands, len(found))
            if places and operands.isdecimal():
                target = places.get(_distance(operands) + addresses[at], len(found))
            if target == len(found):
                raise InternalError(f"kernel {kernel}, line {number}: branch to '{operands}', which is not in the kernel")
        made.append(Instruction(mnemonic, operands, number, target, source))
    return Listing(kernel, tuple(made), tuple(sources))


def _distance(operand: str) -> int:
    """How far a disassembled branch goes from its own address: its operand counts in signed 16 bits."""
    count = int(operand)
    return _BRANCH_UNIT * (1 + (count - (1 << 16) if count >= 1 << 15 else count))
