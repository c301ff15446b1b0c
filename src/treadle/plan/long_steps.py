"""Steps of a contraction's loop twice as long along k, where registers hold what they bring: half the meetings, waits and loop control."""

from dataclasses import replace

from treadle.plan.pipeline_depth import BESIDE_FETCHED, REGISTER_BYTES, RESIDENT
from treadle.plan.tile_config import ContractionTile, TileProblem

STEP_BYTES = 128
"""Of a row of an operand in shared memory, at most: a line of global memory."""
FEWEST_STEPS = 8
"""Of a loop that reads a step ahead, two steps a trip: fewer are one step a trip, which moves registers."""
BESIDE = 16
"""Registers of a thread beside accumulators and operands in a loop whose loads go by descriptors."""
BESIDE_GATHERED = 48
"""The same where an image is read at windows, whose places are computed."""


def with_long_steps(tile: ContractionTile, problem: TileProblem, *, is_gathered: bool) -> ContractionTile:
    """The tile with steps twice as long, or as it is: where instructions read shared memory or copies fill it without registers, where k
    is not made of such steps, or registers do not hold accumulators, a step's loads and the operands of its instructions of one k.
    """
    spec, shape, row, size, k = problem.spec, problem.shape, problem.instruction, problem.types.operand_bytes, 2 * tile.k
    if row is None or row.layouts.a is None or row.layouts.b is None or (spec.copies_fill_slots and not is_gathered):
        return tile
    threads, rows = tile.num_threads(spec), shape.operand_rows(tile.m, tile.n)
    if k * size > STEP_BYTES or shape.k is None or shape.k % k:
        return tile
    instructions = tile.m // tile.warps_m // row.m, tile.n // tile.warps_n // row.n
    along_m, along_n = (count * (1 if shape.shared == name else shape.root_count) for count, name in zip(instructions, "ab", strict=True))
    operands = (along_m * row.layouts.a().num_registers + along_n * row.layouts.b().num_registers) * size // REGISTER_BYTES
    ahead = rows * k * size // REGISTER_BYTES // threads
    accumulators = shape.root_count * tile.m * tile.n // threads
    needed = accumulators + operands + ahead + (BESIDE_GATHERED if is_gathered else BESIDE)
    reads_ahead = accumulators + ahead + 2 * operands * (k // row.k) + BESIDE_FETCHED <= spec.max_registers_per_thread
    if reads_ahead and shape.k // k < FEWEST_STEPS:
        return tile
    shared = RESIDENT * (2 if reads_ahead else 1) * rows * k * size
    return replace(tile, k=k) if needed <= spec.max_registers_per_thread and shared <= spec.shared_bytes_per_unit else tile
