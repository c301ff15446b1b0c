"""Loops that carry the last iteration's number, or the largest so far: in the loop, and behind it."""

import pytest
from hazards.kernels import kernel_of
from verify.class_programs import binary, compared, passed, text

from treadle.verify.check import prove

STEPS = (1, 2, 3)


def status(loop: list[str], behind: list[str], *, bounds: str = "%c0 to %n step %c1", start: str = "%c0") -> str:
    """The verdict on a loop that carries %v and hands on %next; %last is what it ends with."""
    lines = [
        f"  %last = scf.for %i = {bounds} iter_args(%v = {start}) -> (index) {{",
        *(f"  {line}" for line in loop),
        "  scf.yield %next : index\n  }",
        *(f"  {line}" for line in behind),
    ]
    return prove(kernel_of(text(*lines, symbols=("n", "m"), numbers=(4, 5, 6, 7)))).status


def skipped(predicate: str, left: str, right: str) -> list[str]:
    """A tile through shared memory, without a barrier where a comparison holds."""
    return [compared("%skip", predicate, left, right), *passed()]


@pytest.mark.parametrize("step", STEPS)
def test_the_number_before_is_less_than_this_one(step: int) -> None:
    bounds, loop = f"%c0 to %n step %c{step}", ["%next = arith.addi %i, %c0 : index"]
    assert status([*loop, *skipped("sgt", "%v", "%i")], [], bounds=bounds) == "proven"
    assert status([*loop, *skipped("sge", "%v", "%i")], [], bounds=bounds) == "refuted"  # in the first iteration
    apart = binary("%apart", "subi", "%i", "%v")
    assert status([*loop, apart, *skipped("sgt", "%apart", f"%c{step}")], [], bounds=bounds) == "proven"
    assert status([*loop, apart, *skipped("sge", "%apart", f"%c{step}")], [], bounds=bounds) == "refuted"


def test_what_the_first_iteration_begins_with() -> None:
    loop = ["%next = arith.addi %i, %c3 : index"]
    assert status([*loop, *skipped("eq", "%v", "%c7")], [], bounds="%c5 to %n step %c1", start="%c6") == "proven"
    assert status([*loop, *skipped("eq", "%v", "%c6")], [], bounds="%c5 to %n step %c1", start="%c6") == "refuted"
    assert status([*loop, *skipped("eq", "%v", "%m")], [], bounds="%c5 to %n step %c1", start="%m") == "refuted"


@pytest.mark.parametrize("step", STEPS)
def test_behind_the_loop_it_is_the_last_number(step: int) -> None:
    bounds, loop = f"%c1 to %n step %c{step}", ["%next = arith.addi %i, %c1 : index"]
    end = binary("%end", "addi", "%n", "%c1")
    assert status(loop, [end, *skipped("sge", "%last", "%end")], bounds=bounds) == "proven"
    assert status(loop, [end, *skipped("sge", "%last", "%n")], bounds=bounds) == "refuted"
    assert status(loop, [end, *skipped("eq", "%last", "%c1")], bounds=bounds) == "proven"  # none is 0, the first 2
    assert status(loop, [end, *skipped("eq", "%last", "%c0")], bounds=bounds) == "refuted"


def test_a_number_that_goes_on_from_the_start() -> None:
    loop = ["%next = arith.addi %i, %c1 : index"]
    assert status([*loop, *skipped("ne", "%v", "%i")], []) == "proven"
    assert status(loop, skipped("ne", "%last", "%n")) == "proven"
    assert status(loop, skipped("eq", "%last", "%n")) == "refuted"


@pytest.mark.parametrize("order", ["%v, %of", "%of, %v"])
def test_the_largest_so_far(order: str) -> None:
    loop = ["%of = arith.addi %i, %c2 : index", f"%next = arith.maxsi {order} : index"]
    less = binary("%least", "addi", "%i", "%c1")
    assert status([*loop, less, *skipped("slt", "%v", "%c4")], [], start="%c4") == "proven"
    assert status([*loop, less, *skipped("sle", "%v", "%c4")], [], start="%c4") == "refuted"
    assert status([*loop, less, *skipped("slt", "%v", "%least")], [], start="%c4") == "proven"
    assert status([*loop, less, *skipped("sle", "%v", "%least")], [], start="%c4") == "refuted"
    assert status([*loop, less, *skipped("slt", "%next", "%of")], [], start="%m") == "proven"
    assert status([*loop, less, *skipped("sle", "%next", "%of")], [], start="%m") == "refuted"
    end = binary("%end", "addi", "%n", "%c1")
    assert status(loop, [end, *skipped("slt", "%last", "%end")], start="%c1") == "proven"
    assert status(loop, [end, *skipped("sle", "%last", "%end")], start="%c1") == "refuted"


def test_the_least_so_far_of_what_falls() -> None:
    loop = [binary("%of", "subi", "%n", "%i"), "%next = arith.minsi %v, %of : index"]
    least = binary("%least", "addi", "%of", "%c1")
    assert status([*loop, least, *skipped("sgt", "%v", "%least")], [], start="%c0") == "proven"
    assert status([*loop, least, *skipped("sgt", "%v", "%least")], [], start="%m") == "refuted"


def test_the_largest_of_what_falls() -> None:
    loop = [binary("%of", "subi", "%n", "%i"), "%next = arith.maxsi %v, %of : index"]
    assert status([*loop, *skipped("eq", "%v", "%c1")], []) == "proven"  # of one iteration the next sees nothing
    assert status([*loop, *skipped("eq", "%v", "%c2")], []) == "refuted"
    assert status([*loop, *skipped("sgt", "%v", "%n")], []) == "proven"
    assert status(loop, skipped("ne", "%last", "%n")) == "proven"
    assert status(loop, skipped("ne", "%last", "%n"), start="%c1") == "refuted"
