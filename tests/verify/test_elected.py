"""What one thread does for its team orders that thread's warp alone: the others' accesses have to be ordered by themselves."""

from dataclasses import replace

import pytest
from hazards.kernels import kernel_of
from hazards.schedules import ACC_LAYOUT, TILE_BYTES, alloc, array, constants, kernel, local_load, roles, store, tma, view

from treadle.verify.check import prove
from treadle.verify.program import Program, Strand

TILE = array(64, 64)
POINTERS = "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>"
HEAD = (
    "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
    "  %empty = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
    view("%va", "%a", 64, 64),
    view("%vc", "%c", 64, 64),
    constants(0, 1, 2, 4),
    "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32",
    alloc("%s", at=0),
    alloc("%t", at=TILE_BYTES),
)
LOOP = "  scf.for %i = %c0 to %c4 step %c1 {\n  %i2 = arith.remui %i, %c2 : index\n  %p = arith.index_cast %i2 : index to i32"
READ = (
    "  sync.wait_phase %full parity %p",
    local_load("%y", "%s", ACC_LAYOUT),
    store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
)


def filled(destination: str, barrier: str) -> tuple[str, ...]:
    """A copy by the elected thread, with the bytes that it brings."""
    return f"  sync.mbarrier_expect {barrier} bytes {TILE_BYTES} : i64", tma("%va", TILE, "%c0, %c0", destination, barrier)


def own_copies(meeting: str) -> str:
    """All warps read what the elected thread copies, into one buffer in turn: its own warp has read the last tile when it does."""
    return kernel(POINTERS, *HEAD, LOOP, *filled("%s", "%full"), *READ, meeting, "  }", pointers=2)


def own_release(meeting: str) -> str:
    """The elected thread of the readers hands the buffer back, by its arrival at a barrier for a copy of its own."""
    producer = [LOOP, "  %q = arith.xori %p, %one : i32", "  sync.wait_phase %empty parity %q", *filled("%s", "%full"), "  }"]
    producer.append("  sync.wait_phase %empty parity %one")
    consumer = [LOOP, *READ, meeting, *filled("%t", "%empty"), "  }"]
    bodies = "\n".join(producer), "\n".join(consumer)
    return kernel(POINTERS, *HEAD, roles(("producer", "consumer"), (1, 4), (1, 1), *bodies), warps=5, pointers=2)


KERNELS = {"own copies": (own_copies, "  sync.barrier"), "own release": (own_release, "  sync.named_barrier 1 : i64 warps 4 : i64")}


@pytest.mark.parametrize("name", KERNELS)
def test_the_other_warps_have_to_meet_the_elected_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One strand for the whole team would not show it: with the elected thread's order alone the kernel looks right."""
    written, meeting = KERNELS[name]
    assert prove(kernel_of(written(meeting))).is_proven
    wrong = kernel_of(written(""))
    found = prove(wrong).findings[0]
    assert found.first is not None
    assert (found.rule, found.first.op.name, found.second.op.name) == ("V3", "tile.local_load", "tile.copy")

    def one_strand(self: Program, strands: list[Strand], whole: Strand) -> None:
        strands.append(replace(whole, number=len(strands)))

    monkeypatch.setattr(Program, "_add_team", one_strand)
    assert prove(wrong).is_proven
