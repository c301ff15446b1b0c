"""insert-sync around turns: barriers behind the wait and ahead of the end, the memory order; nothing elsewhere."""

import pytest
from generators.arrivals import scheduled
from generators.turns import turn_sum

from treadle.dialects import tile
from treadle.ir.core import Operation


def between(kernel: tile.KernelOp) -> tuple[tile.AwaitTurnOp, list[Operation], tile.PassTurnOp]:
    """The start of the turn, what stands in it in the kernel's own block, and its end."""
    ops = list(kernel.body.block.ops)
    first, last = (next(n for n, op in enumerate(ops) if isinstance(op, kind)) for kind in (tile.AwaitTurnOp, tile.PassTurnOp))
    wait, end = ops[first], ops[last]
    assert isinstance(wait, tile.AwaitTurnOp) and isinstance(end, tile.PassTurnOp)
    return wait, ops[first + 1 : last], end


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
def test_loads_come_behind_the_wait_and_stores_ahead_of_the_end(target: str) -> None:
    kernel = scheduled(turn_sum(), target)
    wait, inner, end = between(kernel)
    assert (wait.order.data, end.order.data) == ("acquire", "release")
    assert inner[-1].name == "sync.barrier"
    walked = [op.name for op in kernel.walk()]
    first = walked.index("tile.await_turn")
    touched = min(walked.index(name, first) for name in ("tile.load", "tile.store"))
    assert "sync.barrier" in walked[first:touched]
    ahead = list(kernel.body.block.ops)[: list(kernel.body.block.ops).index(wait)]
    barriers = sum(op.name == "sync.barrier" for op in ahead)
    assert barriers == 1  # the one of the sum over warps


def test_threads_that_share_an_element_meet_between_its_load_and_its_store() -> None:
    """A sum that all warps hold, and one of them stores."""
    kernel = scheduled(turn_sum(), "sm_90a")
    walked = [op.name for op in kernel.walk()]
    first = walked.index("tile.await_turn")
    load, store = (walked.index(name, first) for name in ("tile.load", "tile.store"))
    assert "sync.barrier" in walked[load:store]


def test_the_order_is_what_is_needed() -> None:
    """A turn in which nothing is done passes on nothing."""
    text = turn_sum()
    start, end = text.index("  %total = scf.if"), text.index("  tile.pass_turn")
    wait, _, last = between(scheduled(text[:start] + text[end:], "sm_90a"))
    assert (wait.order.data, last.order.data) == ("relaxed", "relaxed")
