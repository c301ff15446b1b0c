"""How exactly each value has to be known: fully, or only modulo a number, because slots and parities are all that is made of it.

With that a loop's state is small: a counter of tiles that only picks slots of a ring of three with a parity is one of six states.
"""

from collections.abc import Iterable, Mapping, Set
from math import gcd, lcm
from typing import TYPE_CHECKING

from treadle.dialects import pipe, sync, tile
from treadle.ir.core import BlockArgument, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.verify.program import Program
from treadle.verify.scalars import INDEX_BITS, Linear, add, constant_value, is_narrow, width_of, yielded
from treadle.verify.turning_points import EXTREMES, UNSIGNED_DIVISIONS, TurningPoints

if TYPE_CHECKING:
    from treadle.verify.loop_comparisons import Covered, Turn

FULL = 0
MAX_MODULUS = 1 << 20
_UNSIGNED_CASTS = ("arith.extui", "arith.index_castui")
_MAY_WRAP = ("arith.addi", "arith.subi", "arith.muli")


def demands(
    program: Program,
    points: TurningPoints,
    unused: Set[Operation] = frozenset(),
    besides: Iterable[tuple[SSAValue, int]] = (),
    chosen: Mapping[Operation, int] | None = None,
) -> dict[SSAValue, int]:
    """The modulus to which each deciding value matters; FULL: its exact value.

    Comparisons that turning points cover ask for residues alone, those of `unused` for nothing. `besides`: what else is asked. `chosen`:
    which operand minima, maxima and selections are, where that is known.
    """
    return _Demands(program, points, unused, besides, chosen or {}).found


def reduced(value: object, modulus: int) -> object:
    """What matters of a value."""
    return value % modulus if modulus and isinstance(value, int) and value >= 0 else value


class _Demands:
    def __init__(
        self,
        program: Program,
        points: TurningPoints,
        unused: Set[Operation],
        besides: Iterable[tuple[SSAValue, int]],
        chosen: Mapping[Operation, int],
    ) -> None:
        self.program, self.points, self.chosen = program, points, chosen
        self.found: dict[SSAValue, int] = {}
        self._work: list[SSAValue] = []
        for value in _roots(program):
            self._ask(value, FULL)
        for loop in program.loops:
            self._ask_parts(add(self._form(loop.ub), self._form(loop.lb), -1), FULL)
            self._ask(loop.step, FULL)
        for value, modulus in besides:
            self._ask(value, modulus)
        for loop in program.loops:
            facts = points.of(loop)
            for turn in facts.signs:
                self._ask_sum(turn)
            for op, found in facts.covered.items():
                if op not in unused:
                    self._ask_covered(found, facts.placed)
        while self._work:
            self._pass_on(self._work.pop())

    def _ask_covered(self, found: "Covered", placed: "Set[Turn]") -> None:
        for turn in found.turns:
            if turn not in placed:
                self._ask_all(turn)
        for value, modulus in found.residues:
            self._ask(value, modulus)
        for value in found.conditions:
            self._ask(value, FULL)

    def _ask_sum(self, turn: "Turn") -> None:
        """What says where a loop turns whatever depends on it: loop numbers that cancel are not asked."""
        form: Linear = ((), 0)
        for value, factor in turn.rest:
            form = add(form, self._form(value), factor)
        self._ask_parts(form, FULL)

    def _ask_all(self, turn: "Turn") -> None:
        for value, _ in turn.rest:
            self._ask(value, FULL)

    def _ask(self, value: SSAValue, modulus: int) -> None:
        before = self.found.get(value)
        now = modulus if before is None else FULL if FULL in (before, modulus) else lcm(before, modulus)
        now = now if now <= MAX_MODULUS else FULL
        if now != before:
            self.found[value] = now
            self._work.append(value)

    def _pass_on(self, value: SSAValue) -> None:
        modulus, owner = self.found[value], value.owner
        if isinstance(value, BlockArgument):
            loop = value.block.parent_op()
            if isinstance(loop, scf.ForOp):
                self._ask_of_loop(loop, value.index - 1, modulus)
        elif isinstance(owner, scf.ForOp):
            self._ask_of_loop(owner, owner.results.index(value), modulus)
        elif isinstance(owner, scf.IfOp):
            self._ask(owner.cond, FULL)
            for region in owner.regions:
                end = region.block.last_op if region.blocks else None
                if end is not None:
                    self._ask(end.operands[owner.results.index(value)], modulus)
        elif isinstance(owner, pipe.SlotOp | sync.MbarrierSlotOp):
            for operand in self.program.deciding_operands(owner):
                self._ask(operand, FULL)
        elif isinstance(owner, Operation) and not owner.regions and owner not in self.points.exempt:
            if owner in self.chosen:
                self._ask(owner.operands[self.chosen[owner]], modulus)
                return
            if self.chosen and owner.name in _MAY_WRAP and not self._is_atom(value):
                self._ask_parts(self._form(value), modulus)
                return
            for operand, wanted in zip(owner.operands, self._operand_moduli(owner, modulus), strict=True):
                self._ask(operand, wanted)

    def _form(self, value: SSAValue) -> Linear:
        """A value as a linear form, operations as the operands that they are known to be."""
        form = self.points.forms.of(value)
        if not self.chosen:
            return form
        total: Linear = ((), form[1])
        for atom, factor in form[0]:
            part = self.points.forms.value_of(atom)
            owner = part.owner
            if isinstance(owner, Operation) and owner in self.chosen:
                total = add(total, self._form(owner.operands[self.chosen[owner]]), factor)
            else:
                total = add(total, (((atom, 1),), 0), factor)
        return total

    def _is_atom(self, value: SSAValue) -> bool:
        return any(self.points.forms.value_of(atom) is value for atom, _ in self.points.forms.of(value)[0])

    def _ask_parts(self, form: Linear, modulus: int) -> None:
        for atom, factor in form[0]:
            self._ask(self.points.forms.value_of(atom), modulus // gcd(modulus, factor) if modulus else FULL)

    def _operand_moduli(self, op: Operation, modulus: int) -> tuple[int, ...]:
        if op.name in UNSIGNED_DIVISIONS and not self.points.is_of_one_sign(op):
            return (FULL,) * len(op.operands)
        if op.name in _UNSIGNED_CASTS and not _never_negative(op.operands[0]):
            return (FULL,)
        if op in self.points.extremes or (op.name in EXTREMES and op in self.points.silent):
            return modulus, modulus  # which of the two it is turns where the loop turns for it, or for the comparisons that are made of it
        return _operand_moduli(op, modulus)

    def _ask_of_loop(self, loop: scf.ForOp, at: int, modulus: int) -> None:
        if at < 0:
            self._ask(loop.lb, modulus)
            self._ask(loop.step, modulus)
            return
        self._ask(loop.body.block.args[at + 1], modulus)
        self._ask(loop.iter_args[at], modulus)
        self._ask(yielded(loop)[at], modulus)


def _roots(program: Program) -> list[SSAValue]:
    """Values that must be known exactly, beside the lengths of loops: branches, slots, parities."""
    found = program.decided()
    found += [op.cond for op in program.branches]
    found += program.places
    found += program.rings.sizes() if program.rings is not None else []
    return [v for v in found if not isinstance(v.owner, tile.AllocOp)]


def _never_negative(value: SSAValue) -> bool:
    from treadle.verify.signs import never_negative  # few values that matter are unsigned

    return never_negative(value)


def _constant(value: SSAValue) -> int | None:
    owner = value.owner
    return constant_value(owner) if isinstance(owner, Operation) and owner.name == "arith.constant" else None


def _operand_moduli(op: Operation, modulus: int) -> tuple[int, ...]:
    """To which moduli the operands of an operation matter, whose result matters to `modulus`."""
    full = (FULL,) * len(op.operands)
    if op.name in _MAY_WRAP and is_narrow(op):
        bits = 1 << width_of(op.results[0].type)
        modulus = bits if modulus == FULL or bits % modulus else modulus
    second = _constant(op.operands[1]) if len(op.operands) > 1 else None
    match op.name:
        case "arith.select":
            return (FULL, modulus, modulus)
        case "arith.addi" | "arith.subi":
            return (modulus, modulus)
        case "arith.extui":
            return (modulus,)
        case "arith.trunci" | "arith.extsi" | "arith.index_cast" | "arith.index_castui":
            bits = min(width_of(v.type) for v in (op.operands[0], op.results[0]))
            return (modulus if bits >= INDEX_BITS else 1 << bits,)
        case "arith.muli":
            first = _constant(op.operands[0])
            factor = second if second is not None else first
            return (modulus // gcd(modulus, factor),) * 2 if factor and modulus else (modulus, modulus)
        case "arith.remui" if second and second > 0:
            return (second, FULL)
        case "arith.divui" if second and second > 0 and modulus:
            return (second * modulus, FULL)
        case "arith.shrui" if second is not None and second >= 0 and modulus:
            return (modulus << second, FULL)
        case "arith.andi" if second is not None and second >= 0:
            return (1 << second.bit_length(), FULL)
        case "arith.xori" | "arith.ori" | "arith.andi" if modulus and modulus & (modulus - 1) == 0:
            return (modulus, modulus)
        case _:
            return full
