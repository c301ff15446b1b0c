"""Expressions of a kernel: what can be computed while it is compiled is, the rest becomes operations."""

import ast
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from treadle.errors import TreadleError
from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith
from treadle.language.blocks import block_of, load
from treadle.language.emitter import Emitter
from treadle.language.functions import tile_method
from treadle.language.intrinsics import Call, Intrinsic
from treadle.language.shared_memory import load_slot, slot_of
from treadle.language.source import Refusal, source_of
from treadle.language.values import VALUES, Array, Block, Condition, Index, Shared, Slot, Tile, parts_of, text_of
from treadle.layout.tile_layout import NEW_DIM

_PYTHON: Any = operator
_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", _PYTHON.add),
    ast.Sub: ("-", _PYTHON.sub),
    ast.Mult: ("*", _PYTHON.mul),
    ast.Div: ("/", _PYTHON.truediv),
    ast.FloorDiv: ("//", _PYTHON.floordiv),
    ast.Mod: ("%", _PYTHON.mod),
    ast.Pow: ("**", _PYTHON.pow),
    ast.LShift: ("<<", _PYTHON.lshift),
    ast.RShift: (">>", _PYTHON.rshift),
    ast.BitAnd: ("&", _PYTHON.and_),
    ast.BitOr: ("|", _PYTHON.or_),
    ast.BitXor: ("^", _PYTHON.xor),
}
_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", _PYTHON.eq),
    ast.NotEq: ("!=", _PYTHON.ne),
    ast.Lt: ("<", _PYTHON.lt),
    ast.LtE: ("<=", _PYTHON.le),
    ast.Gt: (">", _PYTHON.gt),
    ast.GtE: (">=", _PYTHON.ge),
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: _PYTHON.neg,
    ast.UAdd: _PYTHON.pos,
    ast.Not: _PYTHON.not_,
    ast.Invert: _PYTHON.invert,
}
_HINT_STATIC = "make it a tl.constexpr argument, or compute it from such arguments"


class BoundMethod:
    """A function of the language as a method of a tile."""

    def __init__(self, method: Intrinsic, owner: object) -> None:
        self.method, self.owner = method, owner


class Expressions:
    """What the expressions of one function give; `scope` holds its variables."""

    def __init__(self, function: FunctionType, emitter: Emitter, call: Call, depth: int = 0) -> None:
        self.function, self.emit, self.call, self.depth = function, emitter, call, depth
        self.source, self.tree = source_of(function)
        self.scope: dict[str, object] = {}
        self._outer = outer_names(function)

    def error(self, node: ast.AST, problem: str, hint: str) -> TreadleError:
        """TR109 at a node."""
        return self.source.error(node, problem, hint)

    def at(self, node: ast.AST, do: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Do something for a node: operations get its place, and what is refused becomes an error there."""
        before, self.emit.location = self.emit.location, self.source.location(node)
        try:
            return do(*arguments, **named)
        except Refusal as refusal:
            raise self.source.error(node, refusal.problem, refusal.hint) from None
        finally:
            self.emit.location = before

    # --- expressions

    def loaded(self, value: object) -> object:
        """A value; a block of an array, or a slot of shared memory, as the tile that it holds."""
        if isinstance(value, Slot):
            return load_slot(self.emit, value)
        return load(self.emit, self.call, value) if isinstance(value, Block) else value

    def value(self, node: ast.expr) -> Any:
        """What an expression gives."""
        return self.at(node, self._value, node)

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._name(node)
            case ast.Tuple():
                return tuple(self.value(part) for part in node.elts)
            case ast.List():
                return [self.value(part) for part in node.elts]
            case ast.BinOp():
                return self.binary(node, node.op, self.value(node.left), self.value(node.right))
            case ast.UnaryOp():
                return self._unary(node)
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp():
                return self._bool(node)
            case ast.IfExp():
                return self._choice(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self.call_of(node)
            case ast.JoinedStr():
                return "".join(str(self.value(part)) for part in node.values)
            case ast.FormattedValue():
                return self.value(node.value)
            case ast.Slice():
                return slice(*(None if part is None else self.value(part) for part in (node.lower, node.upper, node.step)))
            case _:
                what = type(node).__name__
                raise self.error(
                    node, f"kernels have no expression of this kind ({what})", "use arithmetic, comparisons, subscripts and calls"
                )

    def _name(self, node: ast.Name) -> object:
        for names in (self.scope, self._outer):
            if node.id in names:
                return names[node.id]
        raise self.error(
            node,
            f"'{node.id}' is not defined here",
            "a variable that a loop or one side of a branch defines ends with it: define it before",
        )

    def binary(self, node: ast.AST, op: ast.operator, left: object, right: object) -> object:
        left, right = self.loaded(left), self.loaded(right)
        if type(op) is ast.MatMult:
            raise self.error(node, "kernels have no operator @", "use tl.dot(a, b), or tl.dot(a, b, acc) with an accumulator")
        symbol, compute = _BINARY[type(op)]
        if not isinstance(left, VALUES) and not isinstance(right, VALUES):
            return self.python(node, compute, left, right)
        return self.at(node, self.emit.binary, symbol, left, right)

    def python(self, node: ast.AST, compute: Callable[..., Any], *operands: object) -> Any:
        try:
            return compute(*operands)
        except (TreadleError, Refusal):
            raise
        except Exception as error:
            raise self.error(
                node, f"{type(error).__name__}: {error}", "this is computed while the kernel is compiled: correct the values"
            ) from error

    def _unary(self, node: ast.UnaryOp) -> object:
        value = self.loaded(self.value(node.operand))
        if not isinstance(value, VALUES):
            return self.python(node, _UNARY[type(node.op)], value)
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.op, ast.Not) and not isinstance(value, Condition):
            raise self.error(node, f"'not' of {text_of(value)}", "use ~ for the elements of a tile")
        return self.emit.negate(value) if isinstance(node.op, ast.USub) else self.emit.invert(value)

    def _compare(self, node: ast.Compare) -> object:
        left, result = self.loaded(self.value(node.left)), None
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.loaded(self.value(right_node))
            one = self._comparison(node, op, left, right)
            result = one if result is None else self._and(node, result, one)
            left = right
        return result

    def _comparison(self, node: ast.Compare, op: ast.cmpop, left: object, right: object) -> object:
        if isinstance(op, ast.Is | ast.IsNot):
            return (left is right) == isinstance(op, ast.Is)
        if type(op) not in _COMPARE:
            if isinstance(left, VALUES) or isinstance(right, VALUES):
                raise self.error(node, "'in' on values of the kernel", "compare with == and |")
            return self.python(node, _PYTHON.contains, right, left) == isinstance(op, ast.In)
        symbol, compute = _COMPARE[type(op)]
        if not isinstance(left, VALUES) and not isinstance(right, VALUES):
            return self.python(node, compute, left, right)
        return self.at(node, self.emit.comparison, symbol, left, right)

    def _and(self, node: ast.expr, a: object, b: object) -> object:
        if not isinstance(a, VALUES):
            return b if a else a
        if not isinstance(b, VALUES):
            return a if b else b
        return self.at(node, self.emit.binary, "&", a, b)

    def _bool(self, node: ast.BoolOp) -> object:
        result: object = isinstance(node.op, ast.And)
        for part in node.values:
            value = self.value(part)
            if isinstance(value, Tile | Block):
                raise self.error(part, "'and' and 'or' of tiles", "use & and | for the elements of tiles")
            if not isinstance(value, VALUES):
                if bool(value) != isinstance(node.op, ast.And):
                    return value
                result = value if not isinstance(result, VALUES) else result
            elif not isinstance(result, VALUES):
                result = value
            else:
                result = self.at(node, self.emit.binary, "&" if isinstance(node.op, ast.And) else "|", result, value)
        return result

    def _choice(self, node: ast.IfExp) -> object:
        test = self.value(node.test)
        if not isinstance(test, VALUES):
            return self.value(node.body if test else node.orelse)
        if not isinstance(test, Condition):
            raise self.error(node.test, f"a choice by {text_of(test)}", "choose between the elements of tiles with tl.where")
        yes, no = self.carriable(node, "this", self.value(node.body)), self.value(node.orelse)
        return rebound(yes, self.emit.insert(arith.SelectOp(test.value, yes.value, self.same_kind(node, "this", yes, no))))

    def _attribute(self, node: ast.Attribute) -> object:
        owner = self.value(node.value)
        match owner, node.attr:
            case Array(), "shape":
                return owner.sizes
            case ((Array() | Tile() | Slot() | Shared()), "dtype"):
                return owner.dtype
            case Block(), "dtype":
                return owner.array.dtype
            case ((Tile() | Block() | Slot() | Shared()), "shape"):
                return owner.shape
            case ((Tile() | Block() | Slot() | Index()), name) if (method := tile_method(name)) is not None:
                return BoundMethod(method, self.loaded(owner))
            case Block(axes=(_, _)), "T":
                return replace(owner, axes=owner.axes[::-1], shape=owner.shape[::-1])  # read across: nothing is moved
            case ((Tile() | Block() | Slot()), "T"):
                return self.emit.permute(self._tile(node, owner), (1, 0))
            case _ if isinstance(owner, VALUES):
                hint = "arrays have shape and dtype; tiles have shape, dtype, T, to(dtype) and the functions of tl that take one tile"
                raise self.error(node, f"{text_of(owner)} has no '{node.attr}'", hint)
            case _:
                return self.python(node, getattr, owner, node.attr)

    def _tile(self, node: ast.AST, value: object) -> Tile:
        return self.at(node, self.emit.tile, self.loaded(value))

    # --- subscripts

    def block(self, node: ast.Subscript) -> Block | Array | Slot:
        owner = self.value(node.value)
        if isinstance(owner, Shared):
            return self.at(node, slot_of, self.emit, owner, self._subscripts(node))
        if not isinstance(owner, Array):
            raise self.error(node, f"a part of {text_of(owner)} cannot be assigned to", "only parts of arrays are written to")
        return self.at(node, block_of, self.emit, owner, self._subscripts(node))

    def _subscripts(self, node: ast.Subscript) -> tuple[object, ...]:
        value = self.value(node.slice)
        return tuple(self.loaded(part) for part in parts_of(value))

    def _subscript(self, node: ast.Subscript) -> object:
        owner = self.value(node.value)
        if isinstance(owner, Array | Shared):
            return self.block(node)
        parts = self._subscripts(node)
        if isinstance(owner, Tile | Block | Slot):
            return self._new_dims(node, self._tile(node, owner), parts)
        if any(isinstance(part, VALUES) for part in parts):
            raise self.error(node, f"a subscript of {text_of(owner)} that only the running kernel knows", _HINT_STATIC)
        return self.python(node, operator.getitem, owner, parts if len(parts) != 1 else parts[0])

    def _new_dims(self, node: ast.Subscript, owner: Tile, parts: Sequence[object]) -> Tile:
        """`x[:, None]`: new dimensions of extent 1; `x[0]` along a dimension of extent 1 takes it away."""
        order: list[int] = []
        axis = 0
        for part in parts:
            if part is None:
                order.append(NEW_DIM)
                continue
            if axis >= len(owner.shape) or not (part == slice(None) or (part == 0 and owner.shape[axis] == 1)):
                raise self.error(
                    node, f"this part of {text_of(owner)}", "a tile takes : and None, and 0 where its extent is 1; cut blocks of arrays"
                )
            if part == slice(None):
                order.append(axis)
            axis += 1
        return self.at(node, self.emit.permute, owner, [*order, *range(axis, len(owner.shape))])

    # --- values that loops and branches carry

    def carriable(self, node: ast.AST, name: str, value: object) -> Tile | Index | Condition:
        """A value as a loop carries it. Numbers become indices, or elements of float32."""
        value = self.loaded(value)
        if isinstance(value, Tile | Index | Condition):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return self.at(node, self.emit.index, value)
        if isinstance(value, float):
            return self.at(node, self.emit.tile, value)
        raise self.error(
            node, f"'{name}' is {text_of(value)} before and changes inside", "loops and branches carry tiles, indices and numbers"
        )

    def same_kind(self, node: ast.AST, name: str, before: Tile | Index | Condition, after: object) -> SSAValue:
        """The value that a variable has at the end of an iteration, of the kind that it had at its start."""
        after = self.loaded(after)
        if isinstance(before, Index) and isinstance(after, int | Index) and not isinstance(after, bool):
            return self.at(node, self.emit.index, after).value
        if isinstance(before, Tile) and isinstance(after, Tile | int | float | Index):
            end = self.at(node, self.emit.tile, after, before.dtype)
            if (end.shape, end.dtype) == (before.shape, before.dtype):
                return end.value
        if isinstance(before, Condition) and isinstance(after, Condition):
            return after.value
        hint = "give it its final shape and type before, as in acc = tl.zeros((64, 64), tl.float32), or convert it: .to(..)"
        raise self.error(node, f"'{name}' is {text_of(before)} before and {text_of(after)} after", hint)

    def call_of(self, node: ast.Call) -> object:
        """What a call gives."""
        raise NotImplementedError


def rebound(like: Tile | Index | Condition, value: SSAValue) -> Tile | Index | Condition:
    """The variable of the same kind with another value."""
    match like:
        case Tile():
            return Tile(value, like.shape, like.dtype)
        case Index():
            return Index(value, value)
        case Condition():
            return Condition(value)


def outer_names(function: FunctionType) -> dict[str, object]:
    """What a function sees around it: its module's names, those of enclosing functions, and Python's."""
    closure = inspect.getclosurevars(function)
    return {**closure.builtins, **function.__globals__, **closure.nonlocals}
