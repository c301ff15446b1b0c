"""simplify-math: fewer and cheaper operations for the same elementwise functions, as far as the permitted errors go.

Level: tile. Reads: `error_bits` (set-precision). Writes: exponentials as powers of two; 1 + tanh as a quotient of an exponential, which
loses no digits where tanh is near -1, and 1 + erf as a power of a polynomial (error_function.py); quotients of an exponential with
`fastmath<arcp>` (a reciprocal may stand for the division, and be zero below the normal range of f32) and their exponential with
`fastmath<afn>` (zero there too), as powers of differences from a maximum that are summed have it; constant factors gathered in one place;
comparisons of places with sizes that powers of two divide, equal for neighbours (place_comparisons.py).
Leaves alone: operations without `error_bits` (their results decide something), elements other than f32.

The rewrites are pairs of terms (`RULES`). Names in lower case are values, in upper case constants; `x * C` is a negation, too. Operations
within a pattern have no other use, unless they are `shared`. New operations may err as much as the one that is replaced.
"""

import ast
import math as numbers
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import cast

from treadle import remarks
from treadle.analysis.needed_precision import computes, constant_float, element_of
from treadle.analysis.powers_beside_maximum import stands_beside_one
from treadle.dialects import tile
from treadle.dialects.precision import EXACT, FULL, NARROW, error_bits, has_flag, set_error_bits
from treadle.errors import InternalError
from treadle.ir.core import Operation, OpResult, SSAValue
from treadle.ir.dialects import arith, builtin, math
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.rewriting import InsertPoint, Pattern, PatternRewriter, rewrite_greedily
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.error_function import ComplementOfErf
from treadle.transforms.kernel.kernel_ir import KernelPass
from treadle.transforms.kernel.place_comparisons import CompareRuns

NAME = "simplify-math"
_LARGEST_ADDEND = 2.0**60
_SMALLEST, _LARGEST = 2.0**-100, 2.0**100
_OPERATIONS: dict[type[ast.operator], str] = {ast.Add: "arith.addf", ast.Sub: "arith.subf", ast.Mult: "arith.mulf", ast.Div: "arith.divf"}
_CLASSES = {op.name: op for op in (arith.AddfOp, arith.MulfOp, arith.DivfOp, math.Exp2Op)}
_FOLDS: dict[type[ast.operator], Callable[[float, float], float]] = {ast.Mult: lambda a, b: a * b, ast.Div: lambda a, b: a / b}
_RECIPROCAL, _APPROXIMATE = arith.FastMathFlag.ALLOW_RECIP, arith.FastMathFlag.APPROX_FUNC


def permits(op: Operation, bits: int) -> bool:
    """Whether an f32 operation may err by 2^-bits."""
    return error_bits(op) <= bits and isinstance(element_of(op.results[0]), builtin.Float32Type)


def is_plain(number: float) -> bool:
    """Whether a factor is far from the ends of f32."""
    return number != 0 and _SMALLEST <= abs(number) <= _LARGEST


@dataclass(frozen=True, slots=True)
class Match:
    """What the names of a pattern stand for. `by_reciprocal`: a matched division may be done by a reciprocal."""

    values: Mapping[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    constants: Mapping[str, float] = field(default_factory=lambda: {"LOG2E": numbers.log2(numbers.e)})
    by_reciprocal: bool = False

    def value(self, name: str, value: SSAValue) -> "Match":
        """With one more value."""
        return replace(self, values={**self.values, name: value})

    def constant(self, name: str, number: float) -> "Match":
        """With one more constant."""
        return replace(self, constants={**self.constants, name: number})

    def folded(self, term: ast.AST) -> float | None:
        """The number that a term is; None for one with values in it."""
        match term:
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return None if (number := self.folded(operand)) is None else -number
            case ast.Name(id=name):
                return self.constants.get(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _FOLDS:
                one, other = self.folded(left), self.folded(right)
                return None if one is None or other is None else _FOLDS[type(op)](one, other)
            case _:
                return None

    def computed(self, term: ast.AST) -> Iterator[float]:
        """The constants of a term that are made of a pattern's."""
        number = self.folded(term)
        if number is None:
            yield from (found for inner in ast.iter_child_nodes(term) for found in self.computed(inner))
        elif not isinstance(term, ast.Constant):
            yield number


@dataclass(frozen=True, slots=True)
class Rule(Pattern):
    """Operations that are `pattern` become `result` where the first of them may err by 2^-bits, its constants are `fit`, and all that
    `result` makes of them are far from the ends of f32.

    In a pattern `t @ f(x)` gives a result of `f` a name. In a result divisions are as exact as the matched one; `fast(..)`: by reciprocals,
    of powers that may be flushed to zero; `precise(x, n)`: with n bits more than the result needs, up to all of f32.
    """

    bits: int
    pattern: str
    result: str
    fit: Callable[[Mapping[str, float]], bool] = lambda constants: True

    @property
    def label(self) -> str:
        return f"{self.pattern} -> {self.result}"

    @property
    def root(self) -> str:
        return _name(_TERMS[self.pattern])

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        pattern, result = _TERMS[self.pattern], _TERMS[self.result]
        if _name(pattern) != op.name or not permits(op, self.bits):
            return
        for found in self._operands(pattern, op, Match()):
            if self.fit(found.constants) and all(map(is_plain, found.computed(result))):
                rewriter.replace(op, (), [_Writer(op, rewriter, found).term(result, error_bits(op))])
                return

    def _operands(self, term: ast.expr, op: Operation, found: Match) -> Iterator[Match]:
        """How the operands of an operation match those of a term."""
        match term:
            case ast.BinOp(left=left, op=ast.Mult(), right=ast.Name(id=name)) if name.isupper() and op.name == "arith.negf":
                yield from self._matches(left, op.operands[0], found.constant(name, -1.0))
            case _ if op.name != _name(term) or (op.name == "math.exp2" and has_flag(op, _APPROXIMATE)):
                return
            case ast.BinOp(left=left, op=kind, right=right):
                a, b = op.operands
                found = replace(found, by_reciprocal=has_flag(op, _RECIPROCAL)) if isinstance(kind, ast.Div) else found
                for one, other in ((a, b), (b, a)) if isinstance(kind, ast.Add | ast.Mult) else ((a, b),):
                    for first in self._matches(left, one, found):
                        yield from self._matches(right, other, first)
            case ast.Call(args=[argument, *more]):
                for first in self._matches(argument, op.operands[0], found):
                    yield from self._matches(more[0], op.operands[1], first) if more else (first,)
            case _:
                return

    def _matches(self, term: ast.expr, value: SSAValue, found: Match) -> Iterator[Match]:
        """How a value matches a term."""
        match term:
            case ast.Constant(value=wanted):
                yield from (found,) if constant_float(value) == wanted else ()
            case ast.Name(id=name) if name.isupper():
                yield from () if (number := constant_float(value)) is None else (found.constant(name, number),)
            case ast.Name(id=name):
                yield from (found.value(name, value),) if found.values.get(name, value) is value else ()
            case ast.BinOp(left=ast.Name(id=name), op=ast.MatMult(), right=named):
                yield from (inner.value(name, value) for inner in self._matches(named, value, found))
            case ast.Call(func=ast.Name(id="shared"), args=[inner]) if isinstance(value, OpResult):
                yield from self._operands(inner, value.op, found)
            case _ if isinstance(value, OpResult) and value.op.name in _names(term):
                if value.has_one_use() and self._may_change(value.op):
                    yield from self._operands(term, value.op, found)
            case _:
                return

    def _may_change(self, op: Operation) -> bool:
        """Whether sums and powers within a pattern may be computed in another way."""
        return permits(op, {"arith.addf": FULL, "math.exp2": self.bits}.get(op.name, EXACT))


@cache
def _names(term: ast.expr) -> tuple[str, ...]:
    """The operations that may be a term: a product with a constant is a negation, too."""
    is_scaled = isinstance(term, ast.BinOp) and isinstance(term.right, ast.Name) and term.right.id.isupper()
    return (_name(term), "arith.negf") if is_scaled else (_name(term),)


@cache
def _name(term: ast.expr) -> str:
    """The operation that a term is."""
    match term:
        case ast.BinOp(op=op):
            return _OPERATIONS.get(type(op), "")
        case ast.Call(func=ast.Name(id=name)):
            return f"math.{name}"
        case _:
            return ""


@dataclass(frozen=True, slots=True)
class _Writer:
    """New operations in front of the matched one."""

    op: Operation
    rewriter: PatternRewriter
    found: Match

    def term(self, term: ast.expr, bits: int, *, fast: bool = False) -> SSAValue:
        """A term's value, which may err by 2^-bits."""
        if (number := self.found.folded(term)) is not None:
            return self._constant(number)
        match term:
            case ast.Name(id=name):
                return self.found.values[name]
            case ast.BinOp(left=left, op=ast.Mult(), right=right) if self.found.folded(right) == 1.0:
                return self.term(left, bits)
            case ast.Call(func=ast.Name(id="precise"), args=[inner, ast.Constant(value=int() as more)]):
                return self.term(inner, min(bits + more, FULL))
            case ast.Call(func=ast.Name(id="fast"), args=[inner]):
                return self.term(inner, bits, fast=True)
            case ast.BinOp(left=left, right=right):
                return self._made(_name(term), [left, right], bits, fast)
            case ast.Call(args=args):
                return self._made(_name(term), args, bits, fast)
            case _:
                raise InternalError(f"no operation is {ast.unparse(term)}")

    def _made(self, name: str, terms: Sequence[ast.expr], bits: int, fast: bool) -> SSAValue:
        """One operation, behind its operands, constants the last."""
        last = sorted(terms, key=lambda term: self.found.folded(term) is not None)
        values = {term: self.term(term, bits) for term in last}
        is_fast = fast or (name == "arith.divf" and self.found.by_reciprocal)
        flags = arith.FastMathFlagsAttr([_RECIPROCAL if name == "arith.divf" else _APPROXIMATE] if is_fast else "none")
        operands, kind = [values[term] for term in terms], self.op.results[0].type
        op = _CLASSES[name].build(operands=operands, properties={"fastmath": flags}, result_types=[kind])
        set_error_bits(op, bits)
        return self._inserted(op)

    def _constant(self, number: float) -> SSAValue:
        """A constant of the matched operation's type."""
        kind = self.op.results[0].type
        (number,) = struct.unpack("f", struct.pack("f", number))
        if isinstance(kind, builtin.TensorType):
            typed = cast("builtin.TensorType[builtin.Float32Type]", kind)
            return self._inserted(arith.ConstantOp(builtin.DenseIntOrFPElementsAttr.from_list(typed, [number])))
        return self._inserted(arith.ConstantOp(builtin.FloatAttr(number, builtin.f32)))

    def _inserted(self, op: Operation) -> SSAValue:
        self.rewriter.insert(op, InsertPoint.before(self.op))
        return op.results[0]


class EraseUnused(Pattern):
    """What a rewrite left behind must not count as a use."""

    def may_rewrite(self, name: str) -> bool:
        return name.startswith(("arith.", "math."))

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if self.may_rewrite(op.name) and all(result.first_use is None for result in op.results):
            rewriter.erase(op)


class FlushBesideMaximum(Pattern):
    """Powers that are summed with that of their row's maximum, 1, may be zero below the normal range."""

    @property
    def root(self) -> str:
        return math.Exp2Op.name

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, math.Exp2Op) and permits(op, FULL) and not has_flag(op, _APPROXIMATE) and stands_beside_one(op):
            flags = arith.FastMathFlagsAttr([_APPROXIMATE])
            power = math.Exp2Op.build(operands=op.operands, properties={"fastmath": flags}, result_types=[op.results[0].type])
            set_error_bits(power, error_bits(op))
            rewriter.replace(op, power)


RULES = (
    Rule(FULL, "powf(x, 1)", "x"),
    Rule(FULL, "powf(x, 2)", "x * x"),
    Rule(FULL, "powf(x, 3)", "x * x * x"),
    Rule(FULL, "x + x * (t @ tanh(u))", "x * (t + 1)"),
    Rule(NARROW, "tanh(u) + 1", "fast(2 / (fast(exp2(precise(u * (-2 * LOG2E), 21))) + 1))"),
    Rule(NARROW, "1 - tanh(u)", "fast(2 / (fast(exp2(precise(u * (2 * LOG2E), 21))) + 1))"),
    # One rounding of an argument below 2^7 costs up to 2^-17.
    Rule(NARROW, "exp(x)", "exp2(precise(x * LOG2E, 7))"),
    # Exact for powers of two, else half a unit more than a rounded quotient.
    Rule(EXACT, "x / C", "x * (1 / C)", lambda constants: abs(numbers.frexp(constants["C"])[0]) == 0.5),
    Rule(FULL, "x / C", "x * (1 / C)", lambda constants: is_plain(constants["C"])),
    # The multiplication and the sum are one instruction.
    Rule(FULL, "(x + shared(shared(x * y) * C)) * D", "x * (y * (C * D) + D)"),
    # Constants of quotients meet; none above 1 is left in front of a division, where it could overflow.
    Rule(NARROW, "K * (x * (C / d))", "x * ((C * K) / d)"),
    Rule(NARROW, "K * (C / d)", "(C * K) / d"),
    Rule(NARROW, "shared(x * K) * (C / d)", "(x * (C * K)) / d", lambda constants: abs(constants["C"] * constants["K"]) <= 1),
    Rule(NARROW, "x * (C / d)", "(x * C) / d", lambda constants: abs(constants["C"]) <= 1),
    Rule(FULL, "x * 1", "x"),
    Rule(FULL, "shared(x * C) * D", "x * (D * C)"),
    Rule(FULL, "((x * C) * y) * D", "(x * (D * C)) * y"),
    # The factor costs nothing in a sum that has others.
    Rule(FULL, "(x * (y * K + C)) * D", "x * (y * (K * D) + C * D)"),
    Rule(FULL, "(x * D) * (y * K + C)", "x * (y * (K * D) + C * D)"),
    # Neither a divisor below 1 nor the smallest powers matter.
    Rule(NARROW, "a / (exp2(y) + C)", "fast(a / (fast(exp2(y)) + C))", lambda constants: 1.0 <= constants["C"] <= _LARGEST_ADDEND),
)
"""In the order in which they are tried."""
_TERMS = {text: ast.parse(text, mode="eval").body for rule in RULES for text in (rule.pattern, rule.result)}


def _operations(kernel: tile.KernelOp) -> Counter[str]:
    return Counter(op.name for op in kernel.body.walk() if computes(op))


def _listed(names: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in names.items()) or "none"


@register_pass
@dataclass(frozen=True)
class SimplifyMathPass(KernelPass):
    """Works on tiles without layouts; what the rewrites leave unused is for dce."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite one kernel."""
        before = _operations(kernel)
        rewrite_greedily(kernel, (EraseUnused(), *RULES, FlushBesideMaximum(), ComplementOfErf(), CompareRuns()))
        after = _operations(kernel)
        if before != after:
            text = f"{before.total()} operations become {after.total()}: {_listed(after - before)} instead of {_listed(before - after)}"
            remarks.emit("decision", NAME, kernel.sym_name.data, text, location_of(kernel))
