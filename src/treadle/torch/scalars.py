"""Scalar arithmetic at the end of a body: the operation for the type of its operands, floats or integers."""

from collections.abc import Callable

import torch

from treadle.ir.builtin import AnyFloat, number_attr
from treadle.ir.core import Attribute, Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, math
from treadle.ir.emitter import at_end
from treadle.torch.elements import ELEMENTS

Make = Callable[..., Operation]


class Scalars:
    """Emits arithmetic on scalars; operands of one operation have one type."""

    def __init__(self, block: Block) -> None:
        self._emit = at_end(block)

    def put(self, op: Operation) -> SSAValue:
        """Append an operation and return its result."""
        return self._emit.insert(op)

    def constant(self, number: float, kind: Attribute) -> SSAValue:
        """A number of a type."""
        return self.put(arith.ConstantOp(number_attr(number, kind)))  # pyright: ignore[reportArgumentType] - numbers are such attributes

    def like(self, value: SSAValue, number: float) -> SSAValue:
        """A number of the type of `value`."""
        return self.constant(number, value.type)

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The sum."""
        return self._either(arith.AddfOp, arith.AddiOp, a, b)

    def subtract(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The difference."""
        return self._either(arith.SubfOp, arith.SubiOp, a, b)

    def multiply(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The product; `and` of truth values."""
        return self._either(arith.MulfOp, arith.AndIOp if a.type == builtin.i1 else arith.MuliOp, a, b)

    def largest(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The larger one, NaN where either is; `or` of truth values."""
        return self._either(arith.MaximumfOp, arith.OrIOp if a.type == builtin.i1 else arith.MaxSIOp, a, b)

    def smallest(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The smaller one, NaN where either is; `and` of truth values."""
        return self._either(arith.MinimumfOp, arith.AndIOp if a.type == builtin.i1 else arith.MinSIOp, a, b)

    def compare(self, predicate: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """`predicate`: lt, le, gt, ge, eq, ne. A comparison with NaN is false, but for ne."""
        if isinstance(a.type, AnyFloat):
            return self.put(arith.CmpfOp(a, b, ("u" if predicate == "ne" else "o") + predicate))
        sign = "" if predicate in ("eq", "ne") else "u" if a.type == builtin.i1 else "s"
        return self.put(arith.CmpiOp(a, b, sign + predicate))

    def select(self, condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """`a` where the condition holds, else `b`."""
        return self.put(arith.SelectOp(condition, a, b))

    def negate(self, a: SSAValue) -> SSAValue:
        """`-a`"""
        if isinstance(a.type, AnyFloat):
            return self.put(arith.NegfOp(a))
        return self.put(arith.SubiOp(self.like(a, 0), a))

    def magnitude(self, a: SSAValue) -> SSAValue:
        """`|a|`"""
        if isinstance(a.type, AnyFloat):
            return self.put(math.AbsFOp(a))
        return self.select(self.compare("lt", a, self.like(a, 0)), self.negate(a), a)

    def reciprocal(self, a: SSAValue) -> SSAValue:
        """`1 / a` of a float."""
        return self.put(arith.DivfOp(self.like(a, 1), a))

    def logistic(self, a: SSAValue) -> SSAValue:
        """`1 / (1 + exp(-a))`"""
        return self.reciprocal(self.add(self.like(a, 1), self.put(math.ExpOp(self.negate(a)))))

    def power(self, a: SSAValue, exponent: float) -> SSAValue:
        """`a ** exponent` for a number: products and roots where they do."""
        roots: dict[float, Make] = {0.5: math.SqrtOp, -0.5: math.RsqrtOp}
        if exponent in (1, 2, 3, 4):
            square = self.multiply(a, a) if exponent > 1 else a
            return {1: a, 2: square}.get(exponent) or self.multiply(square, a if exponent == 3 else square)
        if exponent == 0:
            return self.like(a, 1)
        if exponent == -1:
            return self.reciprocal(a)
        return self.put(roots[exponent](a) if exponent in roots else math.PowFOp(a, self.like(a, exponent)))

    def cast(self, value: SSAValue, source: torch.dtype, target: torch.dtype) -> SSAValue:
        """A value of one of PyTorch's types in another one; every number but 0 is true."""
        if source == target:
            return value
        if target == torch.bool:
            return self.compare("ne", value, self.like(value, 0))
        kind = ELEMENTS[target]
        if source.is_floating_point and target.is_floating_point:
            return self._resize(value, source, target)
        if source.is_floating_point:
            return self.put(arith.FPToSIOp(value, kind))
        if target.is_floating_point:
            return self.put((arith.UIToFPOp if source == torch.bool else arith.SIToFPOp)(value, kind))
        if source.itemsize == target.itemsize and source != torch.bool:
            return value
        wider = arith.ExtUIOp if source == torch.bool else arith.ExtSIOp
        return self.put((arith.TruncIOp if source.itemsize > target.itemsize else wider)(value, kind))

    def _resize(self, value: SSAValue, source: torch.dtype, target: torch.dtype) -> SSAValue:
        """A float in another type; two types of one width go through f32."""
        if source.itemsize == target.itemsize:
            value, source = self.put(arith.ExtFOp(value, builtin.f32)), torch.float32
        kind = ELEMENTS[target]
        if source.itemsize > target.itemsize:
            return self.put(arith.TruncFOp(value, kind))  # pyright: ignore[reportArgumentType] - a float type
        return self.put(arith.ExtFOp(value, kind))  # pyright: ignore[reportArgumentType]

    def _either(self, on_floats: Make, on_integers: Make, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.put((on_floats if isinstance(a.type, AnyFloat) else on_integers)(a, b))
