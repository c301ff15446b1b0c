"""Values that are known by how far a ring's counter is: one for each count, modulo a number.

A counter goes on for ever, and all that slots and parities ask is what it is modulo the slots, twice. So a value is a table over the
counter modulo `count`; its entries are the value itself, or the value modulo something where it goes on with the counter, or by a size.
Such values are zero or more: what might make them negative is not followed. A role's slice is what may be made of them: what picks slots
and parities, and what that comes of.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from treadle.dialects import pipe, sync, tile
from treadle.ir.ancestry import operands_of
from treadle.ir.builtin import IndexType
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.verify.scalars import INDEX_BITS, constant_value, scalar_function, width_of

PICKING = ("pipe.slot", "sync.mbarrier_slot", "sync.wait_phase")
Use = tuple[Operation, int]
"""An operand that picks a slot or a parity."""


class RingSlice:
    """The slice of a role's block.

    `slots`: by the number of slots that there are, all values that some operand which picks one comes of; `parities`: the same of parities.
    `ops`: of each block the operations that make any of these, pick slots and parities, or hold such ones.
    """

    def __init__(self, role: Block) -> None:
        self.slots: dict[int, set[SSAValue]] = {}
        self.parities: set[SSAValue] = set()
        picking = [op for op in role.walk() if op.name in PICKING]
        picked: dict[int, list[SSAValue]] = {}
        for op in picking:
            match op:
                case sync.MbarrierSlotOp():
                    alloc = op.source.owner
                    if isinstance(alloc, sync.MbarrierAllocOp):
                        picked.setdefault(alloc.slot_count(), []).append(op.index)
                case pipe.SlotOp():
                    for size, index in zip(tile.memref_type(op.source).get_shape(), op.indices, strict=False):
                        picked.setdefault(size, []).append(index)
                case _:
                    _close(self.parities, operands_of(op)[1:])
        for size, values in sorted(picked.items()):
            _close(self.slots.setdefault(size, set()), values)
        made = set[Operation](picking)
        for value in self.parities.union(*self.slots.values()):
            if isinstance(value.owner, Operation):
                made.add(value.owner)
        holding = set[Operation]()
        for op in made:
            around = op.parent_op()
            while around is not None and around not in holding and around is not role.parent_op():
                holding.add(around)
                around = around.parent_op()
        self._made = made | holding
        self._ops: dict[Block, list[Operation]] = {}

    def size(self) -> SSAValue | None:
        """The one value from outside of all loops that slots go on by; None where there is none, or several."""
        slots = set[SSAValue]().union(*self.slots.values())
        sums = [op for op in self._made if op.name == "arith.addi" and op.results[0] in slots and not _is_size(op.results[0])]
        found = {value for op in sums for value in operands_of(op) if _is_size(value)}
        return found.pop() if len(found) == 1 else None

    def ops(self, block: Block) -> list[Operation]:
        """The operations of a block that are looked at, in order."""
        found = self._ops.get(block)
        if found is None:
            found = self._ops[block] = [op for op in block.ops if op in self._made]
        return found


def _close(found: set[SSAValue], values: Iterable[SSAValue]) -> None:
    """Add what values are made of: not which way branches go, nor how long loops are."""
    work = list(values)
    while work:
        value = work.pop()
        if value in found:
            continue
        found.add(value)
        owner = value.owner
        if isinstance(value, BlockArgument):
            loop = value.block.parent_op()
            if isinstance(loop, scf.ForOp) and value.index:
                end = loop.body.block.last_op
                work += [loop.iter_args[value.index - 1], *(operands_of(end)[value.index - 1 : value.index] if end is not None else ())]
        elif isinstance(owner, scf.ForOp | scf.IfOp):
            at = owner.results.index(value)
            ends = [region.block.last_op for region in owner.regions if region.blocks]
            work += [operands_of(end)[at] for end in ends if end is not None]
            if isinstance(owner, scf.ForOp):
                work.append(owner.iter_args[at])
        elif isinstance(owner, Operation) and owner.name.startswith("arith."):
            work += operands_of(owner)


def _is_size(value: SSAValue) -> bool:
    """Whether a value is an index that is computed outside of all loops, and no constant."""
    owner = value.owner
    if not isinstance(owner, Operation) or owner.name == "arith.constant" or not owner.name.startswith("arith."):
        return False
    around = owner.parent_op()
    while around is not None and not isinstance(around, scf.ForOp):
        around = around.parent_op()
    if around is not None or not isinstance(value.type, IndexType):
        return False
    from treadle.verify.signs import never_negative  # few rings go on by sizes

    return never_negative(value)


EXACT = 0
_QUOTIENTS = ("arith.divui", "arith.divsi", "arith.floordivsi")
_REMAINDERS = ("arith.remui", "arith.remsi")
_CASTS = ("arith.index_cast", "arith.index_castui", "arith.extui", "arith.extsi", "arith.trunci")


Table = tuple[tuple[int, ...], int]
"""The value for each count, modulo a number (`EXACT`: the value itself)."""


def is_constant(table: Table) -> bool:
    """Whether a table says nothing of the counter."""
    return table[1] == EXACT and len(set(table[0])) == 1


def ahead(table: Table, by: int) -> Table:
    """The table of a value that is what this one will be after so many counts."""
    return table[0][by:] + table[0][:by], table[1]


class RingValues:
    """Works out tables of operations. `count`: the counts that are told apart. `size`: a value of which is known what it is modulo that
    many, `residue`.
    """

    def __init__(self, count: int, size: SSAValue | None = None, residue: int = 0) -> None:
        self.count, self.size, self.residue = count, size, residue
        self._constants: dict[SSAValue, int | None] = {}
        self._numbers: dict[Operation, bool] = {}

    def of(self, value: SSAValue, known: Mapping[SSAValue, Table]) -> Table | None:
        """The table of a value; None where it is another thing than a function of the count."""
        found = known.get(value)
        if found is None and value is self.size:
            return (self.residue,) * self.count, self.count
        if found is None and (number := self.constant(value)) is not None:
            return (number,) * self.count, EXACT
        return found

    def constant(self, value: SSAValue) -> int | None:
        """The number that a value is, whatever runs."""
        if value not in self._constants:
            self._constants[value] = None  # a value that is made of itself is none
            self._constants[value] = self._work_out(value)
        return self._constants[value]

    def _work_out(self, value: SSAValue) -> int | None:
        op = value.owner
        if not isinstance(op, Operation) or op.regions or not op.name.startswith("arith."):
            return None
        if op.name == "arith.constant":
            return constant_value(op)
        numbers = [self.constant(operand) for operand in operands_of(op)]
        function = None if None in numbers else scalar_function(op)
        try:
            return None if function is None else function(*numbers)
        except ArithmeticError:
            return None

    def result(self, op: Operation, known: Mapping[SSAValue, Table]) -> Table | None:
        """What an operation makes of tables."""
        operands = operands_of(op)
        if known.keys().isdisjoint(operands) or not self._is_number(op):
            return None
        found: list[Table] = []
        for operand in operands:
            if (table := self.of(operand, known)) is None:
                return None
            found.append(table)
        if all(table[1] == EXACT for table in found):
            return _exact(op, found)
        return _counted(op, found)

    def _is_number(self, op: Operation) -> bool:
        """Whether an operation computes one number; asked of each by every walk."""
        found = self._numbers.get(op)
        if found is None:
            is_number = len(op.results) == 1 and op.name.startswith("arith.") and width_of(op.results[0].type) > 0
            found = self._numbers[op] = is_number
        return found


def _exact(op: Operation, tables: Sequence[Table]) -> Table | None:
    function = scalar_function(op)
    if function is None:
        return None
    try:
        return tuple([function(*each) for each in zip(*[values for values, _ in tables], strict=True)]), EXACT
    except ArithmeticError:
        return None


def _counted(op: Operation, tables: Sequence[Table]) -> Table | None:
    """Of values of which one goes on with the counter; all of them are zero or more, and too small to overflow."""
    if any(width_of(value.type) < INDEX_BITS for value in (*operands_of(op), *op.results)):
        return None
    values, modulus = tables[0]
    if op.name in _CASTS:
        return tables[0]
    others, other = tables[1]
    if op.name == "arith.addi":
        if any(of == EXACT and min(numbers) < 0 for numbers, of in tables):
            return None
        return _modulo([a + b for a, b in zip(values, others, strict=True)], gcd(modulus, other))
    divisor = others[0] if is_constant(tables[1]) and modulus != EXACT else 0
    if divisor <= 0:
        return None
    if op.name in _REMAINDERS and modulus % divisor == 0:
        return tuple([value % divisor for value in values]), EXACT
    if op.name in _QUOTIENTS and modulus % divisor == 0 and modulus > divisor:
        return _modulo([value // divisor for value in values], modulus // divisor)
    if op.name == "arith.andi" and divisor & (divisor + 1) == 0 and modulus % (divisor + 1) == 0:
        return tuple([value & divisor for value in values]), EXACT
    if op.name == "arith.shrui" and divisor < INDEX_BITS - 1 and modulus % (1 << divisor) == 0 and modulus >> divisor > 1:
        return _modulo([value >> divisor for value in values], modulus >> divisor)
    return None


def _modulo(values: Sequence[int], modulus: int) -> Table:
    return tuple([value % modulus for value in values]), modulus
