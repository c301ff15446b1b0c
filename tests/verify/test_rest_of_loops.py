"""Inner loops to what is left of the loop around them, as `min(3, n - i)`, from its number on, or with a guard: one class for each
remainder, whatever the size.
"""

from collections.abc import Sequence

import pytest
from hazards.kernels import kernel_of
from hazards.schedules import ACC_LAYOUT, ROWS_LAYOUT, alloc, load, local_load, local_store, slot, store
from verify.class_programs import TILE, text

from treadle.verify.check import prove

SLOTS = 3
BARRIER = ("  sync.barrier",)
RESTS = {
    "least": ("%left = arith.subi %n, %i : index", "%rest = arith.minsi %c3, %left : index"),
    "least-of-two": ("%left = arith.subi %n, %i : index", "%rest = arith.minsi %left, %c3 : index"),
    "selected": (
        "%left = arith.subi %n, %i : index",
        "%is_short = arith.cmpi slt, %left, %c3 : index",
        "%rest = arith.select %is_short, %left, %c3 : index",
    ),
    "selected-otherwise": (
        "%left = arith.subi %n, %i : index",
        "%is_whole = arith.cmpi sge, %left, %c3 : index",
        "%rest = arith.select %is_whole, %c3, %left : index",
    ),
    "affine": ("%rest = affine.min affine_map<(d0)[s0] -> (3, s0 - d0)>(%i)[%n]",),
    "end": ("%next = arith.addi %i, %c3 : index", "%end = arith.minsi %next, %n : index", "%rest = arith.subi %end, %i : index"),
}
WRITE = (
    slot("%w", "%ring", (SLOTS,), "%j"),
    load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
    local_store("%x", "%w", ROWS_LAYOUT),
)
READ = (
    slot("%r", "%ring", (SLOTS,), "%j"),
    local_load("%y", "%r", ACC_LAYOUT),
    store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
)


def inner(*body: str) -> tuple[str, ...]:
    """A loop over the slots that are left."""
    return ("  scf.for %j = %c0 to %rest step %c1 {", *body, "  }")


def status(rest: str, body: Sequence[str], step: int = SLOTS) -> str:
    """The verdict on a kernel whose outer loop has this body."""
    loop = (f"  scf.for %i = %c0 to %n step %c{step} {{", *(f"  {line}" for line in RESTS[rest]), *body, "  }")
    return prove(kernel_of(text(alloc("%ring", SLOTS), *loop, symbols=("n",)))).status


@pytest.mark.parametrize("rest", RESTS)
def test_a_loop_that_fills_slots_and_one_that_reads_them(rest: str) -> None:
    assert status(rest, (*inner(*WRITE), *BARRIER, *inner(*READ), *BARRIER)) == "proven"
    assert status(rest, (*inner(*WRITE), *inner(*READ), *BARRIER)) == "refuted"
    assert status(rest, (*inner(*WRITE), *BARRIER, *inner(*READ))) == "refuted"


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("rest", RESTS)
def test_a_slot_is_free_once_the_next_ones_were_passed(rest: str, step: int) -> None:
    assert status(rest, inner(*WRITE, *BARRIER, *READ), step) == "proven"
    assert status(rest, inner(*WRITE, *READ, *BARRIER), step) == "refuted"


TILES = ("%next = arith.addi %i, %c3 : index", "%end = arith.minsi %next, %n : index")
SLOT = ("  %turn = arith.remui %j, %c3 : index",)
GUARDS = {
    "number": ("%i", "%next", "%j"),
    "sum": ("%c0", "%c3", "%at"),
}


def turned(body: Sequence[str]) -> tuple[str, ...]:
    """The same with slots by the number modulo their count."""
    return (*SLOT, *(line.replace("%ring[%j]", "%ring[%turn]") for line in body))


def over_tiles(first: str, last: str, *bodies: Sequence[str]) -> str:
    """The verdict on inner loops from `first` to `last`, barriers behind each but the last."""
    loops = [(f"  scf.for %j = {first} to {last} step %c1 {{", *turned(body), "  }") for body in bodies]
    lines = [line for at, loop in enumerate(loops) for line in (*(BARRIER if at else ()), *loop)]
    loop = ("  scf.for %i = %c0 to %n step %c3 {", *(f"  {line}" for line in TILES), *lines, "  }")
    return prove(kernel_of(text(alloc("%ring", SLOTS), *loop, symbols=("n",)))).status


@pytest.mark.parametrize("last", ["%next", "%end"])
def test_loops_from_the_number_of_the_loop_around(last: str) -> None:
    assert over_tiles("%i", last, (*WRITE, *BARRIER, *READ)) == "proven"
    assert over_tiles("%i", last, (*WRITE, *READ, *BARRIER)) == "refuted"
    assert over_tiles("%i", last, WRITE, (*READ, *BARRIER)) == "proven"
    assert over_tiles("%i", last, WRITE, READ) == "refuted"


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_in_the_inner_loop(guard: str) -> None:
    first, last, compared = GUARDS[guard]
    inside = ("  %at = arith.addi %i, %j : index", f"  %inside = arith.cmpi slt, {compared}, %n : index", "  scf.if %inside {")
    assert over_tiles(first, last, (*inside, *WRITE, *BARRIER, *READ, "  }")) == "proven"
    assert over_tiles(first, last, (*inside, *WRITE, *READ, *BARRIER, "  }")) == "refuted"
    assert over_tiles(first, last, (*WRITE, *inside, *BARRIER, "  }", *READ, *BARRIER)) == "refuted", "only behind the end"


@pytest.mark.parametrize("rows", [1, 3, 6])
@pytest.mark.parametrize("most", [2, 4])
def test_three_loops(rows: int, most: int) -> None:
    """What a loop of few iterations chooses is known in the loop around it, too."""
    head = (
        f"  scf.for %h = %c0 to %n step %c{rows} {{",
        f"  %end = arith.addi %h, %c{rows} : index",
        "  scf.for %i = %h to %end step %c1 {",
        "  %left = arith.subi %n, %i : index",
        f"  %rest = arith.minsi %left, %c{most} : index",
    )
    slots = ([turned(WRITE), turned(READ)], [turned((*WRITE, *READ)), ()])
    found: list[str] = []
    for (first, second), between in ((slots[0], BARRIER), (slots[0], ()), (slots[1], BARRIER)):
        loops = (*inner(*first), *between, *(inner(*second) if second else ()), *BARRIER)
        lines = (alloc("%ring", SLOTS), *head, *loops, "  }", "  }")
        found.append(prove(kernel_of(text(*lines, symbols=("n",), numbers=(4, 6)))).status)
    assert found == ["proven", "refuted", "refuted"]
