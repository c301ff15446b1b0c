"""Kernels of roles: every schedule proven and simulated, with several tiles a workgroup, odd sizes and few steps."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from transforms.role_kernels import DEFERRED, kernel_of, mixed_kernel

from treadle.dialects import pipe, sync, tile
from treadle.dialects.agents import roles_of
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.options import CompileOptions
from treadle.sim.schedule import Report, simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.transforms.kernel.roles.parts import Parts, loop_first
from treadle.verify.check import is_right

SHAPES = [(200, 136, 200), (130, 72, 64), (64, 264, 328)]
"""Ragged in every dimension, one step, more steps than slots."""


def check(kernel: tile.KernelOp, m: int, n: int, k: int) -> None:
    """Nothing to object, and the right result in the latest and a random order of effects."""
    assert is_right(kernel)
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-3, 4, (n, k)).astype(ml_dtypes.bfloat16)
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)
    ways: tuple[tuple[Mode, int], ...] = (("late", 0), ("random", 1))
    for mode, seed in ways:
        report = simulate(kernel, [a, b, np.full((m, n), np.nan, ml_dtypes.bfloat16)], mode=mode, seed=seed)
        assert report.ok, report
        assert np.array_equal(report.outputs[0].reshape(m, n).astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("name", ["together", "pending", "late", "turns", "turns-pending"])
def test_schedules_of_roles(name: str, m: int, n: int, k: int) -> None:
    turns = 2 if "turns" in name else 1
    pending = int("pending" in name)
    options = CompileOptions(
        tile=(64, 64, 64), warps=(4, 1), consumer_warpgroups=3 - turns, num_stages=3, ping_pong=turns, steps_in_flight=pending
    )
    check(kernel_of(m, n, k, options, deferred_store=name == "late"), m, n, k)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("late", [False, True])
def test_three_groups_of_a_tile(m: int, n: int, k: int, late: bool) -> None:
    """They have the registers that the producer leaves."""
    options = CompileOptions(tile=(64, 96, 64), warps=(4, 1), consumer_warpgroups=3, num_stages=3)
    kernel = kernel_of(m, n, k, options, deferred_store=late)
    (roles,) = (op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    producer, consumer = (role.registers for role in roles_of(roles))
    assert (producer + 3 * consumer) * 128 <= 65536 < (producer + 3 * (consumer + 8)) * 128
    check(kernel, m, n, k)


@pytest.mark.parametrize("turns", [1, 2])
def test_groups_of_a_turn_are_one_role(turns: int) -> None:
    m, n, k = 264, 72, 136
    options = CompileOptions(tile=(64, 64, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=2, ping_pong=turns)
    kernel = kernel_of(m, n, k, options)
    (roles,) = (op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    assert roles.role_names() == ("producer", *(("consumer",) if turns == 1 else ("consumer0", "consumer1")))
    assert roles.role_groups() == (1, *[2] * turns)
    met = {op.number(group) for op in roles.walk() if isinstance(op, sync.NamedBarrierOp) for group in (0, 1)}
    assert met == set(range(1, 1 + 2 * turns))
    check(kernel, m, n, k)


@pytest.mark.parametrize("columns", [32, 48, 96])
def test_late_boxes_of_several_widths(columns: int) -> None:
    options = CompileOptions(tile=(64, columns, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=2)
    kernel = kernel_of(200, 136, 128, options, deferred_store=True)
    check(kernel, 200, 136, 128)


@pytest.mark.parametrize("columns", [40, 88, 120, 168])
@pytest.mark.parametrize("name", ["together", "late", "turns", "tall", "three"])
def test_widths_that_are_odd_multiples_of_8(name: str, columns: int) -> None:
    """Results leave in boxes, the last of 16 bytes. The last tile along n is ragged."""
    m, n, k = 200, 2 * columns - 16, 136
    rows, turns, groups = 128 if name == "tall" else 64, 2 if name == "turns" else 1, 3 if name == "three" else 1 if name == "tall" else 2
    options = CompileOptions(tile=(rows, columns, 64), warps=(4, 1), consumer_warpgroups=3 - turns if turns > 1 else groups, num_stages=2)
    kernel = kernel_of(m, n, k, replace(options, ping_pong=turns), deferred_store=name == "late")
    assert not any(isinstance(op, tile.StoreOp) for op in kernel.walk())
    widths = {tile.memref_type(op.source).get_shape()[-1] for op in kernel.walk() if isinstance(op, tile.CopyOutOp)}
    assert sum(widths) % 16 == 8 and min(widths) == 8
    check(kernel, m, n, k)


@pytest.mark.parametrize(("columns", "steps"), [(96, 4), (160, 4), (160, 1), (256, 4), (256, 2)])
def test_deferred_stores_run_under_matrix_instructions(columns: int, steps: int) -> None:
    """The boxes of the tile before stand between a step's instructions and the wait for them, each in one step alone."""
    options = CompileOptions(tile=(64, columns, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=2)
    kernel = kernel_of(256, 3 * columns, 64 * steps, options, deferred_store=True)
    loop = next(op.parent_op() for op in kernel.walk() if isinstance(op, tile.ContractOp))
    assert isinstance(loop, scf.ForOp)
    names = [op.name for op in loop.body.block.ops if op.name in ("tile.contract", "sync.commit", "scf.if", "sync.wait", "sync.arrive")]
    branches = names.count("scf.if")
    assert branches == max(1, min(-(-len(boxes(loop)) // 2), steps))
    assert names == ["tile.contract", "sync.commit", *["scf.if"] * branches, "sync.wait", "sync.arrive"]


def boxes(loop: scf.ForOp) -> list[tile.CopyOutOp]:
    return [op for op in loop.walk() if isinstance(op, tile.CopyOutOp)]


@pytest.mark.parametrize("columns", [96, 160])
def test_a_box_waits_for_its_own_buffer_alone(columns: int) -> None:
    """Which branches ran before is known: no wait in the loop is for a store that was sent in the step before."""
    options = CompileOptions(tile=(64, columns, 64), warps=(4, 1), consumer_warpgroups=1, num_stages=2)
    kernel = kernel_of(192, 2 * columns, 256, options, deferred_store=True)
    loop = next(op.parent_op() for op in kernel.walk() if isinstance(op, tile.ContractOp))
    assert isinstance(loop, scf.ForOp)
    sent = [alloc_of(op.source) for op in boxes(loop)]
    waits = [op.pending.value.data for op in loop.walk() if isinstance(op, sync.WaitOp) and op.queue.data == "bulk_store"]
    commits = [op for op in loop.body.block.ops if isinstance(op, sync.CommitOp) and op.queue.data == "bulk_store"]
    assert commits == [], "a group is closed in the step that sends it"
    in_flight, expected = list[tuple[object, ...]](), list[int]()
    for _ in range(3):
        expected.clear()
        for box in sent:
            if box in in_flight:
                expected.append(in_flight.index(box))
                in_flight = in_flight[: in_flight.index(box)]
            in_flight.insert(0, box)
    assert waits == expected


def alloc_of(buffer: SSAValue) -> tuple[object, ...]:
    """The allocation and the numbers of its slots, where they are constants."""
    op = buffer.owner
    assert isinstance(op, pipe.SlotOp)
    inner = op.source.owner
    source = inner.source if isinstance(inner, pipe.SlotOp) else op.source
    values = [index.owner.value for index in op.indices if isinstance(index.owner, arith.ConstantOp)]
    return (source, *map(str, values))


def test_a_turn_barrier_is_needed() -> None:
    options = CompileOptions(tile=(64, 64, 64), warps=(4, 1), consumer_warpgroups=1, num_stages=2, ping_pong=2)
    kernel = kernel_of(256, 128, 256, options)
    turns = next(op for op in kernel.walk() if isinstance(op, sync.MbarrierAllocOp) and op.slot_count() == 2 and op is not None)
    assert turns.arrivals.value.data == 1
    waits = [op for op in kernel.walk() if isinstance(op, sync.WaitPhaseOp)]
    alloc = [op for op in kernel.walk() if isinstance(op, sync.MbarrierAllocOp)][-1]
    removed = [w for w in waits if getattr(w.barrier.owner, "source", None) is alloc.result]
    assert len(removed) == 2
    for wait in removed:
        wait.detach()
        wait.erase()
    assert not is_right(kernel)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(200, 136, 200), (250, 72, 264)])
def test_clusters_share_what_their_tiles_have_in_common(m: int, n: int, k: int, late: bool) -> None:
    options = CompileOptions(tile=(64, 64, 64), warps=(4, 1), consumer_warpgroups=1, num_stages=3)
    kernel = kernel_of(m, n, k, options, workgroups=4, cluster=2, deferred_store=late)
    assert kernel.cluster_size() == 2
    copies = [op for op in kernel.walk() if isinstance(op, tile.CopyOp)]
    assert [op.multicast_ranks() for op in copies] == [(), (0, 1)]
    assert [tile.memref_type(op.destination).get_shape() for op in copies] == [(64, 64), (64, 32)]
    assert is_right(kernel)
    for op in list(kernel.walk()):
        if isinstance(op, sync.ArriveOp) and op.peer_ranks():
            op.properties.pop("peers")
    assert not is_right(kernel), "the other workgroup's consumers hold the slot too"


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k", "groups", "walked"), [(200, 200, 200, 1, 1), (250, 328, 264, 2, 1), (450, 328, 72, 1, 3), (400, 200, 136, 3, 7)]
)
def test_clusters_along_columns_share_rows(m: int, n: int, k: int, groups: int, walked: int, late: bool) -> None:
    tiles = CompileOptions(tile=(64, 64, 64), warps=(4, 1), consumer_warpgroups=groups, num_stages=3, deferred_store=late)
    kernel = kernel_of(m, n, k, replace(tiles, cluster=2, group_m=walked), workgroups=4)
    assert kernel.cluster_size() == 2
    copies = [op for op in kernel.walk() if isinstance(op, tile.CopyOp)]
    assert [op.multicast_ranks() for op in copies] == [(0, 1)] * groups + [()]
    assert [tile.memref_type(op.destination).get_shape() for op in copies] == [(32, 64)] * groups + [(64, 64)]
    check(kernel, m, n, k)
    for op in list(kernel.walk()):
        if isinstance(op, sync.ArriveOp) and op.peer_ranks():
            op.properties.pop("peers")
    assert not is_right(kernel), "the other workgroup's consumers hold the slot too"


@pytest.mark.parametrize(("columns", "count", "each", "left"), [(104, 4, 3, 1), (40, 4, 1, 1), (72, 2, 4, 1), (88, 4, 2, 3), (32, 4, 1, 0)])
def test_rows_that_are_left_over_are_fetched_by_each(columns: int, count: int, each: int, left: int) -> None:
    """Of 13 periods of a swizzle each of four workgroups brings three for all, and the last one for itself."""
    m, n, k = 64 * count - 8, columns + 16, 200
    tiles = CompileOptions(tile=(64, columns, 64), warps=(4, 1), consumer_warpgroups=1, num_stages=2)
    kernel = kernel_of(m, n, k, replace(tiles, cluster=count, group_m=count), workgroups=count)
    assert kernel.cluster_size() == count
    of_a, *of_b = [op for op in kernel.walk() if isinstance(op, tile.CopyOp)]
    assert of_a.multicast_ranks() == ()
    assert [op.multicast_ranks() for op in of_b] == [tuple(range(count))] * each + [()] * left
    assert {tile.memref_type(op.destination).get_shape() for op in of_b} == {(64, 8)}
    check(kernel, m, n, k)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k", "groups", "count", "along_n", "walked"),
    [(200, 200, 200, 1, 4, 2, 2), (250, 328, 264, 2, 4, 2, 2), (450, 456, 72, 1, 8, 2, 4), (400, 500, 136, 1, 8, 4, 4)],
)
def test_clusters_along_both_sides_share_both_operands(
    m: int, n: int, k: int, groups: int, count: int, along_n: int, walked: int, late: bool
) -> None:
    tiles = CompileOptions(tile=(64, 64, 64), warps=(4, 1), consumer_warpgroups=groups, num_stages=3, deferred_store=late)
    kernel = kernel_of(m, n, k, replace(tiles, cluster=count, cluster_n=along_n, group_m=walked), workgroups=count)
    assert kernel.cluster_size() == count
    along_m = count // along_n
    of_a, of_b = tuple(range(0, count, along_m)), tuple(range(along_m))
    copies = [op for op in kernel.walk() if isinstance(op, tile.CopyOp)]
    assert [op.multicast_ranks() for op in copies] == [of_a] * groups + [of_b]
    assert copies[0].multicast_ranks(along_m + 1) == tuple(1 + rank ^ along_m for rank in of_a)
    shapes = [tile.memref_type(op.destination).get_shape() for op in copies]
    assert shapes == [(64 // along_n, 64)] * groups + [(64, 64 // along_m)]
    check(kernel, m, n, k)
    arrivals = [op for op in kernel.walk() if isinstance(op, sync.ArriveOp) and op.peer_ranks()]
    assert {op.peer_ranks() for op in arrivals} == {tuple(sorted({*of_a, *of_b}))}
    for op in arrivals:
        op.properties |= {"peers": tile.i64_array(range(count))}
    assert not is_right(kernel), "who shares nothing with a workgroup may be a round ahead of it"
    for op in arrivals:
        op.properties |= {"peers": tile.i64_array(of_b)}
    assert not is_right(kernel), "who shares rows of A holds the slot too"


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_clusters_of_tiles_that_are_no_whole_clusters(rows: bool, late: bool) -> None:
    m, n, k = (200, 136, 72) if rows else (136, 200, 72)
    options = CompileOptions(
        tile=(64, 64, 64), warps=(4, 1), num_stages=3, cluster=2, group_m=1 if rows else 2, deferred_store=late, persistent="never"
    )
    kernel = kernel_of(m, n, k, options, workgroups=0)
    assert kernel.cluster_size() == 2
    assert kernel.grid_text() == ("16", "1", "1")
    check(kernel, m, n, k)


@pytest.mark.parametrize(("m", "n", "k", "narrow", "workgroups"), [(330, 520, 72, 96, 4), (120, 392, 200, 96, 2), (330, 616, 72, 120, 4)])
def test_tiles_of_two_widths(m: int, n: int, k: int, narrow: int, workgroups: int) -> None:
    kernel = mixed_kernel(m, n, k, narrow, workgroups)
    contracts = [op for op in kernel.walk() if isinstance(op, tile.ContractOp)]
    assert {op.defined_columns() for op in contracts} == {128, narrow}
    check(kernel, m, n, k)


@pytest.mark.parametrize(("wide", "narrow"), [(104, 96), (104, 88), (168, 152), (184, 168), (72, 64)])
def test_tiles_of_two_widths_one_of_which_is_an_odd_multiple_of_8(wide: int, narrow: int) -> None:
    """Of the boxes that are moved back to end with a narrow tile the last has 16 bytes."""
    m, n, k = 330, wide + narrow, 72
    kernel = mixed_kernel(m, n, k, narrow, 4, replace(DEFERRED, tile=(64, wide, 64)))
    assert {op.defined_columns() for op in kernel.walk() if isinstance(op, tile.ContractOp)} == {wide, narrow}
    assert min(tile.memref_type(op.source).get_shape()[-1] for op in kernel.walk() if isinstance(op, tile.CopyOutOp)) == 8
    check(kernel, m, n, k)


def test_the_place_of_a_late_tile_is_computed_behind_its_loop() -> None:
    kernel = mixed_kernel(330, 520, 72, 96, 4)
    for contract in (op for op in kernel.walk() if isinstance(op, tile.ContractOp)):
        loop = contract.parent_op()
        if isinstance(loop, scf.ForOp) and isinstance(loop.parent_op(), scf.ForOp):
            names = [op.name for op in loop.parent.ops] if loop.parent is not None else []
            assert "arith.divui" not in names[: names.index("scf.for")], "the place waits for nothing and nothing waits for it"


def test_columns_that_a_narrow_tile_does_not_need_are_poison() -> None:
    kernel = mixed_kernel(330, 520, 72, 96, 4)
    for op in kernel.walk():
        if isinstance(op, tile.ContractOp) and op.columns is not None:
            op.properties["columns"] = builtin.IntegerAttr(88, builtin.i64)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((330, 72), (520, 72)))
    report = simulate(kernel, [a, b, np.zeros((330, 520), ml_dtypes.bfloat16)])
    assert np.isnan(report.outputs[0].astype(np.float32)).any()


def test_elements_written_twice_need_a_word_and_equal_values() -> None:
    def report(*, said: bool, moved: int) -> Report:
        kernel = mixed_kernel(120, 392, 72, 96, 2)
        for op in kernel.walk():
            if isinstance(op, tile.CopyOutOp) and not said:
                del op.properties["repeats"]
            # The last box of a narrow tile is columns 32 to 96 of its sums.
            if isinstance(op, tile.SliceOp) and tile.ints(op.offsets) == (0, 32):
                op.properties["offsets"] = builtin.DenseArrayBase.from_list(builtin.i64, [0, 32 - moved])
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((120, 72), (392, 72)))
        return simulate(kernel, [a, b, np.zeros((120, 392), ml_dtypes.bfloat16)])

    assert report(said=True, moved=0).ok
    assert {race.kind for race in report(said=False, moved=0).races} == {"order"}
    assert any("different values" in race.where for race in report(said=True, moved=8).races)


def test_what_stays_in_front_of_a_loop_keeps_what_it_reads() -> None:
    """Scalars move behind the loop unless the loop, or a tile made in front of it, reads them."""

    def index(value: int) -> arith.ConstantOp:
        return arith.ConstantOp(builtin.IntegerAttr(value, builtin.IndexType()))

    low, high, row, column, unused = index(0), index(4), index(1), index(2), index(3)
    rows = tile.SplatOp(row.result, tile.tile_of((4,), builtin.i32))
    loop = scf.ForOp(low.result, high.result, low.result, [], Block([scf.YieldOp()], arg_types=[builtin.IndexType()]))
    body = (low, high, row, column, rows, unused, loop, arith.AddiOp(column.result, unused.result))
    parts = Parts((), body, loop, (), ())
    assert loop_first(parts) == [low, high, row, rows, loop, column, unused, body[-1]]
