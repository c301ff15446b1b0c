"""Counters of rings: states up to a renaming of slots, against the same proofs without."""

from dataclasses import replace
from random import Random
from time import process_time

import pytest
from hazards.kernels import kernel_of
from verify.ring_counter_programs import FAULTS, LOOP, NUMBER, WRAPPED, Choices, random_choices, text_of

from treadle.ir.core import Operation
from treadle.ir.dialects import arith
from treadle.verify import ring_counters
from treadle.verify.check import prove
from treadle.verify.program import Program
from treadle.verify.ring_values import EXACT, RingValues, Table
from treadle.verify.verify_schedule import COMPILED

SECONDS = 2


@pytest.mark.parametrize("stride", ["g", "5"])
@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("slots", [2, 3, 5, 6, 8])
def test_tiles_of_as_many_steps_as_a_size_says(slots: int, up: bool, stride: str) -> None:
    """With the least effort: one class for each length until the ring is full, not for each residue of sizes."""
    ways = (NUMBER, WRAPPED) if slots % 2 else (WRAPPED, NUMBER)
    start = process_time()
    verdict = prove(kernel_of(text_of(Choices(slots, ways, up=up, stride=stride))))
    assert verdict.is_proven
    assert verdict.classes <= 6 * slots + 10
    assert process_time() - start < SECONDS


@pytest.mark.parametrize("seed", range(20))
def test_random_right_ones_are_proven(seed: int) -> None:
    choices = random_choices(Random(seed))
    if choices.skips and choices.stride == "g":  # which tiles are left out is a residue of a product of sizes
        choices = replace(choices, stride="1")
    assert prove(kernel_of(text_of(choices))).is_proven


def no_counters(operations: "ring_counters.Operations") -> None:
    """Rings are seen as they are."""


def without_counters(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as patched:
        patched.setattr(ring_counters, "ring_counters", no_counters)
        return prove(kernel_of(text)).status


def random_sizes(choices: Choices, random: Random) -> dict[str, int]:
    slots = choices.slots
    n = random.choice((1, 2, 3, 5, slots, 2 * slots + 1, 17)) * (5 if choices.stride == "5" and choices.nested else 1)
    return {"n": n, "m": random.choice((0, 1, 2, slots - 1, slots, slots + 1, 2 * slots)) * (64 if choices.up else 1), "g": 1, "w": 0}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_ones_are_not_proven(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refuted for some numbers without counters is not proven for all with them; for these numbers the verdicts are the same."""
    random = Random(fault)
    for _ in range(2):
        choices = random_choices(random, fault)
        status = prove(kernel_of(text_of(choices))).status
        for _ in range(3):
            numbers = text_of(choices, random_sizes(choices, random))
            plain = without_counters(numbers, monkeypatch)
            assert prove(kernel_of(numbers)).status == plain
            assert plain == "proven" or status != "proven"


def rings_of(text: str) -> list[int]:
    """The slots of the rings whose counters are known."""
    found = Program(kernel_of(text)).rings
    return sorted(ring.slots for ring in found.rings) if found is not None else []


@pytest.mark.parametrize("ways", [(NUMBER, NUMBER), (NUMBER, WRAPPED), (WRAPPED, WRAPPED), (LOOP, NUMBER), (LOOP, LOOP)])
def test_counters_are_found(ways: tuple[str, str]) -> None:
    assert rings_of(text_of(Choices(5, ways, nested=LOOP not in ways))) == [5, 5, 5]


def test_what_is_no_counter() -> None:
    """A parity of another count, a slot that is named, a counter that starts anew with each tile: these rings are seen as they are."""
    right = Choices(5)
    assert rings_of(text_of(replace(right, fault="other quotient"))) == [5, 5]  # the barriers of the role that is right, and the tiles
    assert rings_of(text_of(replace(right, fault="starts anew"))) == []
    shares = text_of(right).replace("tile.alloc :", "tile.alloc at 0 : i64 :")
    assert rings_of(shares) == [5, 5, 5]
    assert rings_of(shares.replace("  %w = tile", f"{_overlay(shares)}\n  %w = tile")) == [5, 5]


def _overlay(text: str) -> str:
    """Another buffer over the ring's first bytes."""
    line = next(line for line in text.splitlines() if "%ring = tile.alloc" in line)
    return line.replace("%ring", "%other")


@pytest.mark.parametrize("seed", range(40))
def test_tables_are_what_operations_compute(seed: int) -> None:
    """Of a count that goes on for ever, what a table says is what comes out, as far as it says something."""
    random = Random(seed)
    count = random.choice((4, 12, 20))
    values = RingValues(count)
    number = arith.ConstantOp.from_int_and_width(0, 64)  # stands for the count
    known: dict[object, Table] = {number.result: (tuple(range(count)), count)}
    made: list[Operation] = []
    for _ in range(8):
        left = random.choice(list(known))
        right = arith.ConstantOp.from_int_and_width(random.randint(1, 8), 64).result
        kind = random.choice((arith.AddiOp, arith.RemUIOp, arith.DivUIOp, arith.AndIOp, arith.ShRUIOp, arith.XOrIOp, arith.MuliOp))
        op = kind(left, right)  # type: ignore[arg-type]
        table = values.result(op, known)  # type: ignore[arg-type]
        if table is not None:
            known[op.results[0]] = table
            made.append(op)
    functions = {"arith.addi": int.__add__, "arith.remui": int.__mod__, "arith.divui": int.__floordiv__, "arith.andi": int.__and__}
    functions |= {"arith.shrui": int.__rshift__, "arith.xori": int.__xor__, "arith.muli": int.__mul__}
    for whole in [random.randint(0, 10_000) for _ in range(30)]:
        numbers: dict[object, int] = {number.result: whole}
        for op in made:
            constant = values.constant(op.operands[1])
            assert constant is not None
            numbers[op.results[0]] = functions[op.name](numbers[op.operands[0]], constant)
            table, modulus = known[op.results[0]]
            found = numbers[op.results[0]]
            assert table[whole % count] == (found if modulus == EXACT else found % modulus)


def test_a_loop_that_only_counts_is_followed() -> None:
    """Nothing is done in it that has to be ordered, and no number of it decides anything: the counter goes on in it."""
    text = text_of(Choices(3, nested=False))
    loop = (
        "  %cc = scf.for %x = %c0 to %c1 step %c1 iter_args(%xx = %c0) -> (index) {\n"
        "  %xy = arith.addi %xx, %c1 : index\n  scf.yield %xy : index\n  }\n"
    )
    head, tail = text.split("scf.for %k1_1", 1)
    at = head.rfind("\n") + 1
    wrong = head[:at] + loop + head[at:] + "scf.for %k1_1" + tail.replace("= %c0)", "= %cc)", 1)
    assert prove(kernel_of(text)).is_proven
    assert prove(kernel_of(wrong)).status == "refuted"


def test_no_effort_makes_the_proof_of_a_short_text_longer() -> None:
    """Which tiles are left out is a residue of a product of sizes: not proven, after the same number of classes."""
    text = text_of(Choices(3, up=True, skips=True))
    verdicts = [prove(kernel_of(text), effort=effort) for effort in (1, COMPILED)]
    assert [verdict.status for verdict in verdicts] == ["not proven"] * 2
    assert verdicts[0].classes == verdicts[1].classes
    assert all(verdict.undecided[0].op.name and verdict.undecided[0].reason for verdict in verdicts)
