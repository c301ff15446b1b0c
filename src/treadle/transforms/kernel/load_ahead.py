"""load-ahead: what consumers load beside the ring in every step is loaded one step ahead.

Level: tile. Reads: loops of roles that contract; the effects of the kernel. Writes: loops that carry what they load; `tile.load` at the
next step's place. Leaves alone: loops of other kernels (set-pipeline decides about those), loops that may make no step; loads of memory
that the kernel writes, at places that depend on more than the step, and of more than a few registers.

Such loads are the scales of a block of a scaled contraction: a step waits for its own longer than for its matrix instructions. What the
loaded values are first put together with is computed ahead of the next loads, so that these may go to the same registers.
"""

from collections.abc import Iterator, Sequence
from typing import cast

from treadle.analysis.divisibility import constant_value
from treadle.dialects import pipe, tile
from treadle.dialects.tile_types import layout_of
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.carried_values import also_yield, with_iteration_argument
from treadle.transforms.kernel.kernel_ir import KernelPass, erase, insert_after, insert_before, written

MOST_ELEMENTS = 8
"""Of a load that a thread holds for a step more."""


def _is_small(value: SSAValue) -> bool:
    layout = layout_of(value)
    return layout is not None and sum(1 for _ in layout.registers()) <= MOST_ELEMENTS


def loads_of_steps(loop: scf.ForOp, changed: frozenset[SSAValue]) -> Iterator[tile.LoadOp]:
    """The loads of a loop's body whose places are told by the loop's index alone, of few registers. `changed`: the pointers that the
    kernel writes through.
    """
    block = loop.body.block
    for op in block.ops:
        view = op.view.owner if isinstance(op, tile.LoadOp) else None
        if not isinstance(op, tile.LoadOp) or not isinstance(view, tile.ViewOp) or view.pointer in changed or not _is_small(op.result):
            continue
        inside = [value for value in op.operands if _lies_in(value, block)]
        if inside and all(value is block.args[0] for value in inside):
            yield op


def _lies_in(value: SSAValue, block: Block) -> bool:
    return (value.owner.parent if isinstance(value.owner, Operation) else value.owner) is block


def _put_together(loads: Sequence[tile.LoadOp]) -> Operation:
    """The last of the operations that compute with nothing of the loop's but the loads, on few registers; the last load without any."""
    known, last = {load.result for load in loads}, loads[-1]
    found: Operation = last
    place = last.next_op
    while place is not None:
        of_loads = any(value in known for value in place.operands)
        if of_loads and place.name.startswith(("arith.", "math.", "tile.broadcast")) and all(map(_is_small, place.results)):
            block = cast("Block", place.parent)
            if all(value in known or not _lies_in(value, block) for value in place.operands):
                known |= set(place.results)
                found = place
        place = place.next_op
    return found


def _trips(loop: scf.ForOp) -> tuple[int, int] | None:
    """First and last index of a loop of known bounds that makes a step, else None."""
    low, high, step = (constant_value(value) for value in (loop.lb, loop.ub, loop.step))
    if low is None or high is None or step is None or low >= high or not isinstance(loop.lb.type, builtin.IndexType):
        return None
    return low, low + (high - low - 1) // step * step


def _load_ahead(loop: scf.ForOp, loads: Sequence[tile.LoadOp], last_index: int) -> None:
    behind = _put_together(loads)
    block = loop.body.block
    last = arith.ConstantOp(builtin.IntegerAttr(last_index, builtin.IndexType()))
    ahead = arith.AddiOp(block.args[0], loop.step)
    bounded = arith.MinSIOp(ahead.result, last.result)
    insert_after(behind, last, ahead, bounded)
    following: list[tile.LoadOp] = []
    for load in loads:
        first = load.clone({block.args[0]: loop.lb})
        insert_before(loop, first)
        following.append(load.clone({block.args[0]: bounded.result}))
        insert_after(following[-2] if len(following) > 1 else bounded, following[-1])
        wider = with_iteration_argument(loop, first.result)
        loop, block = wider, wider.body.block
        load.result.replace_all_uses_with(block.args[-1])
        also_yield(block, following[-1].result)
    erase(*loads)


@register_pass
@dataclass(frozen=True)
class LoadAheadPass(KernelPass):
    """Moves loads beside the ring one step ahead."""

    name = "load-ahead"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite the loops of one kernel's roles."""
        if not any(isinstance(op, pipe.RolesOp) for op in kernel.body.walk()):
            return
        changed = written(kernel)
        for loop in [op for op in kernel.body.walk() if isinstance(op, scf.ForOp)]:
            bounds = _trips(loop)
            contracts = any(isinstance(op, tile.ContractOp) for op in loop.body.block.ops)
            loads = list(loads_of_steps(loop, changed)) if bounds is not None and contracts else []
            if bounds is not None and loads:
                _load_ahead(loop, loads, bounds[1])
