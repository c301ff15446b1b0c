"""What reports say: both operations, the buffer and its slot, who waits for what; and what each single rule of the model objects to."""

import numpy as np
import pytest
from sim.schedule.faults import kernel_of
from sim.schedule.program_text import constants, kernel, rows_layout, shared, view, view_type
from sim.schedule.programs import bulk_ring, bulk_store, cp_async_ring, roles

from treadle.errors import TreadleError
from treadle.sim.faults import SimulationFault
from treadle.sim.schedule import Report, simulate

SHAPE = (16, 16)
TILE = f"tensor<16x16xf32, {rows_layout(SHAPE, 2, 32)}>"
BUFFER = shared(SHAPE, "f32")
WHOLE = "tensor<16x16xf32>"


def run(*lines: str, warps: int = 2, target: str = "sm_90a", mode: str = "late", seed: int = 0) -> Report:
    """A kernel on a 16 x 16 array %x (view %vx) into %y (view %vy), with a tile %t of it and buffers %s and %r."""
    head = [
        constants(0, 1, 2, 16),
        view("%vx", "%x", SHAPE, "f32"),
        view("%vy", "%y", SHAPE, "f32"),
        f"%t = tile.load %vx[%c0, %c0] dims array<i64: 0, 1> vector 1 : i64 : {view_type(SHAPE, 'f32')} -> {TILE}",
        f"%s = tile.alloc : {BUFFER}",
        f"%r = tile.alloc : {BUFFER}",
    ]
    text = kernel("%x: !tile.ptr<f32>, %y: !tile.ptr<f32>", "\n".join([*head, *lines]), warps=warps, target=target, pointers=2)
    x = np.arange(256, dtype=np.float32).reshape(SHAPE)
    return simulate(kernel_of(text), [x, np.zeros_like(x)], mode="late" if mode == "late" else "random", seed=seed)


STORE = f"tile.local_store %t, %s array<i64: 0, 0> : {TILE}, {BUFFER}"
LOAD = f"%u = tile.local_load %s array<i64: 0, 0> : {BUFFER} -> {TILE}"
LOAD_WHOLE = f"%u = tile.local_load %s array<i64: 0, 0> : {BUFFER} -> {WHOLE}"
OUT = f'tile.copy_out %s, %vy[%c0, %c0] dims array<i64: 0, 1> path "bulk_tensor" : {BUFFER}, {view_type(SHAPE, "f32")}'
IN = (
    f"tile.copy %vx[%c0, %c0] dims array<i64: 0, 1>, %s signals %b : !sync.mbarrier "
    f'path "bulk_tensor" : {view_type(SHAPE, "f32")}, {BUFFER}'
)
WAIT = "sync.wait_phase %b parity %zero"
BARRIER = ("%b = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier", "%zero = arith.constant 0 : i32", "%one = arith.constant 1 : i32")


def write(value: str = "%u", kind: str = TILE) -> str:
    return f"tile.store {value}, %vy[%c0, %c0] dims array<i64: 0, 1> vector 1 : i64 : {kind}, {view_type(SHAPE, 'f32')}"


def kinds(report: Report) -> list[str]:
    return sorted({race.kind for race in report.races})


def test_own_parts_need_no_barrier_and_other_parts_do() -> None:
    assert run(STORE, LOAD, write()).ok
    report = run(STORE, LOAD_WHOLE, write(kind=WHOLE))
    assert kinds(report) == ["order"] and report.poison_reads
    assert np.isnan(report.outputs[0]).sum() == 128, "the first warp stores what it has, and the other's half is not there yet"
    assert run(STORE, "sync.barrier", LOAD_WHOLE, write(kind=WHOLE)).ok


def test_a_race_names_both_operations_the_slot_and_the_agents() -> None:
    program = cp_async_ring()
    text = program.text.replace("sync.barrier", "", 1)
    report = simulate(kernel_of(text), program.arrays())
    race = report.races[0]
    assert race.first.op.name == "tile.copy" and race.second.op.name == "tile.local_load"
    message = str(race)
    assert "write by tile.copy at program:" in message and "read by tile.local_load at program:" in message
    assert "buffer %ring[0]" in message and "warp 1" in message and "are not ordered" in message


def test_a_deadlock_says_who_waits_for_what() -> None:
    program = roles()
    report = simulate(kernel_of(program.text.replace("      sync.arrive %done\n", "")), program.arrays())
    assert report.deadlock is not None
    message = str(report)
    assert "producer at sync.wait_phase" in message and "waits for parity 0 of %empty[0]" in message
    assert "0 phase(s) complete, then 0 of 2 arrivals seen, 0 bytes outstanding" in message
    assert "consumer 1 warp 3" in message


def test_an_agent_that_ended_is_missed_at_a_barrier() -> None:
    report = run("sync.barrier groups array<i64: 1>")
    assert report.deadlock is not None
    assert "has ended" in str(report) and "meeting 1: 1 of 2 arrivals" in str(report)


def test_unwritten_memory_is_poison() -> None:
    report = run(LOAD, write())
    assert [one.elements for one in report.poison_reads] == [128] and np.isnan(report.outputs[0]).all()
    assert "finds no data in 128 element(s) of buffer %s" in str(report)


def test_generic_writes_need_the_writers_fence() -> None:
    after = ("sync.barrier", OUT, 'sync.commit "bulk_store"', 'sync.wait "bulk_store" pending 0 : i64 read')
    fence = 'sync.fence "async_shared"'
    assert run(STORE, fence, *after).ok
    missing = run(STORE, *after)
    assert kinds(missing) == ["proxy"] and np.isnan(missing.outputs[0]).all()
    assert kinds(run(fence, STORE, *after)) == ["proxy"]
    assert kinds(run(STORE, "sync.barrier", fence, OUT, *after[2:])) == ["proxy"], "the reader's fence does not help"
    assert kinds(run(STORE, 'sync.fence "async_global"', *after)) == ["proxy"]


def test_in_flight_copies_are_not_there() -> None:
    bulk = (*BARRIER, "sync.mbarrier_expect %b bytes 1024 : i64", IN)
    assert run(*bulk, WAIT, LOAD, write()).ok
    for mode in ("late", "random"):
        assert kinds(run(*bulk, LOAD, WAIT, write(), mode=mode)) == ["order"]
    assert np.isnan(run(*bulk, LOAD, WAIT, write()).outputs[0]).all()
    assert "end" in kinds(run(*bulk))
    assert "end" in kinds(run(*bulk, "sync.wait_phase %b parity %one"))
    fresh = (*BARRIER, "sync.wait_phase %b parity %one", "sync.barrier", *bulk[3:])
    assert run(*fresh, WAIT, LOAD, write()).ok, "a fresh barrier has completed parity 1"


def test_the_destination_of_a_copy_loses_what_it_held() -> None:
    before = (STORE, 'sync.fence "async_shared"', "sync.barrier")
    bulk = (*BARRIER, *before, "sync.mbarrier_expect %b bytes 1024 : i64", IN)
    early = run(*bulk, LOAD, WAIT, write())
    assert early.poison_reads and np.isnan(early.outputs[0]).any() and kinds(early) == ["order"]
    queued = IN.replace(" signals %b : !sync.mbarrier", "").replace("bulk_tensor", "cp_async")
    wait = ('sync.commit "cp_async"', 'sync.wait "cp_async" pending 0 : i64')
    early = run(*before, queued, LOAD, *wait, write())
    assert early.poison_reads and np.isnan(early.outputs[0]).any() and kinds(early) == ["order"]
    assert run(*before, queued, *wait, "sync.barrier", LOAD, write()).ok


COPY_BACK = f'tile.copy %vy[%c0, %c0] dims array<i64: 0, 1>, %s path "cp_async" : {view_type(SHAPE, "f32")}, {BUFFER}'
COMMIT, DONE = 'sync.commit "cp_async"', 'sync.wait "cp_async" pending 0 : i64'


def test_copies_land_no_earlier_than_somebody_waits_for_them() -> None:
    other = COPY_BACK.replace("%s", "%r")
    lines = (other, COMMIT, COPY_BACK, COMMIT, 'sync.wait "cp_async" pending 1 : i64', LOAD, DONE, write())
    late = run(*lines, warps=1)
    assert late.poison_reads and np.isnan(late.outputs[0]).all()
    drawn = [bool(run(*lines, warps=1, mode="random", seed=seed).poison_reads) for seed in range(20)]
    assert True in drawn and False in drawn


def test_random_effects_read_at_one_time_and_land_at_another() -> None:
    lines = (COPY_BACK, COMMIT, write("%t"), LOAD.replace("%u", "%v"), DONE, LOAD, write())
    reports = [run(*lines, warps=1, mode="random", seed=seed) for seed in range(40)]
    assert all(kinds(report) == ["order"] for report in reports)
    assert any(report.poison_reads and not report.outputs[0].any() for report in reports), "read before the store, landed after the load"
    late = run(*lines, warps=1)
    assert late.outputs[0][3, 5] == 53, "the latest moment to read is behind the store"


def test_slots_out_of_range() -> None:
    ring, slot = shared(SHAPE, "f32", slots=2), BUFFER
    lines = (f"%g = tile.alloc : {ring}", f"%h = pipe.slot %g[%c2] : {ring} -> {slot}")
    with pytest.raises(SimulationFault, match="of \\[2\\] slots"):
        run(*lines)
    with pytest.raises(SimulationFault, match="of 2 barriers"):
        run("%b = sync.mbarrier_alloc 1 : i64 slots 2 : i64 : !sync.mbarrier", "%d = sync.mbarrier_slot %b[%c2] : !sync.mbarrier")
    turned = slot.replace("[0, 1], [0, 2]", "[0, 2], [0, 1]")
    with pytest.raises(TreadleError, match="not that of a slot"):
        run(lines[0], f"%h = pipe.slot %g[%c1] : {ring} -> {turned}")


def test_tiles_without_layout_are_stored_by_the_first_warp() -> None:
    zeros = f"%z = arith.constant dense<0.0> : {WHOLE}"
    store = f"tile.local_store %z, %s array<i64: 0, 0> : {WHOLE}, {BUFFER}"
    assert run(zeros, store, "sync.barrier", LOAD_WHOLE, write(kind=WHOLE)).ok
    assert kinds(run(zeros, store, LOAD_WHOLE, write(kind=WHOLE))) == ["order"]


def test_other_counts_at_a_named_barrier() -> None:
    two, one = ("sync.named_barrier 3 : i64 warps 2 : i64", "sync.named_barrier 3 : i64 warps 1 : i64")
    assert run(two, "sync.barrier", two).ok
    assert any("last meeting there is over" in m.reason for m in run(one, "sync.barrier", two).misuses), "a meeting of each warp alone"
    assert any("where others expect 2" in m.reason for m in run(two + " arrive", one).misuses)


def test_global_arrays_within_a_workgroup() -> None:
    back = f"%q = tile.load %vy[%c0, %c0] dims array<i64: 0, 1> vector 1 : i64 : {view_type(SHAPE, 'f32')} -> {WHOLE}"
    assert run(write("%t"), "sync.barrier", back).ok
    report = run(write("%t"), back)
    assert kinds(report) == ["order"] and "global array %y" in str(report)


def test_results_of_the_matrix_queue_are_used_after_a_wait() -> None:
    program = bulk_ring()
    text = program.text.replace('  sync.wait "wgmma" pending 0 : i64\n', "", 1)
    report = simulate(kernel_of(text), program.arrays())
    assert "result" in kinds(report) and np.isnan(report.outputs[0]).all(), "poison until the wait"
    assert "have no wait between them" in str(report)


def test_what_roles_do_is_ordered_with_what_stands_around_them() -> None:
    facts = 'names = ["a"], warps = array<i64: 2>, groups = array<i64: 1>, registers = array<i64: 0>'
    role = f'"pipe.roles"() <{{{facts}}}> ({{\n{{}}\npipe.end_role\n}}) : () -> ()'
    inner = LOAD_WHOLE.replace("%u", "%v")
    assert run(STORE, role.replace("{}", inner)).ok
    assert run(role.replace("{}", STORE), LOAD_WHOLE, write(kind=WHOLE)).ok
    assert kinds(run(role.replace("{}", STORE + "\n" + inner))) == ["order"], "warps of a group run by themselves"


def test_an_arrival_of_a_group_is_that_of_all_its_warps() -> None:
    facts = "warps = array<i64: 2, 2>, groups = array<i64: 1, 1>, registers = array<i64: 0, 0>"
    text = f'"pipe.roles"() <{{names = ["a", "b"], {facts}}}> ({{\n{STORE}\nsync.arrive %b\npipe.end_role\n}}, {{\n{WAIT}\n{LOAD}\n'
    text += f"{write()}\npipe.end_role\n}}) : () -> ()"
    for mode in ("late", "random"):
        report = run(*BARRIER, text, warps=4, mode=mode)
        assert not report.races and not report.deadlock, str(report)


def test_bytes_and_arrivals_of_a_phase() -> None:
    assert "more bytes" in str(run(*BARRIER, "sync.mbarrier_expect %b bytes 512 : i64", IN, WAIT))
    assert "1024 bytes outstanding" in str(run(*BARRIER, "sync.mbarrier_expect %b bytes 2048 : i64", IN, WAIT))
    second = IN.replace("%s", "%r")
    assert "before all copies that signal it" in str(run(*BARRIER, "sync.mbarrier_expect %b bytes 1024 : i64", IN, second, WAIT))
    assert "has all of its own" in str(run(*BARRIER, *["sync.mbarrier_expect %b bytes 1024 : i64"] * 2, IN, WAIT))


def test_a_wait_must_not_be_overtaken() -> None:
    filled = ("sync.mbarrier_expect %b bytes 1024 : i64", IN)
    lines = (*BARRIER, *filled, WAIT)
    again = (*filled, "sync.wait_phase %b parity %one")
    assert run(*lines, "sync.barrier", *again).ok
    unordered = run(*lines, *again)
    assert any("still be looking" in one.reason for one in unordered.misuses), unordered.misuses


def test_sources_are_read_late() -> None:
    fenced = (STORE, 'sync.fence "async_shared"', "sync.barrier", OUT, 'sync.commit "bulk_store"')
    overwrite = (f"%z = arith.constant dense<0.0> : {TILE}", f"tile.local_store %z, %s array<i64: 0, 0> : {TILE}, {BUFFER}")
    read = 'sync.wait "bulk_store" pending 0 : i64 read'
    right = run(*fenced, read, "sync.barrier", *overwrite)
    assert right.ok and right.outputs[0][3, 5] == 53
    wrong = run(*fenced, *overwrite, read)
    assert "order" in kinds(wrong) and not wrong.outputs[0][3, 5]


def test_a_read_wait_retires_reads_only() -> None:
    program = bulk_store(2)
    one = program.text.replace('sync.wait "bulk_store" pending 1 : i64 read', 'sync.wait "bulk_store" pending 0 : i64 read')
    same_place = one.replace("%row = arith.muli %i, %c64", "%row = arith.muli %c0, %c64")
    assert kinds(simulate(kernel_of(same_place), program.arrays())) == ["order"], "two stores to one place of the global array"
    whole = same_place.replace("pending 0 : i64 read\nsync.barrier", "pending 0 : i64\nsync.barrier")
    assert simulate(kernel_of(whole), program.arrays()).ok


def test_pending_local_accesses_become_visible_at_a_flush() -> None:
    load = LOAD_WHOLE
    assert run(STORE, "sync.barrier", load, write(kind=WHOLE), target="gfx942").ok
    bare = run(STORE, "sync.barrier bare", load, write(kind=WHOLE), target="gfx942")
    assert kinds(bare) == ["order"] and bare.poison_reads
    assert run(STORE, 'sync.wait "lgkmcnt" pending 0 : i64', "sync.barrier bare", load, write(kind=WHOLE), target="gfx942").ok
    assert run(STORE, "sync.barrier bare", load, write(kind=WHOLE), target="sm_90a").ok, "no such queue there"
    assert run(STORE, LOAD, write(), target="gfx942").ok, "one warp's own accesses keep their order"


def test_named_barriers() -> None:
    meet = "sync.named_barrier 3 : i64 warps 2 : i64"
    assert run(STORE, meet, LOAD_WHOLE, write(kind=WHOLE)).ok
    assert kinds(run(STORE, meet + " arrive", LOAD_WHOLE, write(kind=WHOLE))) == ["order"]
    twice = run(STORE, "sync.named_barrier 3 : i64 warps 2 : i64 arrive", "sync.named_barrier 3 : i64 warps 2 : i64 arrive")
    assert any("last meeting there is over" in one.reason for one in twice.misuses)


def test_a_dead_store_of_one_workgroup_races_with_the_next() -> None:
    program = bulk_ring()
    kernel_op = kernel_of(program.text)
    assert simulate(kernel_op, program.arrays(), grid=(1, 1, 1)).ok
    report = simulate(kernel_op, program.arrays(), grid=(2, 1, 1))
    assert kinds(report) == ["order"] and "global array %c" in str(report)
    assert simulate(kernel_op, program.arrays(), grid=(2, 1, 1), workgroups=1).ok


def test_cluster_barriers_meet_across_workgroups() -> None:
    text = kernel("%x: !tile.ptr<f32>, %y: !tile.ptr<f32>", "  sync.cluster_barrier", warps=2, target="sm_90a", pointers=2)
    text = text.replace("symbols", "cluster = 2 : i64, symbols")
    arrays = [np.zeros(1, np.float32)] * 2
    assert simulate(kernel_of(text), arrays, grid=(4, 1, 1)).ok
    assert simulate(kernel_of(text), arrays, grid=(4, 1, 1), mode="random", seed=1).ok
    with pytest.raises(SimulationFault, match="clusters of 2"):
        simulate(kernel_of(text), arrays, grid=(3, 1, 1))


def test_an_arrival_of_a_warp_that_runs_ahead() -> None:
    """One that waits for no phase may come round again while others of its group have not come yet: hardware counts it for their phase."""
    facts = "warps = array<i64: 2>, groups = array<i64: 1>, registers = array<i64: 0>"
    loop = f"scf.for %i = %c0 to %c16 step %c1 {{\nsync.arrive %b\nscf.yield\n}}\n{LOAD_WHOLE}"
    text = f'"pipe.roles"() <{{names = ["a"], {facts}}}> ({{\n{loop}\npipe.end_role\n}}) : () -> ()'
    made = "%b = sync.mbarrier_alloc 1 : i64 slots 1 : i64 : !sync.mbarrier"
    assert any("for the phase before" in str(run(made, text, mode="random", seed=seed)) for seed in range(3))
