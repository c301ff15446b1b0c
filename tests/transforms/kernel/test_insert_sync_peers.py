"""insert-sync around reads of other workgroups' shared memory: the cluster meets ahead of them and behind, unless it does already."""

import numpy as np
import pytest
from generators.arrivals import scheduled

from treadle.dialects import sync, tile
from treadle.errors import TreadleError
from treadle.layout.shared_layout import row_major
from treadle.sim.schedule import simulate
from treadle.verify.check import prove
from treadle.verify.faults import changed, erase, faults

_WORDS = 64


def exchange(cluster: int = 2, *, between: str = "", loop: tuple[str, str] = ("", ""), kind: str = "f32") -> str:
    """Each workgroup adds up what all of its cluster have in their buffers."""
    shared = row_major((_WORDS,), (0,))
    layout = f"offset = {[list(basis) for basis in shared.offset]}, repeat = {list(shared.repeat)}"
    buffer = f"memref<{_WORDS}x{kind}, #tile.shared_layout<{layout}>, #tile.shared>"
    view, row = f"memref<{4 * _WORDS}x{kind}, strided<[1]>>", f"tensor<{_WORDS}x{kind}>"
    add = "addf" if kind.startswith("f") else "addi"
    reads = [f"%v{r} = tile.local_load %buffer array<i64: 0> peer {r} : i64 : {buffer} -> {row}" for r in range(cluster)]
    sums = [f"%s{r} = arith.{add} %{'v0' if r == 1 else f's{r - 1}'}, %v{r} : {row}" for r in range(1, cluster)]
    store = f"tile.store %s{cluster - 1}, %out[%at] dims array<i64: 0> vector 1 : i64 : {row}, {view}"
    body = "\n  ".join([loop[0], *reads, *sums, store, loop[1]])
    return f"""
tile.kernel @exchange(%x: !tile.ptr<{kind}>, %y: !tile.ptr<{kind}>) attributes {{
  arg_shapes = [["{4 * _WORDS}"], ["{4 * _WORDS}"]], output_count = 1, grid = ["4"], num_warps = 4, cluster = {cluster}
}} {{
  %in = tile.view %x offset 0 : i64 align 16 : i64 sizes [] strides [] : !tile.ptr<{kind}> -> {view}
  %out = tile.view %y offset 0 : i64 align 16 : i64 sizes [] strides [] : !tile.ptr<{kind}> -> {view}
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %words = arith.constant {_WORDS} : index
  %id = tile.program_id 0 : i64
  %at = arith.muli %id, %words : index
  %mine = tile.load %in[%at] dims array<i64: 0> vector 1 : i64 : {view} -> {row}
  %buffer = tile.alloc : {buffer}
  tile.local_store %mine, %buffer array<i64: 0> : {row}, {buffer}
  {between}
  {body}
  tile.return
}}
"""


def order(kernel: tile.KernelOp) -> list[str]:
    """What is stored, read from peers, and met for, in order."""
    kept = (tile.LocalStoreOp, tile.LocalLoadOp, sync.ClusterBarrierOp, sync.BarrierOp)
    return [op.name for op in kernel.body.block.ops if isinstance(op, kept)]


@pytest.mark.parametrize("cluster", [2, 4])
def test_the_cluster_meets_around_the_reads(cluster: int) -> None:
    kernel = scheduled(exchange(cluster), "sm_90a")
    met = "sync.cluster_barrier"
    assert order(kernel) == ["tile.local_store", met, *["tile.local_load"] * cluster, met]
    assert prove(kernel, stores=True).is_proven
    x = np.arange(4 * _WORDS, dtype=np.float32)
    for mode in ("late", "random"):
        report = simulate(kernel, [x, np.full_like(x, np.nan)], mode=mode)
        assert report.ok
        parts = x.reshape(-1, cluster, _WORDS).sum(1, keepdims=True)
        np.testing.assert_array_equal(
            report.outputs[0].reshape(-1, cluster, _WORDS), np.broadcast_to(parts, (4 // cluster, cluster, _WORDS))
        )


def test_meetings_that_are_there_are_left_alone() -> None:
    text = exchange(between="sync.cluster_barrier").replace("  tile.return", "  sync.cluster_barrier\n  tile.return")
    kernel = scheduled(text, "sm_90a")
    assert order(kernel).count("sync.cluster_barrier") == 2
    assert prove(kernel).is_proven


def test_every_fault_is_found_by_proof_and_simulator() -> None:
    kernel = scheduled(exchange(), "sm_90a")
    assert [fault.description for fault in faults(kernel, ("remove", "weaken")) if prove(fault.kernel).is_proven] == []
    x = np.arange(4 * _WORDS, dtype=np.float32)
    for at, op in enumerate(kernel.walk()):
        if isinstance(op, sync.ClusterBarrierOp):
            assert not simulate(changed(kernel, at, erase), [x, x], mode="random", seed=1).ok


def test_reads_in_loops_are_refused() -> None:
    loop = ("scf.for %again = %c0 to %c1 step %c1 {", "scf.yield\n  }")
    with pytest.raises(TreadleError, match="in a loop or branch") as caught:
        scheduled(exchange(loop=loop), "sm_90a")
    assert caught.value.code == "TR301"


def test_words_alone_are_read_from_peers() -> None:
    with pytest.raises(TreadleError, match="elements of f16 of another workgroup") as caught:
        scheduled(exchange(kind="f16"), "sm_90a")
    assert caught.value.code == "TR416"
    assert prove(scheduled(exchange(kind="i32"), "sm_90a")).is_proven
