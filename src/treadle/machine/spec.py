"""What a machine is: frozen facts, one row an architecture. Every level may read them; nothing here decides anything."""

from dataclasses import dataclass
from typing import Literal

from treadle.machine.products import Product
from treadle.machine.rates import Rates


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """One matrix instruction: D[m, n] += A[m, k] * B[k, n].

    `a_type`, `b_type`, `accumulator_type`: MLIR element type names ("tf32" for f32 operands rounded by the hardware). `n` is the widest;
    where `n_step` > 0 every multiple of it up to `n` exists. `warps`: how many warps issue it together. `operands`: "shared" (read from
    shared buffers through descriptors) or "register" (fragments in `fragment`'s layouts, see layout/fragments.py). `k_major_only`: shared
    operands must be contiguous along k. `cycles`: issue interval on one matrix unit. `truncates`: sums are cut, not rounded, to `sum_bits`
    bits of mantissa as they run, so that long chains lose accuracy.
    """

    name: str
    a_type: str
    b_type: str
    accumulator_type: str
    m: int
    n: int
    k: int
    operands: Literal["shared", "register"]
    fragment: str
    warps: int = 1
    n_step: int = 0
    k_major_only: bool = True
    cycles: int = 0
    truncates: bool = False
    sum_bits: int = 24


@dataclass(frozen=True, slots=True)
class BulkTensorCopy:
    """Descriptor-driven copies of boxes between global and shared memory: alignment rules and limits.

    `max_extent`: the longest dimension whose elements signed 32-bit coordinates reach. `max_pitch_bytes`: the largest distance of
    neighbours.
    """

    base_align_bytes: int
    pitch_align_bytes: int
    max_box_extent: int
    max_rank: int
    swizzle_bytes: tuple[int, ...]
    max_extent: int = (1 << 31) - 1
    max_pitch_bytes: int = (1 << 40) - 1


@dataclass(frozen=True, slots=True)
class SharedBanks:
    """Shared memory banks: how many, how wide, and how many lanes are served together for each access width in bytes."""

    count: int
    bytes: int
    lanes_by_access_bytes: tuple[tuple[int, int], ...]


USUAL_GAIN = 8
"""How many times as many multiply-adds as the vector units matrix instructions give, where nothing is known about them."""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """Facts of one architecture, and the product of it that is compiled for. Bytes, clocks and counts; `vendor` is for humans, no pass may
    branch on it.

    `named_barriers`: hardware barriers of a workgroup beside its own. `max_cluster`: workgroups that a cluster may have on every device.
    `matrix_units`: of a compute unit, each for one warp's instructions. `fma_registers`: of a thread that contractions without matrix
    instructions can fill before they spill. `wide_integer_registers`: of them, what products of 64-bit integers take beside their operands.
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
    max_grid: tuple[int, int, int]
    max_vector_bytes: int
    banks: SharedBanks
    matrix_instructions: tuple[MatrixInstruction, ...]
    bulk_tensor: BulkTensorCopy | None = None
    queues: tuple[str, ...] = ()
    async_matrix: bool = False
    max_warps_per_workgroup: int = 32
    fma_per_unit_per_clock: int = 128
    matrix_units: int = 4
    overlapping_launches: bool = False
    named_barriers: int = 0
    max_cluster: int = 1
    fma_registers: int = 255
    wide_integer_registers: int = 0

    @property
    def compute_units(self) -> int:
        """Compute units of the product."""
        return self.product.compute_units

    @property
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

    @property
    def rates(self) -> Rates:
        """The constants of the models on the product."""
        return self.product.rates

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
