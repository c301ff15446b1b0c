"""From the syntax tree of a Python function to the operations of a kernel.

The tree is walked once, in the order of execution. Whatever is known while that is done (numbers, `tl.constexpr` arguments, element types,
tuples, calls of Python functions on them) is computed at once; the rest becomes operations. Loops over `range` are loops of the kernel,
`if` on a condition that only the running kernel knows is a branch of it, and functions of the user's are compiled where they are called.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import cast

from treadle.dialects.stages import AUTO, TURNS, WARP_PIPELINE, StageOp
from treadle.ir.core import Attribute, Region, SSAValue
from treadle.ir.core import Block as IrBlock
from treadle.ir.dialects import builtin, scf
from treadle.language.blocks import store
from treadle.language.calls import Calls
from treadle.language.emitter import INDEX, Emitter
from treadle.language.expressions import rebound
from treadle.language.intrinsics import Bounds, Call, unrolled
from treadle.language.shared_memory import inside, store_slot
from treadle.language.values import VALUES, Array, Block, Condition, Index, Slot, Stage, Tile, parts_of, text_of


class _Return(Exception):
    """A `return`, with what it returns."""

    def __init__(self, value: object) -> None:
        self.value = value


class FunctionCompiler(Calls):
    """Compiles the body of one function; `scope` holds its variables. Functions that it calls have compilers of their own."""

    def __init__(self, function: FunctionType, emitter: Emitter, call: Call, depth: int = 0) -> None:
        super().__init__(function, emitter, call, depth)
        self._nesting = 0
        self._is_in_stage = False

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

    # --- statements

    def _statements(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            self.at(node, self._statement, node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self._assign(target, value)
            case ast.AnnAssign(value=ast.expr() as given):
                self._assign(node.target, self.value(given))
            case ast.AugAssign():
                self._assign(node.target, self.binary(node, node.op, self._read_target(node.target), self.value(node.value)))
            case ast.For():
                self._for(node)
            case ast.If():
                self._if(node)
            case ast.With():
                self._with(node)
            case ast.Expr():
                self.value(node.value)
            case ast.Return():
                if self._nesting:
                    raise self.error(
                        node, "a return inside of a loop or branch of the kernel", "end the branch without it, and return at the end"
                    )
                raise _Return(None if node.value is None else self.value(node.value))
            case ast.Assert():
                self._assert(node)
            case ast.Pass():
                pass
            case ast.While():
                hint = "loop over range(..) up to a bound that is known at the start, and choose with tl.where what still changes"
                raise self.error(node, "a 'while' loop, whose steps nobody knows before: nothing can be proven of it", hint)
            case _:
                what = type(node).__name__.lower()
                raise self.error(
                    node,
                    f"kernels have no '{what}' statement",
                    "use assignments, for over range, if, with for stages, assert, return and calls",
                )

    def _assert(self, node: ast.Assert) -> None:
        holds = self.value(node.test)
        if isinstance(holds, VALUES):
            raise self.error(
                node.test,
                "an assertion about what only the running kernel knows",
                f"{'make it a tl.constexpr argument'}; check arrays before the call",
            )
        if not holds:
            said = f": {self.value(node.msg)}" if node.msg is not None else ""
            raise self.error(node.test, f"the assertion does not hold{said}", "call the kernel with arguments for which it holds")

    def _assign(self, target: ast.expr, value: object) -> None:
        match target:
            case ast.Name():
                # What a stage reads, it reads there; so is shared memory, which changes.
                is_now = isinstance(value, Slot) or (self._is_in_stage and isinstance(value, Block))
                self.scope[target.id] = self.loaded(value) if is_now else value
            case ast.Tuple() | ast.List():
                parts = parts_of(value)
                if not isinstance(value, tuple | list) or len(parts) != len(target.elts):
                    raise self.error(target, f"{len(target.elts)} names for {text_of(parts)}", "give as many values as there are names")
                for name, part in zip(target.elts, parts, strict=True):
                    self._assign(name, part)
            case ast.Subscript():
                self._store(target, value)
            case _:
                raise self.error(
                    target, "this cannot be assigned to", "assign to names, and to parts of arrays: c[m : m + 64, n : n + 64] = tile"
                )

    def _store(self, target: ast.Subscript, value: object) -> None:
        """Write a tile to a part of an array or to a slot of shared memory."""
        place, tile = self.block(target), self.loaded(value)
        if isinstance(place, Array):
            hint = "name the elements by a range whose length is known when the kernel is compiled: c[m : m + 64]"
            raise self.error(target, "a part of an array of unknown size cannot be assigned to", hint)
        if isinstance(place, Slot):
            self.at(target, store_slot, self.emit, place, tile)
        else:
            self.at(target, store, self.emit, self.call, place, tile)

    def _read_target(self, target: ast.expr) -> object:
        if isinstance(target, ast.Name):
            return self._name(ast.copy_location(ast.Name(target.id, ast.Load()), target))
        if isinstance(target, ast.Subscript):
            return self.at(target, self.loaded, self.block(target))
        raise self.error(target, "this cannot be assigned to", "assign to names and to parts of arrays")

    # --- stages, loops and branches

    def _with(self, node: ast.With) -> None:
        (item, *others) = node.items
        stage = self.value(item.context_expr)
        if others or item.optional_vars is not None or not isinstance(stage, Stage):
            hint = 'write with tl.warp_pipeline_stage("load"): and nothing else'
            raise self.error(item.context_expr, "a 'with' that opens no stage, or more", hint)
        outer, self._is_in_stage = self._is_in_stage, True
        self._nesting += 1
        with inside(self.emit, stage):
            self._statements(node.body)
        self._nesting -= 1
        self._is_in_stage = outer

    def _for(self, node: ast.For) -> None:
        if node.orelse:
            raise self.error(node.orelse[0], "a loop's else", "write what follows behind the loop")
        if not isinstance(node.target, ast.Name) and not isinstance(node.iter, ast.Call):
            raise self.error(node.target, "a loop over several variables", "loop over range with one variable")
        over = self.value(node.iter)
        if isinstance(over, Iterator):  # enumerate, zip and the like of tuples
            over = tuple(cast("Iterator[object]", over))
        if isinstance(over, tuple | list):
            for step in parts_of(cast(object, over)):
                self._assign(node.target, step)
                self._statements(node.body)
            return
        if not isinstance(over, Bounds) or not isinstance(node.target, ast.Name):
            raise self.error(
                node.iter, f"a loop over {text_of(over)}", "loop over range(..), tl.range(..), or unrolled over tl.static_range(..)"
            )
        if over.unroll == 1:
            self._loop(node, node.target.id, over, 0)
            return
        main, rest = self.at(node.iter, unrolled, self.emit, over)
        self._loop(node, node.target.id, main, over.step)
        self._loop(node, node.target.id, rest, 0)

    def _loop(self, node: ast.For, variable: str, over: Bounds, apart: Index | int) -> None:
        """A loop with the body once, or `over.unroll` times in each iteration for variables that are `apart` from one another."""
        start, stop, step = (self.emit.index(bound).value for bound in (over.start, over.stop, over.step))
        names = self._carried(node.body, variable)
        initial = {name: self.carriable(node, name, self.scope[name]) for name in names}
        body = IrBlock(arg_types=[INDEX, *(value.value.type for value in initial.values())])
        before = dict(self.scope)
        number = self.emit.index_of(body.args[0])
        for name, argument in zip(names, body.args[1:], strict=True):
            self.scope[name] = rebound(initial[name], argument)
        with self.emit.inside(body):
            self._nesting += 1
            for copy in range(over.unroll):
                self.scope[variable] = self.emit.binary("+", number, self.emit.binary("*", apart, copy)) if copy else number
                self._statements(node.body)
            self._nesting -= 1
            ends = [self.same_kind(node, name, initial[name], self.scope[name]) for name in names]
            self.emit.add(scf.YieldOp(*ends))
        loop = scf.ForOp(start, stop, step, [value.value for value in initial.values()], body)
        asked = {name: value for name, value in (("groups", over.groups), ("gap", over.gap)) if value is not None}
        if over.groups is not None and over.gap is None and _is_over_tiles(body):
            loop.attributes[TURNS] = builtin.IntegerAttr(over.groups, builtin.i64)
        elif asked or over.is_cut:
            entries: dict[str, Attribute] = {name: builtin.IntegerAttr(value, builtin.i64) for name, value in asked.items()}
            entries |= {AUTO: builtin.UnitAttr()} if over.is_cut else {}
            loop.attributes[WARP_PIPELINE] = builtin.DictionaryAttr(entries)
        self.emit.add(loop)
        self.scope = before
        for name, result in zip(names, loop.results, strict=True):
            self.scope[name] = rebound(initial[name], result)

    def _carried(self, body: Sequence[ast.stmt], variable: str) -> list[str]:
        """Variables of before the loop that its body assigns."""
        stored = _stored_names(body)
        return [name for name in self.scope if name in stored and name != variable]

    def _if(self, node: ast.If) -> None:
        test = self.value(node.test)
        if not isinstance(test, VALUES):
            self._statements(node.body if test else node.orelse)
            return
        if not isinstance(test, Condition):
            raise self.error(
                node.test, f"a branch on {text_of(test)}", "branch on comparisons of indices; choose between elements with tl.where"
            )
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
                kinds[name] = self.carriable(node, name, then[name])
            ends[0].append(kinds[name].value)
            with self.emit.inside(no):
                ends[1].append(self.same_kind(node, name, kinds[name], other[name]))
        for block, values in zip((yes, no), ends, strict=True):
            with self.emit.inside(block):
                self.emit.add(scf.YieldOp(*values))
        branch = scf.IfOp(test.value, [value.type for value in ends[0]], Region(yes), Region(no))
        self.emit.add(branch)
        for name, result in zip(names, branch.results, strict=True):
            self.scope[name] = rebound(kinds[name], result)


def _is_over_tiles(body: IrBlock) -> bool:
    """Whether a loop has loops in it, and no stages of its own."""
    return any(isinstance(op, scf.ForOp) for op in body.ops) and not any(isinstance(op, StageOp) for op in body.ops)


def _stored_names(nodes: Sequence[ast.stmt]) -> set[str]:
    return {inner.id for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
