"""What names workgroups of a cluster: round trips and refusals; parts of shared buffers."""

import numpy as np
import pytest
from hazards.schedules import alloc, array, buffer, kernel, tma, view

from treadle.dialects import pipe, sync, tile
from treadle.errors import TreadleError
from treadle.ir.core import VerifyException
from treadle.ir.text import parse_module, print_module
from treadle.layout.shared_layout import SharedLayout, row_major, swizzled


def text_of(*lines: str, cluster: str = "cluster = 2 : i64, ") -> str:
    copy = tma("%va", array(64, 64), "%r, %r", "%h", "%b", rows=32).replace('"bulk_tensor"', '"bulk_tensor" multicast array<i64: 0, 1>')
    whole, half = buffer(), buffer(rows=32)
    text = kernel(
        "%a: !tile.ptr<f16>",
        view("%va", "%a", 64, 64),
        alloc("%s"),
        "  %b = sync.mbarrier_alloc 2 : i64 : !sync.mbarrier",
        "  %r = pipe.cluster_rank",
        f"  %h = pipe.part %s[%r] of 2 : i64 along 0 : i64 : {whole} -> {half}",
        copy,
        *lines,
        pointers=1,
    )
    return text.replace("symbols", cluster + "symbols")


def test_round_trip() -> None:
    text = text_of(
        "  %n = pipe.advance %r by %r of 3 : i64", "  sync.arrive %b peers array<i64: 1, 0>", "  sync.arrive %b", "  sync.cluster_barrier"
    )
    module = parse_module(text, "x.mlir")
    printed = print_module(module)
    assert print_module(parse_module(printed, "x.mlir")) == printed
    (made,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    assert made.cluster_size() == 2
    copy = next(op for op in module.walk() if isinstance(op, tile.CopyOp))
    assert copy.multicast_ranks() == (0, 1)
    first, second = (op for op in module.walk() if isinstance(op, sync.ArriveOp))
    assert first.peer_ranks() == (1, 0)
    assert second.peer_ranks() == ()


def test_relative_ranks() -> None:
    text = text_of("  sync.arrive %b peers array<i64: 0, 1, 2> relative", cluster="cluster = 4 : i64, ")
    module = parse_module(text.replace("multicast array<i64: 0, 1>", "multicast array<i64: 0, 2> relative"), "x.mlir")
    printed = print_module(module)
    assert print_module(parse_module(printed, "x.mlir")) == printed
    copy = next(op for op in module.walk() if isinstance(op, tile.CopyOp))
    assert [copy.multicast_ranks(rank) for rank in range(4)] == [(0, 2), (1, 3), (2, 0), (3, 1)]
    (arrive,) = (op for op in module.walk() if isinstance(op, sync.ArriveOp))
    assert [arrive.peer_ranks(rank) for rank in range(4)] == [(0, 1, 2), (1, 0, 3), (2, 3, 0), (3, 2, 1)]


role = '  "pipe.roles"() <{names = ["x"], warps = array<i64: 4>, groups = array<i64: 1>, registers = array<i64: 0>'
end = "  pipe.end_role\n}) : () -> ()"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (text_of("  sync.arrive %b peers array<i64: 2>"), r"TR416: 'sync.arrive': workgroups \[2\] of a cluster of 2"),
        (text_of("  sync.arrive %b peers array<i64: 1, 1>"), r"TR416: 'sync.arrive': workgroups \[1, 1\] of a cluster of 2"),
        (text_of("  sync.arrive %b peers array<i64>"), r"TR416: 'sync.arrive': workgroups \[\] of a cluster of 2"),
        (
            text_of("  sync.arrive %b peers array<i64: 0, 1> relative", cluster="cluster = 3 : i64, "),
            r"TR416: 'sync.arrive': relative ranks in a cluster of 3",
        ),
        (text_of("  sync.arrive %b relative"), "TR201: 'sync.arrive': .* only where `peers` lists them"),
        (text_of().replace("multicast array<i64: 0, 1>", "relative"), "TR201: 'tile.copy': .* only where `multicast` lists them"),
        (text_of(cluster=""), r"TR416: 'tile.copy': workgroups \[0, 1\] of a cluster of 1"),
        (
            text_of().replace(" signals %b : !sync.mbarrier", "").replace('"bulk_tensor"', '"cp_async"'),
            "TR201: 'tile.copy': .* fills the executing workgroup alone",
        ),
        (text_of().replace("of 2 : i64", "of 4 : i64"), "TR201: 'pipe.part': pipe.part 4 along 0"),
        (text_of().replace("along 0 : i64", "along 1 : i64"), "TR201: 'pipe.part': .* do not follow one another in memory"),
        (text_of("  %n = pipe.advance %r by %r of 0 : i64"), "TR201: 'pipe.advance': .* at least one slot"),
        (text_of(f"{role}, ping_pong = array<i64: 1>}}> ({{\n{end}"), "TR201: 'pipe.roles': .* ping_pong lists numbers of its 1 roles"),
        (text_of(f"{role}}}> ({{\n  sync.cluster_barrier\n{end}"), "TR416: 'sync.cluster_barrier': .* outside pipe.roles"),
    ],
    ids=[
        "rank",
        "twice",
        "none",
        "three",
        "relative to none",
        "relative copy",
        "no cluster",
        "queued",
        "part shape",
        "part axis",
        "no slot",
        "no such role",
        "in a role",
    ],
)
def test_refusals(text: str, why: str) -> None:
    with pytest.raises((VerifyException, TreadleError), match=why):
        parse_module(text, "x.mlir").verify()


@pytest.mark.parametrize(
    ("layout", "axis", "count"),
    [
        (row_major((64, 64), (1, 0)), 0, 2),
        (row_major((96, 64), (1, 0)), 0, 3),
        (swizzled((64, 256), (1, 0), 2, 128), 1, 2),
        (swizzled((128, 64), (1, 0), 2, 128), 0, 2),
        (swizzled((128, 64), (1, 0), 2, 128), 0, 4),
        (swizzled((192, 64), (1, 0), 2, 128), 0, 3),
        (row_major((64, 64), (1, 0)).stacked(3), 0, 3),
    ],
)
def test_parts_follow_one_another(layout: SharedLayout, axis: int, count: int) -> None:
    part = pipe.part_layout(layout, axis, count)
    assert part is not None
    own = np.moveaxis(np.indices(part.shape), 0, -1)
    for index in range(count):
        moved = own.copy()
        moved[..., axis] += index * part.shape[axis]
        assert (layout.offset_array(moved) == index * part.size + part.offset_array(own)).all()


def test_parts_that_do_not() -> None:
    assert pipe.part_layout(row_major((64, 64), (1, 0)), 1, 2) is None
    assert pipe.part_layout(row_major((64, 64), (1, 0)), 0, 3) is None
    assert pipe.part_layout(row_major((64, 64), (1, 0)).stacked(3), 1, 2) is None
