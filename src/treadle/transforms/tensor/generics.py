"""Building and rebuilding `linalg.generic` operations: what the tensor passes share."""

from collections.abc import Callable, Iterable, Sequence

from treadle.analysis.indexing import StructuredOp
from treadle.analysis.operation_marks import F32_SPLIT, F32_SPLIT_IN, ORIGIN, PADDED_CHANNELS, PADDED_ROWS, TURNED_OPERANDS
from treadle.dialects import dispatch
from treadle.dialects.split_attribute import SPLIT_REDUCTION
from treadle.errors import InternalError
from treadle.ir.core import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap, Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import builtin, func, linalg
from treadle.ir.emitter import Emitter, at_end, before
from treadle.ir.locations import set_location
from treadle.ir.tensors import tensor_type

ASKED = (dispatch.GROUP, F32_SPLIT, F32_SPLIT_IN, PADDED_CHANNELS, PADDED_ROWS, SPLIT_REDUCTION, TURNED_OPERANDS)
"""Attributes that a user may write on any linalg operation, and that it keeps when it becomes a generic."""


def functions(module: builtin.ModuleOp) -> list[func.FuncOp]:
    """The functions with a body, in order."""
    return [op for op in module.walk() if isinstance(op, func.FuncOp) and op.body.blocks]


def generics(root: Operation) -> list[linalg.ops.GenericOp]:
    """The generics on tensors in `root`, in order."""
    return [op for op in root.walk() if isinstance(op, linalg.ops.GenericOp) and op.results]


def build_generic(
    inputs: Sequence[SSAValue],
    outputs: Sequence[SSAValue],
    maps: Sequence[AffineMap],
    iterators: Sequence[str],
    body: Region,
    like: Operation,
) -> linalg.ops.GenericOp:
    """A generic with the location, attributes and origin of `like`, not inserted anywhere."""
    op = linalg.ops.GenericOp(
        inputs,
        outputs,
        body,
        [builtin.AffineMapAttr(map_) for map_ in maps],
        [linalg.attrs.IteratorTypeAttr(linalg.attrs.IteratorType(kind)) for kind in iterators],
        [value.type for value in outputs],
    )
    generic = isinstance(like, linalg.ops.GenericOp)
    op.attributes.update({name: value for name, value in like.attributes.items() if generic or name in ASKED})
    if ORIGIN not in op.attributes and not generic:
        op.attributes[ORIGIN] = builtin.StringAttr(like.name.split(".")[-1])
    set_location(op, like)
    for old, new in zip(like.results, op.results, strict=False):
        new.name_hint = old.name_hint
    return op


def elementwise(inputs: Sequence[SSAValue], outputs: Sequence[SSAValue], body: Region, like: Operation) -> linalg.ops.GenericOp:
    """A generic of tensors of one shape, element by element, not inserted anywhere."""
    rank = tensor_type(outputs[0]).get_num_dims()
    maps = [AffineMap.identity(rank)] * (len(inputs) + len(outputs))
    return build_generic(inputs, outputs, maps, ["parallel"] * rank, body, like)


def replace(old: Operation, new: Operation) -> None:
    """Put `new` where `old` stands and let its results take the place of the old ones."""
    before(old).put(new)
    give_way(old, new.results)


def give_way(old: Operation, values: Sequence[SSAValue]) -> None:
    """Erase `old`: `values` take the place of its results."""
    for result, after in zip(old.results, values, strict=True):
        result.replace_all_uses_with(after)
    old.detach()
    old.erase()


def clone_body(view: StructuredOp) -> Region:
    """A copy of the scalar body."""
    region = view.body.parent_region()
    if region is None:
        raise InternalError("a body outside a region")
    return region.clone()


def scalar_body(types: Sequence[Attribute], compute: Callable[[Emitter, Sequence[SSAValue]], Sequence[SSAValue]]) -> Region:
    """A scalar body with arguments of these types, of which `compute` makes what it yields."""
    block = Block(arg_types=types)
    block.add_op(linalg.ops.YieldOp(*compute(at_end(block), block.args)))
    return Region(block)


def copy_body(element_type: Attribute) -> Region:
    """The body of a copy: yields its input."""
    return scalar_body([element_type, element_type], lambda _, arguments: arguments[:1])


def sized_loops(maps: Iterable[AffineMap]) -> set[int]:
    """The loops that some map gives an axis of its own, which is what gives a loop its size."""
    return {expr.position for map_ in maps for expr in map_.results if isinstance(expr, AffineDimExpr)}


def rename_dims(map_: AffineMap, new_position: Sequence[int]) -> AffineMap:
    """The map with dimension d called `new_position[d]`."""
    dims = [AffineExpr.dimension(position) for position in new_position]
    return map_.replace_dims_and_symbols(dims, [], len(dims), 0)


def constant_map(rank: int, indices: Sequence[int]) -> AffineMap:
    """The map that reads the element at `indices` whatever the iteration."""
    return AffineMap(rank, 0, tuple(AffineConstantExpr(index) for index in indices))


def erase_dead(function: func.FuncOp) -> None:
    """Erase operations of the function's block whose results nobody uses."""
    for op in reversed(list(function.body.block.ops)):
        if op.results and not any(result.first_use is not None for result in op.results) and op.name.split(".")[0] in _PURE:
            function.body.block.erase_op(op)


_PURE = frozenset({"linalg", "tensor", "arith", "math", "affine"})
