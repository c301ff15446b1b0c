"""insert-sync around arrivals: barriers, waits for stores to be written, the memory order; nothing elsewhere."""

from collections.abc import Callable

import pytest
from generators.arrivals import scheduled, split_rows, split_sum

from treadle.dialects import sync, tile
from treadle.ir.core import Operation


def around(kernel: tile.KernelOp) -> tuple[list[Operation], tile.CountInOp, list[Operation]]:
    """What stands in front of the arrival, the arrival, and what stands behind, in the kernel's own block."""
    ops = list(kernel.body.block.ops)
    at = next(n for n, op in enumerate(ops) if isinstance(op, tile.CountInOp))
    found = ops[at]
    assert isinstance(found, tile.CountInOp)
    return ops[:at], found, ops[at + 1 :]


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
def test_all_stores_are_done_before_it_and_loads_come_behind(target: str) -> None:
    before, arrival, behind = around(scheduled(split_sum(), target))
    names = [op.name for op in before]
    assert "sync.barrier" in names[names.index("tile.store") :]
    assert arrival.order.data == "acq_rel"
    flag = next(n for n, op in enumerate(behind) if isinstance(op, tile.LocalFlagOp))
    assert [op.name for op in behind[:flag] if op.name.startswith("sync.")] == ["sync.barrier"]
    inner = [op.name for op in behind if op.regions for op in op.walk()]
    assert not any(name.startswith("sync.") for name in inner)


def test_bulk_stores_are_waited_for_until_they_are_written() -> None:
    before, arrival, _ = around(scheduled(split_rows(), "sm_90a"))
    (wait,) = (op for op in before if isinstance(op, sync.WaitOp))
    assert (wait.queue.data, wait.pending.value.data, wait.read) == ("bulk_store", 0, None)
    assert arrival.order.data == "acq_rel"


def test_a_wait_for_reads_that_is_there_is_completed() -> None:
    written = split_rows(tail='  sync.commit "bulk_store"\n  sync.wait "bulk_store" pending 0 : i64 read')
    before, _, _ = around(scheduled(written, "sm_90a"))
    waits = [op for op in before if isinstance(op, sync.WaitOp)]
    assert [wait.read is None for wait in waits] == [False, True]


def _without_merge(text: str) -> str:
    start, end = text.index("  scf.if"), text.index("  tile.return")
    return text[:start] + text[end:]


def _without_store(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "tile.store %sum" not in line)


def _without_both(text: str) -> str:
    return _without_merge(_without_store(text))


@pytest.mark.parametrize(("change", "order"), [(_without_merge, "release"), (_without_store, "acquire"), (_without_both, "relaxed")])
def test_the_order_is_what_is_needed(change: Callable[[str], str], order: str) -> None:
    _, arrival, _ = around(scheduled(change(split_sum()), "sm_90a"))
    assert arrival.order.data == order
