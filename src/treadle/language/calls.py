"""Calls in a kernel: of the language's functions, of Python's on what is known, and of the user's, compiled where they are called."""

import ast
import inspect
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType

from treadle.dialects import tile
from treadle.ir.core import Block as IrBlock
from treadle.ir.core import Region
from treadle.language.dtypes import DType
from treadle.language.emitter import Emitter
from treadle.language.expressions import BoundMethod, Expressions
from treadle.language.functions import PYTHON_NAMES
from treadle.language.intrinsics import Intrinsic
from treadle.language.kernel import ConstexprFunction
from treadle.language.source import Refusal
from treadle.language.values import VALUES, Tile, parts_of, text_of

_MAX_INLINED = 64


class Calls(Expressions):
    """Expressions with calls."""

    def call_of(self, node: ast.Call) -> object:
        function = self.value(node.func)
        positional: list[object] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                positional.extend(self.value(argument.value))
            else:
                positional.append(self.value(argument))
        named = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        if isinstance(function, BoundMethod):
            function, positional = function.method, [function.owner, *positional]
        if isinstance(function, Intrinsic):
            return self._intrinsic(node, function, positional, named)
        if isinstance(function, type | BuiltinFunctionType) and function in PYTHON_NAMES:
            return self._intrinsic(node, PYTHON_NAMES[function], positional, named)
        everything = [*positional, *named.values()]
        if isinstance(function, ConstexprFunction) and (given := next((part for part in everything if isinstance(part, VALUES)), None)):
            problem = f"'{ast.unparse(node.func)}' is computed while the kernel is compiled, and is given {text_of(given)}"
            raise self.error(node, problem, "give it constants, or leave tl.constexpr_function out")
        inner = function if isinstance(function, ConstexprFunction) else getattr(function, "function", function)
        if any(isinstance(part, VALUES) for part in everything) or inner is not function:
            if not isinstance(inner, FunctionType):
                raise self.error(
                    node,
                    f"'{ast.unparse(node.func)}' knows nothing of tiles",
                    "use the functions of treadle.language, or one of your own in Python",
                )
            return self._inline(node, inner, positional, named)
        return self.python(node, lambda: function(*positional, **named))

    def _intrinsic(self, node: ast.Call, function: Intrinsic, positional: Sequence[object], named: Mapping[str, object]) -> object:
        try:
            bound = function.signature.bind(*positional, **named)
        except TypeError as error:
            raise self.error(node, f"tl.{function.name}: {error}", f"call it as tl.{function.name}{function.signature}") from None
        bound.apply_defaults()
        if function.takes_blocks:
            return self.at(node, function.build, self, *bound.args, **bound.kwargs)
        arguments = [self.loaded(value) for value in bound.args]
        return self.at(node, function.build, self, *arguments, **{name: self.loaded(value) for name, value in bound.kwargs.items()})

    def _inline(self, node: ast.AST, function: FunctionType, positional: Sequence[object], named: Mapping[str, object]) -> object:
        if self.depth >= _MAX_INLINED:
            raise self.error(
                node, f"'{function.__name__}' calls itself without end", "functions of a kernel are compiled where they are called"
            )
        inner = type(self)(function, self.emit, self.call, self.depth + 1)
        try:
            bound = inspect.signature(function).bind(*positional, **named)
        except TypeError as error:
            raise self.error(
                node, f"{function.__name__}: {error}", f"call it as {function.__name__}{inspect.signature(function)}"
            ) from None
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
        compiler = type(self)(inner, scalars, self.call, self.depth + 1)
        names = list(inspect.signature(inner).parameters)
        if len(names) != len(block.args):
            raise Refusal(
                f"'{inner.__name__}' takes {len(names)} values", f"{len(block.args)} are given: the left ones, then the right ones"
            )
        elements = [Tile(argument, (), kind) for argument, kind in zip(block.args, (*types, *types), strict=True)]
        found = compiler.run(dict(zip(names, elements, strict=True)))
        results = parts_of(found)
        if len(results) != len(types):
            raise Refusal(f"'{inner.__name__}' returns {len(results)} values", f"{len(types)} are reduced together: return as many")
        ends = [scalars.cast(scalars.tile(value), kind).value for value, kind in zip(results, types, strict=True)]
        scalars.add(tile.YieldOp(ends))
        return Region(block)

    def run(self, arguments: Mapping[str, object]) -> object:
        """Compile the body with these arguments; what it returns."""
        raise NotImplementedError
