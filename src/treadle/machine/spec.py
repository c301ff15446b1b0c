"""What a machine is: frozen facts, one row an architecture. Every level may read them; nothing here decides anything."""

from collections.abc import Callable
from functools import cached_property
from typing import Literal

from treadle.layout.tile_layout import TileLayout
from treadle.machine.products import Product
from treadle.machine.queues import Queue, QueueRole
from treadle.machine.rates import Rates
from treadle.records import dataclass

OperandSpace = Literal["shared", "registers"]


@dataclass(frozen=True, slots=True)
class FragmentLayouts:
    """The register layouts that one instruction prescribes (machine/fragments.py): of the accumulator (m, n) for a width n, and of A (m, k)
    and B (k, n) where they may come from registers.
    """

    accumulator: Callable[[int], TileLayout]
    a: Callable[[], TileLayout] | None = None
    b: Callable[[], TileLayout] | None = None


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """One matrix instruction: D[m, n] += A[m, k] * B[k, n].

    `a_type`, `b_type`, `accumulator_type`: MLIR element type names ("tf32" for f32 operands rounded by the hardware). `n` is the widest;
    where `n_step` > 0 every multiple of it up to `n` exists. `warps`: how many warps issue it together. `operand_spaces`: where A and where
    B may be, best first: "shared" (read from shared buffers through descriptors) or "registers" (fragments in `layouts`). `family`: which
    kind of instruction it is, for the emitter. `k_major_only`: shared operands must be contiguous along k. `cycles`: issue interval on one
    matrix unit. `truncates`: sums are cut, not rounded, as they run, so that long chains lose accuracy.
    `packed_steps`: how many steps along k a lane's operands may hold side by side (`fragments.packed`), so that they are read at once.
    """

    name: str
    a_type: str
    b_type: str
    accumulator_type: str
    m: int
    n: int
    k: int
    operand_spaces: tuple[tuple[OperandSpace, ...], tuple[OperandSpace, ...]]
    layouts: FragmentLayouts
    family: str
    warps: int = 1
    n_step: int = 0
    k_major_only: bool = True
    cycles: int = 0
    truncates: bool = False
    packed_steps: int = 1

    @property
    def reads_shared(self) -> bool:
        """Whether both operands are best read from shared buffers."""
        return all(spaces[0] == "shared" for spaces in self.operand_spaces)

    def may_read(self, side: int, space: OperandSpace) -> bool:
        """Whether A (side 0) or B (side 1) may be in a space."""
        return space in self.operand_spaces[side]


@dataclass(frozen=True, slots=True)
class BulkTensorCopy:
    """Descriptor-driven copies of boxes between global and shared memory: alignment rules and limits.

    `shared_align_bytes`: where buffers that descriptors reach begin, and each slot of them. `barrier_bytes`: of the transaction barrier
    that a copy signals. `swizzle_bytes`: rows that swizzles fill, the widest first. `max_extent`: the longest dimension whose elements
    signed 32-bit coordinates reach. `max_pitch_bytes`: the largest distance of neighbours. `max_step`: of elements that a copy takes
    along an axis, how far one may be from the next. `walk_corner_bits`, `walk_offset_bits`: for copies that walk the pixels of images of
    one, two or three axes: signed bits of their bounding box's corners, unsigned ones of a window's place; empty where there are no such
    copies.
    """

    base_align_bytes: int
    pitch_align_bytes: int
    max_box_extent: int
    max_rank: int
    swizzle_bytes: tuple[int, ...]
    shared_align_bytes: int
    barrier_bytes: int
    max_extent: int = (1 << 31) - 1
    max_pitch_bytes: int = (1 << 40) - 1
    max_step: int = 8
    walk_corner_bits: tuple[int, ...] = ()
    walk_offset_bits: tuple[int, ...] = ()

    @property
    def box_bytes(self) -> tuple[int, ...]:
        """Rows of boxes that threads fill or read without waiting for banks, the widest first: those of swizzles, and without one the
        least that a copy moves, eight of which are one after another.
        """
        return (*self.swizzle_bytes, self.base_align_bytes)


@dataclass(frozen=True, slots=True)
class RegisterMoves:
    """How roles give registers to each other: by `warps` warps at a time, `fewest` to `most` of a thread in steps of `granule`.

    `split`: of a thread of the role that copies and of one that computes; `index_split`: the same where the first also does index
    arithmetic on sizes that only the runtime knows; `copy_split`: where all threads of the first copy; `shift_split`:
    where they shift rows on the way, with many loads in flight. `three_split`: where a third role splits an operand (copies by threads
    or not), of the role that copies, of that one, and of one of two groups that compute.
    """

    warps: int
    granule: int
    fewest: int
    most: int
    split: tuple[int, int]
    index_split: tuple[int, int]
    copy_split: tuple[int, int]
    shift_split: tuple[int, int]
    three_split: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class SharedBanks:
    """Shared memory banks: how many, and how wide. As many lanes are served together as fill all of them once (layout/access.py)."""

    count: int
    bytes: int


USUAL_GAIN = 8
"""How many times as many multiply-adds as the vector units matrix instructions give, where nothing is known about them."""


@dataclass(frozen=True)
class TargetSpec:
    """Facts of one architecture, and the product of it that is compiled for. Bytes, clocks and counts; `vendor` is for humans, no pass may
    branch on it.

    `named_barriers`: hardware barriers of a workgroup beside its own. `max_cluster`: workgroups that a cluster may have on every device.
    `matrix_units`: of a compute unit, each for one warp's instructions. `fma_registers`: of a thread that contractions without matrix
    instructions can fill before they spill. `wide_integer_registers`: of them, what products of 64-bit integers take beside their operands.
    `line_bytes`: of the last cache. `register_moves`: None where each warp keeps the registers it starts with. `clock_bits`: of a compute
    unit's own counter. `register_granule`: registers of a thread are given out by so many. `vector_lanes`: of the vector unit beside each
    matrix unit, over which a warp's instruction passes in several clocks where it has more. `fence_classes`: classes of instructions that
    `sync.sched_fence` can name, with their bits in the instruction. `stage_fence`: of them, those that may cross the fences at the borders
    of a pipelined loop's stages; None where the machine's scheduler needs no fences. `pipelines_contractions`: loops that contract overlap
    their iterations where nobody asks otherwise. `buffer_flags`: the last word of descriptors by which loads give zero outside of an array;
    0 where loads go by addresses alone. `shifts_loads`: wide loads of elements that begin anywhere are made of aligned ones.
    `shared_bytes_beside_cache`: shared memory of a workgroup that leaves enough to the cache through which threads copy, where both are
    parts of one memory; 0 where they are not.
    """

    name: str
    vendor: str
    description: str
    subgroup_size: int
    product: Product
    shared_bytes_per_workgroup: int
    shared_bytes_per_unit: int
    registers_per_unit: int
    max_registers_per_thread: int
    max_threads_per_workgroup: int
    max_threads_per_unit: int
    max_vector_bytes: int
    banks: SharedBanks
    matrix_instructions: tuple[MatrixInstruction, ...]
    bulk_tensor: BulkTensorCopy | None = None
    queues: tuple[Queue, ...] = ()
    max_warps_per_workgroup: int = 32
    fma_per_unit_per_clock: int = 128
    matrix_units: int = 4
    overlapping_launches: bool = False
    named_barriers: int = 0
    max_cluster: int = 1
    fma_registers: int = 255
    wide_integer_registers: int = 0
    line_bytes: int = 128
    register_moves: RegisterMoves | None = None
    clock_bits: int = 64
    fence_classes: tuple[tuple[str, int], ...] = ()
    stage_fence: tuple[str, ...] | None = None
    pipelines_contractions: bool = False
    buffer_flags: int = 0
    register_granule: int = 8
    vector_lanes: int = 32
    shifts_loads: bool = False
    shared_bytes_beside_cache: int = 0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Worked out once: what depends on a machine alone is kept by it, and asked for thousands of times."""
        return hash((self.name, self.product))

    @property
    def async_matrix(self) -> bool:
        """Whether matrix instructions on shared buffers run on after they were issued."""
        return self.queue_for("matrix") is not None

    @property
    def descriptor_align_bytes(self) -> int:
        """Where buffers that descriptors reach begin in shared memory."""
        return self.max_vector_bytes if self.bulk_tensor is None else self.bulk_tensor.shared_align_bytes

    @property
    def barrier_bytes(self) -> int:
        """Of a transaction barrier; 0 where there are none."""
        return 0 if self.bulk_tensor is None else self.bulk_tensor.barrier_bytes

    @property
    def slot_row_bytes(self) -> int:
        """Of a row of operands in shared memory at its best: the widest swizzle."""
        return self.line_bytes if self.bulk_tensor is None else self.bulk_tensor.swizzle_bytes[0]

    def queue(self, name: str) -> Queue | None:
        """The queue that `sync` operations call so."""
        return next((queue for queue in self.queues if queue.name == name), None)

    def queue_for(self, role: QueueRole | str) -> Queue | None:
        """The queue of a role; None where such operations are complete in program order."""
        for queue in self.queues:
            if queue.role == role:
                return queue
        return None

    @cached_property
    def compute_units(self) -> int:
        """Compute units of the product."""
        return self.product.compute_units

    @cached_property
    def clock_mhz(self) -> int:
        """The product's clock under load."""
        return self.product.clock_mhz

    @property
    def memory_gbps(self) -> int:
        """GB/s of the product's memory."""
        return self.product.memory_gbps

    @property
    def l2_bytes(self) -> int:
        """The product's cache that units share."""
        return self.product.l2_bytes

    @cached_property
    def rates(self) -> Rates:
        """The constants of the models on the product, which these read thousands of times."""
        return self.product.rates

    def registers_at_start(self, warps: int) -> int:
        """Of a thread, where so many warps share a unit: what a workgroup whose registers move begins with, and all that it has to move."""
        granule = self.register_granule if self.register_moves is None else self.register_moves.granule
        most = self.max_registers_per_thread if self.register_moves is None else self.register_moves.most
        return min(self.registers_per_unit // (warps * self.subgroup_size) // granule * granule, most)

    @property
    def copies_fill_slots(self) -> bool:
        """Whether lanes' copies fill shared memory as wide as loads go, so that no registers hold what is in flight."""
        queue = self.queue_for("copy_in")
        return queue is not None and bool(queue.lane_bytes) and queue.lane_bytes[0] >= self.max_vector_bytes

    def macs_per_clock(self, row: MatrixInstruction | None) -> float:
        """Multiply-adds that a compute unit completes in a clock, by a matrix instruction or (None) by the vector units.

        A row that states no cycles counts as `USUAL_GAIN` times as fast as the vector units.
        """
        if row is None:
            return self.fma_per_unit_per_clock
        if not row.cycles:
            return USUAL_GAIN * self.fma_per_unit_per_clock
        return self.product.matrix_rate * (row.m * row.n * row.k * self.matrix_units // (row.warps * row.cycles))

    def instructions_for(self, a_type: str, b_type: str, accumulator_type: str) -> tuple[MatrixInstruction, ...]:
        """Matrix instructions of exactly these types, best first."""
        return tuple(i for i in self.matrix_instructions if (i.a_type, i.b_type, i.accumulator_type) == (a_type, b_type, accumulator_type))

    def instruction(self, name: str) -> MatrixInstruction:
        """The matrix instruction of that name; KeyError where the machine has none."""
        for row in self.matrix_instructions:
            if row.name == name:
                return row
        raise KeyError(name)
