"""The state of one kernel's emission: what every IR value has become in LLVM, and the builder."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from treadle.codegen.llvm_text import I32, I64, Builder, Module, Value, i32, integer, vector_shape
from treadle.dialects.agents import reads_index
from treadle.dialects.sync import MbarrierType
from treadle.dialects.tile import KernelOp, LoadOp, ViewOp, layout_of, tile_type
from treadle.errors import InternalError
from treadle.ir.core import Attribute, Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout
from treadle.records import dataclass
from treadle.targets.simt.hooks import Reading, SimtHooks
from treadle.targets.simt.in_flight import analyse
from treadle.targets.simt.ranges import Ranges


@dataclass(frozen=True, slots=True)
class View:
    """A global array: the address of its element zero, sizes (as wide as an index) and strides (i64, in elements) as values."""

    op: ViewOp
    pointer: Value
    element: Attribute
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    read_only: bool

    @property
    def reading(self) -> Reading:
        """How its elements are loaded."""
        return "read_only" if self.read_only else "plain"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A shared buffer: its address, the static part of its byte offset in the workgroup's shared memory, its layout.

    `terms`: the dynamic part, as (index, bytes a step) of the slots it was taken from.
    """

    address: Value
    byte_offset: int
    layout: SharedLayout
    element: Attribute
    terms: tuple[tuple[Value, int], ...] = ()


@dataclass(slots=True)
class Counts:
    """Static counts for the audit."""

    matrix_instructions: int = 0
    matrix_waits: int = 0
    bulk_copies: int = 0
    bulk_stores: int = 0
    contractions: int = 0


@dataclass(frozen=True, slots=True)
class Gathered:
    """A tile in vectors of registers. It is taken apart where it is used, so that nothing needs its elements before.

    `kind`: the type that the vectors have their elements in; "" for their own. `order`: for each register its place among the vectors'
    elements; empty where registers follow one another.
    """

    vectors: tuple[Value, ...]
    kind: str = ""
    order: tuple[int, ...] = ()


Bound = Value | list[Value] | Gathered | View | Buffer


class KernelContext:
    """One kernel under emission.

    `thread`, `lane`, `warp` are i32 values and `warps` their number; within a role they count within the executing group, and `group` is
    its number. `shared` is the base of shared memory. `retired`: the tiles that the wait being emitted makes ready; `released`: the
    contractions that have read their registers then, which are `held` until there. `accumulate`: for a
    loop's accumulator that starts as zero, whether a trip adds to it (i1) or begins it. `lines`: of the line table, by emitted operation.
    `tables`: constant arrays by their numbers, and the bytes of each. `index_type`: what an `index` is. `written`: the pointers that the
    kernel writes through.
    """

    thread: Value
    lane: Value
    warp: Value
    shared: Value
    group: Value = i32(0)
    parameters: dict[str, Value]

    def __init__(self, kernel: KernelOp, hooks: SimtHooks, module: Module, builder: Builder, written: frozenset[SSAValue]) -> None:
        self.kernel = kernel
        self.written = written
        self.hooks = hooks
        self.module = module
        self.b = builder
        self.warps: int = kernel.num_warps.value.data
        self.lanes = hooks.spec.subgroup_size
        self.index_type = I64 if kernel.index_width() == 64 else I32
        self.counts = Counts()
        self.ranges = Ranges(kernel)
        self.in_flight = analyse(kernel)
        self.retired: tuple[SSAValue, ...] = ()
        self.released: tuple[Operation, ...] = ()
        self.held: dict[Operation, list[Value]] = {}
        self.accumulate: dict[SSAValue, Value] = {}
        self.parameters = {}
        self.lines: dict[Operation, int] = {}
        self.tables: dict[tuple[int, ...], tuple[Value, int]] = {}
        self._bound: dict[SSAValue, Bound] = {}
        self._origin: dict[str, tuple[Value, int]] = {}

    @contextmanager
    def as_group(self, warps: int, thread: Value, warp: Value, group: Value) -> Generator[None]:
        """Within: the code of one group of a role."""
        before = (self.warps, self.thread, self.warp, self.group)
        self.warps, self.thread, self.warp, self.group = warps, thread, warp, group
        yield
        self.warps, self.thread, self.warp, self.group = before

    # --- values

    def bind(self, value: SSAValue, bound: Bound) -> None:
        """Say what an IR value has become (again, where an operation renews it)."""
        self._bound[value] = bound

    def _get(self, value: SSAValue) -> Bound:
        try:
            return self._bound[value]
        except KeyError:
            raise InternalError(f"value of type {value.type} is used before it is emitted") from None

    def scalar(self, value: SSAValue) -> Value:
        """The LLVM value of a scalar or mbarrier."""
        bound = self._get(value)
        if not isinstance(bound, Value):
            raise InternalError(f"expected a scalar, got {value.type}")
        return bound

    def index_constant(self, value: int) -> Value:
        """A constant as wide as an index."""
        return integer(self.index_type, value)

    def as_index(self, value: Value) -> Value:
        """A signed i32 as wide as an index."""
        return self.b.sext(value, self.index_type)

    def small_index(self, value: SSAValue) -> Value:
        """An index that is known to fit 32 bits, as i32: a slot, a coordinate within what a descriptor reaches."""
        return self.b.resize(self.scalar(value), I32)

    def tile(self, value: SSAValue | Operation) -> list[Value]:
        """The registers of a tile, in the order of its layout."""
        bound = self._get(SSAValue.get(value))
        if isinstance(bound, Gathered):
            vectors = bound.vectors
            if bound.kind:
                vectors = [self.b.bitcast(self.hooks.arrived(self.b, vector), bound.kind) for vector in vectors]
            elements = [element for vector in vectors for element in self.unpack(vector)]
            return [elements[place] for place in bound.order] if bound.order else elements
        if not isinstance(bound, list):
            raise InternalError(f"expected a register tile, got {SSAValue.get(value).type}")
        return bound

    def words_of(self, value: SSAValue) -> Gathered | None:
        """The words that hold a tile of narrower elements; None where it is held otherwise."""
        bound = self._get(value)
        return bound if isinstance(bound, Gathered) and bound.kind else None

    def view(self, value: SSAValue) -> View:
        """A global view."""
        bound = self._get(value)
        if not isinstance(bound, View):
            raise InternalError(f"expected a view, got {value.type}")
        return bound

    def buffer(self, value: SSAValue) -> Buffer:
        """A shared buffer."""
        bound = self._get(value)
        if not isinstance(bound, Buffer):
            raise InternalError(f"expected a shared buffer, got {value.type}")
        return bound

    def layout(self, value: SSAValue) -> TileLayout:
        """The layout of a tile; raises InternalError where none is assigned, or it has another number of threads than the kernel. Of an
        index that is read from memory, which every warp reads for itself, any number of warps is right.
        """
        layout = layout_of(value)
        if layout is None:
            raise InternalError(f"register tile {tile_type(value)} has no layout")
        if layout.num_lanes != self.lanes or (
            layout.num_warps != self.warps and not (isinstance(value.owner, LoadOp) and reads_index(value.owner))
        ):
            raise InternalError(
                f"layout of {layout.num_warps} x {layout.num_lanes} threads in a kernel of {self.warps} x {self.lanes}: {layout.to_lists()}"
            )
        return layout

    # --- many at once, for control flow

    def flatten(self, values: Sequence[SSAValue]) -> list[Value]:
        """The LLVM values of scalars and tiles, one after the other."""
        found: list[Value] = []
        for value in values:
            bound = self._get(value)
            if isinstance(bound, Value):
                found.append(bound)
            elif isinstance(bound, list | Gathered):
                found.extend(self.tile(value))
            else:
                raise InternalError(f"a value of type {value.type} cannot be carried through control flow")
        return found

    def bind_flat(self, values: Sequence[SSAValue], flat: Sequence[Value]) -> None:
        """The opposite of `flatten`."""
        at = 0
        for value in values:
            if isinstance(value.type, builtin.TensorType):
                count = self.layout(value).num_registers
                self.bind(value, list(flat[at : at + count]))
                at += count
            elif isinstance(value.type, MbarrierType):
                raise InternalError("a barrier cannot be carried through control flow")
            else:
                self.bind(value, flat[at])
                at += 1
        if at != len(flat):
            raise InternalError(f"{len(flat)} values for {at} registers")

    # --- vectors

    def unpack(self, value: Value) -> list[Value]:
        """The scalars of a vector; `pack` of exactly these gives the vector back at no cost."""
        shape = vector_shape(value.type)
        if shape is None:
            return [value]
        elements = [self.b.extract(value, i) for i in range(shape[0])]
        for i, element in enumerate(elements):
            self._origin[element.text] = (value, i)
        return elements

    def pack(self, elements: Sequence[Value]) -> Value:
        """A vector (a scalar for one element) of scalars of one type."""
        if len(elements) == 1:
            return elements[0]
        return self.vector_of(elements) or self.b.build_vector(elements)

    def vector_of(self, elements: Sequence[Value]) -> Value | None:
        """The vector of which these are the scalars, as `unpack` gave them; None where there is no such vector."""
        first = self._origin.get(elements[0].text)
        if first is not None and first[1] == 0:
            shape = vector_shape(first[0].type)
            if shape is not None and shape[0] == len(elements):
                origins = [self._origin.get(e.text) for e in elements]
                if all(o is not None and o[0].text == first[0].text and o[1] == i for i, o in enumerate(origins)):
                    return first[0]
        return None
