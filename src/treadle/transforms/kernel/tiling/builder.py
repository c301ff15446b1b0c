"""The tile kernel under construction: views of global arrays, and tiles of any tensor of the dispatched body."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

from treadle.analysis.convolution import Image
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.group_runs import ListedRuns, Runs
from treadle.analysis.indexing import StructuredOp, structured
from treadle.analysis.kernel_slices import sliced_argument, stored_part
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.placed_arrays import Cut, Placement, placed
from treadle.analysis.root_positions import (
    Linear,
    Linears,
    compose,
    identity,
    producer_dims,
    result_number,
    whole_positions,
)
from treadle.analysis.shares import unshared
from treadle.dialects import dispatch, tile
from treadle.dialects.tile_attributes import PointerType
from treadle.errors import InternalError
from treadle.ir.builtin import array_ints, element_of
from treadle.ir.core import AffineMap, Attribute, BlockArgument, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, linalg
from treadle.layout.windows import Windows
from treadle.plan.block_bounds import in_whole_steps
from treadle.plan.expr import Expr, as_expr, constant
from treadle.transforms.kernel.tiling.block_reads import place_in_runs, settle_reads
from treadle.transforms.kernel.tiling.overlaps import ending
from treadle.transforms.kernel.tiling.scalars import BodyEvaluator, Tile, Value, dense
from treadle.transforms.kernel.tiling.scope import UNIT, Frame, KernelScope


class KernelBuilder(KernelScope):
    """Builds one `tile.kernel` from a loop nest: views of its arrays, and tiles.

    `known`: tiles of tensors of the body that are computed already (the root's results, then consumers'). `steps`: elements along a reduced
    axis that are always walked together, where that is more than a tile's extent. `walks`: how an axis is walked otherwise. `reads_beyond`:
    loads may bring what lies beyond a block's part along axes that are not reduced, for nobody stores what is computed from it.
    `stands_for`: see `BodyEvaluator`. `steps_where`: the next loop of a sum makes no steps where this is false. `counters`: how many
    results there are whose parts the last workgroup merges.
    """

    def __init__(self, nest: LoopNest, index_element: builtin.IntegerType = builtin.i32) -> None:
        super().__init__(nest, index_element)
        self.steps: dict[int, int] = {}
        self.counters: Expr | None = None
        self.known: dict[SSAValue, Value] = {}
        self.reads_beyond = False
        self.stands_for: Mapping[SSAValue, SSAValue] = {}
        self.steps_where: SSAValue | None = None
        self._views: dict[object, SSAValue] = {}
        self._view_anchor: Operation = cast(Operation, self.offset[UNIT].owner)

    def is_argument(self, value: SSAValue) -> bool:
        """Whether a tensor of the dispatched body is a kernel's argument or part of one (so its loads are masked by its own bounds)."""
        return sliced_argument(value) is not None

    def masked_axes(self, value: SSAValue, dims: Linears) -> frozenset[int]:
        """Axes along which a load of `value` at `dims` gives `other` past the end: those that a kernel argument really steps along.

        A broadcast argument (stride 0) has one element along the axis, which the load repeats, past the end too. Of an array that is cut
        along an axis, tiles that begin ahead of a part have elements of the part before.
        """
        value = unshared(value)
        if (image := self.nest.image_at(value, dims)) is not None:
            place = self._placement(self.inputs[image.argument.index], image.places)
            return frozenset((UNIT, *self._strides_along(place)))
        if (found := sliced_argument(value)) is None:
            return frozenset()
        argument, part = found
        whole = dims if part is None else whole_positions(part, dims, self.nest.rank, self.symbol_of)
        place = self._placement(self.inputs[argument.index], whole)
        return frozenset((UNIT, *(a for a in self._strides_along(place) if self._slack(a) == 0 or self._cut(place, a) is None)))

    def reached(self, map_: AffineMap, dims: Linears | None = None) -> Linears:
        """The place that loops at `dims`, which are the root's own where not given, reach through a map."""
        rank = self.nest.rank
        return compose(map_, identity(rank) if dims is None else dims, rank)

    def _placement(self, pointer: BlockArgument, dims: Linears) -> Placement:
        """How the array of an argument or result lies where it is accessed at `dims`."""
        rows = (self.kernel.arg_strides, self.kernel.arg_shapes)
        number = pointer.index
        if number >= len(self.inputs):
            rows, number = (self.kernel.result_strides, self.kernel.result_shapes), number - len(self.inputs)
        strides, shape = ([as_expr(t) for t in dispatch.text_lists(row)[number]] for row in rows)
        return placed(strides, shape, dims, self.nest.dim_sizes)

    def _strides_along(self, place: Placement) -> dict[int, Expr]:
        """Strides along the merged axes that the array steps along."""
        found: dict[int, Expr] = {}
        for number, axis in enumerate(self.nest.axes):
            if not axis.block and (stride := place.strides[axis.dims[-1]] * axis.factor) != constant(0):
                found[number] = stride
        return found

    def _sized(self, expr: Expr) -> int | SSAValue:
        value = expr.as_int()
        return value if value is not None else self.index.expression(expr)

    def _cut(self, place: Placement, axis: int) -> Cut | None:
        return None if axis == UNIT else next((cut for cut in place.cuts if cut.dim in self.nest.axes[axis].dims), None)

    def _slack(self, axis: int) -> int:
        """Elements that tiles may begin ahead of an axis."""
        return self.walks[axis].slack if axis in self.walks else 0

    def _extent_along(self, place: Placement, axis: int, step: int) -> Expr:
        """Where an access of an array along an axis ends, for tiles of `step`: with the block's part, or with the array where no tile goes
        beyond the part but at that end.
        """
        cut = self._cut(place, axis)
        if cut is None:
            return self.axis_size(axis)
        size, step = self.axis_size(axis), self.steps.get(axis, step)
        if self.reads_beyond and not self.nest.axes[axis].is_reduction and self._slack(axis) == 0:
            return cut.extent
        if self._slack(axis) == 0 and self.nest.axes[axis].is_reduction and in_whole_steps(size, cut.extent - cut.start, step):
            return cut.extent
        return cut.start + size

    def _view(self, pointer: BlockArgument, align: int, place: Placement, axes: Sequence[int], frame: Frame) -> SSAValue:
        """The view of an array: its corners, then the merged axes; made once, or where a block's part is known."""
        element = cast(PointerType, pointer.type).element_type
        offset = place.offset.as_int()
        if offset is None:
            raise InternalError("a constant index along a dimension of dynamic stride")
        if offset:
            align = _gcd_power(align, abs(offset) * element_bytes(element))
        along, steps = self._strides_along(place), dict(zip(frame.axes, frame.extents, strict=True))
        sizes = [*(corner.extent for corner in place.corners), *(self._extent_along(place, a, steps.get(a, 1)) for a in axes)]
        strides = [*(corner.stride for corner in place.corners), *(along.get(a, constant(0)) for a in axes)]
        key = (pointer, tuple(map(str, sizes)), tuple(map(str, strides)), offset)
        if not self.kernel.ranges.keys().isdisjoint(frozenset[str]().union(*(size.symbols() for size in sizes))):
            return self._view_here(key, pointer, sizes, strides, offset, align)
        return self._view_at_top(key, pointer, sizes, strides, offset, align)

    def _view_here(
        self, key: object, pointer: BlockArgument, sizes: Sequence[Expr], strides: Sequence[Expr], offset: int, align: int
    ) -> SSAValue:
        """A view whose sizes are a block's own."""
        known = [self._sized(size) for size in sizes], [self._sized(stride) for stride in strides]
        return self.index.insert(tile.ViewOp(pointer, *known, offset=offset, align=align))

    def _view_at_top(
        self,
        key: object,
        pointer: BlockArgument,
        sizes: Sequence[Expr],
        strides: Sequence[Expr],
        offset: int,
        align: int,
        windows: Windows | None = None,
    ) -> SSAValue:
        """The view that `key` names, made at the kernel's top where it is new."""
        if key in self._views:
            return self._views[key]
        place = self.index.builder.insertion_point
        self.index.builder.insertion_point = InsertPoint.after(self._view_anchor)
        before = set(self.block.ops)
        known = [self._sized(size) for size in sizes], [self._sized(stride) for stride in strides]
        value = self.index.insert(tile.ViewOp(pointer, *known, offset=offset, align=align, windows=windows))
        added = [op for op in self.block.ops if op not in before]
        self._view_anchor = added[-1]
        self.index.builder.insertion_point = place
        self._views[key] = value
        return value

    def _offsets(self, place: Placement, axes: Sequence[int]) -> list[SSAValue]:
        """Where a tile begins in a view of the corners and `axes` (UNIT: at zero)."""
        found = [self.index.expression(corner.place) for corner in place.corners]
        found.extend(self._at(place, axis, self.index.constant(0) if axis == UNIT else self.offset[axis]) for axis in axes)
        return found

    def _at(self, place: Placement, axis: int, element: SSAValue) -> SSAValue:
        """Where an element of an axis, or of a block's part of it, is in the array."""
        cut = self._cut(place, axis)
        return element if cut is None else self.index.add(self.index.expression(cut.start), element)

    def gather(self, source: SSAValue, indices: Sequence[SSAValue]) -> SSAValue:
        """A tile of the elements of a tensor argument at index tiles of one shape, one a dimension of the argument."""
        if not isinstance(source, BlockArgument) or not self.is_argument(source):
            raise InternalError("a gather from what is no argument of the kernel")
        return self.index.insert(tile.GatherOp(self._whole_view(source.index), indices))

    def _whole_view(self, number: int) -> SSAValue:
        """The view of an argument along its own axes."""
        shape, strides = (self._strides(rows, number) for rows in (self.kernel.arg_shapes, self.kernel.arg_strides))
        return self._view_at_top(("whole", number), self.inputs[number], shape, strides, 0, array_ints(self.kernel.arg_align)[number])

    def enter_run(self, runs: Runs | ListedRuns, number: SSAValue, step: int) -> SSAValue:
        """Let the block be the group of the tile of that number; returns the tile's place in it."""
        (block,) = (at for at, each in enumerate(self.nest.axes) if each.block == runs.block)
        self.offset[block], place = place_in_runs(self.kernel, self.index, self._whole_view, runs, number, step)
        return place

    def settle_blocks(self) -> None:
        """Let the symbols of blocks and of what they read have the values that the offsets of their axes tell now."""
        super().settle_blocks()
        settle_reads(self.kernel, self.index, self._whole_view)

    def _view_axes(self, stepped: Collection[int], frame: Frame, corners: int) -> tuple[list[int], list[int]]:
        """View axes behind the corners (those outside the frame first), and for each tile dimension its view dimension."""
        others = [a for a in sorted(stepped) if a not in frame.axes]
        return [*others, *frame.axes], [corners + len(others) + i for i in range(len(frame.axes))]

    def load(self, number: int, dims: Linears, frame: Frame, other: Attribute | None = None) -> Tile:
        """A tile of tensor argument `number` read at `dims`."""
        element, align = element_of(self.kernel.body.block.args[number].type), array_ints(self.kernel.arg_align)[number]
        return self._load(self.inputs[number], element, align, dims, frame, other)

    def _load_image(self, image: Image, frame: Frame) -> Tile:
        """A tile of an image, through a folded view where that is none of the image's own axes."""
        number = image.argument.index
        place = self._placement(self.inputs[number], image.places)
        axes, tile_dims = self._view_axes(self._strides_along(place), frame, 0)
        windows = self.nest.folding(image, axes)
        strides = self._strides_along(place)
        steps = [
            strides.get(a, constant(0)) if windows is None or not windows.dims[at] else constant(windows.step(at))
            for at, a in enumerate(axes)
        ]
        sizes = [self.axis_size(a) for a in axes]
        element, align = element_of(image.argument.type), array_ints(self.kernel.arg_align)[number]
        offset = place.offset.as_int() or 0
        align = _gcd_power(align, abs(offset) * element_bytes(element)) if offset else align
        view = self._view_at_top((image, tuple(axes)), self.inputs[number], sizes, steps, offset, align, windows)
        result = builtin.TensorType(element, list(frame.extents))
        return Tile(self.index.insert(tile.LoadOp(view, self._offsets(place, axes), tile_dims, result)))

    def _load(
        self, pointer: BlockArgument, element: Attribute, align: int, dims: Linears, frame: Frame, other: Attribute | None = None
    ) -> Tile:
        place = self._placement(pointer, dims)
        strides = self._strides_along(place)
        axes, tile_dims = self._view_axes(strides, frame, len(place.corners))
        # Along axes it does not depend on, the array has extent one: the tile starts at zero there.
        stepped = [a if a in strides else UNIT for a in axes]
        view = self._view(pointer, align, place, stepped, frame)
        # The stand-in axis has one element: the rest of its extent is outside, like any tile's ragged end.
        extents = [e if a in strides or a == UNIT else 1 for a, e in zip(frame.axes, frame.extents, strict=True)]
        result = builtin.TensorType(element, extents)
        return Tile(self.index.insert(tile.LoadOp(view, self._offsets(place, stepped), tile_dims, result, other=other)))

    def store(self, number: int, value: Value, dims: Linears, frame: Frame) -> None:
        """Write a tile to result `number`, whose dimensions are `dims`."""
        place = self._placement(self.outputs[number], dims)
        axes, tile_dims = self._view_axes(self._strides_along(place), frame, len(place.corners))
        walked = [(a, axis.dims[-1]) for a, axis in enumerate(self.nest.axes) if not axis.block]
        covered = {a for a, dim in walked if any(lin.coefficients[dim] for lin in dims)}
        extents = [e if a in covered or a == UNIT else 1 for a, e in zip(frame.axes, frame.extents, strict=True)]
        whole = self.evaluator(frame).materialize(value, extents)
        stepped = [a if a in covered else UNIT for a in axes]
        view = self._view(self.outputs[number], array_ints(self.kernel.result_align)[number], place, stepped, frame)
        ends = {len(place.corners) + at: self._at(place, a, self.stored_ends[a]) for at, a in enumerate(stepped) if a in self.stored_ends}
        view = ending(self.index, view, ends)
        self.index.builder.insert(tile.StoreOp(whole, view, self._offsets(place, stepped), tile_dims))

    def _strides(self, rows: builtin.ArrayAttr[dispatch.Strings], number: int) -> list[Expr]:
        return [as_expr(t) for t in dispatch.text_lists(rows)[number]]

    def evaluator(self, frame: Frame, dims: Linears = ()) -> BodyEvaluator:
        """Evaluates bodies of a generic whose iteration dimensions are `dims`, on tiles of `frame`."""
        self.rank = len(frame.axes)
        return BodyEvaluator(
            self.index, len(frame.axes), self.scalar_of, lambda d: self._index_tile(dims[d], frame), self.gather, self.stands_for
        )

    def _index_tile(self, position: Linear, frame: Frame) -> Value:
        """The value of a linear form of the root's dimensions over a tile, as an integer as wide as an index."""
        rank, element = len(frame.axes), self.index.element
        base = self.index.expression(as_expr(position.offset))
        for number, axis in enumerate(self.nest.axes):
            if axis.block:
                continue
            if factor := position.coefficients[axis.dims[-1]] * axis.factor:
                base = self.index.add(base, self.index.multiply(self.offset[number], factor))
        total = self.index.insert(tile.SplatOp(base, builtin.TensorType(element, [1] * rank)))
        for j, (axis_number, extent) in enumerate(zip(frame.axes, frame.extents, strict=True)):
            if axis_number == UNIT or extent == 1:
                continue
            axis = self.nest.axes[axis_number]
            factor = position.coefficients[axis.dims[-1]] * axis.factor
            if not factor:
                continue
            shape = [extent if i == j else 1 for i in range(rank)]
            steps = self.index.insert(tile.IotaOp(j, builtin.TensorType(element, shape)))
            if factor != 1:
                steps = self.index.insert(
                    arith.MuliOp(steps, self.index.insert(dense(builtin.IntegerAttr(factor, element), element, shape)))
                )
            whole = [max(a, b) for a, b in zip(tile.tile_type(total).get_shape(), shape, strict=True)]
            left, right = (self.evaluator(frame).materialize(Tile(v), whole) for v in (total, steps))
            total = self.index.insert(arith.AddiOp(left, right))
        return Tile(total)

    def value(self, source: SSAValue, dims: Linears, frame: Frame, other: Attribute | None = None) -> Value:
        """The tile of a tensor (or scalar) of the body read at `dims`."""
        if source in self.known:
            return self.known[source]
        if not isinstance(source.type, builtin.TensorType):
            return self.scalar_of(source)
        source = unshared(source)  # where a share ends the loops know
        key = (source, dims, frame, other)
        for remembered in self._tiles:
            if key in remembered:
                return remembered[key]
        if (image := self.nest.image_at(source, dims)) is not None:
            result: Value = self._load_image(image, frame)
        elif (found := sliced_argument(source)) is not None:
            argument, part = found
            whole = dims if part is None else whole_positions(part, dims, self.nest.rank, self.symbol_of)
            result = self.load(argument.index, whole, frame, other)
        elif isinstance(source.owner, linalg.ops.FillOp):
            result = self.scalar_of(source.owner.inputs[0])
        else:
            result = self._computed(source, dims, frame)
        self._tiles[-1][key] = result
        return result

    def _computed(self, source: SSAValue, dims: Linears, frame: Frame) -> Value:
        op = source.owner
        view = structured(op) if isinstance(op, linalg.ops.GenericOp) else None
        if view is None or not isinstance(op, Operation):
            raise InternalError(f"a kernel's body reads {op}")
        number = result_number(source)
        inner = producer_dims(view, number, dims, self.nest.rank)
        return self.body_values(view, inner, frame, [view.yielded()[number]])[0]

    def arguments(
        self, view: StructuredOp, dims: Linears, frame: Frame, others: dict[int, Attribute] | None = None
    ) -> dict[SSAValue, Value]:
        """The values of a body's input arguments when its generic iterates at `dims`."""
        rank = self.nest.rank
        found: dict[SSAValue, Value] = {}
        for i, (source, map_) in enumerate(zip(view.inputs, view.input_maps, strict=True)):
            if view.body.args[i].first_use is not None:
                found[view.body.args[i]] = self.value(source, compose(map_, dims, rank), frame, (others or {}).get(i))
        return found

    def body_values(self, view: StructuredOp, dims: Linears, frame: Frame, scalars: Sequence[SSAValue]) -> list[Value]:
        """Scalars of an all-parallel generic's body at `dims`."""
        arguments = self.arguments(view, dims, frame)
        evaluator = self.evaluator(frame, dims)
        return [evaluator.evaluate(s, arguments) for s in scalars]

    def finish_consumers(self, frame: Frame, first: int = 0) -> None:
        """Compute the consumers of the root (whose results are in `known`) and store the kernel's results, from number `first` on."""
        self.finish_members(self.nest.consumer_dims, frame, first)

    def finish_members(self, members: Iterable[Operation], frame: Frame, first: int = 0) -> None:
        """The same, of these operations alone."""
        for op in members:
            view, dims = structured(op), self.nest.consumer_dims[op]
            if view is None:
                raise InternalError(f"consumer {op} is not structured")
            for result, value in zip(op.results, self.body_values(view, dims, frame, view.yielded()), strict=True):
                self.known[result] = value
        for number in range(first, len(self.yielded())):
            self.store_result(number, frame)

    def store_result(self, number: int, frame: Frame) -> None:
        """Store the tile of a result."""
        self.store(number, self.known[stored_part(self.yielded()[number])[0]], self.place_of(number), frame)

    def load_result(self, number: int, frame: Frame) -> SSAValue:
        """Load the tile of a result, where the offsets and block symbols say now."""
        kernel = self.kernel
        element, align = element_of(kernel.function_type.outputs.data[number]), array_ints(kernel.result_align)[number]
        return self._load(self.outputs[number], element, align, self.place_of(number), frame).value

    def place_of(self, number: int) -> Linears:
        """Where the tile of a result lies in it."""
        part, insertion = stored_part(self.yielded()[number])
        dims = self.result_dims(part)
        return dims if insertion is None else whole_positions(insertion, dims, self.nest.rank, self.symbol_of)

    def yielded(self) -> Sequence[SSAValue]:
        """The values of the dispatched body that are the kernel's results."""
        last = self.kernel.body.block.last_op
        if last is None:
            raise InternalError("a kernel without dispatch.yield")
        return last.operands

    def result_dims(self, value: SSAValue) -> Linears:
        """Where a result of the kernel lies along the root's dimensions."""
        op = value.owner
        view = structured(op) if isinstance(op, Operation) else None
        if view is None:
            raise InternalError("a kernel yields what no generic computes")
        return self.reached(view.output_maps[result_number(value)], self.nest.consumer_dims.get(view.op))


def _gcd_power(align: int, byte_offset: int) -> int:
    return min(align, byte_offset & -byte_offset)
