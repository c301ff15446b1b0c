"""One rule of docs/schedule.md a test: right text passes, and the smallest departure from it is named."""

import pytest
from hazards import programs_amd as amd
from hazards import programs_nvidia as nvidia
from hazards.kernels import kernel_of
from hazards.schedules import (
    ACC_LAYOUT,
    ROWS_LAYOUT,
    TILE_BYTES,
    WAVE_COLUMNS,
    WAVE_ROWS,
    alloc,
    array,
    bulk_store,
    constants,
    kernel,
    load,
    local_load,
    local_store,
    queued_copy,
    roles,
    store,
    tma,
    view,
    wgmma,
    zeros,
)

from treadle.verify.check import prove

ARGS = "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>"
TILE = array(64, 64)
HEAD = (view("%va", "%a", 64, 64), view("%vc", "%c", 64, 64), constants(0, 1))


def wide(text: str) -> str:
    """The same kernel on many workgroups."""
    return text.replace('grid = ["1"', 'grid = ["20000"')


def rules(text: str) -> set[str]:
    """The rules that are broken; "open" where something is left open."""
    verdict = prove(kernel_of(text))
    return {finding.rule for finding in verdict.findings} | ({"open"} if verdict.undecided else set())


def body(*lines: str, **options: object) -> str:
    return kernel(ARGS, *HEAD, *lines, pointers=2, **options)  # pyright: ignore[reportArgumentType]


def through(layout: str, back: str, *between: str) -> str:
    """A tile written in one layout and read back in another."""
    return body(
        alloc("%s"),
        load("%x", "%va", TILE, "%c0, %c0", layout),
        local_store("%x", "%s", layout),
        *between,
        local_load("%y", "%s", back),
        store("%y", "%vc", TILE, "%c0, %c0", back, "f16"),
    )


def test_own_elements_need_no_barrier() -> None:
    assert rules(through(ROWS_LAYOUT, ROWS_LAYOUT)) == set()
    assert rules(through(ROWS_LAYOUT, ACC_LAYOUT)) == {"V3"}
    assert rules(through(ROWS_LAYOUT, ACC_LAYOUT, "  sync.barrier")) == set()


def test_the_same_warp_in_another_order_needs_no_barrier() -> None:
    """Both layouts give warp w the same rows, the lanes others."""
    other = ROWS_LAYOUT.replace("register = [[0, 1], [0, 2], [0, 4],", "register = [[0, 8], [0, 16], [0, 32],").replace(
        "lane = [[0, 8], [0, 16], [0, 32],", "lane = [[0, 1], [0, 2], [0, 4],"
    )
    assert rules(through(ROWS_LAYOUT, other)) == set()


def test_nothing_written() -> None:
    text = body(alloc("%s"), local_load("%y", "%s", ROWS_LAYOUT), store("%y", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"))
    assert rules(text) == {"V8"}


@pytest.mark.parametrize(("at", "expected"), [(TILE_BYTES, set[str]()), (TILE_BYTES - 2, {"V3", "V8"}), (0, {"V8"})])
def test_buffers_that_share_bytes(at: int, expected: set[str]) -> None:
    """One byte is enough; what lies over a tile makes it unwritten. At the same bytes each warp meets only itself."""
    text = body(
        alloc("%s", at=0),
        alloc("%t", at=at),
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%s", ROWS_LAYOUT),
        local_store("%x", "%t", ROWS_LAYOUT),
        local_load("%y", "%s", ROWS_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"),
    )
    assert rules(text) == expected


def test_scratch_buffers_one_after_the_other() -> None:
    """Buffers at the same bytes need no barrier between them where each warp keeps to its own bytes."""

    def scratch(*layouts: str) -> str:
        write, read, write_again, read_again = layouts
        return body(
            alloc("%s", at=0),
            alloc("%t", at=0),
            load("%x", "%va", TILE, "%c0, %c0", write),
            local_store("%x", "%s", write),
            local_load("%y", "%s", read),
            load("%z", "%va", TILE, "%c0, %c0", write_again),
            local_store("%z", "%t", write_again),
            local_load("%u", "%t", read_again),
            store("%u", "%vc", TILE, "%c0, %c0", read_again, "f16"),
        )

    assert rules(scratch(ROWS_LAYOUT, ROWS_LAYOUT, ROWS_LAYOUT, ROWS_LAYOUT)) == set()
    assert rules(scratch(ROWS_LAYOUT, ROWS_LAYOUT, ACC_LAYOUT, ACC_LAYOUT)) >= {"V3"}
    assert rules(scratch(ROWS_LAYOUT, ROWS_LAYOUT, ROWS_LAYOUT, ACC_LAYOUT)) == {"V3"}


def out(*between: str, end: str = '  sync.wait "bulk_store" pending 0 : i64 read') -> str:
    return body(
        alloc("%s"),
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%s", ROWS_LAYOUT),
        *between,
        bulk_store("%s", TILE, "%c0, %c0", "%vc"),
        '  sync.commit "bulk_store"',
        end,
    )


def test_proxies_need_a_fence_by_the_writer() -> None:
    fence, barrier = '  sync.fence "async_shared"', "  sync.barrier"
    assert rules(out(fence, barrier)) == set()
    assert rules(out(barrier)) == {"V4"}
    assert rules(out(barrier, fence)) == {"V4"}  # the issuer's own fence, too late for the others
    assert rules(out(fence)) == {"V3"}
    assert rules(out(fence, barrier, end="")) == {"V2"}  # the kernel ends too early


def test_a_bulk_store_wait_is_the_issuers_alone() -> None:
    again = local_store("%x", "%s", ROWS_LAYOUT)
    order = ('  sync.fence "async_shared"', "  sync.barrier")
    wait = '  sync.wait "bulk_store" pending 0 : i64 read\n'
    assert rules(out(*order, end=wait + again)) == {"V3"}
    assert rules(out(*order, end=wait + "  sync.barrier\n" + again)) == set()


def test_uncommitted_groups_are_never_retired() -> None:
    def copied(*between: str) -> str:
        return body(
            alloc("%s"),
            queued_copy("%va", TILE, "%c0, %c0", "%s", "cp_async"),
            *between,
            "  sync.barrier",
            local_load("%y", "%s", ROWS_LAYOUT),
            store("%y", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"),
        )

    wait = '  sync.wait "cp_async" pending 0 : i64'
    assert rules(copied('  sync.commit "cp_async"', wait)) == set()
    assert "V1" in rules(copied(wait))
    assert "V1" in rules(copied('  sync.commit "cp_async"', '  sync.wait "cp_async" pending 1 : i64'))


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_bare_barriers_leave_local_accesses_pending(target: str) -> None:
    queue = "lgkmcnt" if target == "gfx942" else "dscnt"
    rows = WAVE_ROWS if target == "gfx942" else ROWS_LAYOUT
    columns = WAVE_COLUMNS if target == "gfx942" else ACC_LAYOUT

    def through_bare(*between: str) -> str:
        return through(rows, columns, *between).replace("sm_90a", target)

    assert rules(through_bare("  sync.barrier")) == set()
    assert rules(through_bare("  sync.barrier bare")) == {"V3"}
    assert rules(through_bare(f'  sync.wait "{queue}" pending 0 : i64', "  sync.barrier bare")) == set()
    assert rules(through_bare(f'  sync.wait "{queue}" pending 1 : i64', "  sync.barrier bare")) == {"V3"}


def test_arrivals_are_counted_for_real() -> None:
    """Outside roles each warp arrives by itself."""

    def arriving(arrivals: int) -> str:
        return body(
            f"  %b = sync.mbarrier_alloc {arrivals} : i64 : !sync.mbarrier",
            "  %even = arith.constant 0 : i32",
            alloc("%s"),
            load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
            local_store("%x", "%s", ROWS_LAYOUT),
            "  sync.arrive %b",
            "  sync.wait_phase %b parity %even",
            local_load("%y", "%s", ACC_LAYOUT),
            store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        )

    assert rules(arriving(4)) == set()
    assert "V5" in rules(arriving(5))
    assert rules(arriving(1)) != set()


def test_a_group_arrives_once() -> None:
    def handed_over(warps: int, arrivals: int) -> str:
        writer = "\n".join([load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT), local_store("%x", "%s", ROWS_LAYOUT), "  sync.arrive %b"])
        reader = "\n".join(
            [
                "  sync.wait_phase %b parity %even",
                local_load("%y", "%s", ACC_LAYOUT),
                store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
            ]
        )
        return body(
            f"  %b = sync.mbarrier_alloc {arrivals} : i64 : !sync.mbarrier",
            "  %even = arith.constant 0 : i32",
            alloc("%s"),
            roles(("writer", "reader"), (warps, 4), (1, 1), writer, reader),
            warps=warps + 4,
        )

    assert rules(handed_over(4, 1)) == set()
    assert rules(handed_over(4, 4)) == {"V5"}


@pytest.mark.parametrize("announced", [TILE_BYTES - 16, TILE_BYTES + 16])
def test_bytes_are_counted(announced: int) -> None:
    def copied(bytes_: int) -> str:
        return body(
            "  %b = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
            "  %even = arith.constant 0 : i32",
            alloc("%s"),
            f"  sync.mbarrier_expect %b bytes {bytes_} : i64",
            tma("%va", TILE, "%c0, %c0", "%s", "%b"),
            "  sync.wait_phase %b parity %even",
            local_load("%y", "%s", ROWS_LAYOUT),
            store("%y", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"),
        )

    assert rules(copied(TILE_BYTES)) == set()
    assert rules(copied(announced)) == {"V5"}


def product(*after: str, use: str = "%d") -> str:
    return kernel(
        nvidia.ARGS,
        "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
        view("%va", "%a", 64, 64),
        view("%vb", "%b", 64, 64),
        view("%vc", "%c", 64, 64, "f32"),
        constants(0, 1),
        "  %even = arith.constant 0 : i32",
        zeros("%init"),
        alloc("%sa"),
        alloc("%sb"),
        f"  sync.mbarrier_expect %full bytes {2 * TILE_BYTES} : i64",
        tma("%va", TILE, "%c0, %c0", "%sa", "%full"),
        tma("%vb", TILE, "%c0, %c0", "%sb", "%full"),
        "  sync.wait_phase %full parity %even",
        wgmma("%d", "%sa", "%sb", "%init"),
        '  sync.commit "wgmma"',
        *after,
        store(use, "%vc", array(64, 64, "f32"), "%c0, %c0", ACC_LAYOUT, "f32"),
        '  sync.wait "wgmma" pending 0 : i64',
    )


def test_results_are_used_after_their_wait() -> None:
    wait = '  sync.wait "wgmma" pending 0 : i64'
    chained = [wgmma("%e", "%sa", "%sb", "%d"), '  sync.commit "wgmma"']
    assert rules(product(wait)) == set()
    assert rules(product()) == {"V1"}
    assert rules(product(*chained, wait, use="%e")) == set()  # the accumulator of a chain stays in the queue
    assert rules(product(*chained, '  sync.wait "wgmma" pending 1 : i64', use="%e")) == {"V1"}


def test_results_are_followed_through_branches_and_loops() -> None:
    acc = nvidia.ACC
    branch = [
        "  %p = tile.program_id 0 : i64\n  %yes = arith.cmpi eq, %p, %c1 : index",
        f"  %e = scf.if %yes -> ({acc}) {{\n  scf.yield %d : {acc}\n  }} else {{\n  scf.yield %init : {acc}\n  }}",
    ]
    assert rules(wide(product(*branch, use="%e"))) == {"V1"}
    assert rules(product(*branch, '  sync.wait "wgmma" pending 0 : i64', use="%e")) == set()
    loop = [f"  %e = scf.for %i = %c0 to %c1 step %c1 iter_args(%o = %d) -> ({acc}) {{\n  scf.yield %o : {acc}\n  }}"]
    assert rules(product(*loop, use="%e")) == {"V1"}


def test_branches_on_workgroup_ids_are_taken_both_ways() -> None:
    def guarded(barrier: str) -> str:
        return body(
            alloc("%s"),
            "  %p = tile.program_id 0 : i64\n  %limit = arith.constant 9999 : index\n  %rare = arith.cmpi eq, %p, %limit : index",
            load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
            local_store("%x", "%s", ROWS_LAYOUT),
            f"  scf.if %rare {{\n  {barrier}",
            local_load("%y", "%s", ACC_LAYOUT),
            store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
            "  }",
        )

    assert rules(wide(guarded("sync.barrier"))) == set()
    assert rules(wide(guarded(""))) == {"V3"}
    assert rules(guarded("")) == set(), "the grid has no such workgroup"


def test_what_is_written_and_read_back_in_global_memory() -> None:
    def back(barrier: str) -> str:
        return body(
            load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
            store("%x", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"),
            barrier,
            load("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT),
            store("%y", "%va", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        )

    assert rules(back("")) == {"V3"}
    assert rules(back("  sync.barrier")) == set()


def test_named_barriers_count_warps() -> None:
    def met(warps: int) -> str:
        return through(ROWS_LAYOUT, ACC_LAYOUT, f"  sync.named_barrier 3 : i64 warps {warps} : i64")

    assert rules(met(4)) == set()
    assert rules(met(3)) != set()


def test_a_slot_outside_the_buffer_is_an_error() -> None:
    text = amd.double_buffer(3).replace("arith.constant 2 : index", "arith.constant 3 : index")
    (left,) = prove(kernel_of(text)).undecided
    assert "slot" in left.reason and left.error("k").code == "TR415"
