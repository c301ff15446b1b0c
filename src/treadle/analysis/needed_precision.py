"""How exact each float of a kernel must be, judged by what its uses make of it.

Backward data flow over the values of a kernel. The need of a value is a number of bits b: a relative error of 2^-b in it is drowned by the
roundings that its uses make anyhow. A value that is only ever rounded to bf16 needs three bits more than bf16 keeps; one that is stored as
f32 needs all but the last few units of f32; one that decides something (a comparison, a conversion to an integer) needs every bit.
A sum passes its need on only where its terms cannot cancel; a function passes its need on, plus the bits by which it magnifies relative
errors (its condition number |x f'(x) / f(x)|, N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.6).
"""

from collections.abc import Callable, Mapping
from typing import cast

from treadle.dialects.precision import EXACT, FULL
from treadle.dialects.tile import tile_type
from treadle.ir.core import Attribute, Operation, OpResult, SSAValue
from treadle.ir.dialects import arith, builtin, scf

_KEPT_BITS = {"f16": 11, "bf16": 8, "f8E4M3FN": 4, "f8E4M3FNUZ": 4, "f8E5M2": 3, "f8E5M2FNUZ": 3}
_GUARD_BITS = 3
_EXPONENT_BITS = 7  # exponentials of f32 have arguments below 2^7

Needs = Mapping[SSAValue, int]


def element_of(value: SSAValue) -> Attribute:
    """Element type of a tile, or the type of a scalar."""
    return tile_type(value).element_type if isinstance(value.type, builtin.TensorType) else value.type


def is_float(value: SSAValue) -> bool:
    """Whether a scalar or tile has float elements."""
    return isinstance(element_of(value), builtin.AnyFloat)


def computes(op: Operation) -> bool:
    """Whether an operation computes one float value per element."""
    is_arithmetic = op.name.startswith(("arith.", "math.")) and bool(op.operands) and len(op.results) == 1
    return is_arithmetic and op.name not in ("arith.truncf", "arith.extf") and is_float(op.results[0])


def rounding_need(element: Attribute) -> int:
    """What a value needs that is rounded to an element type right away."""
    name = str(element)
    return _KEPT_BITS[name] + _GUARD_BITS if name in _KEPT_BITS else FULL if name == "f32" else EXACT


def constant_float(value: SSAValue) -> float | None:
    """The number that a float constant or a splat of it holds, else None."""
    if not isinstance(value, OpResult) or not isinstance(value.op, arith.ConstantOp):
        return None
    attribute = value.op.value
    if isinstance(attribute, builtin.FloatAttr):
        return attribute.value.data
    if isinstance(attribute, builtin.DenseIntOrFPElementsAttr) and attribute.is_splat() and is_float(value):
        return cast("float", attribute.get_values()[0])
    return None


_MOVES = ("tile.broadcast", "tile.convert_layout", "tile.permute", "tile.slice", "tile.splat")
_NEVER_NEGATIVE = ("math.exp", "math.exp2", "math.absf", "math.sqrt", "math.rsqrt", "math.cosh")
_KEEP_SIGN = ("arith.addf", "arith.mulf", "arith.divf", "arith.minimumf", "arith.minnumf", "arith.extf", "arith.truncf", *_MOVES)


def is_nonnegative(value: SSAValue, depth: int = 8) -> bool:
    """Whether a float is known to be 0 or more, or NaN."""
    number = constant_float(value)
    if number is not None:
        return number >= 0
    if not isinstance(value, OpResult) or depth == 0:
        return False
    op = value.op
    if op.name in _NEVER_NEGATIVE or (op.name == "arith.mulf" and op.operands[0] is op.operands[1]):
        return True
    if op.name == "arith.maximumf":
        return any(is_nonnegative(v, depth - 1) for v in op.operands)
    return op.name in _KEEP_SIGN and all(is_nonnegative(v, depth - 1) for v in op.operands)


def _terms_agree(a: SSAValue, b: SSAValue) -> bool:
    return is_nonnegative(a) and is_nonnegative(b)


def _same(_op: Operation, _index: int, need: int) -> int:
    return need


def _at_least_full(_op: Operation, _index: int, need: int) -> int:
    return max(need, FULL)


def _exponential(_op: Operation, _index: int, need: int) -> int:
    return max(need, min(need + _EXPONENT_BITS, FULL))


def _exact(_op: Operation, _index: int, _need: int) -> int:
    return EXACT


def _sum(op: Operation, _index: int, need: int) -> int:
    return need if _terms_agree(*op.operands) else max(need, FULL)


def _truncation(op: Operation, _index: int, need: int) -> int:
    return EXACT if need == EXACT else min(need, rounding_need(element_of(op.results[0])))


_SMOOTH = (
    *(f"arith.{name}" for name in ("addf", "subf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf", "constant")),
    *("math.exp", "math.exp2", "tile.yield"),
)
"""What combiners hold that decide nothing: an error of an operand is an error of the result."""


def _reduction(op: Operation, _index: int, need: int) -> int:
    decides = any(inner.name not in _SMOOTH for region in op.regions for inner in region.walk())
    return EXACT if decides else max(need, FULL)


Transfer = Callable[[Operation, int, int], int]
"""What an operand needs: (operation, the operand's index, the greatest need of the results) -> bits."""


def _named(prefix: str, names: str, transfer: Transfer) -> dict[str, Transfer]:
    return {f"{prefix}.{name}": transfer for name in names.split()}


_TRANSFERS: dict[str, Transfer] = {
    **dict.fromkeys(_MOVES, _same),
    **_named("arith", "negf mulf divf extf maximumf minimumf maxnumf minnumf select", _same),
    **_named("math", "absf copysign sqrt rsqrt cbrt tanh erf atan asinh", _same),
    "arith.addf": _sum,
    **_named("math", "exp exp2 expm1 sinh cosh", _exponential),
    "arith.subf": _at_least_full,  # terms of one sign cancel
    **_named("math", "fma sin cos tan log log2 log10 log1p powf fpowi atan2 acos asin acosh atanh", _at_least_full),
    "arith.truncf": _truncation,
    "tile.reduce": _reduction,
    "tile.store": lambda _op, _index, _need: FULL,
    "tile.contract": _at_least_full,
}


def _loop_needs(needs: dict[SSAValue, int], op: Operation, index: int) -> int:
    """Of a value that enters a loop or leaves a region: what the loop's next turn and its result need."""
    owner = op if isinstance(op, scf.ForOp) else op.parent_op()
    if isinstance(owner, scf.ForOp):
        position = index - 3 if op is owner else index
        return max(needs.get(owner.results[position], 0), needs.get(owner.body.block.args[position + 1], 0))
    return needs.get(owner.results[index], 0) if isinstance(owner, scf.IfOp) else EXACT


def _need_at(needs: dict[SSAValue, int], op: Operation, index: int) -> int:
    if op.name == "scf.yield" or (isinstance(op, scf.ForOp) and index >= 3):
        return _loop_needs(needs, op, index)
    transfer = _TRANSFERS.get(op.name, _exact)
    need = max((needs.get(result, 0) if is_float(result) else EXACT for result in op.results), default=EXACT)
    if need < EXACT and op.results and is_float(op.results[0]):
        need = min(need, rounding_need(element_of(op.results[0])))  # a result of fewer bits is rounded at once
    return need and transfer(op, index, need)


def needed_bits(root: Operation) -> Needs:
    """The need of every float value inside `root`: between 0 (no use) and `EXACT`."""
    operations = [op for op in root.walk(reverse=True) if op is not root]
    needs: dict[SSAValue, int] = {}
    changed = True
    while changed:  # needs only grow, and there are few of them
        changed = False
        for op in operations:
            for index, value in enumerate(op.operands):
                if not is_float(value):
                    continue
                need = _need_at(needs, op, index)
                if need > needs.get(value, 0):
                    needs[value] = need
                    changed = True
    return needs
