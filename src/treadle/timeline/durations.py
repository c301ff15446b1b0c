"""Clocks of operations from the facts of a machine. Pure; every figure is a model of one workgroup that has a compute unit to itself.

What no row states is a constant here, the same for all machines, and rough: the model tells what waits for what, not nanoseconds.
"""

from dataclasses import dataclass
from math import prod

from treadle.machine import TargetSpec

L2_BYTES_PER_CLOCK = 46.0
"""What a compute unit gets out of the L2 cache when all ask (about 6,150 bytes a clock for 132 units, the model of DeepGEMM)."""
MEMORY_LATENCY = 700.0
"""From a request to its data, through the caches to memory."""
CACHE_LATENCY = 280.0
"""The same where the L2 cache has it."""
LOCAL_LATENCY = 30.0
ISSUE = 8.0
"""An operation that only asks: issuing a copy, arriving, closing a group."""
MEETING = 20.0
SCHEDULERS = 4
"""Sub-units of a compute unit that issue on their own; each has a matrix unit."""
SLOW_FUNCTIONS = frozenset(
    {"math.exp", "math.exp2", "math.log", "math.tanh", "math.erf", "math.rsqrt", "math.sqrt", "arith.divf", "math.sin", "math.cos"}
)
SLOW = 8.0
"""How many times longer than an addition such a function takes."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """An array as the whole grid reads it: bytes asked for, and bytes there are. What is asked for again comes out of the L2 cache."""

    requested: float
    unique: float

    @property
    def share_from_memory(self) -> float:
        """How much of a request misses the L2 cache, between 0 and 1."""
        return min(1.0, self.unique / self.requested) if self.requested else 1.0


def transfer(spec: TargetSpec, byte_count: float, traffic: Traffic) -> tuple[float, float]:
    """Clocks that a transfer keeps the way to memory busy, and its latency."""
    share = traffic.share_from_memory
    memory = share * byte_count / spec.product.unit_bytes_per_clock
    return max(memory, byte_count / L2_BYTES_PER_CLOCK), share * MEMORY_LATENCY + (1 - share) * CACHE_LATENCY


def contraction(spec: TargetSpec, instruction: str, m: int, n: int, k: int, warps: int) -> float:
    """Clocks of a contraction by `warps` warps on the matrix units ("fma": by the vector units)."""
    if instruction not in ("", "fma"):
        row = spec.instruction(instruction)
        if row.cycles:
            width = min(n, row.n) if row.n_step else row.n
            issued = -(-m // row.m) * -(-n // width) * -(-k // row.k)
            parallel = max(1, min(SCHEDULERS, warps) // row.warps)
            return issued * row.cycles * width / row.n / parallel
    return m * n * k / spec.fma_per_unit_per_clock


def local_access(spec: TargetSpec, byte_count: float) -> float:
    """Clocks of an access to shared memory without bank conflicts."""
    return byte_count / (spec.banks.count * spec.banks.bytes)


def elementwise(spec: TargetSpec, shape: tuple[int, ...], name: str, warps: int) -> float:
    """Clocks of one scalar operation on every element of a tile."""
    rate = min(spec.fma_per_unit_per_clock, warps * spec.fma_per_unit_per_clock / SCHEDULERS)
    return prod(shape) * (SLOW if name in SLOW_FUNCTIONS else 1.0) / rate
