"""Slots that threads read and bulk copies refill are handed back behind a fence of the async proxy; others are not."""

import re

import pytest
from hazards.kernels import kernel_of
from hazards.programs_cluster import exchanged
from hazards.schedules import kernel, roles
from verify.test_elected import HEAD, LOOP, POINTERS, READ, filled, own_copies

from treadle.bench.families import beside, matmul
from treadle.driver.lowering import lower
from treadle.driver.sources import Source
from treadle.options import CompileOptions
from treadle.targets.registry import backend

FENCE, RELEASED = "fence.proxy.async.shared::cta;", re.compile(r"(fence\.proxy\.async\.shared::cta;)?\n?bar\.warp\.sync -1;")


def llvm(text: str) -> str:
    stages = lower(Source(text, "test.mlir"), "sm_90a", CompileOptions(tuned=False), None, texts=True, until="llvm").stages
    return stages["llvm"].replace("\\0A", "\n")


def test_what_an_epilogue_reads_goes_back_behind_a_fence() -> None:
    text = llvm(beside("r", "g", "linear_residual", 8192, 640, 320, "f16").text)
    fenced = [bool(found.group(1)) for found in RELEASED.finditer(text)]
    assert any(fenced)
    assert not all(fenced)  # slots that matrix instructions read


def test_slots_that_matrix_instructions_read_need_none() -> None:
    text = llvm(matmul("m", "g", 8192, 640, 320, "f16").text)
    assert not any(found.group(1) for found in RELEASED.finditer(text))


def test_an_agent_that_reads_what_it_copies_meets_behind_a_fence() -> None:
    text = backend("sm_90a").emit(kernel_of(own_copies("  sync.barrier"))).llvm_text
    assert re.search(r"fence\.proxy\.async\.shared::cta;[^\n]*\n[^\n]*bar\.sync 0;", text)


BETWEEN = ("  sync.named_barrier 1 : i64 warps 4 : i64", '  sync.fence "async_global"')


@pytest.mark.parametrize("between", BETWEEN)
def test_what_ends_in_no_fence_does_not_stand_for_one(between: str) -> None:
    """The producer refills the buffer: barriers among its readers have no fence."""
    producer = [LOOP, "  %q = arith.xori %p, %one : i32", "  sync.wait_phase %empty parity %q", *filled("%s", "%full"), "  }"]
    consumer = [LOOP, *READ, between, "  sync.arrive %empty", "  }"]
    bodies = "\n".join(producer), "\n".join(consumer)
    text = kernel(POINTERS, *HEAD, roles(("producer", "consumer"), (1, 4), (1, 1), *bodies), warps=5, pointers=2)
    emitted = backend("sm_90a").emit(kernel_of(text)).llvm_text.replace("\\0A", "\n")
    assert [bool(found.group(1)) for found in RELEASED.finditer(emitted)] == [True]


def test_arrivals_at_peers_come_behind_a_fence() -> None:
    assert FENCE in backend("sm_90a").emit(kernel_of(exchanged())).llvm_text
