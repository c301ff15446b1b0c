"""The scalar bodies of named linalg operations: what one step computes from an element of each operand.

The rules are those of MLIR: operands are cast to the output's element type (integers signed, unless the operation or its attribute `cast`
says otherwise) before anything is computed; on truth values a sum is `or` and a product `and`.
"""

from collections.abc import Callable, Sequence

from treadle.dialects.mlir_ext.linalg_base import YieldOp, cast_scalar, element_type
from treadle.ir.builtin import AnyFloat, IntegerType
from treadle.ir.core import Attribute, Block, Operation, Region, SSAValue, VerifyException
from treadle.ir.dialects import arith

TRUTH = IntegerType(1)


class Scalars:
    """The block of a body under construction: `inputs` and `output` are its arguments; operations are appended to it."""

    def __init__(self, types: Sequence[Attribute], *, unsigned: bool) -> None:
        self.block = Block(arg_types=types)
        self.inputs: list[SSAValue] = list(self.block.args[:-1])
        self.output: SSAValue = self.block.args[-1]
        self.unsigned = unsigned

    def cast(self, value: SSAValue, target: Attribute | None = None, *, unsigned: bool | None = None) -> SSAValue:
        """`value` in `target`, by default the output's element type and the operation's way of casting."""
        way = self.unsigned if unsigned is None else unsigned
        return cast_scalar(self.block, value, self.output.type if target is None else target, unsigned=way)

    def add(self, left: SSAValue, right: SSAValue) -> SSAValue:
        """The sum; of truth values `or`."""
        return self._apply(left, right, arith.AddfOp, arith.AddiOp, arith.OrIOp)

    def subtract(self, left: SSAValue, right: SSAValue) -> SSAValue:
        """The difference."""
        return self._apply(left, right, arith.SubfOp, arith.SubiOp, None)

    def multiply(self, left: SSAValue, right: SSAValue) -> SSAValue:
        """The product; of truth values `and`."""
        return self._apply(left, right, arith.MulfOp, arith.MuliOp, arith.AndIOp)

    def largest(self, left: SSAValue, right: SSAValue, *, unsigned: bool = False) -> SSAValue:
        """The larger one; NaN where either is."""
        on_integers = arith.MaxUIOp if unsigned else arith.MaxSIOp
        return self._apply(left, right, arith.MaximumfOp, on_integers, on_integers)

    def smallest(self, left: SSAValue, right: SSAValue, *, unsigned: bool = False) -> SSAValue:
        """The smaller one; NaN where either is."""
        on_integers = arith.MinUIOp if unsigned else arith.MinSIOp
        return self._apply(left, right, arith.MinimumfOp, on_integers, on_integers)

    def _apply(
        self,
        left: SSAValue,
        right: SSAValue,
        on_floats: Callable[..., Operation],
        on_integers: Callable[..., Operation],
        on_truth: Callable[..., Operation] | None,
    ) -> SSAValue:
        make = on_floats if isinstance(left.type, AnyFloat) else on_truth if left.type == TRUTH else on_integers
        if make is None or left.type != right.type:
            raise VerifyException(f"the operation is not defined on {left.type} and {right.type}")
        op = make(left, right)
        self.block.add_op(op)
        return op.results[0]


Rule = Callable[[Scalars], SSAValue]
"""Appends what one step computes and returns the value that the body yields."""


def multiply_add(body: Scalars) -> SSAValue:
    """`out + cast(a) * cast(b)`"""
    left, right = (body.cast(value) for value in body.inputs)
    return body.add(body.output, body.multiply(left, right))


def quantized_multiply_add(body: Scalars) -> SSAValue:
    """`out + (cast(a) - cast(a_zero)) * (cast(b) - cast(b_zero))`"""
    a, b, a_zero, b_zero = body.inputs
    left = body.subtract(body.cast(a), body.cast(a_zero))
    right = body.subtract(body.cast(b), body.cast(b_zero))
    return body.add(body.output, body.multiply(left, right))


def add_up(body: Scalars) -> SSAValue:
    """`out + cast(a)`"""
    return body.add(body.output, body.cast(body.inputs[0]))


def keep_largest(body: Scalars) -> SSAValue:
    """`max(out, cast(a))`"""
    return body.largest(body.output, body.cast(body.inputs[0]))


def keep_largest_unsigned(body: Scalars) -> SSAValue:
    """`max(out, cast(a))` of unsigned integers"""
    return body.largest(body.output, body.cast(body.inputs[0], unsigned=True), unsigned=True)


def keep_smallest(body: Scalars) -> SSAValue:
    """`min(out, cast(a))`"""
    return body.smallest(body.output, body.cast(body.inputs[0]))


def keep_smallest_unsigned(body: Scalars) -> SSAValue:
    """`min(out, cast(a))` of unsigned integers"""
    return body.smallest(body.output, body.cast(body.inputs[0], unsigned=True), unsigned=True)


def convert(body: Scalars) -> SSAValue:
    """`cast(a)`"""
    return body.cast(body.inputs[0])


def same_body(one: Region, other: Region) -> bool:
    """Whether two bodies are the same operations on the same values; what operations promise about their operands may differ."""
    first, second = one.block, other.block
    if len(first.args) != len(second.args) or len(first.ops) != len(second.ops):
        return False
    known: dict[SSAValue, SSAValue] = dict(zip(first.args, second.args, strict=True))
    for left, right in zip(first.ops, second.ops, strict=True):
        if left.name != right.name or [known.get(v) for v in left.operands] != list(right.operands):
            return False
        if [v.type for v in left.results] != [v.type for v in right.results]:
            return False
        known |= dict(zip(left.results, right.results, strict=True))
    return [a.type for a in first.args] == [a.type for a in second.args]


def scalar_body(rule: Rule, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue], *, unsigned: bool = False) -> Region:
    """The region of `rule` for operands of these types; raises `VerifyException` where it is not defined on their elements."""
    types = [element_type(value) for value in (*inputs, *outputs)]
    if len(outputs) != 1 or not all(isinstance(kind, AnyFloat | IntegerType) for kind in types):
        raise VerifyException("expected one output, and float or integer elements")
    body = Scalars(types, unsigned=unsigned)
    body.block.add_op(YieldOp(rule(body)))
    return Region(body.block)
