"""How large index values may be, as far as the operations that make them tell: for all sizes, workgroups and iterations."""

from treadle.ir.core import Operation, SSAValue
from treadle.verify.scalars import INDEX_BITS, constant_of, constant_value, width_of
from treadle.verify.signs import never_negative

_OF_ANY_SIGN = ("arith.divsi", "arith.floordivsi", "arith.ceildivsi")
_UNSIGNED = ("arith.divui", "arith.ceildivui")


def most_of(value: SSAValue) -> int | None:
    """The largest number that a value may be; None where nothing says so."""
    op = value.owner
    if not isinstance(op, Operation) or len(op.results) != 1 or width_of(value.type) < INDEX_BITS:
        return None
    match op.name:
        case "arith.constant":
            return constant_value(op)
        case "arith.minsi":
            return min([most for operand in op.operands if (most := most_of(operand)) is not None], default=None)
        case "arith.maxsi":
            return _largest(op.operands[0], op.operands[1])
        case "arith.select":
            return _largest(op.operands[1], op.operands[2])
        case "arith.index_cast":
            return most_of(op.operands[0])
        case "arith.addi":
            one, other = most_of(op.operands[0]), most_of(op.operands[1])
            return None if one is None or other is None else one + other
        case "arith.subi":
            left, number = most_of(op.operands[0]), constant_of(op.operands[1])
            is_less = number is not None or never_negative(op.operands[1])
            return left - (number or 0) if left is not None and is_less else None
        case "arith.remui":
            number = constant_of(op.operands[1])
            return number - 1 if number is not None and number > 0 else None
        case _ if op.name in _OF_ANY_SIGN or (op.name in _UNSIGNED and never_negative(op.operands[0])):
            left, number = most_of(op.operands[0]), constant_of(op.operands[1])
            if left is None or number is None or number <= 0:
                return None
            return max(0, -(-left // number) if "ceil" in op.name else left // number)
        case _:
            return None


def _largest(one: SSAValue, other: SSAValue) -> int | None:
    first, second = most_of(one), most_of(other)
    return None if first is None or second is None else max(first, second)
