"""The proof of kernels whose workgroups arrive at counters: right ones for all sizes, wrong ones refused with the reason."""

from pathlib import Path

import numpy as np
import pytest
from generators.arrivals import (
    IN_CLUSTERS,
    IN_ROLES,
    WRONG,
    fixed_sum,
    product_kernel,
    product_kernels,
    scheduled,
    shared_products,
    split_product,
    split_rows,
    split_sum,
    sum_arrays,
    with_sizes,
)
from hazards.campaign import WAYS, simulator_objects

from treadle.dialects import sync, tile
from treadle.ir.core import Operation
from treadle.ir.dialects import arith, builtin
from treadle.sim.schedule import simulate
from treadle.verify.arrivals import Tracked
from treadle.verify.check import prove
from treadle.verify.faults import changed, erase, faults
from treadle.verify.program import Program
from treadle.verify.reports import Verdict

EXAMPLE = (Path(__file__).parents[2] / "examples" / "split_matmul.mlir").read_text(encoding="utf-8")


def verdict(text: str, target: str = "sm_90a") -> Verdict:
    return prove(scheduled(text, target), stores=True)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("text", [split_sum(), fixed_sum(3, 700, 4), EXAMPLE], ids=["any size", "known sizes", "matmul"])
def test_right_kernels(text: str, target: str) -> None:
    found = verdict(text, target)
    assert (found.status, found.assumptions) == ("proven", ("%counters is zero before the launch, as it is behind it",))


def test_parts_that_leave_by_bulk_copies() -> None:
    assert verdict(split_rows()).is_proven


LINEAR = {
    "quotient and remainder": ("4 * rows", "%rows", "%row = arith.divui %pid, %four : index\n  %part = arith.remui %pid, %four : index"),
    "parts outermost": ("28", "%seven", "%row = arith.remui %pid, %seven : index\n  %part = arith.divui %pid, %seven : index"),
}


@pytest.mark.parametrize("name", LINEAR)
def test_workgroups_in_one_line(name: str) -> None:
    """Who shares a counter is told by quotients and remainders of one id."""
    grid, rows, ids = LINEAR[name]
    text = split_sum(count="%four", counters=rows).replace('["rows", "parts"], num', f'["{grid}"], num')
    text = text.replace("%part = tile.program_id 1 : i64", "").replace("%row = tile.program_id 0", "%pid = tile.program_id 0")
    text = text.replace("  %none = ", f"  {ids}\n  %none = ", 1).replace("%c0 to %parts", "%c0 to %four")
    text = text.replace("  %c0 = ", "  %four = arith.constant 4 : index\n  %seven = arith.constant 7 : index\n  %c0 = ", 1)
    assert verdict(text).is_proven
    assert not verdict(text.replace(f'["{grid}"]', f'["{grid} + 1"]')).is_proven
    assert not verdict(text.replace("arith.constant 4", "arith.constant 3").replace("4 * rows", "3 * rows + 1")).is_proven


REASONS = {
    "one too many": "a counter counts more workgroups than arrive",
    "one too few": "more workgroups arrive at a counter than it counts",
    "counts rows": "the numbers of its workgroups do not go from 0 to its count",
    "one counter for all": "no number tells the workgroups of a counter apart",
    "a counter a part": "the numbers of its workgroups do not go from 0 to its count",
    "fewer counters": "it may lie outside its counters",
    "another row": "may arrive at different counters",
    "everybody merges": "nothing orders the two",
    "the first merges": "nothing orders the two",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels(name: str) -> None:
    found = verdict(WRONG[name])
    assert not found.is_proven
    first = found.first_error("k")
    assert first is not None and REASONS[name] in first.message


@pytest.mark.parametrize(("text", "target"), [(fixed_sum(2, 300, 3), "sm_90a"), (fixed_sum(2, 300, 3), "gfx942"), (split_rows(), "sm_90a")])
def test_every_fault_is_found(text: str, target: str) -> None:
    """All barriers and waits, release, acquire and the count: without any of it nothing is proven. Where waves have a queue of accesses to
    shared memory, only the barrier ahead of the count may be bare: the counter's flag lies where nothing else does.
    """
    kernel = scheduled(text, target)
    proven = [fault.description for fault in faults(kernel, ("remove", "weaken")) if prove(fault.kernel).is_proven]
    assert proven == (["sync.barrier at arrivals.mlir:36:11: bare"] if target == "gfx942" else [])
    descriptions = " ".join(fault.description for fault in faults(kernel, ("weaken",)))
    assert all(word in descriptions for word in ("releases nothing", "acquires nothing", "counts to one more", "counts to one less"))


@pytest.mark.parametrize("name", IN_ROLES)
def test_every_fault_within_roles_is_found(name: str) -> None:
    """Each group of consumers arrives for its own rows: rings, the meetings of its warps, release, acquire and the count."""
    text, knobs = IN_ROLES[name]
    _, kernel = product_kernel(text, **knobs)
    assert prove(kernel).is_proven
    found = list(faults(kernel, ("remove", "weaken")))
    assert [fault.description for fault in found if prove(fault.kernel).is_proven] == []
    descriptions = " ".join(fault.description for fault in found)
    assert all(word in descriptions for word in ("releases nothing", "acquires nothing", "counts to one more", "named_barrier"))


@pytest.mark.parametrize("name", IN_CLUSTERS)
def test_every_fault_of_a_cluster_is_found(name: str) -> None:
    """Workgroups that read each other's parts: arrivals at each of them, the wait, and the meetings at both ends."""
    text, knobs = IN_CLUSTERS[name]
    _, kernel = product_kernel(text, **knobs)
    assert prove(kernel).is_proven
    found = list(faults(kernel, ("remove", "weaken")))
    proven = [fault for fault in found if prove(fault.kernel).is_proven]
    # Nobody fills a slot again behind the last step: its release is no fault.
    assert not [fault.description for fault in proven if simulator_objects(fault.kernel, ())]
    assert all(fault.description.startswith("sync.arrive") for fault in proven) and len(proven) <= 1
    descriptions = " ".join(fault.description for fault in found)
    assert descriptions.count("sync.cluster_barrier") == 2
    assert name == "tiles" or ("not in workgroup 1" in descriptions and "sync.wait_phase" in descriptions)


@pytest.mark.parametrize("merge", ["last", "kernel"])
@pytest.mark.parametrize("name", shared_products("last"))
def test_every_fault_of_clusters_that_fetch_an_operand_once_is_found(name: str, merge: str) -> None:
    """Workgroups whose tiles share an operand of one part: arrivals at each of them, at counters, and the meetings at both ends."""
    text, knobs = shared_products(merge)[name]
    kernel = product_kernels(text, **knobs)[0]
    assert (kernel.cluster_size(), prove(kernel).is_proven) == (knobs["cluster"], True)
    found = list(faults(kernel, ("remove", "weaken")))
    proven = [fault for fault in found if prove(fault.kernel).is_proven]
    # With a tile a workgroup nobody fills again what the first one's results have left from.
    assert not proven or (merge, name) == ("kernel", "rows, alike")
    assert not [fault.description for fault in proven if simulator_objects(fault.kernel, ())]
    descriptions = " ".join(fault.description for fault in found)
    assert descriptions.count("sync.cluster_barrier") == 2
    assert "not in workgroup 1" in descriptions and ("counts to one more" in descriptions) == (merge == "last")


def in_clusters(text: str, count: int, *, of_parts: bool = False) -> tile.KernelOp:
    """A kernel of `split_sum` in clusters of workgroups with neighbouring rows, or with the parts of a row."""
    if of_parts:
        text = text.replace("%row = tile.program_id 0", "%row = tile.program_id 1")
        text = text.replace("%part = tile.program_id 1", "%part = tile.program_id 0")
    kernel = scheduled(text, "sm_90a")
    kernel.properties["cluster"] = builtin.IntegerAttr(count, builtin.i64)
    return kernel


@pytest.mark.parametrize(("of_parts", "count"), [(False, 2), (True, 2), (True, 4)])
def test_workgroups_of_clusters_arrive_each_for_itself(of_parts: bool, count: int) -> None:
    """Whatever rows and parts the workgroups of a cluster have: they arrive as others do."""
    kernel = in_clusters(fixed_sum(4, 700, 4), count, of_parts=of_parts)
    assert prove(kernel, stores=True).is_proven
    assert [fault.description for fault in faults(kernel, ("remove", "weaken")) if prove(fault.kernel).is_proven] == []
    arrays, _ = sum_arrays(4, 700, 4)
    for mode, seed in WAYS:
        report = simulate(kernel, arrays, mode=mode, seed=seed)
        assert report.ok
        np.testing.assert_allclose(report.outputs[-1], arrays[0].sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("of_parts", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_in_clusters(name: str, of_parts: bool) -> None:
    assert not prove(in_clusters(with_sizes(WRONG[name], 4, 700, 6), 2, of_parts=of_parts), stores=True).is_proven


def test_parts_of_one_cluster_alone() -> None:
    """What no two clusters have to hand on, workgroups of one have: the order of the count is asked for."""
    _, kernel = product_kernel(split_product(64, 32, 384, 2), tile=(64, 32, 64), num_stages=2)
    assert kernel.grid_text()[0] == "2"
    kernel.properties["cluster"] = builtin.IntegerAttr(2, builtin.i64)
    assert prove(kernel).is_proven
    assert [fault.description for fault in faults(kernel, ("remove", "weaken")) if prove(fault.kernel).is_proven] == []


def test_an_arrival_ahead_of_what_other_warps_store() -> None:
    """The warp that counts may be far ahead of the others: it knows of their stores by a barrier alone, whoever goes first in a run."""
    text, knobs = IN_ROLES["swapped"]
    _, kernel = product_kernel(text, **knobs)
    arrival = next(op for op in kernel.walk() if isinstance(op, tile.CountInOp))
    barrier = arrival.prev_op
    assert isinstance(barrier, sync.NamedBarrierOp)
    found = prove(changed(kernel, list(kernel.walk()).index(barrier), erase))
    assert found.status == "refuted" and "tells other workgroups" in found.findings[0].message


def test_groups_have_counters_of_their_own() -> None:
    """Two groups at one counter are twice as many arrivals as it counts."""
    _, kernel = product_kernel(split_product(128, 64, 768, 3), **IN_ROLES["two groups"][1])
    assert prove(kernel).is_proven
    arrival = next(op for op in kernel.walk() if isinstance(op, tile.CountInOp))
    found = prove(changed(kernel, list(kernel.walk()).index(arrival), _at_one_counter_for_two))
    assert "no number tells the workgroups of a counter apart" in str(found.first_error("k"))


@pytest.mark.parametrize(
    ("divisor", "kind", "status"),
    [(3, arith.RemUIOp, "right"), (3, arith.DivUIOp, "right"), (4, arith.DivUIOp, "open"), (2, arith.RemUIOp, "wrong")],
)
def test_as_many_arrivals_as_all_counters_count(divisor: int, kind: type[arith.DivUIOp], status: str) -> None:
    """Nine workgroups for three counters to three: they are shared out evenly only where no counter has more than three."""
    text, knobs = IN_ROLES["one group"]
    _, kernel = product_kernel(text, **knobs)
    assert kernel.grid_text()[0] == "9"
    arrival = next(op for op in kernel.walk() if isinstance(op, tile.CountInOp))
    by, own = arith.ConstantOp(builtin.IntegerAttr(divisor, builtin.IndexType())), tile.ProgramIdOp(0)
    others = [kind_of(own.result, by.result) for kind_of in (arith.RemUIOp, arith.DivUIOp)]
    place = kind(own.result, by.result)
    assert arrival.parent is not None
    for new in (by, own, *others, place):
        arrival.parent.insert_op_before(new, arrival)
    arrival.operands[list(arrival.operands).index(arrival.offsets[0])] = place.result
    (known,) = Tracked(Program(kernel)).arrivals.hand_overs
    assert known.counting.status == status


def _at_one_counter_for_two(op: Operation) -> None:
    assert isinstance(op, tile.CountInOp) and op.parent is not None
    two = arith.ConstantOp(builtin.IntegerAttr(2, builtin.IndexType()))
    half = arith.DivUIOp(op.offsets[0], two.result)
    for new in (two, half):
        op.parent.insert_op_before(new, op)
    op.operands[list(op.operands).index(op.offsets[0])] = half.result


def test_the_threads_of_a_single_warp_meet() -> None:
    """A warp is one agent, but not one thread: the one that counts releases what the others stored only behind a barrier."""
    kernel = scheduled(split_sum().replace("num_warps = 4", "num_warps = 1"), "sm_90a")
    assert prove(kernel, stores=True).is_proven
    arrival = next(op for op in kernel.walk() if isinstance(op, tile.CountInOp))
    for number in (op for op in (arrival.prev_op, arrival.next_op) if isinstance(op, sync.BarrierOp)):
        without = changed(kernel, list(kernel.walk()).index(number), erase)
        assert "do not meet" in prove(without, stores=True).findings[0].message


def test_counters_are_for_counting_alone() -> None:
    """A store to them makes the count anything."""
    store = (
        "  %number = arith.constant dense<1> : tensor<1xi32>\n"
        "  tile.store %number, %arrived[%row] dims array<i64: 0> vector 1 : i64 : tensor<1xi32>, memref<?xi32, strided<[1]>>"
    )
    assert not verdict(split_sum(extra=store)).is_proven


def test_bulk_copies_of_what_others_wrote() -> None:
    """The last workgroup may read it by loads only: no fence joins the proxies of two workgroups."""
    text = split_rows()
    buffer = text[text.index("memref<64x64xf32, #tile.shared_layout") :].split("\n", 1)[0]
    rows = "memref<192x64xf32, strided<[64, 1]>>"
    load = next(line for line in text.splitlines() if "%value = tile.load" in line)
    copy = f'tile.copy %partial[%there, %c0] dims array<i64: 0, 1>, %merging path "bulk_tensor" : {rows}, {buffer}'
    read = f"%value = tile.local_load %merging array<i64: 0, 0> : {buffer} -> tensor<64x64xf32>"
    text = text.replace(load, f"      {copy}\n      {read}").replace("  %buffer = ", f"  %merging = tile.alloc : {buffer}\n  %buffer = ", 1)
    found = verdict(text)
    assert not found.is_proven and "tile.copy" in str(found.first_error("k"))
