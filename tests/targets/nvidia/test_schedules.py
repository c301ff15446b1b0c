"""Schedule-level programs through LLVM and ptxas: what stands in the machine code, and what is refused."""

import re
from collections.abc import Callable
from functools import lru_cache

import pytest
from targets.nvidia.reading import check_words
from targets.result_programs import added_product, group_turns, store_ring, two_products
from targets.schedule_programs import consumers, cp_async_ring, ping_pong, tma_ring
from targets.schedule_vocabulary import BF16, accumulator, i32, role, slotted
from targets.tile_kernels import finish, index, kernel_block, wgmma_matmul

from treadle.dialects import pipe, sync, tile
from treadle.dialects.tile import KernelOp
from treadle.errors import InternalError
from treadle.ir.core import ImplicitBuilder
from treadle.ir.misuse import Misuse
from treadle.machine import target_spec
from treadle.targets.interface import CompiledKernel, TensorMapParam
from treadle.targets.nvidia.sass import loops, parse
from treadle.targets.nvidia.toolchain import disassemble_cubin
from treadle.targets.registry import backend
from treadle.verify.check import prove

PROGRAMS: dict[str, Callable[[], KernelOp]] = {
    "tma_ring": lambda: tma_ring(512, 512, 1024),
    "tma_ring_pending": lambda: tma_ring(512, 512, 1024, pending=1),
    "consumers": lambda: consumers(4096, 4096, 4096),
    "consumers_unpeeled": lambda: consumers(4096, 4096, 4096, peeled=False),
    "consumers_pending": lambda: consumers(4096, 4096, 4096, pending=1),
    "consumers_stored": lambda: consumers(4096, 4096, 4096, stages=3, stored=True),
    "cooperative": lambda: consumers(4096, 4096, 4096, stages=3, stored=True, cooperative=True),
    "ping_pong": lambda: ping_pong(1024, 1024, 1024),
    "cp_async": lambda: cp_async_ring(512, 512, 1024),
    "store_ring": lambda: store_ring(256, 512),
    "apart": lambda: two_products(256, 64, shape="apart"),
    "branch": lambda: two_products(256, 64, shape="branch"),
    "long": lambda: two_products(256, 64, shape="long"),
    "fused": lambda: two_products(256, 1024, shape="fused"),
    "added": lambda: added_product(256),
}
# Matrix instructions and waits in machine code, as written.
COUNTS = {
    "tma_ring": (4, 1),
    "tma_ring_pending": (4, 2),
    "consumers": (8, 2),
    "consumers_unpeeled": (4, 1),
    "consumers_pending": (8, 2),
    "consumers_stored": (8, 2),
    "cooperative": (8, 2),
    "ping_pong": (16, 2),
    "cp_async": (4, 1),
    "apart": (8, 2),
    "branch": (8, 2),
    "long": (4, 1),
    "fused": (8, 2),
    "added": (4, 1),
}


@lru_cache(maxsize=32)
def compiled(name: str) -> CompiledKernel:
    target = backend("sm_90a")
    return target.assemble(target.emit(PROGRAMS[name]()))


@lru_cache(maxsize=32)
def sass(name: str) -> str:
    return disassemble_cubin(compiled(name).binary, lines=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_and_text_agree(name: str) -> None:
    kernel = compiled(name)
    check_words(kernel.binary, kernel.symbol)


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_waits_are_as_written(name: str) -> None:
    """Assembling audits: no C75xx, nothing spilled, no accumulator touched in flight, nothing slow in a main loop."""
    facts = compiled(name).facts
    assert (facts.instructions["HGMMA"], sass(name).count("WARPGROUP.DEPBAR")) == COUNTS[name]
    assert facts.spill_bytes == facts.stack_bytes == 0


@pytest.mark.parametrize("name", ["consumers", "consumers_pending", "consumers_stored"])
def test_specialised_matmul_is_what_was_measured(name: str) -> None:
    text, facts = sass(name), compiled(name).facts
    assert facts.registers == 168 and compiled(name).emitted.block == (384, 1, 1)
    assert "USETMAXREG.DEALLOC.CTAPOOL 0x28" in text and re.search(r"USETMAXREG.TRY_ALLOC.CTAPOOL UP\d, 0xe8", text)
    assert facts.instructions["R2UR"] == 1  # the warp's number
    assert "MEMBAR.ALL.GPU" not in text and "ERRBAR" not in text
    code = parse(text)
    (first, last), *others = loops(code)
    assert not others and sum(one.is_matrix for one in code[first : last + 1]) == 4
    assert last - first < 70


def test_producer_is_one_warp_and_consumers_arrive_by_warps() -> None:
    text = compiled("consumers").emitted.llvm_text
    counts = [int(n) for n in re.findall(r"mbarrier\.init.*?\(i32 [^,]+, i32 (\d+)\)", text)]
    assert counts == [1] * 4 + [8] * 4  # two groups of four warps each


def test_independent_accumulators_are_retired_one_by_one() -> None:
    """The first wait leaves one group pending and passes the first tile through alone; its stores begin before the second wait."""
    text = sass("apart")
    first, second = (m.start() for m in re.finditer("WARPGROUP.DEPBAR", text))
    assert "gsb0, 0x1" in text[first : first + 40] and "gsb0, 0x0" in text[second : second + 40]
    # ptxas moves some of the first stores behind the second wait; most of the first epilogue overlaps.
    assert text[first:second].count("STG.E") > 8 and text.count("STG.E") == 64
    waits = [line for line in compiled("apart").emitted.llvm_text.splitlines() if "wait_group" in line]
    assert [line.count("=f") for line in waits] == [64, 64]


def test_fused_products_commit_once_a_trip() -> None:
    ptx = compiled("fused").assembly
    assert ptx.count("wgmma.commit_group") == 1
    assert [int(n) for n in re.findall(r"wgmma.wait_group.sync.aligned (\d)", ptx)] == [1, 0]


def register_writes_behind_fence(ptx: str) -> list[str]:
    """Instructions between a wgmma.fence and the last matrix instruction behind it that write one of its accumulators."""
    found: list[str] = []
    for part in ptx.split("wgmma.fence.sync.aligned;")[1:]:
        part = part.split("wgmma.commit_group")[0]
        accumulators: set[str] = set()
        for match in re.finditer(r"wgmma\.mma_async[^{]*\{([^}]*)\}", part):
            accumulators |= {name.strip() for name in match.group(1).split(",")}
        before = part[: part.rfind("wgmma.mma_async")]
        for line in before.splitlines():
            written = re.match(r"\s*(?:@%p\d+ )?(?:mov|add|cvt|ld|fma|mul|selp)[.\w:]*\s+(\{[^}]*\}|%\w+)", line)
            if written is not None and accumulators & {name.strip() for name in written.group(1).strip("{}").split(",")}:
                found.append(line.strip())
    return found


def test_nothing_sets_accumulators_behind_the_fence() -> None:
    """Zeros are an operand of the instruction, other starts pass through the fence: ptxas before 13.5 would add another (C7519)."""
    for name in ("apart", "long", "consumers", "tma_ring", "fused", "added"):
        assert not register_writes_behind_fence(compiled(name).assembly)
    bad = "wgmma.fence.sync.aligned;\n mov.b32 %r7, 0f00000000;\n wgmma.mma_async.x {%r6, %r7}, %rd1;\nwgmma.commit_group"
    assert register_writes_behind_fence(bad) == ["mov.b32 %r7, 0f00000000;"]


def test_a_single_step_starts_from_nothing() -> None:
    """K within one tile: the loop runs once and its instruction takes no accumulator."""
    text = backend("sm_90a").emit(two_products(128, 64, shape="long")).llvm_text
    assert re.findall(r"setp\.ne\.b32 p, ([$\d]+), 0", text) == ["0", "1", "1", "1"]
    looped = backend("sm_90a").emit(wgmma_matmul(256, 256, 256, BF16)).llvm_text
    first, *others = re.findall(r"setp\.ne\.b32 p, ([$\d]+), 0", looped)
    assert first.startswith("$") and others == ["1", "1", "1"]


def test_cp_async_copies_are_wide_and_clipped() -> None:
    ragged = backend("sm_90a").emit(cp_async_ring(130, 130, 200)).llvm_text
    assert "cp.async.cg.shared.global [$0], [$1], 16, outside;" in ragged and "16, $2;" not in ragged  # whole, or zeros
    narrow = backend("sm_90a").emit(cp_async_ring(130, 130, 202)).llvm_text
    assert "cp.async.ca.shared.global [$0], [$1], 4, outside;" in narrow and "[$1], 16" not in narrow
    cut = backend("sm_90a").emit(cp_async_ring(130, 130, 197, pitch=200)).llvm_text
    assert "cp.async.cg.shared.global [$0], [$1], 16, $2;" in cut  # bytes that lie within
    odd = backend("sm_90a").emit(cp_async_ring(130, 130, 201)).llvm_text
    assert "cp.async.cg" not in odd and "cp.async.ca" not in odd  # such rows begin at no multiple of 4 bytes: loaded and shifted into place
    assert odd.count("ld.global.nc.v4.b32") == 48 and "fshr" in odd
    assert "@p prefetch.global.L2" in odd and "prefetch" not in narrow  # what is waited for in each step is asked for ahead
    assert "cp.async.cg.shared.global [$0], [$1], 16;" in compiled("cp_async").emitted.llvm_text
    assert compiled("cp_async").facts.instructions["LDGSTS"] == 24


def test_bulk_stores_have_maps_and_one_issuer() -> None:
    kernel = compiled("store_ring")
    assert [p.map.box_dim for p in kernel.emitted.params if isinstance(p, TensorMapParam)] == [(64, 64)]
    text = kernel.emitted.llvm_text
    assert text.count("cp.async.bulk.wait_group.read 1;") == 1 and text.count("cp.async.bulk.wait_group 0;") == 1
    issue = next(line for line in text.splitlines() if "bulk_group" in line)
    assert "commit_group" in issue  # the same thread, in one branch
    assert "prefetch.tensormap" in text


def test_group_turns_by_conditional_barriers() -> None:
    target = backend("sm_90a")
    emitted = target.emit(group_turns(5))
    assert target.assemble(emitted).facts.instructions["BAR"] >= 3
    # Groups wait at different places, which the aligned form does not allow (compute-sanitizer's synccheck reports it).
    assert "barrier.sync 0, 256;" in emitted.llvm_text
    assert "bar.sync" not in emitted.llvm_text


# --- what is refused


def test_a_store_without_its_last_wait_is_named() -> None:
    kernel = store_ring(128, 128)
    last = next(op for op in reversed(list(kernel.body.block.ops)) if isinstance(op, sync.WaitOp))
    last.detach()
    with pytest.raises(InternalError, match=r"tile.copy_out.*pending 0"):
        backend("sm_90a").emit(kernel)


def _roles(first: Callable[[], object], second: Callable[[], object], **facts: list[int]) -> KernelOp:
    block = kernel_block([BF16])
    with ImplicitBuilder(block):
        warps, registers = facts.get("warps", [4, 4]), facts.get("registers", [0, 0])
        pipe.RolesOp(["one", "two"], warps, facts.get("groups", [1, 1]), [role(first), role(second)], registers)
        tile.ReturnOp()
    return finish("roles", block, grid=["1", "1", "1"], warps=8)


def nothing() -> None:
    return None


def test_barriers_of_groups_have_their_numbers_in_registers() -> None:
    target = backend("sm_90a")
    apart = _roles(lambda: sync.NamedBarrierOp(3, 2, per_group=True), lambda: sync.NamedBarrierOp(5, 4), warps=[2, 4], groups=[2, 1])
    emitted = target.emit(apart)
    assert "bar.sync $0, 64;" in emitted.llvm_text and "bar.sync 5, 128;" in emitted.llvm_text
    made = target.assemble(emitted)
    assert made.facts.instructions["BAR"] >= 2 and check_words(made.binary, made.symbol)
    alone = target.emit(_roles(lambda: sync.NamedBarrierOp(3, 4, per_group=True), nothing))
    assert "bar.sync 3, 128;" in alone.llvm_text, "one group: an immediate"


def test_roles_that_cannot_run() -> None:
    emit = backend("sm_90a").emit
    with pytest.raises(InternalError, match="some roles only: the warps of two"):
        emit(_roles(sync.BarrierOp, nothing))
    assert emit(_roles(sync.BarrierOp, sync.BarrierOp)).llvm_text.count("barrier.sync 0") == 2
    with pytest.raises(InternalError, match="move by warpgroups"):
        emit(_roles(nothing, nothing, warps=[2, 4], registers=[40, 0]))
    with pytest.raises(InternalError, match="roles want"):
        emit(_too_many())
    with pytest.raises(Misuse, match="roles of 12 warps"):
        emit(_roles(nothing, nothing, groups=[2, 1]))
    with pytest.raises(Misuse, match="barrier 16"):
        emit(_roles(lambda: sync.NamedBarrierOp(16, 4), nothing))
    with pytest.raises(InternalError, match="named barrier 16"):
        emit(_roles(lambda: sync.NamedBarrierOp(15, 2, per_group=True), nothing, warps=[2, 4], groups=[2, 1]))


def test_groups_outside_roles_are_parts_of_the_warps() -> None:
    block = kernel_block([BF16])
    with ImplicitBuilder(block):
        sync.BarrierOp(groups=[1])
        sync.BarrierOp()
        sync.BarrierOp(groups=[0])
        tile.ReturnOp()
    target = backend("sm_90a")
    emitted = target.emit(finish("conditional", block, grid=["1", "1", "1"], warps=4))
    assert emitted.llvm_text.count("barrier.sync 0, 128;") == 3 and "bar.sync 0;" not in emitted.llvm_text
    assert target.assemble(emitted).facts.instructions["BAR"] >= 3


def _too_many() -> KernelOp:
    block = kernel_block([BF16])
    with ImplicitBuilder(block):
        pipe.RolesOp(["a", "b", "c"], [4, 4, 4], [1, 1, 1], [role(nothing) for _ in range(3)], [40, 240, 240])
        tile.ReturnOp()
    return finish("too_many", block, grid=["1", "1", "1"], warps=12)


def test_a_tile_read_in_flight_is_refused() -> None:
    kernel = two_products(128, 64, shape="apart")
    first = next(op for op in kernel.body.walk() if isinstance(op, sync.WaitOp))
    first.detach()
    with pytest.raises(InternalError, match="still writing"):
        backend("sm_90a").emit(kernel)


def test_arrivals_of_agents_of_different_kinds_meet() -> None:
    """A barrier that a copying thread and a group of four warps arrive at: the one stands for four hardware arrivals."""
    block = kernel_block([BF16])
    with ImplicitBuilder(block):
        view = tile.ViewOp(block.args[0], [64, 64], [64, 1], align=16).result
        buffer = slotted([64, 64], (1, 0), 2)
        barrier = sync.MbarrierAllocOp(2, 2).result
        kind = tile.tile_of([64, 64], BF16, accumulator((64, 64)))

        def copy() -> None:
            at = sync.MbarrierSlotOp(barrier, index(1)).result
            sync.MbarrierExpectOp(at, 8192)
            tile.CopyOp(
                view, [index(0), index(0)], [0, 1], pipe.SlotOp(buffer[0], [index(1)], buffer[1]).result, path="bulk_tensor", barrier=at
            )

        def work() -> None:
            tile.LocalStoreOp(
                tile.LoadOp(view, [index(0), index(0)], [0, 1], kind).result, pipe.SlotOp(buffer[0], [index(0)], buffer[1]).result, [0, 0]
            )
            at = sync.MbarrierSlotOp(barrier, index(1)).result
            sync.ArriveOp(at)
            sync.WaitPhaseOp(at, i32(0))

        pipe.RolesOp(["copy", "work"], [4, 4], [1, 1], [role(copy), role(work)])
        tile.ReturnOp()
    target = backend("sm_90a")
    emitted = target.emit(finish("meeting", block, grid=["1", "1", "1"], warps=8))
    assert re.findall(r"mbarrier\.init.*?\(i32 [^,]+, i32 (\d+)\)", emitted.llvm_text) == ["8", "8"]
    assert "mbarrier.expect_tx.relaxed.cta" in emitted.llvm_text and "_, [$0], 4;" in emitted.llvm_text
    assert "bar.warp.sync -1" in emitted.llvm_text
    target.assemble(emitted)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_are_right_by_the_verifier(name: str) -> None:
    """What is compiled here is proven elsewhere, and the proof can fail: without one of its waits or arrivals a program is wrong."""
    kernel = PROGRAMS[name]()
    assert prove(kernel, target_spec("sm_90a")).is_proven
    needed = next(op for op in kernel.body.walk() if isinstance(op, sync.ArriveOp | sync.WaitOp) and op.parent is not None)
    needed.detach()
    assert prove(kernel, target_spec("sm_90a")).findings
