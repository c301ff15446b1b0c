"""Building and rebuilding `linalg.generic` operations: what the tensor passes share."""

from collections.abc import Iterable, Sequence

from treadle.analysis.indexing import StructuredOp, structured, tensor_of
from treadle.analysis.operation_marks import F32_SPLIT, ORIGIN
from treadle.dialects import dispatch
from treadle.dialects.split_attribute import SPLIT_REDUCTION
from treadle.errors import InternalError
from treadle.ir.core import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap, Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.locations import set_location

ASKED = (dispatch.GROUP, F32_SPLIT, SPLIT_REDUCTION)
"""Attributes that a user may write on any linalg operation, and that it keeps when it becomes a generic."""


def functions(module: builtin.ModuleOp) -> list[func.FuncOp]:
    """The functions with a body, in order."""
    return [op for op in module.walk() if isinstance(op, func.FuncOp) and op.body.blocks]


def generics(root: Operation) -> list[linalg.ops.GenericOp]:
    """The generics on tensors in `root`, in order."""
    return [op for op in root.walk() if isinstance(op, linalg.ops.GenericOp) and op.results]


def view_of(op: Operation) -> StructuredOp:
    """The structured view of an operation known to have one."""
    view = structured(op)
    if view is None:
        raise InternalError(f"{op.name} is not a structured operation")
    return view


def tensor_type(value: SSAValue) -> builtin.TensorType[Attribute]:
    """The type of a value known to be a tensor."""
    if (type_ := tensor_of(value)) is None:
        raise InternalError(f"{value.type} is not a tensor")
    return type_


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


def replace(old: Operation, new: Operation, results: Sequence[SSAValue] | None = None) -> None:
    """Put `new` where `old` stands and let its results (or `results`) take the place of the old ones."""
    block = old.parent_block()
    if block is None:
        raise InternalError(f"{old.name} stands in no block")
    block.insert_op_before(new, old)
    for before, after in zip(old.results, new.results if results is None else results, strict=True):
        before.replace_all_uses_with(after)
    block.erase_op(old)


def insert_before(anchor: Operation, *ops: Operation) -> None:
    """Insert operations before `anchor`, with its location where they have none."""
    block = anchor.parent_block()
    if block is None:
        raise InternalError(f"{anchor.name} stands in no block")
    for op in ops:
        set_location(op, anchor)
        block.insert_op_before(op, anchor)


def clone_body(view: StructuredOp) -> Region:
    """A copy of the scalar body."""
    region = view.body.parent_region()
    if region is None:
        raise InternalError("a body outside a region")
    return region.clone()


def copy_body(element_type: Attribute) -> Region:
    """The body of a copy: yields its input."""
    block = Block(arg_types=[element_type, element_type])
    block.add_op(linalg.ops.YieldOp(block.args[0]))
    return Region(block)


def empty_like(value: SSAValue, anchor: Operation, element: Attribute | None = None) -> SSAValue:
    """A `tensor.empty` of the shape of `value` (and of its element type unless `element` is given), inserted before `anchor`.

    Dynamic sizes are read with `tensor.dim`.
    """
    type_ = tensor_type(value)
    sizes: list[SSAValue] = []
    for axis, size in enumerate(type_.get_shape()):
        if size == builtin.DYNAMIC_INDEX:
            number = arith.ConstantOp(builtin.IntegerAttr(axis, builtin.IndexType()))
            dim = tensor.DimOp(value, number.result)
            insert_before(anchor, number, dim)
            sizes.append(dim.result)
    plain = builtin.TensorType(element if element is not None else type_.element_type, type_.get_shape())
    op = tensor.EmptyOp(sizes, plain)
    insert_before(anchor, op)
    return op.tensor


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
