"""Where a tile kernel under construction stands: its block and arguments, its place along each axis, and scalars."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.root_positions import kernel_symbols
from treadle.analysis.row_lines import RowLine
from treadle.analysis.window_steps import WindowSteps
from treadle.dialects import dispatch, tile
from treadle.dialects.tile_attributes import PointerType
from treadle.errors import InternalError
from treadle.ir.builtin import element_of, is_tensor
from treadle.ir.core import Attribute, Block, Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.plan.expr import Expr, constant
from treadle.records import dataclass
from treadle.transforms.kernel.tiling.index_math import IndexBuilder
from treadle.transforms.kernel.tiling.scalars import Constant, Tile, Value, stored_type

UNIT = -1
"""The axis of extent one that stands in where a frame would have no axis, or a contraction no m or n."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The dimensions of a register tile: merged axes (or UNIT) with the extent each has in the tile."""

    axes: tuple[int, ...]
    extents: tuple[int, ...]

    def with_unit(self, axes: Sequence[int]) -> "Frame":
        """The same frame with extent 1 along some axes."""
        return Frame(self.axes, tuple(1 if a in axes else e for a, e in zip(self.axes, self.extents, strict=True)))


@dataclass(frozen=True, slots=True)
class Walk:
    """How a long reduced axis is walked: from the aligned addresses that `line` tells, and so many whole tiles in flight together."""

    line: RowLine | None
    tiles: int

    @property
    def slack(self) -> int:
        """Elements that a tile may begin ahead of the row, at most."""
        return 0 if self.line is None else self.line.elements - 1


class KernelScope:
    """`offset`: where the current tile starts along each merged axis (set by the tilings, also inside loops). `rank`: dimensions of the
    frame that bodies are evaluated on. `walks`: of axes that are walked otherwise than tile by tile from 0; `ends`: whether elements ahead
    of the start of an axis and behind its end are to be masked, where that is not behind its end alone. `shares`: where the part of a
    reduced axis that a block walks begins, and how long it is, in whole steps of its loop. `interleaved`: reduced axes whose loops take all
    places of a window for one step of channels, then the next step, in steps of so many elements. `stored_ends`: where what the
    current tile stores ends along axes, where that is ahead of its own end.
    """

    def __init__(self, nest: LoopNest, index_element: builtin.IntegerType = builtin.i32) -> None:
        self.nest = nest
        kernel = nest.kernel
        self.kernel = kernel
        names = dispatch.texts(kernel.symbols)
        arguments = list(kernel.body.block.args)[: kernel.tensor_count]
        outputs = list(kernel.function_type.outputs)
        types: list[Attribute] = [PointerType(element_of(t)) for t in [*(a.type for a in arguments), *outputs]]
        self.block = Block(arg_types=[*types, *(builtin.IndexType() for _ in names)])
        self.inputs = self.block.args[: len(arguments)]
        self.outputs = self.block.args[len(arguments) : len(types)]
        self.location = nest.root.op.location
        builder = Builder(InsertPoint.at_end(self.block))
        self.index = IndexBuilder(builder, dict(zip(names, self.block.args[len(types) :], strict=True)), index_element)
        self.symbol_of = kernel_symbols(kernel)
        self.offset: dict[int, SSAValue] = {UNIT: self.index.constant(0)}
        self.walks: dict[int, Walk] = {}
        self.ends: dict[int, tuple[bool, bool]] = {}
        self.shares: dict[int, tuple[Expr, Expr]] = {}
        self.interleaved: dict[int, tuple[WindowSteps, int]] = {}
        self.stored_ends: dict[int, SSAValue] = {}
        self._tiles: list[dict[object, Value]] = [{}]
        self._scalars: dict[SSAValue, Value] = {}
        self.rank = 1

    def element_type(self, name: str) -> Attribute:
        """The element type of a name: "tf32" is f32 in memory; 8-bit floats are an argument's."""
        if name == "tf32":
            return builtin.f32
        found = (t.element_type for t in (arg.type for arg in self.kernel.body.block.args) if is_tensor(t) and str(t.element_type) == name)
        known: dict[str, Attribute] = {str(kind): kind for kind in (builtin.f16, builtin.bf16, builtin.f32, builtin.f64)}
        if (width := re.fullmatch(r"i(\d+)", name)) is not None:
            return builtin.IntegerType(int(width.group(1)))
        if (kind := known.get(name) or next(found, None)) is None:
            raise InternalError(f"no argument has the element type {name} that the config names")
        return kind

    # places

    def enter(self, block: Block) -> InsertPoint:
        """Continue inside `block`; returns the place to come back to with `leave`. Tiles made inside are forgotten on leaving."""
        previous = self.index.builder.insertion_point
        self.index.builder.insertion_point = InsertPoint.at_end(block)
        self._tiles.append({})
        return previous

    def leave(self, place: InsertPoint) -> None:
        """Back to where `enter` was called."""
        self.index.builder.insertion_point = place
        self._tiles.pop()

    def place_along(self, axis: int, walked: SSAValue) -> SSAValue:
        """Where the step of a loop begins along its axis that begins at `walked` in the order of the loop."""
        if axis not in self.interleaved:
            return walked
        steps, step = self.interleaved[axis]
        index, number = self.index, self.index.divide(walked, step)
        window, channel = index.remainder(number, steps.places), index.divide(number, steps.places)
        return index.add(index.multiply(window, steps.channels), index.multiply(channel, step))

    @contextmanager
    def at(self, axis: int, offset: SSAValue) -> Generator[None]:
        """Within: tiles start at `offset` along `axis`, and those that are made are forgotten afterwards."""
        before = self.offset.get(axis)
        self.offset[axis] = offset
        self._tiles.append({})
        yield
        self._tiles.pop()
        if before is not None:
            self.offset[axis] = before

    def axis_size(self, axis: int) -> Expr:
        """Extent of a merged axis."""
        return constant(1) if axis == UNIT else self.nest.axes[axis].size

    def walked_size(self, axis: int) -> Expr:
        """How much of a merged axis is walked, from where the block's share of it begins."""
        return self.shares[axis][1] if axis in self.shares else self.axis_size(axis)

    def axis_bound(self, axis: int) -> Expr:
        """An extent of a merged axis that the host knows: no block's is larger."""
        return constant(1) if axis == UNIT else self.nest.axes[axis].bound

    def settle_blocks(self) -> None:
        """Let block symbols have the values that the offsets of their axes have now."""
        for number, axis in enumerate(self.nest.axes):
            if axis.block:
                self.index.symbols[axis.block] = self.offset[number]

    # scalars of the kernel's top level

    def scalar_of(self, value: SSAValue) -> Value:
        """A scalar of the dispatched body's top level (constants, arithmetic on index arguments) as a value on tiles."""
        if value not in self._scalars:
            op = value.owner
            if isinstance(op, arith.ConstantOp):
                self._scalars[value] = Constant(op.value, op.result.type)
            else:
                return Tile(self._splat(self._top_scalar(value)))
        return self._scalars[value]

    def _splat(self, scalar: SSAValue) -> SSAValue:
        element = stored_type(scalar.type, self.index)
        return self.index.insert(tile.SplatOp(scalar, builtin.TensorType(element, [1] * self.rank)))

    def _top_scalar(self, value: SSAValue) -> SSAValue:
        if value in self.symbol_of:
            return self.index.expression(self.symbol_of[value])
        op = value.owner
        if not isinstance(op, Operation):
            raise InternalError("a scalar of unknown origin in a kernel's body")
        operands = [self._top_scalar(v) for v in op.operands]
        new = op.clone()
        for i, operand in enumerate(operands):
            new.operands[i] = operand
        return self.index.insert(new)
