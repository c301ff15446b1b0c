"""Index values as linear forms of values that are none themselves (atoms).

Index arithmetic is taken not to overflow, that of fewer than 32 bits may. With `structural`, equal operations on equal operands are one
atom, wherever they stand; loads, too, of arrays that nobody writes.
"""

from collections.abc import Set

from treadle.ir.core import AffineBinaryOpKind, Operation, SSAValue
from treadle.verify.affine_maps import affine_map_of, results_of
from treadle.verify.scalars import constant_value, is_narrow, width_of

Linear = tuple[tuple[tuple[int, int], ...], int]
"""Atoms (by number) with their factors, sorted; the constant."""
_FUNCTIONS = ("arith.", "math.", "affine.", "tile.extract", "tile.opaque")


class LinearForms:
    """The forms of a program's values."""

    def __init__(self, *, structural: bool = False, written: Set[SSAValue] = frozenset()) -> None:
        self._structural, self._written = structural, written
        self._forms: dict[SSAValue, Linear] = {}
        self._atoms: dict[object, int] = {}
        self._values: list[SSAValue] = []

    def value_of(self, atom: int) -> SSAValue:
        """The first value that an atom stands for."""
        return self._values[atom]

    def of(self, value: SSAValue) -> Linear:
        """A value as a linear form."""
        found = self._forms.get(value)
        if found is None:
            found = self._forms[value] = self._linear(value)
        return found

    def _atom(self, value: SSAValue) -> Linear:
        op = value.owner
        known: object = value
        if isinstance(op, Operation) and op.name == "tile.program_id":
            known = (op.name, str(op.properties["axis"]))
        elif self._structural and isinstance(op, Operation) and self._is_function(op):
            properties = tuple(sorted((name, str(attribute)) for name, attribute in {**op.properties, **op.attributes}.items()))
            known = (op.name, properties, str(value.type), tuple(self.of(operand) for operand in op.operands))
        found = self._atoms.setdefault(known, len(self._atoms))
        if found == len(self._values):
            self._values.append(value)
        return ((found, 1),), 0

    def _is_function(self, op: Operation) -> bool:
        """Whether an operation gives the same wherever its operands are the same."""
        if op.name == "tile.view":
            return op.operands[0] not in self._written
        if op.name == "tile.load":
            view = op.operands[0].owner
            return isinstance(view, Operation) and view.name == "tile.view" and self._is_function(view)
        return op.name.startswith(_FUNCTIONS)

    def _linear(self, value: SSAValue) -> Linear:
        op = value.owner
        if not isinstance(op, Operation):
            return self._atom(value)
        if op.name == "arith.constant":
            constant = constant_value(op)
            return self._atom(value) if constant is None else ((), constant)
        if is_narrow(op) or any(width_of(operand.type) == 1 for operand in op.operands):
            return self._atom(value)
        match op.name:
            case "arith.addi" | "arith.subi":
                return add(self.of(op.operands[0]), self.of(op.operands[1]), 1 if op.name == "arith.addi" else -1)
            case "arith.muli":
                left, right = self.of(op.operands[0]), self.of(op.operands[1])
                if not left[0]:
                    left, right = right, left
                return add(((), 0), left, right[1]) if not right[0] else self._atom(value)
            case "arith.index_cast":
                return self.of(op.operands[0])
            case "affine.apply":
                affine_map, operands = affine_map_of(op), [self.of(v) for v in op.operands]
                found = results_of(affine_map, operands, lambda number: ((), number), _binary)[0] if affine_map else None
                return found or self._atom(value)
            case _:
                return self._atom(value)


def _binary(kind: AffineBinaryOpKind, left: Linear, right: Linear) -> Linear | None:
    if kind is AffineBinaryOpKind.Add:
        return add(left, right, 1)
    if kind is AffineBinaryOpKind.Mul and not (left[0] and right[0]):
        return add(((), 0), left, right[1]) if not right[0] else add(((), 0), right, left[1])
    return None


def add(one: Linear, other: Linear, factor: int) -> Linear:
    """`one + factor * other`."""
    found = dict(one[0])
    for atom, count in other[0]:
        found[atom] = found.get(atom, 0) + factor * count
    return tuple(sorted((atom, count) for atom, count in found.items() if count)), one[1] + factor * other[1]
