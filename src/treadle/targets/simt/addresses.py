"""Addresses and predicates of the accesses of one load or store of a tile."""

from collections.abc import Sequence

from treadle.analysis.index_forms import base_and_constant
from treadle.codegen.llvm_text import I32, I64, Value, i32, i64
from treadle.dialects.tile import view_strides
from treadle.ir.ancestry import blocks_around
from treadle.ir.core import Block, Operation, SSAValue
from treadle.layout.access import CoordinateGroup, GlobalPlan
from treadle.layout.tile_layout import TileLayout
from treadle.records import dataclass
from treadle.targets.simt.context import KernelContext, View
from treadle.targets.simt.hooks import Place
from treadle.targets.simt.types import element_bytes, memory_type

MAX_VECTOR_BYTES = 16
MAX_PLACE = 1 << 31


@dataclass(slots=True)
class Access:
    """Addresses and predicates of the accesses of one load or store."""

    ctx: KernelContext
    view: View
    offsets: Sequence[SSAValue]
    dims: tuple[int, ...]
    layout: TileLayout
    plan: GlobalPlan
    base: Value
    coordinates: dict[int, Value]  # view dimension -> offset + thread part, for the checked ones
    always: Value  # predicate of the whole tile
    parts: tuple[Value, ...]
    block: Block | None  # where it stands
    edge: int = -1  # the checked dimension across whose ends groups may lie
    repeated: frozenset[int] = frozenset()  # those behind whose ends the last place is taken

    def coordinate(self, dim: int, constant: int) -> Value:
        """The index along a checked dimension of the access whose constant is `constant`."""
        b, axis = self.ctx.b, self.dims.index(dim)
        if self.plan.is_disjoint:
            return b.add(self.coordinates[dim], self.ctx.index_constant(constant))
        return b.add(self.ctx.scalar(self.offsets[dim]), self.ctx.as_index(b.xor(self.parts[axis], i32(constant))))

    def predicate(self, group: CoordinateGroup) -> Value:
        """i1: the group lies within the view."""
        b, condition = self.ctx.b, self.always
        for axis, dim in enumerate(self.dims):
            if dim in self.coordinates and dim not in self.repeated:
                # Of a group across an end any element may be the one inside.
                reach = self.ctx.index_constant(self.plan.vector - 1 if dim == self.edge else 0)
                at = b.add(self.coordinate(dim, group.coordinates[axis]), reach)
                condition = b.and_(condition, b.icmp("ult", at, b.add(self.view.sizes[dim], reach)))
        return condition

    def elements_inside(self, group: CoordinateGroup) -> list[Value]:
        """i1 for each element of a group that may lie across an end: it lies within the view."""
        return [self.element_inside(group, i) for i in range(self.plan.vector)]

    def element_inside(self, group: CoordinateGroup, number: int) -> Value:
        """The same for one of them."""
        b, first = self.ctx.b, self.coordinate(self.edge, group.coordinates[self.dims.index(self.edge)])
        return b.icmp("ult", b.add(first, self.ctx.index_constant(number)), self.view.sizes[self.edge])

    def address(self, group: CoordinateGroup) -> Value:
        """Where the group starts."""
        b = self.ctx.b
        distance = i64(0)
        for axis, dim in enumerate(self.dims):
            constant = group.coordinates[axis]
            if dim in self.repeated and dim in self.coordinates:
                at, last = self.coordinate(dim, constant), b.sub(self.view.sizes[dim], self.ctx.index_constant(1))
                # As natural numbers: places ahead of the view, which nobody asks for, are no others than those behind it.
                moved = b.resize(b.sub(b.select(b.icmp("ult", at, last), at, last), self.coordinate(dim, 0)), I64)
            elif not self.plan.is_disjoint:
                part = self.parts[axis]
                moved = b.sext(b.sub(b.xor(part, i32(constant)), part), I64)
            else:
                moved = i64(constant)
            distance = b.add(distance, b.mul(moved, self.view.strides[dim]))
        return b.gep(self.base, distance, memory_type(self.view.element), flags="")

    def place(self, constants: Sequence[int]) -> Place | None:
        """Where the access with these constants along `dims` is. None where 31 bits may not hold its distance from the array's start, or
        sizes or strides are known to the runtime alone.

        What no trip of the loop changes is part of the start, so that all arrays with the same step share what moves.
        """
        b, width = self.ctx.b, element_bytes(self.view.element)
        strides, sizes = view_strides(self.view.op.result), self.view.op.size_values()
        steps = [stride * width for stride in strides if isinstance(stride, int) and stride >= 0]
        counts = [size for size in sizes if isinstance(size, int)]
        if len(steps) < len(strides) or len(counts) < len(sizes) or not self.plan.is_disjoint:
            return None
        if sum((count - 1) * step for count, step in zip(counts, steps, strict=True)) + MAX_VECTOR_BYTES >= MAX_PLACE:
            return None
        own, moving, still, constant = i32(0), i32(0), i64(0), 0
        for axis, dim in enumerate(self.dims):
            own = b.add(own, b.mul(self.parts[axis], i32(steps[dim])))
        for axis, dim in enumerate(self.dims):
            own = b.add(own, i32(constants[axis] * steps[dim]))
        for dim, offset in enumerate(self.offsets):
            base, more = base_and_constant(offset)
            step = steps[dim]
            if not self._moves(base):
                still = b.add(still, b.mul(b.sext(self.ctx.scalar(base), I64), i64(step)))
                constant += more * step
            elif self.ctx.ranges.of(base).low >= 0:
                moving = b.add(moving, b.mul(b.resize(self.ctx.scalar(base), I32), i32(step)))
                constant += more * step
            else:  # the machine takes the common part as a natural number
                own = b.add(own, b.mul(b.resize(self.ctx.scalar(offset), I32), i32(step)))
        start = b.gep(b.gep(self.view.pointer, still, "i8", flags=""), i64(constant), "i8", flags="")
        return Place(start, own, moving)

    def _moves(self, value: SSAValue) -> bool:
        """Whether a value may differ between the trips of the loop that the access stands in."""
        owner = value.owner
        block = owner.parent if isinstance(owner, Operation) else owner
        return block is not None and any(around is self.block for around in blocks_around(block))
