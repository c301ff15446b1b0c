"""What a contraction's loop nest is to who tiles it: its main axes, what it reduces, what happens to its results."""

from collections.abc import Iterator
from typing import Literal

from treadle.analysis.indexing import Contraction
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.nest_axes import Access
from treadle.ir.core import Operation
from treadle.machine.spec import TargetSpec
from treadle.plan.expr import constant


def main_axis(nest: LoopNest, role: str) -> int:
    """The axis of a role along which tiles lie: the innermost of those that fill one, else the largest; -1 where there is none.

    Unknown sizes count as large. Along k it is one that no scale depends on.
    """
    return nest.main_axes.get(role, -1)


def is_one_step(nest: LoopNest, operand_bytes: int, spec: TargetSpec) -> bool:
    """Whether all of the main axis of k goes into one slot of a ring, so that the loop is along the other reduced axis."""
    reduced = [i for i, axis in enumerate(nest.axes) if axis.is_reduction]
    return len(reduced) == 2 and nest.axes[main_axis(nest, "k")].size.as_int() == spec.slot_row_bytes // operand_bytes


def reduced_size(nest: LoopNest) -> int | None:
    """Terms of each sum, the most of any block (of shares about so many), None where only the runtime knows."""
    total = 1
    for axis in nest.axes:
        if axis.is_reduction:
            size = axis.bound.as_int()
            if size is None:
                return None
            total *= size
    return total if nest.share is None else -(-total // nest.share.count)


def shared_operand(nest: LoopNest, kind: Contraction) -> Literal["a", "b"]:
    """The operand that all roots read."""
    return "b" if len({root.inputs[kind.lhs] for root in nest.roots}) > 1 else "a"


def reads_whole_tile(nest: LoopNest, access: Access) -> bool:
    """Whether something beside the operands is read in tiles as large as the result's (an initial value, a residual)."""
    rows, columns = main_axis(nest, "m"), main_axis(nest, "n")
    if access.is_result or access.input_number >= 0 or rows < 0 or columns < 0:
        return False
    return all(nest.stride_along(access, nest.axes[i]) != constant(0) for i in (rows, columns))


CASTS = frozenset({"arith.truncf", "arith.extf", "arith.extsi", "arith.trunci", "linalg.yield"})


def is_plain(nest: LoopNest) -> bool:
    """Whether nothing happens to the accumulators but casts."""
    return all(op.name in CASTS for op in _arithmetic(nest))


def is_light(nest: LoopNest) -> bool:
    """Whether a result of one sum can be computed some columns at a time, with few registers: no tiles are read, and either rows of numbers
    are, behind whose loads the arithmetic stays, or it is nothing that takes long (assemblers begin what waits for nothing early).
    """
    several = len(nest.roots) > 1 or sum(access.is_result for access in nest.accesses) > 1
    numbers = [main_axis(nest, role) for role in ("m", "n")]
    if several or min(numbers) < 0 or any(reads_whole_tile(nest, access) for access in nest.accesses):
        return False
    rows, columns = (nest.axes[number] for number in numbers)
    others = (access for access in nest.accesses if not access.is_result and access.input_number < 0)
    if any(nest.stride_along(a, rows) == constant(0) != nest.stride_along(a, columns) for a in others):
        return True
    return not any(op.name.startswith("math.") or op.name == "arith.divf" for op in _arithmetic(nest))


def _arithmetic(nest: LoopNest) -> Iterator[Operation]:
    return (op for consumer in nest.consumer_dims for region in consumer.regions for op in region.block.ops)
