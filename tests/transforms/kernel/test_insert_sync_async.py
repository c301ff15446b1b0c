"""insert-sync on asynchronous queues, as text: what is waited for, where, and how many groups stay in flight.

Every program is also proven by the verifier and executed by the simulator of schedules, against the values of the sequential program.
Names in brackets are the cases of other compilers that a test rebuilds (NVIDIA Fuser: numbers of its pull requests and test names).
"""

import random

import pytest
from generators.async_checks import checked, kernel_of
from generators.async_kernels import ACCUMULATOR, START, Kernel, branch, count, end, lines, loop, operands, outline
from generators.random_async import random_kernel

from treadle.dialects import sync
from treadle.errors import TreadleError
from treadle.ir.core import Operation
from treadle.ir.passes import run_passes
from treadle.remarks import collect_remarks
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.verify.check import prove

STEPS = 12


# --- the three shapes of the wgmma thread [#3843]


@pytest.mark.parametrize("together", [False, True])
def test_two_independent_products_each_with_its_epilogue(together: bool) -> None:
    """Two waits; the first leaves the second product in flight, whether the program issues it early or not."""
    k = operands()
    first = k.mma("%p", "%q")
    if together:
        second = k.mma("%q", "%p")
        k.store(k.relu(first))
    else:
        k.store(k.relu(first))
        second = k.mma("%q", "%p")
    k.store(k.relu(second), "%r1")
    issue = "mma; commit wgmma; mma; commit wgmma"
    assert checked(k) == lines(f"{START}; {issue}; wait wgmma 1; relu; store; wait wgmma 0; relu; store")


def test_a_long_epilogue_waits_once() -> None:
    k = operands()
    value = k.mma("%p", "%q")
    for _ in range(5):
        value = k.relu(value)
    k.store(value)
    assert checked(k) == lines(f"{START}; mma; commit wgmma; wait wgmma 0; relu; relu; relu; relu; relu; store")


def fused(slots: int, ahead: int, path: str, *, guarded: bool = True) -> Kernel:
    """X W1 and x W2 in one loop of `STEPS` trips, copies `ahead` trips ahead of it into rings of `slots`."""
    k = Kernel(rows=64 * STEPS)
    k.buffers(p=slots, q=slots, w=slots)
    sources = {"%p": "%va", "%q": "%vb", "%w": "%va"}
    for step in range(ahead):
        for name, view in sources.items():
            k.copy(k.slot(name, f"%c{step}"), f"%r{step}", path, view)
    trips = STEPS if guarded else STEPS - ahead
    k.add(f"%n = arith.constant {slots} : index\n%d = arith.constant {ahead} : index\n%last = arith.constant {trips} : index")
    k.add(f"%o0, %o1 = scf.for %i = %c0 to %last step %c1 iter_args(%x0 = %zero, %x1 = %zero) -> ({ACCUMULATOR}, {ACCUMULATOR}) {{")
    k.add("%j = arith.addi %i, %d : index\n%js = arith.remui %j, %n : index\n%is = arith.remui %i, %n : index")
    k.add("%row = arith.muli %j, %r1 : index\n%more = arith.cmpi slt, %j, %last : index")
    into = {name: k.slot(name, "%js") for name in sources}
    if guarded:
        k.add("scf.if %more {")
    for name, view in sources.items():
        k.copy(into[name], "%row", path, view)
    if guarded:
        k.add("}")
    p, q, w = (k.slot(name, "%is") for name in sources)
    end(k, k.mma(p, q, "%x0"), k.mma(p, w, "%x1"))
    done = ["%o0", "%o1"]
    for step in range(trips, STEPS):
        p, q, w = (k.slot(name, f"%c{step % slots}") for name in sources)
        done = [k.mma(p, q, done[0]), k.mma(p, w, done[1])]
    for n, value in enumerate(done):
        k.store(k.relu(value), f"%r{n}")
    return k


def test_horizontally_fused_products_share_commit_and_wait() -> None:
    """[FwdHorizontalFusion: four waits before the fix] One commit a trip, one wait behind the loop, none in the epilogue."""
    found = checked(fused(2, 1, "bulk_tensor"))
    copies = "expect; copy; copy; copy"
    assert found == lines(f"""
        {copies}
        for; barrier; if; {copies}; end; phase; mma; mma; commit wgmma; wait wgmma 0; end
        relu; store; relu; store""")


@pytest.mark.parametrize(("slots", "ahead"), [(2, 1), (3, 1), (5, 1), (5, 3), (5, 4), (9, 1), (9, 4), (9, 8)])
@pytest.mark.parametrize("path", ["bulk_tensor", "cp_async"])
@pytest.mark.parametrize("guarded", [False, True])
def test_rings_keep_as_much_in_flight_as_their_slots_allow(slots: int, ahead: int, path: str, guarded: bool) -> None:
    """[Circular buffering, stages {2, 5, 9} x prefetch] One barrier, one commit a queue and trip, the largest pending counts."""
    with collect_remarks() as log:
        found = checked(fused(slots, ahead, path, guarded=guarded), simulated=slots != 5)
    assert not log.remarks
    body = found[found.index("for") : found.index("mma") + 4]
    spare = slots - ahead - 1
    assert count(body, "barrier") == 1 and count(body, "commit wgmma") == 1
    if spare:
        assert f"wait wgmma {min(spare, 7)}" in body
    if path == "cp_async":
        assert f"wait cp_async {ahead - 1}" in body and count(found[: found.index("mma")], "commit cp_async") == ahead + 1
    else:
        assert count(body, "phase") == 1 and count(body, "expect") == 1


# --- where results are used


def test_results_used_in_the_loop() -> None:
    """[HSH_NT_SingleMathGroupSyncCheck has a block sync behind each such wait; no other warp reads the tile, so none is needed]"""
    k = operands()
    loop(k)
    value = k.mma("%p", "%q", "%x0")
    k.store(k.relu(value))
    end(k, value)
    k.store("%o0", "%r1")
    assert checked(k) == lines(f"{START}; for; mma; commit wgmma; wait wgmma 0; relu; store; end; store")


def test_results_used_across_a_back_edge() -> None:
    k = operands()
    loop(k)
    k.store(k.relu("%x0"))
    end(k, k.mma("%p", "%q", "%x0"))
    k.store("%o0", "%r1")
    assert checked(k) == lines(f"{START}; for; relu; store; mma; commit wgmma; wait wgmma 0; end; store")


def test_a_loop_of_one_chain_is_one_group() -> None:
    k = operands()
    loop(k)
    end(k, k.mma("%p", "%q", "%x0"))
    k.store("%o0")
    assert checked(k) == lines(f"{START}; for; mma; end; commit wgmma; wait wgmma 0; store")


def test_results_used_in_one_branch_only() -> None:
    """The wait stands in the branch; behind it the group may be in flight or not, and the next reader waits for its own."""
    k = operands()
    value = k.mma("%p", "%q")
    branch(k)
    k.store(k.relu(value))
    k.add("}")
    k.store(k.relu(k.mma("%q", "%p")), "%r1")
    found = checked(k)
    assert found == lines(f"""
        {START}; mma; commit wgmma; if; wait wgmma 0; relu; store; end
        mma; commit wgmma; wait wgmma 0; relu; store""")


def test_results_used_in_a_branch_and_behind_it() -> None:
    k = operands()
    value = k.mma("%p", "%q")
    branch(k)
    k.store(k.relu(value))
    k.add("}")
    k.store(k.relu(value), "%r1")
    assert checked(k) == lines(f"{START}; mma; commit wgmma; if; wait wgmma 0; relu; store; end; wait wgmma 0; relu; store")


def test_two_readers_wait_once() -> None:
    k = operands()
    value = k.mma("%p", "%q")
    k.store(k.relu(value))
    k.store(k.relu(value), "%r1")
    assert checked(k) == lines(f"{START}; mma; commit wgmma; wait wgmma 0; relu; store; relu; store")


def test_one_reader_of_two_results_waits_for_both() -> None:
    """[latent: only the first of two results recorded]"""
    k = operands()
    one, other = k.mma("%p", "%q"), k.mma("%q", "%p")
    k.add(f"%sum = arith.addf %{one[1:]}, {other} : {ACCUMULATOR}")
    k.store(k.relu("%sum"))
    assert checked(k) == lines(f"{START}; mma; mma; commit wgmma; wait wgmma 0; relu; store")


def test_another_queue_flushes_nothing() -> None:
    """[latent: one flag for all queues] Waiting for a bulk store says nothing about matrix instructions."""
    k = operands()
    k.buffers("f32", o=0)
    k.local_store("%o")
    k.copy_out("%o")
    value = k.mma("%p", "%q")
    k.local_store("%o")
    k.store(k.relu(value), "%r1")
    found = checked(k)
    assert found[found.index("mma") :] == lines(
        "mma; commit wgmma; wait bulk_store 0 read; barrier; local_store; wait wgmma 0; relu; store"
    )


def test_state_of_a_branch_does_not_leak_into_the_other() -> None:
    """[latent: state leaks through if/else] Both branches wait, each for what it reads."""
    k = operands()
    first, second = k.mma("%p", "%q"), k.mma("%p", "%q")
    branch(k)
    k.store(k.relu(first))
    k.add("} else {")
    k.store(second, "%r1")
    k.add("}")
    found = checked(k)
    middle = found[found.index("if") : found.index("end")]
    assert middle == lines("if; wait wgmma 1; relu; store; else; wait wgmma 0; store")


def test_what_both_branches_read_is_waited_for_once() -> None:
    k = operands()
    value = k.mma("%p", "%q")
    branch(k)
    k.store(k.relu(value))
    k.add("} else {")
    k.store(value, "%r1")
    k.add("}")
    found = checked(k)
    assert count(found, "wait wgmma 0") == 1 and found.index("wait wgmma 0") < found.index("if")


# --- copies


@pytest.mark.parametrize("path", ["bulk_tensor", "cp_async"])
def test_a_refill_under_a_condition_is_complete_on_both_paths(path: str) -> None:
    """What reads the buffer knows nothing of the condition: the bulk copy is waited for where it is made, groups are counted alike."""
    k = operands(path)
    value = k.mma("%p", "%q")
    branch(k)
    k.copy("%p", "%r1", path)
    k.add("}")
    k.store(k.mma("%p", "%q", value))
    found = checked(k)
    middle = found[found.index("if") : len(found) - found[::-1].index("mma")]
    if path == "bulk_tensor":
        assert middle == lines("if; expect; copy; phase; end; mma")
    else:
        assert middle == lines("if; copy; end; commit cp_async; wait cp_async 0; fence; barrier; mma")


@pytest.mark.parametrize("path", ["bulk_tensor", "cp_async"])
def test_a_copy_and_its_reader_in_one_branch(path: str) -> None:
    k = operands(path)
    k.buffers(w=0)
    k.add("%pid = tile.program_id 0 : i64\n%flag = arith.cmpi slt, %pid, %c1 : index")
    k.add(f"%o = scf.if %flag -> ({ACCUMULATOR}) {{")
    k.copy("%w", "%r1", path)
    end(k, k.mma("%w", "%q"))
    k.lines[-1] = k.lines[-1].replace("\n}", "\n} else {")
    end(k, k.mma("%p", "%q"))
    k.store("%o")
    found = checked(k)
    assert count(found, "phase" if path == "bulk_tensor" else "wait cp_async 0") >= 2
    assert found[-1] == "store" and found[-2] == "end"


def test_a_wait_narrower_than_its_readers_comes_before_their_barrier() -> None:
    """[#3865: wait behind the block sync; Triton #11047] cp.async waits are a thread's: wait, fence, barrier, in this order."""
    k = operands("cp_async")
    k.store(k.mma("%p", "%q"))
    assert checked(k)[:6] == lines("copy; copy; commit cp_async; wait cp_async 0; fence; barrier")


def test_release_of_a_slot_waits_for_its_readers() -> None:
    """[#3561] The products that read a slot are retired and all warps have met before it is filled again."""
    found = checked(fused(3, 1, "bulk_tensor"))
    body = found[found.index("for") :]
    assert body.index("wait wgmma 1") < body.index("barrier") < body.index("expect")


def test_copies_nobody_reads_are_over_when_the_kernel_ends() -> None:
    for path, last in (("bulk_tensor", "phase"), ("cp_async", "wait cp_async 0")):
        k = Kernel(rows=64)
        k.buffers(p=0)
        k.copy("%p", path=path)
        assert checked(k)[-1] == last


def test_slots_that_cannot_be_told_apart_are_waited_for_at_once() -> None:
    k = Kernel(rows=64 * 4)
    k.buffers(p=3, q=0)
    k.copy("%q", view="%vb")
    k.add("%pid = tile.program_id 0 : i64\n%other = arith.remui %pid, %c2 : index")
    k.copy(k.slot("%p", "%c0"))
    k.copy(k.slot("%p", "%c1"), "%r1")
    k.store(k.mma(k.slot("%p", "%other"), "%q"))
    with collect_remarks() as log:
        found = checked(k)
    assert [r.kind for r in log.remarks] == ["note"] and "waited for at once" in log.remarks[0].text
    assert found == lines("expect; copy; expect; copy; phase; expect; copy; phase; phase; mma; commit wgmma; wait wgmma 0; store")


def test_three_buffers_four_stages_are_ordered_by_waiting() -> None:
    """[Triton #9720: 4 stages on 3 buffers] A program whose sequential order is right stays right: nothing is in flight too early."""
    found = checked(fused(3, 2, "cp_async"))
    body = found[found.index("for") :]
    assert "wait cp_async 1" in body


# --- AMD


@pytest.mark.parametrize(("slots", "ahead", "pending"), [(3, 1, 2), (3, 2, 2), (4, 2, 4), (5, 4, 6)])
def test_direct_copies_are_counted_one_by_one(slots: int, ahead: int, pending: int) -> None:
    """Copies stay in flight over the barrier, which therefore flushes nothing: local accesses are waited for by themselves."""
    k = Kernel(rows=64 * STEPS, target="gfx950")
    k.lines = [line for line in k.lines if "dense" not in line]
    k.buffers(p=slots, q=slots)
    for step in range(ahead):
        for name, view in (("%p", "%va"), ("%q", "%vb")):
            k.copy(k.slot(name, f"%c{step}"), f"%r{step}", "direct", view)
    k.add(f"%n = arith.constant {slots} : index\n%d = arith.constant {ahead} : index\nscf.for %i = %c0 to %c{STEPS - ahead} step %c1 {{")
    k.add("%j = arith.addi %i, %d : index\n%js = arith.remui %j, %n : index\n%is = arith.remui %i, %n : index")
    k.add("%row = arith.muli %j, %r1 : index")
    for name, view in (("%p", "%va"), ("%q", "%vb")):
        k.copy(k.slot(name, "%js"), "%row", "direct", view)
    k.local_load(k.slot("%p", "%is"), "tensor<64x64xf16>")
    k.local_load(k.slot("%q", "%is"), "tensor<64x64xf16>")
    end(k)
    found = checked(k, simulated=False)
    sync = f"wait vmcnt {pending}; wait lgkmcnt 0; bare"
    body = f"copy; copy; {sync}" if slots > ahead + 1 else f"{sync}; copy; copy"
    assert found[found.index("for") :] == lines(f"for; {body}; local_load; local_load; end; wait vmcnt 0")


# --- refusals


def synchronising(kernel: Operation) -> list[Operation]:
    """What somebody may have written, or left out: waits, commits, barriers and fences."""
    return [op for op in kernel.walk() if isinstance(op, sync.WaitOp | sync.CommitOp | sync.BarrierOp | sync.FenceOp)]


@pytest.mark.parametrize("seed", range(20))
def test_synchronisation_that_is_there_is_kept_and_completed(seed: int) -> None:
    module = random_kernel(seed).synchronised()
    complete = outline(module)
    run_passes(module, [InsertSyncPass()])
    assert outline(module) == complete, "nothing is missing"
    rng = random.Random(seed)
    for _ in range(3):
        written = synchronising(module)
        for op in rng.sample(written, rng.randint(min(1, len(written)), len(written))):
            op.detach()
            op.erase()
        left = len(synchronising(module))
        run_passes(module, [InsertSyncPass()])
        assert prove(kernel_of(module)).is_proven
        assert len(synchronising(module)) >= left


def test_copies_that_a_machine_does_not_have() -> None:
    k = Kernel(rows=64, target="gfx942")
    k.buffers(p=0)
    k.copy("%p", path="cp_async")
    with pytest.raises(TreadleError, match="gfx942 has no copies by 'cp_async'"):
        k.synchronised()


# --- local accesses


def test_what_every_thread_stored_itself_it_loads_without_a_barrier() -> None:
    k = Kernel(rows=64)
    k.buffers("f32", o=0)
    k.local_store("%o")
    k.local_load("%o")
    assert checked(k) == lines("local_store; local_load")


def test_another_layout_needs_the_barrier() -> None:
    k = Kernel(rows=64)
    k.buffers("f32", o=0)
    k.local_store("%o")
    k.local_load("%o", ACCUMULATOR)
    assert checked(k) == lines("local_store; barrier; local_load")


def test_slots_are_told_apart() -> None:
    k = Kernel(rows=64)
    k.buffers("f32", o=2)
    first, second = k.slot("%o", "%c0"), k.slot("%o", "%c1")
    k.local_store(first)
    k.local_store(second)
    k.local_load(first, ACCUMULATOR)
    k.local_store(second)
    k.local_load(second, ACCUMULATOR)
    assert checked(k) == lines("local_store; local_store; barrier; local_load; local_store; barrier; local_load")


# --- anything


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed: int) -> None:
    """Loops, branches, slots, all queues: proven, simulated, and their values those of the sequential program."""
    checked(random_kernel(seed, stores_once=True))


def test_random_programs_are_proven() -> None:
    for seed in range(100, 160):
        checked(random_kernel(seed), simulated=False)
