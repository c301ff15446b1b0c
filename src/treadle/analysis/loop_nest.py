"""The loop nest of a dispatched kernel: its roots' iteration axes, and what every read and write looks like along them.

Reads `dispatch.kernel` (the guarantees in docs/architecture.md), writes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

from treadle.analysis.attention_structure import Attention, attention_of, is_chain
from treadle.analysis.convolution import Image, folding, image_of, padded_source
from treadle.analysis.indexing import Computation, Contraction, StructuredOp, structured
from treadle.analysis.kernel_slices import stored_part
from treadle.analysis.kernel_structure import Unbuildable, unbuildable
from treadle.analysis.nest_axes import INITIAL, Access, Axis, attention_roles, merge_axes, roles_of, with_blocks
from treadle.analysis.operation_marks import origin_of
from treadle.analysis.placed_arrays import placed
from treadle.analysis.root_positions import (
    KernelSizes,
    Linears,
    compose,
    consumer_dims,
    identity,
    member_dims,
    reads,
    root_results,
    roots_of,
    whole_positions,
)
from treadle.analysis.row_structure import Rows, needed_rows
from treadle.analysis.shares import Share, share_of, unshared
from treadle.dialects import dispatch
from treadle.errors import NOT_ONE_KERNEL, InternalError, TreadleError
from treadle.ir.builtin import array_ints, element_of
from treadle.ir.core import Attribute, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, linalg
from treadle.ir.locations import location_of
from treadle.layout.windows import Windows
from treadle.plan.expr import Expr, as_expr, constant
from treadle.records import dataclass, replace

FILLS_A_TILE = 128
"""An axis as long as this is as good as any longer one; the innermost has the shortest strides."""


@dataclass(frozen=True)
class LoopNest:
    """Everything a tiling decision needs to know of one kernel. `roots`: several for contractions that share an operand, over the same
    dimensions, and for reductions of rows; `computation` is the first one's, and tells the roles of the dimensions for all.
    `consumer_dims`: the dimensions of what is computed from the roots, of `rows` and `attention` those of all members, as linear forms of
    the dimensions: the first root's, of `attention` the loops that it names. `share`: the part of what is reduced that a block sums.
    """

    kernel: dispatch.KernelOp
    roots: tuple[StructuredOp, ...]
    computation: Computation
    dim_sizes: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    accesses: tuple[Access, ...]
    consumer_dims: dict[Operation, Linears]
    rows: Rows | None = None
    attention: Attention | None = None
    share: Share | None = None

    @property
    def rank(self) -> int:
        """How many dimensions all positions are linear forms of."""
        return len(self.dim_sizes)

    def image_at(self, value: SSAValue, dims: Linears) -> Image | None:
        """The image that a root reads as `value` at `dims`."""
        images = (access.image for access in self.accesses if access.image is not None)
        return next((image for image in images if image.source is value and image.reached == dims), None)

    def folding(self, image: Image, axes: Sequence[int]) -> Windows | None:
        """How a view along these axes (-1: one that stands still) folds an image."""
        kind, roles = self.computation, [self.axes[axis].role if axis >= 0 else "" for axis in axes]
        pixels = "n" if isinstance(kind, Contraction) and kind.image == kind.rhs else "m"
        rows = len(roles) - 1 - roles[::-1].index(pixels) if pixels in roles else -1
        return folding(image, [self.axes[axis].dims if axis >= 0 else () for axis in axes], self.dim_sizes, rows)

    @property
    def root(self) -> StructuredOp:
        """The first root: its dimensions are those of all."""
        return self.roots[0]

    @property
    def kind(self) -> Literal["contraction", "rows", "attention", "reduction", "elementwise"]:
        """Which of the tilings applies."""
        if self.attention is not None:
            return "attention"
        if self.rows is not None:
            return "rows"
        if isinstance(self.computation, Contraction):
            return "contraction"
        return "elementwise" if self.root.is_parallel else "reduction"

    def stride_along(self, access: Access, axis: Axis) -> Expr:
        """Elements between neighbours along a merged axis; along one of blocks what the distance is a multiple of."""
        if axis.block:
            return access.step_of(axis.block)
        stride = access.strides[axis.dims[-1]]
        return stride if axis.factor == 1 else stride * axis.factor

    @cached_property
    def main_axes(self) -> Mapping[str, int]:
        """See `contraction_axes.main_axis`, by roles."""
        found: dict[str, list[tuple[int, int]]] = {}
        inner = self.computation.inner if isinstance(self.computation, Contraction) and self.computation.scales else None
        for number, axis in enumerate(self.axes):
            if axis.role != "k" or inner is None or axis.dims[-1] in inner:
                found.setdefault(axis.role, []).append((min(axis.bound.as_int() or FILLS_A_TILE, FILLS_A_TILE), number))
        return {role: max(axes)[1] for role, axes in found.items()}


def _accesses(structure: "_Structure", consumers: dict[Operation, Linears]) -> Iterator[Access]:
    arrays, roots = _Arrays(structure), structure.roots
    results: dict[SSAValue, Linears] = {}
    if structure.members is None:
        yield from arrays.read_by_roots(roots)
        results = root_results(roots)
    yield from arrays.read_by_consumers({root.op for root in roots}, consumers, results)
    yield from arrays.written(results)


class _Arrays:
    """The arguments and results of a kernel as they are read and written."""

    def __init__(self, structure: "_Structure") -> None:
        kernel = structure.kernel
        self._kernel, self._sizes, self._symbols = kernel, structure.sizes, structure.known.symbols
        self._views = {view.op: view for view in structure.views}
        self._shapes = tuple(_texts(rows) for rows in (kernel.arg_shapes, kernel.result_shapes))
        self._strides = tuple(_texts(rows) for rows in (kernel.arg_strides, kernel.result_strides))
        self._align = tuple(array_ints(row) for row in (kernel.arg_align, kernel.result_align))

    def _access(self, number: int, is_result: bool, type_: Attribute, dims: Linears, input_number: int = -1, root: int = 0) -> Access:
        place = placed(self._strides[is_result][number], self._shapes[is_result][number], dims, self._sizes)
        return Access(
            number,
            is_result,
            element_of(type_),
            place.strides,
            place.offset,
            self._align[is_result][number],
            max(-1, input_number),
            root,
            input_number == INITIAL,
            place.cuts,
            place.corners,
        )

    def read_by_roots(self, roots: Sequence[StructuredOp]) -> Iterator[Access]:
        """What the roots take as operands."""
        rank = len(self._sizes)
        for which, root in enumerate(roots):
            for i, (value, map_) in enumerate(root.operands()):
                if not isinstance(value.type, builtin.TensorType):
                    continue
                own = compose(map_, identity(rank), rank)
                if (image := _image(self._kernel, root, i, own)) is not None:
                    found = self._access(image.argument.index, False, image.argument.type, image.places, i, which)
                    yield replace(found, image=image)
                    continue
                for arg, dims in reads(unshared(value), own, rank, self._symbols):
                    yield self._access(arg.index, False, arg.type, dims, i if i < len(root.inputs) else INITIAL, which)

    def read_by_consumers(
        self, roots: set[Operation], consumers: dict[Operation, Linears], results: dict[SSAValue, Linears]
    ) -> Iterator[Access]:
        """What the operations read that no other of them makes; `results` gets what they make."""
        rank = len(self._sizes)
        for op, dims in consumers.items():
            view = self._views[op]
            operands = view.operands() if op in roots else zip(view.inputs, view.input_maps, strict=True)
            for value, map_ in operands:
                if isinstance(value.type, builtin.TensorType) and value not in results:
                    for arg, at in reads(value, compose(map_, dims, rank), rank, self._symbols):
                        yield self._access(arg.index, False, arg.type, at)
            for result, map_ in zip(op.results, view.output_maps, strict=True):
                results[result] = compose(map_, dims, rank)

    def written(self, results: Mapping[SSAValue, Linears]) -> Iterator[Access]:
        """What the kernel yields."""
        last = self._kernel.body.block.last_op
        if last is None:
            raise InternalError("a kernel without dispatch.yield")
        for number, value in enumerate(last.operands):
            part, insertion = stored_part(value)
            dims = results[part] if insertion is None else whole_positions(insertion, results[part], len(self._sizes), self._symbols)
            yield self._access(number, True, value.type, dims)


def _texts(rows: "builtin.ArrayAttr[dispatch.Strings]") -> list[list[Expr]]:
    return [[as_expr(text) for text in row] for row in dispatch.text_lists(rows)]


def split_axis(nest: LoopNest, number: int, step: int) -> LoopNest:
    """The nest with axis `number` walked in pieces: it has extent `step`, and a new last axis tells the piece. `step` divides its size."""
    axis = nest.axes[number]
    inner, pieces = replace(axis, size=constant(step)), replace(axis, size=axis.size // step, factor=axis.factor * step)
    return replace(nest, axes=(*nest.axes[:number], inner, *nest.axes[number + 1 :], pieces))


def _generics(kernel: dispatch.KernelOp) -> list[StructuredOp]:
    return [view for op in kernel.body.block.ops if isinstance(op, linalg.ops.GenericOp) and (view := structured(op)) is not None]


def _rows(views: Sequence[StructuredOp], roots: Sequence[Operation]) -> Rows | None:
    """How a kernel that is built is one of rows; None where it is none."""
    found = needed_rows(views, roots)
    return found if isinstance(found, Rows) else None


def _attention(views: Sequence[StructuredOp], roots: Sequence[Operation]) -> Attention | None:
    """How a kernel that is built is one of attention; None where it is none."""
    found = attention_of(views, roots) if is_chain(roots) else None
    return found if isinstance(found, Attention) else None


class _Structure:
    """What a kernel is built of: all its generics, how it is one of rows or of attention, and the sizes of its loops.

    Raises `TreadleError` TR304 for a kernel that can be stated and evaluated, and that no kernel form builds.
    """

    def __init__(self, kernel: dispatch.KernelOp) -> None:
        views = _generics(kernel)
        self.kernel, self.views, self.roots = kernel, views, roots_of(kernel, views)
        roots = [root.op for root in self.roots]
        _check(kernel, unbuildable(views, roots))
        self.known, self.rows, self.attention = KernelSizes(kernel), _rows(views, roots), _attention(views, roots)
        self.members = self.rows.members if self.rows is not None else None if self.attention is None else self.attention.members
        self.sizes = self.known.loops(self.roots[0]) if self.attention is None else self._attention_sizes(self.attention)
        _check(kernel, self._uneven())

    def _attention_sizes(self, found: Attention) -> tuple[Expr, ...]:
        """Extents of the loops of a kernel of attention."""
        return (*self.known.loops(found.values), self.known.loops(found.scores)[found.first.k[0]])

    def _uneven(self) -> Unbuildable | None:
        """The first of several operations that share loops whose loops have other sizes than those of the first root."""
        members = self.members
        for view in self.roots if members is None else [view for view in self.views if view.op in members]:
            own = self.known.loops(view)
            loops = range(view.rank) if members is None else members[view.op]
            expected = tuple(self.sizes[loop] for loop in loops)
            if own != expected:
                told = [" x ".join(map(str, one)) for one in (own, expected)]
                return Unbuildable(view.op, f"its loops have the sizes {told[0]}, those of the first root {told[1]}")
        return None


def _check(kernel: dispatch.KernelOp, found: Unbuildable | None) -> None:
    if found is not None:
        what, fix = (
            f"dispatch.kernel '{kernel.sym_name.data}'",
            "state it as a dispatch.kernel of its own, which the program launches apart",
        )
        raise TreadleError(NOT_ONE_KERNEL, location_of(found.op), what=what, op=origin_of(found.op), reason=found.reason, fix=fix)


def _image(kernel: dispatch.KernelOp, root: StructuredOp, number: int, reached: Linears) -> Image | None:
    """The image that a root reads as input `number`; None where it is none, or where no folded view can show it."""
    kind = root.computation
    if not isinstance(kind, Contraction) or kind.image != number:
        return None
    if kernel.blocks and _share(kernel, (root,)) is None:
        return None  # blocks may differ in more than what they sum
    value, places = root.inputs[number], reached
    if (padded := padded_source(value)) is not None:
        value = padded[0]
        places = tuple(replace(place, offset=place.offset - low) for place, low in zip(reached, padded[1], strict=True))
    if not isinstance(value, BlockArgument):
        return None
    shape, strides = ([as_expr(t) for t in dispatch.text_lists(row)[value.index]] for row in (kernel.arg_shapes, kernel.arg_strides))
    return image_of(root.inputs[number], reached, places, value, shape, strides)


def _share(kernel: dispatch.KernelOp, roots: Sequence[StructuredOp]) -> Share | None:
    """The share of its terms that a root sums, where it is the only one."""
    return next((found for value in roots[0].inputs if (found := share_of(kernel, value)) is not None), None) if len(roots) == 1 else None


def _without_plain_images(accesses: tuple[Access, ...], axes: Sequence[Axis], sizes: Sequence[Expr]) -> tuple[Access, ...]:
    """The accesses; images that every axis walks evenly, and that nothing is padded of, are arrays like all others."""
    loops = [axis.dims for axis in axes]
    return tuple(replace(a, image=None) if a.image and folding(a.image, loops, sizes) is None else a for a in accesses)


def _reads_index(op: Operation) -> bool:
    """Whether a body computes something from the number of a loop."""
    return any(isinstance(each, linalg.ops.IndexOp) for each in op.walk())


def loop_nest(kernel: dispatch.KernelOp) -> LoopNest:
    """Read the loop nest off a dispatched kernel. Raises `TreadleError` TR304 for kernels that no form builds (`kernel_structure`)."""
    structure = _Structure(kernel)
    roots, sizes, members, attention = structure.roots, structure.sizes, structure.members, structure.attention
    root, computation = roots[0], roots[0].computation
    consumers = consumer_dims(roots, structure.views) if members is None else member_dims(members, len(sizes))
    accesses = tuple(_accesses(structure, consumers))
    if members is not None:  # what several members read is read once
        accesses = tuple(dict.fromkeys(accesses))
    # Folded views know the places of an image themselves, loops where a share begins and ends.
    seen = {access.image.source.owner for access in accesses if access.image is not None and access.image.is_padded}
    seen |= {value.owner for root in roots for value in root.inputs if unshared(value) is not value}
    indexed = any(op.regions and op not in seen and _reads_index(op) for op in kernel.body.block.ops)
    roles = roles_of(root, computation) if attention is None else attention_roles(attention)
    axes = with_blocks(kernel, merge_axes(sizes, roles, accesses, indexed), computation)
    accesses = _without_plain_images(accesses, axes, sizes)
    rows, share = structure.rows, _share(kernel, roots)
    return LoopNest(kernel, roots, computation, sizes, axes, accesses, consumers, rows, attention, share)
