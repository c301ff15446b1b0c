"""insert-sync on bulk stores, as text; checked as in `test_insert_sync_async.py`, and with the same names in brackets."""

import pytest
from generators.async_checks import checked
from generators.async_kernels import START, Kernel, end, lines, operands


def test_results_leave_by_a_bulk_store() -> None:
    k = operands()
    k.buffers("f32", o=0)
    k.local_store("%o", k.mma("%p", "%q"))
    k.copy_out("%o")
    tail = "local_store; fence; barrier; copy_out; commit bulk_store; wait bulk_store 0 read"
    assert checked(k) == lines(f"{START}; mma; commit wgmma; wait wgmma 0; {tail}")


def test_a_store_is_waited_for_where_its_buffer_is_reused() -> None:
    """[#3961, #5448] Not behind the store; the barrier stands behind the wait of the one thread that waited."""
    k = Kernel(rows=192)
    k.buffers("f32", o=0)
    k.local_store("%o")
    k.copy_out("%o")
    k.store(k.relu("%zero"), "%r2")
    k.local_store("%o")
    k.copy_out("%o", "%r1")
    assert checked(k) == lines("""
        local_store; fence; barrier; copy_out; commit bulk_store; relu; store
        wait bulk_store 0 read; barrier; local_store; fence; barrier; copy_out; commit bulk_store; wait bulk_store 0 read""")


@pytest.mark.parametrize("interleaved", [False, True])
def test_several_stores_share_fence_barrier_and_group(interleaved: bool) -> None:
    """[#4814, #3819: one fence for several stores, N outputs one commit]"""
    k = Kernel(rows=192)
    k.buffers("f32", o=0, u=0, v=0)
    names = ("%o", "%u", "%v")
    for n, name in enumerate(names):
        k.local_store(name)
        if interleaved:
            k.copy_out(name, f"%r{n}")
    if not interleaved:
        for n, name in enumerate(names):
            k.copy_out(name, f"%r{n}")
    stores = "local_store; local_store; local_store; fence; barrier; copy_out; copy_out; copy_out"
    assert checked(k) == lines(f"{stores}; commit bulk_store; wait bulk_store 0 read")


def test_a_buffer_that_shares_bytes_with_the_store_is_ordered() -> None:
    """[#3960, WARSyncAliasedSmem] Another buffer at the same bytes waits for the store."""
    k = Kernel(rows=128)
    k.buffers("f32", o=0, u=0)
    k.lines = [line.replace("tile.alloc :", "tile.alloc at 1024 : i64 :") for line in k.lines]
    k.local_store("%o")
    k.copy_out("%o")
    k.local_store("%u")
    k.copy_out("%u", "%r1")
    found = checked(k)
    assert found[found.index("copy_out") :][:4] == lines("copy_out; commit bulk_store; wait bulk_store 0 read; barrier")


@pytest.mark.parametrize(("slots", "pending"), [(1, 0), (2, 1), (5, 4)])
def test_stores_in_a_loop_stay_in_flight(slots: int, pending: int) -> None:
    """[StoreSyncInsertion] No wait behind the store; as many stay in flight as other slots."""
    k = Kernel(rows=64 * 8)
    k.buffers("f32", o=slots)
    k.add(f"%n = arith.constant {slots} : index\nscf.for %i = %c0 to %c8 step %c1 {{")
    k.add("%row = arith.muli %i, %r1 : index\n%is = arith.remui %i, %n : index")
    at = k.slot("%o", "%is")
    k.local_store(at)
    k.copy_out(at, "%row")
    end(k)
    assert checked(k) == lines(f"""
        for; wait bulk_store {pending} read; barrier; local_store; fence; barrier; copy_out; commit bulk_store; end
        wait bulk_store 0 read""")


@pytest.mark.parametrize(("slots", "ahead", "pending"), [(10, 4, 5), (5, 2, 2), (2, 1, 0), (9, 8, 0)])
def test_copies_in_and_out_of_one_ring(slots: int, ahead: int, pending: int) -> None:
    """[StoreSyncInsertion: stage 10, prefetch 4 -> wait 5, two commits and waits in all at most]"""
    trips = 16
    k = Kernel(rows=64 * trips)
    k.buffers("f32", o=slots)
    for step in range(ahead):
        k.copy(k.slot("%o", f"%c{step}"), f"%r{step}", view="%vc")
    k.add(f"%n = arith.constant {slots} : index\n%d = arith.constant {ahead} : index\nscf.for %i = %c0 to %c{trips} step %c1 {{")
    k.add(f"%j = arith.addi %i, %d : index\n%more = arith.cmpi slt, %j, %c{trips} : index\n%js = arith.remui %j, %n : index")
    k.add("%is = arith.remui %i, %n : index\n%row = arith.muli %j, %r1 : index\n%back = arith.muli %i, %r1 : index\nscf.if %more {")
    k.copy(k.slot("%o", "%js"), "%row", view="%vc")
    k.add("}")
    k.copy_out(k.slot("%o", "%is"), "%back")
    end(k)
    found = checked(k, simulated=False)
    assert found[found.index("for") :] == lines(f"""
        for; wait bulk_store {pending} read; barrier; if; expect; copy; end; phase; copy_out; commit bulk_store; end
        wait bulk_store 0 read""")
