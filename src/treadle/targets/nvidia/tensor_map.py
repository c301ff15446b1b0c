"""`tile.copy` and `tile.copy_out` as tensor copies: the tensor map of the view, and the boxes that are the shared buffer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from treadle.analysis.view_access import chosen_size
from treadle.artifact import TensorMap
from treadle.dialects.tile import CopyOp, CopyOutOp, KernelOp, ViewOp, ints, memref_type, shared_layout_of
from treadle.errors import InternalError
from treadle.ir.core import BlockArgument, SSAValue
from treadle.ir.dialects import arith
from treadle.layout.shared_layout import SharedLayout
from treadle.machine import BulkTensorCopy
from treadle.plan.expr import Expr, constant, maximum, minimum, symbol
from treadle.plan.folded_copies import FoldedCopy
from treadle.records import dataclass
from treadle.targets.interface import TensorMapParam
from treadle.targets.nvidia.folded_map import folded_map, folded_start
from treadle.targets.nvidia.swizzle import recognise
from treadle.targets.simt.ranges import constant_of
from treadle.targets.simt.types import element_bytes, type_name


def size_expression(kernel: KernelOp, value: SSAValue) -> Expr:
    """An index value as an expression over the kernel's symbols; raises InternalError where it is none."""
    if (number := constant_of(value)) is not None:
        return constant(number)
    if isinstance(value, BlockArgument):
        if value.block is not kernel.body.block:
            raise InternalError("a tensor map's size varies within the kernel")
        first = len(kernel.body.block.args) - len(kernel.symbols)
        return symbol(kernel.symbol_names()[value.index - first])
    op = value.owner
    if isinstance(op, arith.IndexCastOp):
        return size_expression(kernel, op.input)
    if isinstance(
        op, arith.AddiOp | arith.SubiOp | arith.MuliOp | arith.FloorDivSIOp | arith.DivSIOp | arith.DivUIOp | arith.MinSIOp | arith.MaxSIOp
    ):
        left, right = size_expression(kernel, op.lhs), size_expression(kernel, op.rhs)
        if isinstance(op, arith.AddiOp):
            return left + right
        if isinstance(op, arith.SubiOp):
            return left - right
        if isinstance(op, arith.MuliOp):
            return left * right
        if isinstance(op, arith.MinSIOp):
            return minimum(left, right)
        if isinstance(op, arith.MaxSIOp):
            return maximum(left, right)
        return left // right  # sizes are not negative
    raise InternalError(f"a tensor map's size is computed by {op}")


@dataclass(frozen=True, slots=True)
class Box:
    """One hardware copy: where it lands (bytes from the buffer's start) and its start within the tile, per tensor map dimension."""

    byte_offset: int
    start: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChosenMap:
    """Of two tensor maps of an array, which differ in where it ends, the first where the condition holds."""

    condition: SSAValue
    one: "TensorMapParam | ChosenMap"
    other: "TensorMapParam | ChosenMap"

    def params(self) -> Iterator[TensorMapParam]:
        """All maps."""
        for each in (self.one, self.other):
            yield from each.params() if isinstance(each, ChosenMap) else (each,)


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The map of `param` covers the view dimensions `view_dims` (innermost first); `boxes` are the buffer. `folded`: of a folded view,
    whose tile dimensions `view_dims` are: the array's axes instead, and `view_dims` its columns and rows. `chosen`: `param` is one of
    several such maps.
    """

    param: TensorMapParam
    view_dims: tuple[int, ...]
    boxes: tuple[Box, ...]
    folded: FoldedCopy | None = None
    chosen: ChosenMap | None = None

    @property
    def maps(self) -> tuple[TensorMapParam, ...]:
        """All of them."""
        return (self.param,) if self.chosen is None else tuple(self.chosen.params())


def _chunk(rows: int, limit: int) -> int:
    """The most rows of one box: all, or the largest divisor that is a multiple of 8 and within the limit."""
    if rows <= limit:
        return rows
    found = [r for r in range(8, limit + 1, 8) if rows % r == 0]
    if not found:
        raise InternalError(f"{rows} rows cannot be split into equal boxes of at most {limit}")
    return found[-1]


def _view_dims(dims: Sequence[int], inner: int, outer: int, sizes: Sequence[int | SSAValue]) -> tuple[int, ...]:
    tiled = [dims[inner], dims[outer]]
    rest = [d for d in range(len(sizes)) if d not in tiled and sizes[d] != 1]
    return (*tiled, *reversed(rest))


def _check_row_end(extent: int | SSAValue, element_size: int) -> None:
    """Copies out write whole 16-byte pieces: behind a row that ends within one they would write what is not theirs."""
    for end in (extent,) if (ends := chosen_size(extent)) is None else (ends.one, ends.other):
        if isinstance(end, int) and end * element_size % 16:
            raise InternalError(f"tile.copy_out of rows of {end} elements of {element_size} bytes: they do not end on 16 bytes")


def _boxes(layout: SharedLayout, inner: int, outer: int, width: int, height: int, size: int, rank: int) -> tuple[Box, ...]:
    """Boxes of so many elements along the layout's inner and outer dimension that fill it. `rank`: of the tensor map."""
    found: list[Box] = []
    for column in range(0, layout.shape[inner], width):
        for row in range(0, layout.shape[outer], height):
            at = [0, 0]
            at[inner], at[outer] = column, row
            found.append(Box(layout.offset_of(at) * size, (column, row, *[0] * (rank - 2))))
    return tuple(found)


def plan_copy(kernel: KernelOp, op: CopyOp | CopyOutOp, limits: BulkTensorCopy, *, tf32: bool = False) -> CopyPlan:
    """The tensor map and boxes of a copy in or out; `tf32`: one that rounds to tf32.

    Raises InternalError for views and buffers the hardware cannot copy between.
    """
    if op.path.data != "bulk_tensor":
        raise InternalError(f"{op.name} along the path '{op.path.data}'")
    view, buffer = op.view.owner, op.destination if isinstance(op, CopyOp) else op.source
    if not isinstance(view, ViewOp) or not isinstance(view.pointer, BlockArgument):
        raise InternalError(f"{op.name} needs a view of a kernel argument")
    layout = shared_layout_of(buffer)
    element = memref_type(buffer).element_type
    size = element_bytes(element)
    rows = recognise(layout, size)
    sizes, strides = view.size_values(), view.stride_values()
    dims = _view_dims(ints(op.dims), rows.inner, rows.outer, sizes)
    if view.folding is not None:
        dims = dims[:2]
    if len(dims) > limits.max_rank:
        raise InternalError(f"a tensor map of {len(dims)} dimensions")
    if strides[dims[0]] != 1:
        raise InternalError(f"{op.name}: view dimension {dims[0]} is not contiguous")
    if isinstance(op, CopyOutOp):
        _check_row_end(sizes[dims[0]], size)

    def expression(value: int | SSAValue) -> Expr:
        return constant(value) if isinstance(value, int) else size_expression(kernel, value)

    width = rows.row_bytes // size if rows.row_bytes else layout.shape[rows.inner]
    height = _chunk(layout.shape[rows.outer], limits.max_box_extent)
    if width > limits.max_box_extent or width * size % 16:
        raise InternalError(f"a box of {width} elements of {size} bytes")
    boxes = _boxes(layout, rows.inner, rows.outer, width, height, size, len(dims))
    if view.folding is not None:
        folded, seen = folded_map(view, (dims[1], dims[0]), height, width, limits, expression)
        seen = replace(seen, dtype="tf32" if tf32 else type_name(element), swizzle=rows.name)
        return CopyPlan(TensorMapParam(view.pointer.index, seen, folded_start(view) * size), dims, boxes, folded)

    pointer = view.pointer.index

    def maps(sizes: Sequence[int | SSAValue]) -> TensorMapParam | ChosenMap:
        for at, each in enumerate(sizes):
            if (ends := chosen_size(each)) is not None:
                one, other = (maps([*sizes[:at], end, *sizes[at + 1 :]]) for end in (ends.one, ends.other))
                return ChosenMap(ends.condition, one, other)
        seen = TensorMap(
            dtype="tf32" if tf32 else type_name(element),
            global_dim=tuple(expression(sizes[d]) for d in dims),
            global_stride_bytes=tuple(expression(strides[d]) * size for d in dims[1:]),
            box_dim=(width, height, *[1] * (len(dims) - 2)),
            element_stride=(1,) * len(dims),
            swizzle=rows.name,
            l2_promotion="128B",
        )
        return TensorMapParam(pointer, seen, view.offset.value.data * size)

    found = maps(sizes)
    if isinstance(found, ChosenMap):
        return CopyPlan(next(found.params()), dims, boxes, chosen=found)
    return CopyPlan(found, dims, boxes)
