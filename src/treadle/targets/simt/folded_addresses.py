"""Addresses and predicates of the accesses of a folded view (layout/windows.py)."""

from collections.abc import Collection, Sequence
from dataclasses import field
from functools import reduce

from treadle.analysis.index_forms import base_and_constant
from treadle.codegen.llvm_text import I32, I64, Value, i32, i64
from treadle.errors import InternalError
from treadle.layout.access import CoordinateGroup
from treadle.layout.windows import Windows
from treadle.records import dataclass
from treadle.targets.simt.addresses import MAX_PLACE, MAX_VECTOR_BYTES, Access
from treadle.targets.simt.hooks import Place
from treadle.targets.simt.types import element_bytes, memory_type

FAR = 1 << 30
"""A place that is in no array."""
MOST_FAR = 3
"""So many of them together are still none."""
WORD = 32
"""Bits, one for each place of a window."""


@dataclass(frozen=True, slots=True)
class FoldedPart:
    """What one dimension of a folded view adds: to the distance in elements, and to the place along each axis.

    Of the distance, `own` differs from thread to thread, and `common` is the same for all of them.
    """

    own: Value
    common: Value
    places: dict[int, Value]


@dataclass(slots=True)
class FoldedAccess(Access):
    """Addresses and predicates: each dimension is taken apart into steps along axes of the array.

    What a dimension adds is computed once for each of a thread's coordinates (`kept`), so that an access of a row and a column adds two
    numbers; what no trip of a loop changes of it, tools keep outside.
    """

    kept: dict[tuple[int, int], FoldedPart] = field(default_factory=dict[tuple[int, int], FoldedPart])
    words: dict[tuple[int, ...], Value] = field(default_factory=dict[tuple[int, ...], Value])

    def _own(self, dim: int, constant: int) -> Value:
        """The thread's part of the index along a dimension of the access with this constant there."""
        b = self.ctx.b
        if dim not in self.dims:
            return self.ctx.index_constant(0)
        part, own = self.parts[self.dims.index(dim)], i32(constant)
        return self.ctx.as_index(b.add(part, own) if self.plan.is_disjoint else b.xor(part, own))

    def _is_in_one_run(self, dim: int) -> bool:
        """Whether a tile stays within one run of a dimension, so that only the last part differs from thread to thread."""
        extent = self.layout.shape[self.dims.index(dim)] if dim in self.dims else 1
        return self._windows.run(dim) % extent == 0 and self.ctx.ranges.of(self.offsets[dim]).multiple % extent == 0

    def _digits(self, dim: int, constant: int) -> list[tuple[int, Value, Value]]:
        """The axis of each part of a dimension, and the steps along it: the thread's own, and those of all threads."""
        b, ctx, windows = self.ctx.b, self.ctx, self._windows
        offset, own, parts = ctx.scalar(self.offsets[dim]), self._own(dim, constant), windows.dims[dim]
        in_run = len(parts) > 1 and self._is_in_one_run(dim)
        index = offset if in_run else b.add(offset, own)
        found: list[tuple[int, Value, Value]] = []
        nothing = ctx.index_constant(0)
        for number, (part, span) in enumerate(zip(parts, windows.spans(dim), strict=True)):
            digit = b.udiv(index, ctx.index_constant(span))
            digit = b.urem(digit, ctx.index_constant(part.extent)) if number else digit
            steps, moved = b.mul(digit, ctx.index_constant(part.step)), nothing
            if in_run and number == len(parts) - 1:
                moved = b.mul(own, ctx.index_constant(part.step))
            found.append((part.axis, moved, steps) if in_run else (part.axis, steps, nothing))
        return found

    def _part(self, dim: int, constant: int) -> FoldedPart:
        """What a dimension adds at the index with this constant of the thread."""
        if (dim, constant) not in self.kept:
            self.kept[dim, constant] = self._made_part(dim, constant)
        return self.kept[dim, constant]

    def _made_part(self, dim: int, constant: int) -> FoldedPart:
        b, ctx, windows = self.ctx.b, self.ctx, self._windows
        kind, places = (I32 if self._is_near else I64), dict[int, Value]()
        number = i32 if kind == I32 else i64
        if not windows.dims[dim]:
            index = b.add(ctx.scalar(self.offsets[dim]), self._own(dim, constant))
            own = b.mul(b.sext(index, I64) if kind == I64 else b.resize(index, I32), self._stride(dim, kind))
            return FoldedPart(own, number(0), {})
        distances = [number(0), number(0)]
        for axis, *parts in self._digits(dim, constant):
            for at, steps in enumerate(parts):
                wide = b.sext(steps, I64) if kind == I64 else b.resize(steps, I32)
                distances[at] = b.add(distances[at], b.mul(wide, number(windows.axes[axis].pitch)))
            steps = b.add(parts[0], parts[1])
            places[axis] = b.add(places[axis], steps) if axis in places else steps
        for axis in windows.checked:
            if axis in places and self._first_dim(axis) == dim:
                places[axis] = b.sub(places[axis], ctx.index_constant(windows.axes[axis].low))
        if (axis := self._told_by(dim)) >= 0:
            inside = b.icmp("ult", self.coordinate(dim, constant), self.view.sizes[dim])
            places[axis] = b.select(inside, places[axis], ctx.index_constant(FAR))
        return FoldedPart(distances[0], distances[1], places)

    def _stride(self, dim: int, kind: str) -> Value:
        """The stride of a dimension that is not folded; a number where distances are of 32 bits."""
        stride = self.view.strides[dim]
        return stride if kind == I64 else i32(stride.number or 0)

    def _first_dim(self, axis: int) -> int:
        """The first dimension that has a part along an axis."""
        return next(dim for dim, parts in enumerate(self._windows.dims) if any(part.axis == axis for part in parts))

    def _told_by(self, dim: int) -> int:
        """The checked axis along which an index beyond the view's size is taken to be far outside; -1 where there is none. Several such
        distances do not add up to a place inside.
        """
        windows = self._windows
        if dim not in self.coordinates or dim == self.edge or len(windows.dims) > MOST_FAR:
            return -1
        walked = {part.axis for part in windows.dims[dim]}
        return next((axis for axis in windows.checked if axis in walked and windows.axes[axis].high < FAR // 2), -1)

    @property
    def _windows(self) -> Windows:
        windows = self.view.op.folding
        if windows is None:
            raise InternalError("a folded access of a view that folds nothing")
        return windows

    @property
    def _is_near(self) -> bool:
        """Whether 31 bits hold the distance in bytes of all that lies within the view from its start."""
        return self._reaches(())

    def _reaches(self, ragged: Collection[int]) -> bool:
        """The same, and of what tiles have beyond the view's size along some dimensions."""
        last, sizes = 0, self.view.op.size_values()
        for dim, parts in enumerate(self._windows.dims):
            size, stride = sizes[dim], self.view.strides[dim].number
            if not isinstance(size, int) or (not parts and stride is None):
                return False
            size += self.layout.shape[self.dims.index(dim)] if dim in ragged else 0
            spans = self._windows.spans(dim)
            extents = [-(-size // spans[0]) if number == 0 else part.extent for number, part in enumerate(parts)]
            steps = [part.step * self._windows.axes[part.axis].pitch for part in parts]
            last += sum((e - 1) * step for e, step in zip(extents, steps, strict=True)) if parts else (size - 1) * (stride or 0)
        return last * element_bytes(self.view.element) + MAX_VECTOR_BYTES < MAX_PLACE

    def _parts_at(self, constants: Sequence[int]) -> list[FoldedPart]:
        """What each dimension adds to the access with these constants along `dims`."""
        at = dict(zip(self.dims, constants, strict=True))
        return [self._part(dim, at.get(dim, 0)) for dim in range(len(self._windows.dims))]

    def predicate(self, group: CoordinateGroup) -> Value:
        """i1: the group lies within the view and within the array."""
        b, ctx, parts = self.ctx.b, self.ctx, self._parts_at(group.coordinates)
        condition = self.always
        for at, dim in enumerate(self.dims):
            if dim in self.coordinates and self._told_by(dim) < 0:
                condition = b.and_(condition, b.icmp("ult", self.coordinate(dim, group.coordinates[at]), self.view.sizes[dim]))
        for number in self._windows.checked:
            axis = self._windows.axes[number]
            places = [part.places[number] for part in parts if number in part.places]
            # An axis that nothing walks has the one place 0, which may lie in the zeros around.
            place = reduce(b.add, places) if places else ctx.index_constant(-axis.low)
            condition = b.and_(condition, b.icmp("ult", place, ctx.index_constant(axis.high - axis.low)))
        return condition

    def _distance(self, constants: Sequence[int]) -> tuple[Value, Value]:
        """How far from the view's start the access with these constants is, in elements: the thread's own part, and that of all."""
        b, parts = self.ctx.b, self._parts_at(constants)
        return reduce(b.add, [part.own for part in parts]), reduce(b.add, [part.common for part in parts])

    def address(self, group: CoordinateGroup) -> Value:
        """Where the group starts."""
        b = self.ctx.b
        distance = b.add(*self._distance(group.coordinates))
        return b.gep(self.view.pointer, b.sext(distance, I64), memory_type(self.view.element), flags="")

    def place(self, constants: Sequence[int]) -> Place | None:
        """The same; what is common to the threads is a natural number, for its digits are."""
        if not self._is_near:
            return None
        b, width = self.ctx.b, i32(element_bytes(self.view.element))
        own, common = self._distance(constants)
        outside = self._outside(constants)
        if outside is None and not self.ctx.hooks.holds_many_places:
            return Place(self.view.pointer, b.mul(b.add(own, common), width), i32(0))
        return Place(self.view.pointer, b.mul(own, width), b.mul(common, width), outside)

    def _walked(self) -> int:
        """The dimension along which a loop walks over windows, all threads at the same place of theirs, where of what decides whether an
        access lies outside this place alone moves; -1 where there is none.
        """
        moving = [dim for dim, offset in enumerate(self.offsets) if self._moves(base_and_constant(offset)[0])]
        if len(moving) != 1 or self.always.number != 1 or not self._reaches(self.coordinates):
            return -1
        (dim,) = moving
        windows, size = self._windows, self.view.op.size_values()[dim]
        if len(windows.dims[dim]) < 2 or not isinstance(size, int) or dim in self.coordinates or not self._is_in_one_run(dim):
            return -1
        return dim if windows.dims[dim][-1].axis not in windows.checked and size <= WORD * windows.run(dim) else -1

    def _outside(self, constants: Sequence[int]) -> Value | None:
        """i32 whose highest bit, the only one, says that the access lies outside: one of a word of bits, one for each place of the window,
        that no trip of the loop changes. None where the place in the window does not decide it alone.
        """
        if (walked := self._walked()) < 0:
            return None
        if (key := (walked, *constants)) not in self.words:
            self.words[key] = self._outside_word(walked, constants)
        b, ctx = self.ctx.b, self.ctx
        number = b.udiv(ctx.scalar(self.offsets[walked]), ctx.index_constant(self._windows.run(walked)))
        return b.and_(b.shl(self.words[key], b.sub(i32(WORD - 1), b.resize(number, I32))), i32(-MAX_PLACE))

    def _outside_word(self, walked: int, constants: Sequence[int]) -> Value:
        b, ctx, windows = self.ctx.b, self.ctx, self._windows
        at = dict(zip(self.dims, constants, strict=True))
        others = [dim for dim in range(len(windows.dims)) if dim != walked]
        parts, word = [self._part(dim, at.get(dim, 0)) for dim in others], i32(0)
        for dim in others:
            if dim in self.coordinates and self._told_by(dim) < 0:
                inside = b.icmp("ult", self.coordinate(dim, at[dim]), self.view.sizes[dim])
                word = b.or_(word, b.select(inside, i32(0), i32(-1)))
        for number in windows.checked:
            axis = windows.axes[number]
            places = [part.places[number] for part in parts if number in part.places]
            low = axis.low if not places or self._first_dim(number) == walked else 0
            first = reduce(b.add, places) if places else ctx.index_constant(0)
            for steps, bits in self._places_by_steps(walked, number).items():
                place = b.add(first, ctx.index_constant(steps - low))
                inside = b.icmp("ult", place, ctx.index_constant(axis.high - axis.low))
                word = b.or_(word, b.select(inside, i32(0), i32(bits - (bits >> (WORD - 1) << WORD))))
        return word

    def _places_by_steps(self, walked: int, number: int) -> dict[int, int]:
        """The places of a window, as bits, by their steps along an axis."""
        windows, size, found = self._windows, self.view.op.size_values()[walked], dict[int, int]()
        run = windows.run(walked)
        for place in range(-(-size // run) if isinstance(size, int) else 0):
            steps = sum(step for axis, step in windows.taken_apart(walked, place * run) if axis == number)
            found[steps] = found.get(steps, 0) | 1 << place
        return found
