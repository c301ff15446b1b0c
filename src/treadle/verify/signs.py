"""Which index values are never below zero, as far as the operations that make them tell: for all sizes, workgroups and iterations.

An unsigned quotient or remainder repeats with its operand only as long as the operand's sign stays the same.
"""

from collections.abc import Callable

from treadle.ir.core import AffineBinaryOpKind, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.verify.affine_maps import affine_map_of, results_of
from treadle.verify.scalars import INDEX_BITS, constant_of, constant_value, is_narrow, sources_of, width_of

_GIVEN = ("tile.program_id", "pipe.group_id", "pipe.cluster_rank")
_OF_ALL = frozenset(
    f"arith.{name}"
    for name in (
        *("addi", "muli", "divui", "divsi", "floordivsi", "ceildivui", "ceildivsi", "remsi", "minsi", "minui", "maxui", "shli"),
        *("shrui", "shrsi", "ori", "xori", "index_cast", "index_castui"),
    )
)
_OF_ANY = ("arith.maxsi", "arith.andi")
_MAY_WRAP = ("arith.addi", "arith.muli", "arith.shli", "arith.trunci", "arith.index_cast", "arith.index_castui")
IsKnown = Callable[[SSAValue], bool]


def never_negative(value: SSAValue) -> bool:
    """Whether a value is zero or more wherever it is computed."""
    made: dict[SSAValue, None] = {}
    work = [value]
    while work:
        found = work.pop()
        if found not in made:
            made[found] = None
            work += sources_of(found)
    unsure: set[SSAValue] = set()  # what loops carry is taken to be so until one of them is not
    while new := [each for each in made if each not in unsure and not _follows(each, lambda source: source not in unsure)]:
        if value in new:
            return False
        unsure.update(new)
    return True


def _follows(value: SSAValue, is_known: IsKnown) -> bool:
    """Whether a value is zero or more where those are that it is made of."""
    op = value.owner
    if not isinstance(op, Operation):
        sources = sources_of(value)
        return all(map(is_known, sources)) if sources else isinstance(value.type, builtin.IndexType)
    if isinstance(op, scf.ForOp | scf.IfOp):
        at = op.results.index(value)
        ends = [region.block.last_op for region in op.regions if region.blocks]
        first = [op.iter_args[at]] if isinstance(op, scf.ForOp) else []
        return all(map(is_known, [*first, *(end.operands[at] for end in ends if end is not None)]))
    name, operands = op.name, op.operands
    match name:
        case "arith.constant":
            return (constant_value(op) or 0) >= 0
        case "arith.select":
            return is_known(operands[1]) and is_known(operands[2])
        case "arith.remui":
            return is_known(operands[1])
        case "arith.extui":
            return True
        case "arith.subi" | "arith.addi" if not is_narrow(op) and (least := _least_of(value)) is not None and least >= 0:
            return True
        case "arith.subi":
            return not is_narrow(op) and _is_left(operands[0], operands[1])
        case _ if name in _MAY_WRAP and (is_narrow(op) or width_of(operands[0].type) == 1):
            return False
        case "arith.trunci":
            return is_known(operands[0])
        case "affine.apply" | "affine.min" | "affine.max":
            return _affine(op, is_known)
        case _ if name in _OF_ALL:
            return all(map(is_known, operands))
        case _ if name in _OF_ANY:
            return any(map(is_known, operands))
        case _:
            return name in _GIVEN


def _is_left(whole: SSAValue, number: SSAValue) -> bool:
    """Whether a difference is what is left of a loop in one of its iterations: its end less the iteration's number."""
    loop = number.block.parent_op() if isinstance(number, BlockArgument) and not number.index else None
    return isinstance(loop, scf.ForOp) and loop.ub is whole


def _least_of(value: SSAValue) -> int | None:
    """No value is less: a sum of numbers of loops and constants; None where nothing says so."""
    if isinstance(value, BlockArgument):
        loop = value.block.parent_op()
        return _least_of(loop.lb) if isinstance(loop, scf.ForOp) and not value.index else None
    op = value.owner
    if not isinstance(op, Operation) or width_of(value.type) < INDEX_BITS or op.name not in ("arith.constant", "arith.addi", "arith.subi"):
        return None
    if op.name == "arith.constant":
        return constant_value(op)
    left, right = _least_of(op.operands[0]), _least_of(op.operands[1]) if op.name == "arith.addi" else constant_of(op.operands[1])
    return None if left is None or right is None else left + right if op.name == "arith.addi" else left - right


def _affine(op: Operation, is_known: IsKnown) -> bool:
    affine_map = affine_map_of(op)
    if affine_map is None:
        return False
    found = results_of(affine_map, [is_known(operand) for operand in op.operands], lambda number: number >= 0, _binary)
    return any(found) if op.name == "affine.max" else all(found)


def _binary(kind: AffineBinaryOpKind, left: bool, right: bool) -> bool:
    return right and (left or kind is AffineBinaryOpKind.Mod)
