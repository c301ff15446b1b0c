"""Conditions that are equal, or opposite, wherever they are computed: comparisons of one linear form, and equal expressions of them."""

from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.records import Record
from treadle.verify.scalars import constant_value

Linear = tuple[tuple[tuple[int, int], ...], int]
"""Atoms (values by number) with their factors, sorted; the constant."""
LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = 0, 1, 2, 3
_SIGNED = {2: LESS, 3: LESS_EQUAL, 4: GREATER, 5: GREATER_EQUAL}


class Condition(Record):
    """A truth value by its normal form `key`, or the opposite of it."""

    key: tuple[object, ...]
    is_negated: bool = False


class Conditions:
    """Normal forms of the values of a program.

    Index arithmetic is taken not to overflow: a comparison is then one of a linear form with zero.
    """

    def __init__(self) -> None:
        self._known: dict[SSAValue, Condition] = {}
        self._forms: dict[SSAValue, Linear] = {}
        self._atoms: dict[object, int] = {}

    def of(self, value: SSAValue) -> Condition:
        """The normal form of a truth value."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._normal(value)
        return found

    def _normal(self, value: SSAValue) -> Condition:
        op = value.owner
        if not isinstance(op, Operation):
            return Condition(("value", self._atom(value)))
        if op.name == "arith.cmpi":
            return self._comparison(op)
        if op.name == "arith.xori":
            for one, other in (op.operands, tuple(reversed(op.operands))):
                if isinstance(other.owner, Operation) and other.owner.name == "arith.constant" and constant_value(other.owner) == 1:
                    inner = self.of(one)
                    return Condition(inner.key, not inner.is_negated)
        if op.name in ("arith.andi", "arith.ori", "arith.xori"):
            parts = [self.of(operand) for operand in op.operands]
            return Condition((op.name, *sorted(((part.key, part.is_negated) for part in parts), key=repr)))
        return Condition(("value", self._atom(value)))

    def _atom(self, known: object) -> int:
        return self._atoms.setdefault(known, len(self._atoms))

    def _comparison(self, op: Operation) -> Condition:
        predicate = op.properties["predicate"]
        which = int(predicate.value.data) if isinstance(predicate, builtin.IntegerAttr) else -1
        difference = add(self.linear(op.operands[0]), self.linear(op.operands[1]), -1)
        if which in (0, 1):
            return Condition(("zero", positive(difference)), which == 1)
        if which not in _SIGNED:
            left, right = self.linear(op.operands[0]), self.linear(op.operands[1])
            return Condition(("unsigned", which, left, right))
        order = _SIGNED[which]
        if order in (GREATER, GREATER_EQUAL):  # a > b is not a <= b
            order = LESS_EQUAL if order == GREATER else LESS
            return self._at_most(difference if order == LESS_EQUAL else shifted(difference, 1), is_negated=True)
        return self._at_most(difference if order == LESS_EQUAL else shifted(difference, 1), is_negated=False)

    def _at_most(self, form: Linear, *, is_negated: bool) -> Condition:
        """`form <= 0`; with a negative first factor the opposite of `-form + 1 <= 0`."""
        if form[0] and form[0][0][1] < 0:
            return Condition(("at most zero", shifted(scaled(form, -1), 1)), not is_negated)
        return Condition(("at most zero", form), is_negated)

    def linear(self, value: SSAValue) -> Linear:
        """A value as a linear form of values that are none themselves."""
        found = self._forms.get(value)
        if found is None:
            found = self._forms[value] = self._linear(value)
        return found

    def _linear(self, value: SSAValue) -> Linear:
        op = value.owner
        atom: Linear = (((self._atom(value), 1),), 0)
        if not isinstance(op, Operation):
            return atom
        match op.name:
            case "arith.constant":
                constant = constant_value(op)
                return atom if constant is None else ((), constant)
            case "arith.addi" | "arith.subi":
                return add(self.linear(op.operands[0]), self.linear(op.operands[1]), 1 if op.name == "arith.addi" else -1)
            case "arith.muli":
                left, right = self.linear(op.operands[0]), self.linear(op.operands[1])
                if not left[0]:
                    left, right = right, left
                return scaled(left, right[1]) if not right[0] else atom
            case "arith.index_cast":
                return self.linear(op.operands[0])
            case "tile.program_id":
                return ((self._atom((op.name, op.properties["axis"])), 1),), 0
            case _:
                return atom


def add(one: Linear, other: Linear, factor: int) -> Linear:
    """`one + factor * other`."""
    found = dict(one[0])
    for atom, count in other[0]:
        found[atom] = found.get(atom, 0) + factor * count
    return tuple(sorted((atom, count) for atom, count in found.items() if count)), one[1] + factor * other[1]


def scaled(form: Linear, factor: int) -> Linear:
    """`factor * form`."""
    return add(((), 0), form, factor)


def shifted(form: Linear, constant: int) -> Linear:
    """`form + constant`."""
    return form[0], form[1] + constant


def positive(form: Linear) -> Linear:
    """The form or its negative, whichever has a positive first factor."""
    return scaled(form, -1) if form[0] and form[0][0][1] < 0 else form
