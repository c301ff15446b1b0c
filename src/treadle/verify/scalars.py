"""Index and integer arithmetic of schedules, on Python integers. A value nobody knows is None and makes its users None.

Also what values are made of, through loops and branches, and index values as linear forms of values that are none themselves (atoms):
arithmetic is taken not to overflow, that of fewer than 32 bits may.
"""

from collections.abc import Callable, Sequence, Set
from typing import cast

from treadle.dialects.tile import KernelOp, LookupOp, OpaqueOp
from treadle.ir.ancestry import operands_of
from treadle.ir.core import AffineBinaryOpKind, Attribute, Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, scf

Scalar = int | None
Function = Callable[..., int]
INDEX_BITS = 32
"""Numbers of so many bits are taken not to overflow."""


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def index_width_around(op: Operation) -> int:
    """Bits of an `index` in the kernel around an operation; 32 where there is none."""
    around = op.parent_op()
    while around is not None and not isinstance(around, KernelOp):
        around = around.parent_op()
    return around.index_width() if around is not None else 32


def width_of(value_type: Attribute, op: Operation | None = None) -> int:
    """Bits of an integer or index type; 0 for anything else. `op`: whose kernel says how wide an index is (32 bits without)."""
    if op is not None and isinstance(value_type, builtin.IndexType):
        return index_width_around(op)
    if isinstance(value_type, builtin.IntegerType):
        return int(value_type.width.data)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return 32 if isinstance(value_type, builtin.IndexType) else 0


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_BINARY: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.remui": lambda a, b: a % b,
    "arith.remsi": lambda a, b: a - b * _truncated(a, b),
    "arith.divui": lambda a, b: a // b,
    "arith.divsi": _truncated,
    "arith.floordivsi": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.minsi": min,
    "arith.minui": min,
    "arith.maxsi": max,
    "arith.maxui": max,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.shli": lambda a, b: a << b,
    "arith.shrsi": lambda a, b: a >> b,
    "arith.shrui": lambda a, b: a >> b,
}
_UNSIGNED = frozenset({"arith.remui", "arith.divui", "arith.ceildivui", "arith.minui", "arith.maxui", "arith.shrui"})
_SIGNED = frozenset({"arith.remsi", "arith.divsi", "arith.floordivsi", "arith.ceildivsi", "arith.minsi", "arith.maxsi"})
_COMPARISONS: tuple[Callable[[int, int], bool], ...] = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
)
_CASTS = ("arith.index_cast", "arith.index_castui", "arith.extui", "arith.extsi", "arith.trunci")


def constant_value(op: Operation) -> Scalar:
    """The value of an `arith.constant` of integer or index type."""
    value = op.properties.get("value")
    if not isinstance(value, builtin.IntegerAttr):
        return None
    number = int(value.value.data)
    if width_of(op.results[0].type) == 1:
        return number & 1
    is_large = not -(1 << INDEX_BITS - 1) <= number < 1 << INDEX_BITS - 1
    return _signed(number, width_of(op.results[0].type, op)) if is_large and width_of(op.results[0].type) else number


def constant_of(value: SSAValue) -> Scalar:
    """The number that an `arith.constant` gives; None where a value is none."""
    return constant_value(value.owner) if isinstance(value.owner, Operation) and value.owner.name == "arith.constant" else None


def is_constant(value: SSAValue) -> bool:
    """Whether a value is an `arith.constant`."""
    return isinstance(value.owner, Operation) and value.owner.name == "arith.constant"


def is_narrow(op: Operation) -> bool:
    """Whether a result has so few bits that it may not be the number that the operation's operands as numbers would make."""
    return 0 < width_of(op.results[0].type) < INDEX_BITS


def _arithmetic(name: str, bits: int) -> Function:
    function = _within_width(_BINARY[name], bits) if ".sh" in name else _BINARY[name]
    if bits == 1:
        return _one_bit(function, is_signed=name in _SIGNED)
    if name in _UNSIGNED:
        return _on_unsigned(function, bits)
    half = 1 << (bits - 1)

    def wrapped(a: int, b: int) -> int:
        result = function(a, b)
        return result if -half <= result < half else _signed(result, bits)

    return wrapped


def _one_bit(function: Function, *, is_signed: bool) -> Function:
    """On single bits; a true one is -1 to whom it is the sign."""

    def low(a: int, b: int) -> int:
        return (function(-a, -b) if is_signed else function(a, b)) & 1

    return low


def _within_width(function: Function, bits: int) -> Function:
    """A shift; by more bits than there are it gives no number."""

    def shifted(a: int, b: int) -> int:
        if not 0 <= b < bits:
            raise ArithmeticError
        return function(a, b)

    return shifted


def _on_unsigned(function: Function, bits: int) -> Function:
    mask = (1 << bits) - 1

    def unsigned(a: int, b: int) -> int:
        return _signed(function(a & mask, b & mask), bits)

    return unsigned


def _comparison(op: Operation) -> Function:
    predicate = op.properties["predicate"]
    which = int(predicate.value.data) if isinstance(predicate, builtin.IntegerAttr) else 0
    compare = _COMPARISONS[which if which < 6 else which - 4]
    mask = (1 << (width_of(op.operands[0].type, op) or 64)) - 1

    sign = -1 if mask == 1 else 1  # a true bit is -1 to whom it is the sign

    def signed(a: int, b: int) -> int:
        return int(compare(sign * a, sign * b))

    def unsigned(a: int, b: int) -> int:
        return int(compare(a & mask, b & mask))

    return signed if which < 6 else unsigned


def _cast(op: Operation, bits: int) -> Function:
    own = width_of(op.operands[0].type, op) or 64
    mask = (1 << own) - 1
    is_unsigned = op.name in ("arith.extui", "arith.index_castui")

    def convert(a: int) -> int:
        if bits == 1:
            return a & 1
        if is_unsigned:
            return _signed(a & mask, bits)
        return -(a & 1) if own == 1 else _signed(a, bits)  # a true i1 is -1 to whom its bit is the sign

    return convert


def _select(condition: int, one: int, other: int) -> int:
    return one if condition else other


def _affine(op: Operation) -> Function | None:
    from treadle.verify.affine_maps import affine_map_of  # few kernels have them

    affine_map = affine_map_of(op)
    if affine_map is None:
        return None
    dims = affine_map.num_dims
    pick: Callable[[list[int]], int] = min if op.name == "affine.min" else max if op.name == "affine.max" else lambda values: values[0]

    def apply(*operands: int) -> int:
        return pick(list(affine_map.eval(operands[:dims], operands[dims:])))

    return apply


def _lookup(table: Sequence[int]) -> Function:
    """An entry of a table; a place outside gives no number."""

    def entry(place: int) -> int:
        if not 0 <= place < len(table):
            raise ArithmeticError
        return table[place]

    return entry


def known_result(op: Operation, values: Sequence[Scalar]) -> Scalar:
    """The result where some operands are not known but do not matter; else None."""
    match op.name:
        case "arith.select":
            condition, one, other = values
            return (one if condition else other) if condition is not None else one if one == other else None
        case "arith.andi" | "arith.muli" if 0 in values:
            return 0
        case "arith.ori" if 1 in values and width_of(op.results[0].type) == 1:
            return 1
        case _:
            return None


def scalar_function(op: Operation) -> Function | None:
    """What a scalar operation computes from its operands; None where this is not known."""
    bits = width_of(op.results[0].type, op) if op.results else 0
    if op.name in ("affine.apply", "affine.min", "affine.max"):
        return _affine(op)
    if op.name in _BINARY and bits:
        return _arithmetic(op.name, bits)
    if op.name == "arith.cmpi":
        return _comparison(op)
    if op.name == "arith.select" and bits:
        return _select
    if op.name in _CASTS and bits:
        return _cast(op, bits)
    return _lookup(op.table) if isinstance(op, LookupOp) else None


Linear = tuple[tuple[tuple[int, int], ...], int]
"""Atoms (by number) with their factors, sorted; the constant."""
_FUNCTIONS = ("arith.", "math.", "affine.", "tile.extract", "tile.lookup", "tile.opaque")


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
                from treadle.verify.affine_maps import affine_map_of, results_of  # few kernels have them

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


def sources_of(value: SSAValue) -> list[SSAValue]:
    """The values that decide about `value`, through loops and branches; none where it is any number."""
    owner = value.owner
    if isinstance(value, BlockArgument):
        loop = cast(Block, owner).parent_op()
        if not isinstance(loop, scf.ForOp):
            return []
        if value.index == 0:
            return [loop.lb, loop.step]
        return [loop.iter_args[value.index - 1], yielded(loop)[value.index - 1]]
    if isinstance(owner, scf.ForOp):
        at = owner.results.index(value)
        return [owner.body.block.args[at + 1], owner.iter_args[at], yielded(owner)[at], owner.lb, owner.ub, owner.step]
    if isinstance(owner, scf.IfOp):
        at = owner.results.index(value)
        ends = [region.block.last_op for region in owner.regions if region.blocks]
        return [owner.cond, *(end.operands[at] for end in ends if end is not None)]
    if not isinstance(owner, Operation) or owner.regions or isinstance(owner, OpaqueOp):
        return []
    return list(operands_of(owner))


def yielded(loop: scf.ForOp) -> Sequence[SSAValue]:
    """What an iteration hands to the next."""
    end = loop.body.block.last_op
    return operands_of(end) if end is not None else ()


def loop_around(op: Operation) -> scf.ForOp | None:
    """The innermost loop that an operation stands in."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, scf.ForOp):
        parent = parent.parent_op()
    return parent
