"""How long a library's kernel for a product takes: the best of its tiles, with or without the sum split, against its memory.

Fitted to cuBLAS (PyTorch 2.11 on an H200) on the random contractions of seeds 71 and 72 in bf16 and f16, checked on seed 73: times are
within 10 % (root mean square of 55 aligned shapes) and 18 % (15 others) of what was measured. For arrays whose rows begin at no multiple of
16 bytes it has kernels of an older machine, at a quarter of the rate.
"""

from math import ceil
from typing import Final

from treadle.machine.spec import TargetSpec
from treadle.plan.form_times import seconds
from treadle.records import Record

TILES: Final = ((64, 64), (64, 128), (128, 64), (128, 128), (64, 256), (256, 64), (128, 256), (256, 128))
SPLITS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
STEP_BYTES: Final = 128
"""Of a row of an operand at a time."""
ALIGNED: Final = 16
"""Bytes that rows begin at multiples of, for the machine's own kernels."""
POWER: Final = 3
"""How arithmetic and memory add up: nearly the longer one."""


class Kernels(Record):
    """Of one kind. `start_us`: beyond that of a kernel that moves memory; `rate`: the share of the matrix instructions' rate that a large
    tile has, which falls with `edge` by what a tile's sides take; `tile_clocks`: of each tile beside its product; `split_us`: of adding up
    parts of sums; `memory`: the share of the memory's rate.
    """

    start_us: float
    rate: float
    edge: float
    tile_clocks: float
    split_us: float
    memory: float


OWN: Final = Kernels(1.35, 0.789, 3.1, 557, 3.36, 0.878)
OLDER: Final = Kernels(2.57, 0.182, 14.6, 5640, 4.75, 1.0)


class Product(Record):
    """`batch` products of `rows` by `depth` and `depth` by `columns` elements, and the `bytes` of all arrays. `element`: the MLIR name of
    the operands' type where matrix instructions are for it, else "". `element_bytes`: of an operand's element. `pitch_bytes`: what rows of
    all arrays begin at multiples of.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    bytes: int
    element: str
    element_bytes: int
    pitch_bytes: int = ALIGNED

    def seconds(self, spec: TargetSpec) -> float:
        """The modelled time on a machine."""
        kernels = OWN if self.pitch_bytes % ALIGNED == 0 or not self.element else OLDER
        best = min(self._clocks(kernels, tile, split, spec) for tile in TILES for split in SPLITS)
        moved = self.bytes / (kernels.memory * spec.memory_gbps * 1e9)
        start = seconds(spec.rates.streaming.fixed_clocks, spec) + kernels.start_us * 1e-6
        return start + (seconds(best, spec) ** POWER + moved**POWER) ** (1 / POWER)

    def _clocks(self, kernels: Kernels, tile: tuple[int, int], split: int, spec: TargetSpec) -> float:
        """Of all rounds of such tiles, with each sum in so many parts."""
        rows, columns = tile
        rated = [row for row in spec.matrix_instructions if row.a_type == row.b_type == self.element]
        rate = max((spec.macs_per_clock(row) for row in rated), default=spec.macs_per_clock(None))
        rate *= kernels.rate / (1 + kernels.edge * (1 / rows + 1 / columns))
        step = STEP_BYTES // self.element_bytes
        depth = ceil(self.depth / split / step) * step
        rounds = ceil(self.batch * ceil(self.rows / rows) * ceil(self.columns / columns) * split / spec.compute_units)
        added = kernels.split_us * spec.clock_mhz if split > 1 else 0.0
        return rounds * (rows * columns * depth / rate + kernels.tile_clocks) + added
