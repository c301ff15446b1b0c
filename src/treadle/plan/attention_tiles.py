"""Tiles of attention kernels, and their time beside that of the kernels that they stand for.

A workgroup has `rows` queries, whose scores with `keys` keys are in registers at a time, beside its rows of the result. The models add up
operations and bytes; no term is fitted to measured times.
"""

from collections.abc import Iterator
from dataclasses import replace

from treadle.machine.spec import MatrixInstruction, TargetSpec
from treadle.plan.form_times import moving_seconds, seconds, with_memory
from treadle.records import dataclass

WIDEST = 256
"""Columns of a result and of a reduced width for which registers and shared memory hold a workgroup's rows."""
POWERS_PER_CLOCK = 16
"""Exponentials that a unit computes at a time."""
ODD_WIDTH = 208
"""Up to here widths are multiples of what an instruction takes; wider ones are as the widest, where warpgroups multiply: of those between,
ptxas keeps addresses of matrix instructions in registers that other instructions have to bring to them.
"""
TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (64, 32))
"""Rows and keys, the best first."""
WIDE_TILES = ((128, 80), (64, 80))
"""The same of wide rows; with 64 keys ptxas does the same to them."""
TUNED_ROWS, TUNED_KEYS, MOST_STAGES = (64, 128), (32, 48, 64, 80, 96, 112, 128), 4
"""What tuning tries."""
SHARED_KEYS = 64
"""Keys of tiles of workgroups that share a unit, where more do not fit."""
SHARING = 2
"""Workgroups of one warpgroup and of the producer's that share a unit's registers."""
MARGIN_BYTES = 2048
"""Of a workgroup's shared memory, for barriers and what the machine keeps of it."""
UNKNOWN = 4096
"""What rows and keys that only the runtime knows count as."""
UNKNOWN_BATCH = 16
"""The same for how many matrices of scores there are."""
HALVES = ("f16", "bf16")


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """`batch` matrices of scores of `rows` x `keys`, which reduce `width`; the result has `columns`. None: only the runtime knows."""

    batch: int | None
    rows: int | None
    keys: int | None
    width: int
    columns: int

    @property
    def known(self) -> tuple[int, int, int]:
        """The batch, rows and keys that models go by."""
        return (UNKNOWN_BATCH if self.batch is None else self.batch, self.rows or UNKNOWN, self.keys or UNKNOWN)

    def memory_bytes(self, element_bytes: int) -> int:
        """Of the operands and the result, each read or written once."""
        batch, rows, keys = self.known
        return batch * (rows + keys) * (self.width + self.columns) * element_bytes


@dataclass(frozen=True, slots=True)
class AttentionTiles:
    """Extents of a workgroup's tiles along rows, columns, keys and width, its warps (all along the rows), stages of the rings of keys and
    values, the instruction ("fma": the vector units), and how many workgroups are to share a unit.
    """

    rows: int
    columns: int
    keys: int
    width: int
    warps: int
    num_stages: int
    instruction: str
    resident: int = 1


def _fits(row: MatrixInstruction, tiles: AttentionTiles) -> bool:
    step = row.n_step or row.n
    rows_fit = tiles.warps % row.warps == 0 and tiles.rows % (row.m * (tiles.warps // row.warps)) == 0
    return rows_fit and not (tiles.keys % step or tiles.columns % step or tiles.width % row.k or tiles.keys % row.k)


def _shared_bytes(tiles: AttentionTiles) -> int:
    """What goes through shared memory where threads copy: queries, exponentials, and keys and values of two steps."""
    return 2 * (tiles.rows * (tiles.width + tiles.keys) + 2 * tiles.keys * (tiles.width + tiles.columns))


def _shared(tiles: AttentionTiles, spec: TargetSpec) -> AttentionTiles:
    """The tiles of one warpgroup with as many keys and stages as let two workgroups share a unit: one's loads and products run under the
    other's exponentials. As they are where not one stage of the fewest keys does.
    """
    steps = tiles.num_stages * tiles.keys
    for keys in (tiles.keys, *((SHARED_KEYS,) if tiles.keys > SHARED_KEYS and max(tiles.width, tiles.columns) <= ODD_WIDTH else ())):
        for stages in range(tiles.num_stages, 0, -1):
            ring = stages * keys * (tiles.width + tiles.columns)
            held = 2 * (ring + tiles.rows * (tiles.width + tiles.columns)) + MARGIN_BYTES
            is_enough = stages > 1 or keys * stages == steps
            if is_enough and SHARING * held <= spec.shared_bytes_per_unit:
                return replace(tiles, keys=keys, num_stages=stages, resident=SHARING)
    return tiles


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step


def _is_wide_or_short(sizes: AttentionSizes) -> bool:
    """Whether tiles of many keys hold too much, or more than there is."""
    return max(sizes.width, sizes.columns) > 128 or (sizes.keys or UNKNOWN) <= 64


def candidate_tiles(
    sizes: AttentionSizes, operand: str, spec: TargetSpec, asked: tuple[int, int] | None = None
) -> Iterator[AttentionTiles]:
    """Tiles for operands of a type, the best first, each lighter than the one before; the last goes without matrix instructions. `asked`:
    rows and keys that come first where they fit.
    """
    instructions = spec.instructions_for(operand, operand, "f32") if operand in HALVES else ()
    few = sizes.rows is not None and sizes.rows <= 64
    together = any(row.warps > 1 for row in instructions)
    widest = max(sizes.width, sizes.columns)
    usual = WIDE_TILES if together and widest > ODD_WIDTH else TILES
    fit = [(rows, keys) for rows, keys in usual if not (few and rows > 64) and not (keys > 80 and _is_wide_or_short(sizes))]
    for rows, keys in fit if asked is None else (asked, *fit):
        for row in instructions:
            grain = max(16, row.k, row.n_step or row.n)
            warps = rows // 16 if row.warps > 1 else max(1, min(4, rows // row.m))
            columns, width = (_rounded(size, WIDEST if together and size > ODD_WIDTH else grain) for size in (sizes.columns, sizes.width))
            stages = min(3 if max(columns, width) <= 64 else 2, -(-(sizes.keys or UNKNOWN) // keys))
            found = AttentionTiles(rows, columns, keys, width, warps, stages, row.name)
            if row.warps > 1 and warps == row.warps and spec.register_moves is not None:
                found = _shared(found, spec)
            has_room = row.warps > 1 or _shared_bytes(found) <= spec.shared_bytes_per_workgroup
            if has_room and _fits(row, found):
                yield found
                break
    yield AttentionTiles(16, _rounded(sizes.columns, 16), 16, _rounded(sizes.width, 16), 4, 1, "fma")


def tunable_tiles(sizes: AttentionSizes, operand: str, spec: TargetSpec) -> list[AttentionTiles]:
    """Tiles with matrix instructions, each in the most stages that shared memory holds and in one less, the best by the model first and the
    largest of equals.
    """
    found: dict[AttentionTiles, None] = {}
    for rows in TUNED_ROWS:
        for keys in TUNED_KEYS:
            first = next(candidate_tiles(sizes, operand, spec, (rows, keys)))
            if (first.rows, first.keys) != (rows, keys) or first.instruction == "fma":
                continue
            a_row = 2 * (first.width + first.columns)
            most = min(MOST_STAGES, (spec.shared_bytes_per_workgroup - MARGIN_BYTES - rows * a_row) // (keys * a_row))
            for stages in (most, most - 1):
                if stages > 0 and (stages - 1) * keys < (sizes.keys or UNKNOWN):
                    found[replace(first, num_stages=stages)] = None
    return sorted(found, key=lambda t: (attention_seconds(sizes, t, 0, spec), -t.rows * t.keys, -t.num_stages))


def attention_seconds(sizes: AttentionSizes, tiles: AttentionTiles, memory_bytes: float, spec: TargetSpec) -> float:
    """Modelled time of one kernel of attention that reads and writes so many bytes of global memory."""
    batch, rows, keys = sizes.known
    row = None if tiles.instruction == "fma" else spec.instruction(tiles.instruction)
    rounds = -(-batch * -(-rows // tiles.rows) // spec.compute_units)
    products = tiles.rows * tiles.keys * (tiles.width + tiles.columns) / spec.macs_per_clock(row)
    powers = tiles.rows * tiles.keys / POWERS_PER_CLOCK
    return with_memory(rounds * -(-keys // tiles.keys) * (products + powers), memory_bytes, spec)


def apart_seconds(sizes: AttentionSizes, tiles: AttentionTiles, memory_bytes: float, spec: TargetSpec) -> float:
    """Modelled time of the kernels that an attention kernel stands for: scores are written, read for the softmax and written again in 16
    bits, and read.
    """
    batch, rows, keys = sizes.known
    row = None if tiles.instruction == "fma" else spec.instruction(tiles.instruction)
    products = batch * rows * keys * (tiles.width + tiles.columns) / (spec.macs_per_clock(row) * spec.compute_units)
    return (
        seconds(products, spec) + 2 * moving_seconds(0, spec) + moving_seconds(memory_bytes + batch * rows * keys * (4 + 4 + 2 + 2), spec)
    )
