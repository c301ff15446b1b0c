"""Steps of a contraction's loop twice as long along k, where registers hold what they bring: half the meetings, waits and loop control."""

from dataclasses import replace

from treadle.plan.pipeline_depth import BESIDE_FETCHED, REGISTER_BYTES, RESIDENT
from treadle.plan.tile_config import ContractionTile, TileProblem

STEP_BYTES = 128
"""Of a row of an operand in shared memory, at most: a line of global memory."""
FEWEST_STEPS = 8
"""Of a loop that reads a step ahead, two steps a trip: fewer are one step a trip, which moves registers."""
MOST_LOADS = 63
"""Of a thread in flight that machines count."""
BESIDE = 16
"""Registers of a thread beside accumulators and operands in a loop whose loads go by descriptors."""
BESIDE_GATHERED = 48
"""The same where an image is read at windows, whose places are computed."""


def with_long_steps(tile: ContractionTile, problem: TileProblem, *, is_gathered: bool) -> ContractionTile:
    """The tile with steps twice as long, or as it is: where instructions read shared memory or copies fill it without registers, where k
    is not made of such steps, or registers do not hold accumulators, a step's loads and the operands of its instructions of one k, or
    not for as many workgroups on a unit. Loads of narrow pieces also hold a place each.
    """
    spec, shape, row, size, k = problem.spec, problem.shape, problem.instruction, problem.types.operand_bytes, 2 * tile.k
    copied = spec.copies_fill_slots and problem.loads == 1
    if row is None or row.layouts.a is None or row.layouts.b is None or (copied and not is_gathered):
        return tile
    threads, rows = tile.num_threads(spec), shape.operand_rows(tile.m, tile.n)
    if k * size > STEP_BYTES or shape.k is None or shape.k % k or _loads_of_a_thread(rows * k * size, threads, problem) > MOST_LOADS:
        return tile
    instructions = tile.m // tile.warps_m // row.m, tile.n // tile.warps_n // row.n
    along_m, along_n = (count * (1 if shape.shared == name else shape.root_count) for count, name in zip(instructions, "ab", strict=True))
    operands = (along_m * row.layouts.a().num_registers + along_n * row.layouts.b().num_registers) * size // REGISTER_BYTES
    accumulators = shape.root_count * tile.m * tile.n // threads

    def ahead(step: int) -> int:
        """Registers for what a step of this length loads: each load takes whole ones."""
        return _loads_of_a_thread(rows * step * size, threads, problem) * max(1, spec.max_vector_bytes // problem.loads // REGISTER_BYTES)

    def needed(step: int) -> int:
        places = _loads_of_a_thread(rows * step * size, threads, problem) if problem.loads > 1 else 0
        return accumulators + operands + ahead(step) + places + (BESIDE_GATHERED if is_gathered else BESIDE)

    def resident(step: int) -> int:
        return min(RESIDENT, spec.registers_per_unit // (threads * needed(step)))

    reads_ahead = accumulators + ahead(k) + 2 * operands * (k // row.k) + BESIDE_FETCHED <= spec.max_registers_per_thread
    if (reads_ahead and shape.k // k < FEWEST_STEPS) or resident(k) < resident(tile.k):
        return tile
    shared = RESIDENT * (2 if reads_ahead else 1) * rows * k * size
    return replace(tile, k=k) if needed(k) <= spec.max_registers_per_thread and shared <= spec.shared_bytes_per_unit else tile


def _loads_of_a_thread(all_bytes: int, threads: int, problem: TileProblem) -> int:
    return all_bytes * problem.loads // problem.spec.max_vector_bytes // threads
