"""From the syntax tree of a Python function to the operations of a kernel.

The tree is walked once, in the order of execution. Whatever is known while that is done (numbers, `tl.constexpr` arguments, element types,
tuples, calls of Python functions on them) is computed at once; the rest becomes operations. Loops over `range` are loops of the kernel,
`if` on a condition that only the running kernel knows is a branch of it, and functions of the user's are compiled where they are called.
"""

import ast
import inspect
import operator
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, NoReturn

from treadle.dialects import tile
from treadle.errors import TreadleError
from treadle.ir.core import Block as IrBlock
from treadle.ir.core import Region, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.language.blocks import block_of, load, store
from treadle.language.dtypes import DType
from treadle.language.emitter import INDEX, Emitter
from treadle.language.errors import Refusal, Source
from treadle.language.intrinsics import PYTHON_NAMES, Bounds, Call, Intrinsic, tile_method
from treadle.language.values import VALUES, Array, Block, Condition, Index, Tile, text_of
from treadle.layout.tile_layout import NEW_DIM

_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
}
_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_MAX_INLINED = 64
_HINT_STATIC = "make it a tl.constexpr argument, or compute it from such arguments"


class _Return(Exception):  # noqa: N818 - control flow of the function that is compiled
    """A `return`, with what it returns."""

    def __init__(self, value: object) -> None:
        self.value = value


def source_of(function: FunctionType) -> tuple[Source, ast.FunctionDef]:
    """A function's text and its tree. Raises TR109 where Python has no text of it."""
    file = inspect.getsourcefile(function) or "<function>"
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        hint = "write the kernel in a file (or a notebook's cell): its text is what is compiled"
        raise Source(file).error(ast.Pass(), f"the text of '{function.__name__}' is not to be had: {error}", hint) from error
    text = "".join(lines)
    plain = textwrap.dedent(text)
    indent = len(lines[0]) - len(lines[0].lstrip()) if plain != text else 0
    source = Source(file, first, indent)
    node = ast.parse(plain).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise source.error(node, "this is no function", "decorate a function that is written with def")
    return source, node


class FunctionCompiler:
    """Compiles the body of one function; `scope` holds its variables. Functions that it calls have compilers of their own."""

    def __init__(self, function: FunctionType, emitter: Emitter, call: Call, depth: int = 0) -> None:
        self.function, self.emit, self.call, self.depth = function, emitter, call, depth
        self.source, self.tree = source_of(function)
        self.scope: dict[str, object] = {}
        self._outer = _outer_names(function)
        self._nesting = 0

    def run(self, arguments: Mapping[str, object]) -> object:
        """Compile the body with these arguments; what it returns."""
        self.scope.update(arguments)
        before = self.emit.location
        try:
            self._statements(self.tree.body)
        except _Return as returned:
            return returned.value
        finally:
            self.emit.location = before
        return None

    def fail(self, node: ast.AST, problem: str, hint: str) -> NoReturn:
        """Raise TR109 at a node."""
        raise self.source.error(node, problem, hint)

    # --- statements

    def _statements(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            self._at(node, self._statement, node)

    def _at(self, node: ast.AST, do: Callable[..., Any], *arguments: Any) -> Any:
        """Do something for a node: operations get its place, and what is refused becomes an error there."""
        before, self.emit.location = self.emit.location, self.source.location(node)
        try:
            return do(*arguments)
        except Refusal as refusal:
            raise self.source.error(node, refusal.problem, refusal.hint) from None
        finally:
            self.emit.location = before

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self._assign(target, value)
            case ast.AnnAssign(value=ast.expr()):
                self._assign(node.target, self.value(node.value))
            case ast.AugAssign():
                self._assign(node.target, self._binary(node, node.op, self._read_target(node.target), self.value(node.value)))
            case ast.For():
                self._for(node)
            case ast.If():
                self._if(node)
            case ast.Expr():
                self.value(node.value)
            case ast.Return():
                if self._nesting:
                    self.fail(node, "a return inside of a loop or branch of the kernel", "end the branch without it, and return at the end")
                raise _Return(None if node.value is None else self.value(node.value))
            case ast.Assert():
                self._assert(node)
            case ast.Pass():
                pass
            case _:
                what = type(node).__name__.lower()
                self.fail(node, f"kernels have no '{what}' statement", "use assignments, for over range, if, assert, return and calls")

    def _assert(self, node: ast.Assert) -> None:
        holds = self.value(node.test)
        if isinstance(holds, VALUES):
            self.fail(node.test, "an assertion about what only the running kernel knows", f"{_HINT_STATIC}; check arrays before the call")
        if not holds:
            said = f": {self.value(node.msg)}" if node.msg is not None else ""
            self.fail(node.test, f"the assertion does not hold{said}", "call the kernel with arguments for which it holds")

    def _assign(self, target: ast.expr, value: object) -> None:
        match target:
            case ast.Name():
                self.scope[target.id] = value
            case ast.Tuple() | ast.List():
                if not isinstance(value, tuple | list) or len(value) != len(target.elts):
                    self.fail(target, f"{len(target.elts)} names for {text_of(value)}", "give as many values as there are names")
                for name, part in zip(target.elts, value, strict=True):
                    self._assign(name, part)
            case ast.Subscript():
                self._at(target, store, self.emit, self.call, self._block(target), self.loaded(value))
            case _:
                self.fail(target, "this cannot be assigned to", "assign to names, and to parts of arrays: c[m : m + 64, n : n + 64] = tile")

    def _read_target(self, target: ast.expr) -> object:
        if isinstance(target, ast.Name):
            return self._name(ast.copy_location(ast.Name(target.id, ast.Load()), target))
        if isinstance(target, ast.Subscript):
            return self._at(target, load, self.emit, self.call, self._block(target))
        self.fail(target, "this cannot be assigned to", "assign to names and to parts of arrays")

    # --- loops and branches

    def _for(self, node: ast.For) -> None:
        if node.orelse:
            self.fail(node.orelse[0], "a loop's else", "write what follows behind the loop")
        if not isinstance(node.target, ast.Name) and not isinstance(node.iter, ast.Call):
            self.fail(node.target, "a loop over several variables", "loop over range with one variable")
        over = self.value(node.iter)
        if isinstance(over, tuple | list | range):
            for step in over:
                self._assign(node.target, step)
                self._statements(node.body)
            return
        if not isinstance(over, Bounds) or not isinstance(node.target, ast.Name):
            self.fail(node.iter, f"a loop over {text_of(over)}", "loop over range(..), tl.range(..), or unrolled over tl.static_range(..)")
        start, stop, step = (self.emit.index(bound).value for bound in (over.start, over.stop, over.step))
        names = self._carried(node.body, node.target.id)
        initial = {name: self._carriable(node, name, self.scope[name]) for name in names}
        body = IrBlock(arg_types=[INDEX, *(value.value.type for value in initial.values())])
        before = dict(self.scope)
        self.scope[node.target.id] = self.emit.index_of(body.args[0])
        for name, argument in zip(names, body.args[1:], strict=True):
            self.scope[name] = _rebound(initial[name], argument)
        with self.emit.inside(body):
            self._nesting += 1
            self._statements(node.body)
            self._nesting -= 1
            ends = [self._same_kind(node, name, initial[name], self.scope[name]) for name in names]
            self.emit.add(scf.YieldOp(*ends))
        loop = scf.ForOp(start, stop, step, [value.value for value in initial.values()], body)
        self.emit.add(loop)
        self.scope = before
        for name, result in zip(names, loop.results, strict=True):
            self.scope[name] = _rebound(initial[name], result)

    def _carried(self, body: Sequence[ast.stmt], variable: str) -> list[str]:
        """Variables of before the loop that its body assigns."""
        stored = _stored_names(body)
        return [name for name in self.scope if name in stored and name != variable]

    def _carriable(self, node: ast.AST, name: str, value: object) -> Tile | Index | Condition:
        """A value as a loop carries it. Numbers become indices, or elements of float32."""
        value = self.loaded(value)
        if isinstance(value, Tile | Index | Condition):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return self._at(node, self.emit.index, value)
        if isinstance(value, float):
            return self._at(node, self.emit.tile, value)
        self.fail(node, f"'{name}' is {text_of(value)} before and changes inside", "loops and branches carry tiles, indices and numbers")

    def _same_kind(self, node: ast.AST, name: str, before: Tile | Index | Condition, after: object) -> SSAValue:
        """The value that a variable has at the end of an iteration, of the kind that it had at its start."""
        after = self.loaded(after)
        if isinstance(before, Index) and isinstance(after, int | Index) and not isinstance(after, bool):
            return self._at(node, self.emit.index, after).value
        if isinstance(before, Tile) and isinstance(after, Tile | int | float | Index):
            end = self._at(node, self.emit.tile, after, before.dtype)
            if (end.shape, end.dtype) == (before.shape, before.dtype):
                return end.value
        if isinstance(before, Condition) and isinstance(after, Condition):
            return after.value
        hint = "give it its final shape and type before, as in acc = tl.zeros((64, 64), tl.float32), or convert it: .to(..)"
        self.fail(node, f"'{name}' is {text_of(before)} before and {text_of(after)} after", hint)

    def _if(self, node: ast.If) -> None:
        test = self.value(node.test)
        if not isinstance(test, VALUES):
            self._statements(node.body if test else node.orelse)
            return
        if not isinstance(test, Condition):
            self.fail(node.test, f"a branch on {text_of(test)}", "branch on comparisons of indices; choose between elements with tl.where")
        sides: list[tuple[IrBlock, dict[str, object]]] = []
        for statements in (node.body, node.orelse):
            before, block = dict(self.scope), IrBlock()
            with self.emit.inside(block):
                self._nesting += 1
                self._statements(statements)
                self._nesting -= 1
            sides.append((block, self.scope))
            self.scope = before
        (yes, then), (no, other) = sides
        stored = _stored_names([*node.body, *node.orelse])
        names = [name for name in then if name in stored and name in other and then[name] is not other[name]]
        ends: list[list[SSAValue]] = [[], []]
        kinds: dict[str, Tile | Index | Condition] = {}
        for name in names:
            with self.emit.inside(yes):
                kinds[name] = self._carriable(node, name, then[name])
            ends[0].append(kinds[name].value)
            with self.emit.inside(no):
                ends[1].append(self._same_kind(node, name, kinds[name], other[name]))
        for block, values in zip((yes, no), ends, strict=True):
            with self.emit.inside(block):
                self.emit.add(scf.YieldOp(*values))
        branch = scf.IfOp(test.value, [value.type for value in ends[0]], Region(yes), Region(no))
        self.emit.add(branch)
        for name, result in zip(names, branch.results, strict=True):
            self.scope[name] = _rebound(kinds[name], result)

    # --- expressions

    def loaded(self, value: object) -> object:
        """A value; a block of an array as the tile that it holds."""
        return load(self.emit, self.call, value) if isinstance(value, Block) else value

    def value(self, node: ast.expr) -> Any:
        """What an expression gives."""
        return self._at(node, self._value, node)

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
                return self._binary(node, node.op, self.value(node.left), self.value(node.right))
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
                return self._call(node)
            case ast.JoinedStr():
                return "".join(str(self.value(part)) for part in node.values)
            case ast.FormattedValue():
                return self.value(node.value)
            case ast.Slice():
                return slice(*(None if part is None else self.value(part) for part in (node.lower, node.upper, node.step)))
            case _:
                what = type(node).__name__
                self.fail(node, f"kernels have no expression of this kind ({what})", "use arithmetic, comparisons, subscripts and calls")

    def _name(self, node: ast.Name) -> object:
        for names in (self.scope, self._outer):
            if node.id in names:
                return names[node.id]
        self.fail(node, f"'{node.id}' is not defined here", "a variable that a loop or one side of a branch defines ends with it: define it before")

    def _binary(self, node: ast.AST, op: ast.operator, left: object, right: object) -> object:
        left, right = self.loaded(left), self.loaded(right)
        if type(op) is ast.MatMult:
            self.fail(node, "kernels have no operator @", "use tl.dot(a, b), or tl.dot(a, b, acc) with an accumulator")
        symbol, compute = _BINARY[type(op)]
        if not isinstance(left, VALUES) and not isinstance(right, VALUES):
            return self._python(node, compute, left, right)
        return self._at(node, self.emit.binary, symbol, left, right)

    def _python(self, node: ast.AST, compute: Callable[..., Any], *operands: object) -> Any:
        try:
            return compute(*operands)
        except (TreadleError, Refusal):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the user's own Python raises belongs to their line
            self.fail(node, f"{type(error).__name__}: {error}", "this is computed while the kernel is compiled: correct the values")

    def _unary(self, node: ast.UnaryOp) -> object:
        value = self.loaded(self.value(node.operand))
        if not isinstance(value, VALUES):
            table = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert}
            return self._python(node, table[type(node.op)], value)
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.op, ast.Not) and not isinstance(value, Condition):
            self.fail(node, f"'not' of {text_of(value)}", "use ~ for the elements of a tile")
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
                self.fail(node, "'in' on values of the kernel", "compare with == and |")
            return self._python(node, lambda a, b: (a in b) == isinstance(op, ast.In), left, right)
        symbol, compute = _COMPARE[type(op)]
        if not isinstance(left, VALUES) and not isinstance(right, VALUES):
            return self._python(node, compute, left, right)
        return self._at(node, self.emit.comparison, symbol, left, right)

    def _and(self, node: ast.expr, a: object, b: object) -> object:
        if not isinstance(a, VALUES):
            return b if a else a
        if not isinstance(b, VALUES):
            return a if b else b
        return self._at(node, self.emit.binary, "&", a, b)

    def _bool(self, node: ast.BoolOp) -> object:
        result: object = isinstance(node.op, ast.And)
        for part in node.values:
            value = self.value(part)
            if isinstance(value, Tile | Block):
                self.fail(part, "'and' and 'or' of tiles", "use & and | for the elements of tiles")
            if not isinstance(value, VALUES):
                if bool(value) != isinstance(node.op, ast.And):
                    return value
                result = value if not isinstance(result, VALUES) else result
            elif not isinstance(result, VALUES):
                result = value
            else:
                result = self._at(node, self.emit.binary, "&" if isinstance(node.op, ast.And) else "|", result, value)
        return result

    def _choice(self, node: ast.IfExp) -> object:
        test = self.value(node.test)
        if not isinstance(test, VALUES):
            return self.value(node.body if test else node.orelse)
        if not isinstance(test, Condition):
            self.fail(node.test, f"a choice by {text_of(test)}", "choose between the elements of tiles with tl.where")
        yes, no = self._carriable(node, "this", self.value(node.body)), self.value(node.orelse)
        return _rebound(yes, self.emit.insert(arith.SelectOp(test.value, yes.value, self._same_kind(node, "this", yes, no))))

    def _attribute(self, node: ast.Attribute) -> object:
        owner = self.value(node.value)
        match owner, node.attr:
            case Array(), "shape":
                return owner.sizes
            case Array() | Tile(), "dtype":
                return owner.dtype
            case Block(), "dtype":
                return owner.array.dtype
            case (Tile() | Block()), "shape":
                return owner.shape
            case (Tile() | Block() | Index()), name if (method := tile_method(name)) is not None:
                return _Bound(method, self.loaded(owner))
            case (Tile() | Block()), "T":
                return self.emit.permute(self._tile(node, owner), (1, 0))
            case _ if isinstance(owner, VALUES):
                hint = "arrays have shape and dtype; tiles have shape, dtype, T, to(dtype) and the functions of tl that take one tile"
                self.fail(node, f"{text_of(owner)} has no '{node.attr}'", hint)
            case _:
                return self._python(node, getattr, owner, node.attr)

    def _tile(self, node: ast.AST, value: object) -> Tile:
        return self._at(node, self.emit.tile, self.loaded(value))

    # --- subscripts

    def _block(self, node: ast.Subscript) -> Block:
        owner = self.value(node.value)
        if not isinstance(owner, Array):
            self.fail(node, f"a part of {text_of(owner)} cannot be assigned to", "only parts of arrays are written to")
        return self._at(node, block_of, self.emit, owner, self._subscripts(node))

    def _subscripts(self, node: ast.Subscript) -> tuple[object, ...]:
        value = self.value(node.slice)
        parts = value if isinstance(value, tuple) else (value,)
        return tuple(self.loaded(part) for part in parts)

    def _subscript(self, node: ast.Subscript) -> object:
        owner = self.value(node.value)
        if isinstance(owner, Array):
            return self._block(node)
        parts = self._subscripts(node)
        if isinstance(owner, Tile | Block):
            return self._new_dims(node, self._tile(node, owner), parts)
        if any(isinstance(part, VALUES) for part in parts):
            self.fail(node, f"a subscript of {text_of(owner)} that only the running kernel knows", _HINT_STATIC)
        return self._python(node, operator.getitem, owner, parts if len(parts) != 1 else parts[0])

    def _new_dims(self, node: ast.Subscript, owner: Tile, parts: Sequence[object]) -> Tile:
        """`x[:, None]`: new dimensions of extent 1; `x[0]` along a dimension of extent 1 takes it away."""
        order: list[int] = []
        axis = 0
        for part in parts:
            if part is None:
                order.append(NEW_DIM)
                continue
            if axis >= len(owner.shape) or not (part == slice(None) or (part == 0 and owner.shape[axis] == 1)):
                self.fail(node, f"this part of {text_of(owner)}", "a tile takes : and None, and 0 where its extent is 1; cut blocks of arrays")
            if part == slice(None):
                order.append(axis)
            axis += 1
        return self._at(node, self.emit.permute, owner, [*order, *range(axis, len(owner.shape))])

    # --- calls

    def _call(self, node: ast.Call) -> object:
        function = self.value(node.func)
        positional: list[object] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                positional.extend(self.value(argument.value))
            else:
                positional.append(self.value(argument))
        named = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        if isinstance(function, _Bound):
            function, positional = function.method, [function.owner, *positional]
        if isinstance(function, Intrinsic):
            return self._intrinsic(node, function, positional, named)
        if isinstance(function, type | BuiltinFunctionType) and function in PYTHON_NAMES:
            return self._intrinsic(node, PYTHON_NAMES[function], positional, named)
        everything = [*positional, *named.values()]
        inner = getattr(function, "function", function)
        if any(isinstance(part, VALUES) for part in everything) or inner is not function:
            if not isinstance(inner, FunctionType):
                self.fail(node, f"'{ast.unparse(node.func)}' knows nothing of tiles", "use the functions of treadle.language, or one of your own in Python")
            return self._inline(node, inner, positional, named)
        return self._python(node, lambda: function(*positional, **named))

    def _intrinsic(self, node: ast.Call, function: Intrinsic, positional: Sequence[object], named: Mapping[str, object]) -> object:
        try:
            bound = function.signature.bind(*positional, **named)
        except TypeError as error:
            self.fail(node, f"tl.{function.name}: {error}", f"call it as tl.{function.name}{function.signature}")
        bound.apply_defaults()
        if function.takes_blocks:
            return self._at(node, function.build, self, *bound.args, **bound.kwargs)
        arguments = [self.loaded(value) for value in bound.args]
        return self._at(node, function.build, self, *arguments, **{name: self.loaded(value) for name, value in bound.kwargs.items()})

    def _inline(self, node: ast.AST, function: FunctionType, positional: Sequence[object], named: Mapping[str, object]) -> object:
        if self.depth >= _MAX_INLINED:
            self.fail(node, f"'{function.__name__}' calls itself without end", "functions of a kernel are compiled where they are called")
        inner = FunctionCompiler(function, self.emit, self.call, self.depth + 1)
        try:
            bound = inspect.signature(function).bind(*positional, **named)
        except TypeError as error:
            self.fail(node, f"{function.__name__}: {error}", f"call it as {function.__name__}{inspect.signature(function)}")
        bound.apply_defaults()
        return inner.run(bound.arguments)

    def combine(self, function: object, types: Sequence[DType]) -> Region:
        """The region of a reduction: a Python function of a left and a right element (as many of each as values are reduced)."""
        inner = getattr(function, "function", function)
        if not isinstance(inner, FunctionType):
            raise Refusal(f"{text_of(function)} combines no two elements", "give a Python function of the left and the right values")
        block = IrBlock(arg_types=[kind.ir for kind in (*types, *types)])
        scalars = Emitter(block, scalars=True)
        scalars.location = self.emit.location
        compiler = FunctionCompiler(inner, scalars, self.call, self.depth + 1)
        names = list(inspect.signature(inner).parameters)
        if len(names) != len(block.args):
            raise Refusal(f"'{inner.__name__}' takes {len(names)} values", f"{len(block.args)} are given: the left ones, then the right ones")
        elements = [Tile(argument, (), kind) for argument, kind in zip(block.args, (*types, *types), strict=True)]
        found = compiler.run(dict(zip(names, elements, strict=True)))
        results = found if isinstance(found, tuple) else (found,)
        if len(results) != len(types):
            raise Refusal(f"'{inner.__name__}' returns {len(results)} values", f"{len(types)} are reduced together: return as many")
        ends = [scalars.cast(scalars.tile(value), kind).value for value, kind in zip(results, types, strict=True)]
        scalars.add(tile.YieldOp(ends))
        return Region(block)


class _Bound:
    """A function of the language as a method of a tile."""

    def __init__(self, method: Intrinsic, owner: object) -> None:
        self.method, self.owner = method, owner


def _rebound(like: Tile | Index | Condition, value: SSAValue) -> Tile | Index | Condition:
    """The variable of the same kind with another value."""
    match like:
        case Tile():
            return Tile(value, like.shape, like.dtype)
        case Index():
            return Index(value, value)
        case Condition():
            return Condition(value)


def _stored_names(nodes: Sequence[ast.stmt]) -> set[str]:
    return {
        inner.id for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }


def _outer_names(function: FunctionType) -> dict[str, object]:
    """What a function sees around it: its module's names, those of enclosing functions, and Python's."""
    closure = inspect.getclosurevars(function)
    return {**closure.builtins, **function.__globals__, **closure.nonlocals}
