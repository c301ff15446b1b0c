"""split-divided-loops: a loop that arrays are read at the quotient of becomes two loops, so that they are walked by strides.

Level: tensor, while maps are the user's. Reads: generics, extents that types tell. Writes: where an input is read at `h floordiv g` (heads
that share keys), and g divides the extent of h, loops s and r with h = s * g + r; the same in generics that compute with the same axis,
as far as their loops are parallel; `tensor.expand_shape` and `tensor.collapse_shape` around them. Leaves alone: extents that only the
runtime knows, loops that are read in other ways besides, operations whose reductions the user splits. What is left is gathered
(normalize-generics).
"""

from collections.abc import Sequence
from typing import ClassVar

from treadle.analysis.divisibility import constant_value
from treadle.analysis.indexing import StructuredOp, loop_sizes, structured, view_of
from treadle.analysis.operation_marks import origin_of
from treadle.dialects.mlir_ext import CollapseShapeOp, ExpandShapeOp
from treadle.dialects.split_attribute import SPLIT_REDUCTION
from treadle.ir.core import AffineBinaryOpExpr, AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.emitter import Index, before
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import build_generic, clone_body, erase_dead, generics

NAME = "split-divided-loops"
Axis = tuple[SSAValue, int]


def quotient(expr: AffineExpr, kind: str = "FloorDiv") -> tuple[int, int] | None:
    """(loop, number) of `loop floordiv number`, or of another kind; None for anything else."""
    if not isinstance(expr, AffineBinaryOpExpr) or expr.kind.name != kind:
        return None
    if not isinstance(expr.lhs, AffineDimExpr) or not isinstance(expr.rhs, AffineConstantExpr):
        return None
    return expr.lhs.position, expr.rhs.value


def _mentions(expr: AffineExpr, loop: int) -> bool:
    return any(isinstance(part, AffineDimExpr) and part.position == loop for part in expr.dfs())


def may_split(view: StructuredOp, loop: int, by: int) -> bool:
    """Whether a loop is read as it is, by its quotient or by its remainder alone, and written as it is; an array that is read at the
    quotient has an element for each.
    """
    size = loop_sizes(view)[loop]
    if size is None or size % by or by < 2 or view.iterators[loop] != "parallel" or SPLIT_REDUCTION in view.op.attributes:
        return False
    for number, (value, map_) in enumerate(view.operands()):
        shape = tensor_type(value).get_shape() if isinstance(value.type, builtin.TensorType) else ()
        for axis, expr in enumerate(map_.results):
            if isinstance(expr, AffineDimExpr) or not _mentions(expr, loop):
                continue
            extents = {(loop, by): size // by} if quotient(expr) is not None else {}
            known = extents.get(quotient(expr) or (-1, -1)) == shape[axis]
            rest = quotient(expr, "Mod") == (loop, by) and shape[axis] == by
            if number >= len(view.inputs) or not (known or rest):
                return False
    return True


class _Splits:
    """Which loops and axes are split, found from those that are read at quotients."""

    def __init__(self, views: Sequence[StructuredOp]) -> None:
        self.loops: dict[tuple[Operation, int], int] = {}
        self.axes: dict[Axis, int] = {}
        self._pending: list[tuple[Operation, int, int]] = []
        for view in views:
            found = {quotient(expr) for map_ in view.input_maps for expr in map_.results}
            self._pending += [(view.op, *pair) for pair in found if pair is not None]
        while self._pending:
            self._split(*self._pending.pop())

    def of(self, view: StructuredOp) -> dict[int, int]:
        """By loop of an operation: what it is split by."""
        return {loop: by for (op, loop), by in self.loops.items() if op is view.op}

    def _split(self, op: Operation, loop: int, by: int) -> None:
        view = view_of(op)
        if (op, loop) in self.loops or not may_split(view, loop, by):
            return
        self.loops[op, loop] = by
        for value, map_ in (*view.operands(), *zip(op.results, view.output_maps, strict=True)):
            for axis, expr in enumerate(map_.results):
                if isinstance(expr, AffineDimExpr) and expr.position == loop:
                    self._reach(value, axis, by)

    def _reach(self, value: SSAValue, axis: int, by: int) -> None:
        if (value, axis) in self.axes:
            return
        self.axes[value, axis] = by
        for op in [value.owner, *(use.operation for use in value.uses)]:
            view = structured(op) if isinstance(op, linalg.ops.GenericOp) else None
            if view is None:
                continue
            for other, map_ in (*view.operands(), *zip(view.op.results, view.output_maps, strict=True)):
                expr = map_.results[axis] if other is value else None
                if isinstance(expr, AffineDimExpr):
                    self._pending.append((view.op, expr.position, by))


class _Rewriter:
    """Writes the split operations of one function. `expanded`: by value and split axes, what stands for it."""

    def __init__(self, splits: _Splits) -> None:
        self.splits = splits
        self.expanded: dict[tuple[SSAValue, tuple[tuple[int, int], ...]], SSAValue] = {}

    def rewrite(self, view: StructuredOp) -> None:
        """Put an operation with more loops in the place of one, and its results, joined again, in the place of its results."""
        split, op = self.splits.of(view), view.op
        position, count = list[int](), 0
        for loop in range(view.rank):
            position.append(count)
            count += 2 if loop in split else 1
        operands, maps = list[SSAValue](), list[AffineMap]()
        for value, map_ in view.operands():
            operands.append(self._stands_for(value, self._axes(map_, split), op))
            maps.append(AffineMap(count, 0, tuple(new for expr in map_.results for new in _exprs(expr, split, position, view.rank))))
        inputs, outputs = operands[: len(view.inputs)], operands[len(view.inputs) :]
        body, iterators = clone_body(view), [kind for loop, kind in enumerate(view.iterators) for _ in range(2 if loop in split else 1)]
        for index in [inner for inner in body.block.walk() if isinstance(inner, linalg.ops.IndexOp)]:
            _renumber(index, split, position)
        new = build_generic(inputs, outputs, maps, iterators, body, op)
        before(op).put(new)
        for old, result, map_ in zip(op.results, new.results, view.output_maps, strict=True):
            axes = self._axes(map_, split)
            joined = _joined(result, tensor_type(old), axes, op) if axes else result
            self.expanded[joined, axes] = result
            old.replace_all_uses_with(joined)
            _ask_sizes_of(result, joined, dict(axes))
            for axis, by in self.splits.axes.copy().items():
                if axis[0] is old:
                    self.splits.axes[joined, axis[1]] = by

    def _axes(self, map_: AffineMap, split: dict[int, int]) -> tuple[tuple[int, int], ...]:
        plain = [(axis, expr.position) for axis, expr in enumerate(map_.results) if isinstance(expr, AffineDimExpr)]
        return tuple((axis, split[loop]) for axis, loop in plain if loop in split)

    def _stands_for(self, value: SSAValue, axes: tuple[tuple[int, int], ...], op: Operation) -> SSAValue:
        if not axes:
            return value
        if (value, axes) not in self.expanded:
            self.expanded[value, axes] = self._made(value, axes, op)
        return self.expanded[value, axes]

    def _made(self, value: SSAValue, axes: tuple[tuple[int, int], ...], op: Operation) -> SSAValue:
        owner, emitter = value.owner, TensorEmitter(op)
        sizes, element = emitter.sizes(value), tensor_type(value).element_type
        by = dict(axes)
        wanted = [new for axis, size in enumerate(sizes) for new in _sizes(size, by.get(axis))]
        if isinstance(owner, tensor.EmptyOp):
            return emitter.empty(wanted, element)
        if isinstance(owner, linalg.ops.FillOp) and isinstance(owner.outputs[0].owner, tensor.EmptyOp):
            return emitter.fill(owner.inputs[0], emitter.empty(wanted, element))
        static = [size if isinstance(size, int) else builtin.DYNAMIC_INDEX for size in wanted]
        dynamic = [emitter.value(size) for size in wanted if not isinstance(size, int)]
        groups, shape = _groups(len(sizes), by), builtin.DenseArrayBase.from_list(builtin.i64, static)
        return emitter.insert(ExpandShapeOp(value, dynamic, groups, shape, builtin.TensorType(element, static)))


def _ask_sizes_of(value: SSAValue, joined: SSAValue, by: dict[int, int]) -> None:
    """Let who asks for the size of an axis that is not split ask `value`: nothing else may read what is joined."""
    for op in [use.operation for use in joined.uses]:
        axis = constant_value(op.operands[1]) if isinstance(op, tensor.DimOp) else None
        if axis is not None and axis not in by:
            op.operands[1] = before(op).constant(axis + sum(split < axis for split in by))
            op.operands[0] = value


def _sizes(size: Index, by: int | None) -> list[Index]:
    return [size] if by is None or not isinstance(size, int) else [size // by, by]


def _groups(rank: int, by: dict[int, int]) -> builtin.ArrayAttr[builtin.ArrayAttr[builtin.IntegerAttr]]:
    groups, at = list[builtin.ArrayAttr[builtin.IntegerAttr]](), 0
    for axis in range(rank):
        count = 2 if axis in by else 1
        groups.append(builtin.ArrayAttr([builtin.IntegerAttr(at + i, builtin.i64) for i in range(count)]))
        at += count
    return builtin.ArrayAttr(groups)


def _joined(value: SSAValue, kind: builtin.TensorType, axes: tuple[tuple[int, int], ...], op: Operation) -> SSAValue:
    groups = _groups(len(kind.get_shape()), dict(axes))
    return before(op).insert(CollapseShapeOp(operands=[value], result_types=[kind], properties={"reassociation": groups}))


def _exprs(expr: AffineExpr, split: dict[int, int], position: Sequence[int], rank: int) -> list[AffineExpr]:
    """What an index is by the new loops: two of them for a split one that is read as it is."""
    for kind, step in (("FloorDiv", 0), ("Mod", 1)):
        found = quotient(expr, kind)
        if found is not None and split.get(found[0]) == found[1]:
            return [AffineExpr.dimension(position[found[0]] + step)]
    if isinstance(expr, AffineDimExpr) and expr.position in split:
        return [AffineExpr.dimension(position[expr.position] + step) for step in range(2)]
    return [expr.replace_dims_and_symbols([AffineExpr.dimension(position[loop]) for loop in range(rank)], [])]


def _renumber(op: linalg.ops.IndexOp, split: dict[int, int], position: Sequence[int]) -> None:
    loop, place = int(op.dim.value.data), before(op)
    found = place.insert(linalg.ops.IndexOp(position[loop]))
    if loop in split:
        whole = place.insert(arith.MuliOp(found, place.constant(split[loop])))
        found = place.insert(arith.AddiOp(whole, place.insert(linalg.ops.IndexOp(position[loop] + 1))))
    op.results[0].replace_all_uses_with(found)
    op.detach()
    op.erase()


@register_pass
@dataclass(frozen=True)
class SplitDividedLoopsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = NAME

    def run(self, function: func.FuncOp) -> None:
        """Split the loops of one function."""
        nodes = [op for op in generics(function) if op.parent is function.body.block]
        views = [view for op in nodes if (view := structured(op)) is not None]
        if not any(quotient(expr) for view in views for map_ in view.input_maps for expr in map_.results):
            return
        splits = _Splits(views)
        rewriter = _Rewriter(splits)
        for view in views:
            if split := splits.of(view):
                numbers = ", ".join(map(str, split.values()))
                text = f"{len(split)} loop(s) split in two, for arrays that are read at their quotients by {numbers}"
                emit("decision", NAME, origin_of(view.op), text, location_of(view.op))
                rewriter.rewrite(view_of(view.op))
                view.op.detach()
                view.op.erase()
        erase_dead(function)
