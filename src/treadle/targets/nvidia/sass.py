"""Reading disassembled machine code: instructions with their source lines, and where accumulators are in flight.

What the data flow proves: on every path of branches that the text names, no instruction other than a matrix instruction names a register
of an accumulator between the instruction that writes it and the wait that retires its group. It does not see registers that wide accesses
touch beyond the one they name with a suffix (.64, .128 are counted), nor indirect branches (there are none in kernels without calls).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar

from treadle.records import dataclass

_LINE = re.compile(r'//## File "[^"]*", line (\d+)')
_LABEL = re.compile(r"^(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.[\w:]+)*)([^;]*);")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_REGISTER = re.compile(r"(?<![A-Z])R(\d+)(\.64)?")
_MATRIX_SHAPE = re.compile(r"\.64x(\d+)x\d+")
_PENDING = re.compile(r"gsb0,\s*(0x[0-9a-f]+)")

MATRIX = ("HGMMA", "QGMMA", "IGMMA")
OPEN = -1
Ages = dict[range, int]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of machine code. `line`: of the line table, 0 where none is known. `target`: index of the instruction a branch goes to."""

    mnemonic: str
    suffix: str
    operands: str
    is_predicated: bool
    line: int
    target: int | None

    @property
    def is_matrix(self) -> bool:
        """Whether it is a warpgroup matrix instruction."""
        return self.mnemonic in MATRIX

    @property
    def closes_group(self) -> bool:
        """Whether a commit stands behind this matrix instruction."""
        return "gsb0" in self.operands

    @property
    def pending(self) -> int | None:
        """The groups that a wait for matrix instructions leaves pending; None for other instructions."""
        if self.mnemonic != "WARPGROUP" or not self.suffix.startswith(".DEPBAR"):
            return None
        found = _PENDING.search(self.operands)
        return int(found.group(1), 16) if found else 0

    def accumulator(self) -> range:
        """The registers that a matrix instruction writes: half as many as it has columns (accumulators are 32 bits wide)."""
        shape, first = _MATRIX_SHAPE.search(self.suffix), _REGISTER.search(self.operands)
        if shape is None or first is None:
            return range(0)
        start = int(first.group(1))
        return range(start, start + int(shape.group(1)) // 2)

    def registers(self) -> set[int]:
        """The vector registers it names."""
        wide = 4 if ".128" in self.suffix else 2 if ".64" in self.suffix else 1
        found: set[int] = set()
        for match in _REGISTER.finditer(self.operands):
            start = int(match.group(1))
            in_address = self.operands[: match.start()].count("[") > self.operands[: match.start()].count("]")
            found.update(range(start, start + (2 if match.group(2) else 1 if in_address else wide)))
        return found


class Code(Protocol):
    """What the data flow asks of an instruction: `Instruction` read from a disassembly, `sass_words.Word` from the bits."""

    @property
    def mnemonic(self) -> str: ...
    @property
    def suffix(self) -> str: ...
    @property
    def operands(self) -> str: ...
    @property
    def is_predicated(self) -> bool: ...
    @property
    def line(self) -> int: ...
    @property
    def target(self) -> int | None: ...
    @property
    def is_matrix(self) -> bool: ...
    @property
    def closes_group(self) -> bool: ...
    @property
    def pending(self) -> int | None: ...
    def accumulator(self) -> range:
        """The registers that a matrix instruction writes."""
        ...

    def registers(self) -> set[int]:
        """The vector registers it touches, or a superset."""
        ...


Reading = TypeVar("Reading", bound=Code)


def parse(sass: str) -> list[Instruction]:
    """The instructions of the one kernel in a disassembly, in order."""
    labels: dict[str, int] = {}
    raw: list[tuple[re.Match[str], int]] = []
    line = 0
    for text in sass.splitlines():
        if (found := _LINE.search(text)) is not None:
            line = int(found.group(1))
        elif (found := _LABEL.match(text.strip())) is not None:
            labels[found.group(1)] = len(raw)
        elif (found := _INSTRUCTION.search(text)) is not None:
            raw.append((found, line))
    made: list[Instruction] = []
    for match, at in raw:
        guard, mnemonic, suffix, operands = match.groups()
        target = _TARGET.search(operands)
        goes = labels.get(target.group(1)) if target is not None and mnemonic in ("BRA", "JMP") else None
        conditional = bool(guard) or ".U" in suffix or ".DIV" in suffix or (bool(re.search(r"\bU?P\d", operands)) and mnemonic == "BRA")
        made.append(Instruction(mnemonic, suffix, operands, conditional, at, goes))
    return made


def _successors(code: Sequence[Code], at: int) -> Iterator[int]:
    one = code[at]
    if one.target is not None:
        yield one.target
    if one.mnemonic in ("EXIT", "BRA", "JMP", "RET") and not one.is_predicated:
        return
    if at + 1 < len(code):
        yield at + 1


def _after(one: Code, ages: Ages) -> Ages:
    if one.is_matrix:
        ages = {**ages, one.accumulator(): OPEN}
        return {r: age + 1 for r, age in ages.items()} if one.closes_group else ages
    pending = one.pending
    return ages if pending is None else {r: age for r, age in ages.items() if age < pending}


def in_flight(code: Sequence[Code]) -> list[Ages]:
    """Before each instruction: the accumulators being written, with the number of groups closed since (-1: their group is open)."""
    states: list[Ages | None] = [None] * len(code)
    todo = [0] if code else []
    if code:
        states[0] = {}
    while todo:
        at = todo.pop()
        after = _after(code[at], states[at] or {})
        for following in _successors(code, at):
            known = states[following]
            joined = dict(after) if known is None else dict(known)
            for registers, age in after.items():
                joined[registers] = min(age, joined.get(registers, age))
            if known is None or joined != known:
                states[following] = joined
                todo.append(following)
    return [state or {} for state in states]


def touched_accumulators(code: Sequence[Reading]) -> list[Reading]:
    """Instructions that name a register of an accumulator in flight, matrix instructions and waits apart."""
    found: list[Reading] = []
    for one, ages in zip(code, in_flight(code), strict=True):
        if ages and not one.is_matrix and one.pending is None:
            named = one.registers()
            if any(register in registers for registers in ages for register in named):
                found.append(one)
    return found


def _reaches(code: Sequence[Code], first: int, last: int) -> bool:
    """Whether a path leads from `first` to `last` without leaving what stands between them."""
    seen, todo = {first}, [first]
    while todo:
        at = todo.pop()
        if at == last:
            return True
        fresh = [n for n in _successors(code, at) if first <= n <= last and n not in seen]
        seen.update(fresh)
        todo += fresh
    return False


def loops(code: Sequence[Code]) -> list[tuple[int, int]]:
    """`(first, last)` instruction of each loop with matrix instructions that holds no smaller such loop."""
    spans = [(one.target, at) for at, one in enumerate(code) if one.target is not None and one.target <= at]
    spans = [span for span in spans if any(one.is_matrix for one in code[span[0] : span[1] + 1])]
    # Code that was moved out of line (the slow path of a spin) branches back as well, but is reached from elsewhere.
    spans = [span for span in spans if _reaches(code, *span)]
    return [span for span in spans if not any(other != span and span[0] <= other[0] and other[1] <= span[1] for other in spans)]


def slow_in_loops(code: Sequence[Reading]) -> list[Reading]:
    """What slows a main loop down: moves from vector to uniform registers within a group of matrix instructions, and fences of memory
    beyond the workgroup between any two of the loop's matrix instructions.
    """
    found: list[Reading] = []
    for first, last in loops(code):
        where = [at for at in range(first, last + 1) if code[at].is_matrix]
        for before, after in pairwise(where):
            for one in code[before + 1 : after]:
                wide_fence = one.mnemonic == "ERRBAR" or (one.mnemonic == "MEMBAR" and ".CTA" not in one.suffix)
                if wide_fence or (one.mnemonic == "R2UR" and not code[before].closes_group):
                    found.append(one)
    return found
