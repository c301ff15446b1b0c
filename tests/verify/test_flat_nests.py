"""Iteration i of a loop takes some uses of a ring, as many as its number says, and nothing else: one loop of any number of uses."""

import pytest
from hazards.kernels import kernel_of
from verify.class_programs import binary
from verify.step_programs import FILL, USE, ring, turn

from treadle.verify.check import prove
from treadle.verify.flat_nests import with_flat_nests
from treadle.verify.program import Program

LESS = "  %less = arith.subi %n, %c1 : index"


def nest(body: tuple[str, ...], first: str = "%c0", last: str = "%i", *outer: str, until: str = "%n", counter: str = "%b") -> list[str]:
    """A loop to `until` around one from `first` to `last`; `outer` stands between. The ring's counter goes on in both."""
    return [
        f"  %z = scf.for %i = %c0 to {until} step %c1 iter_args(%b0 = %c0) -> (index) {{",
        *outer,
        f"  %y1 = scf.for %k = {first} to {last} step %c1 iter_args(%b = %b0) -> (index) {{",
        *turn(counter),
        *body,
        "  %b2 = arith.addi %b, %c1 : index\n  scf.yield %b2 : index\n  }\n  scf.yield %y1 : index\n  }",
    ]


TWICE = binary("%last", "muli", "%i", "%c2")
ONE_LESS = binary("%last", "subi", "%i", "%c1")
RIGHT = {
    "as many as the number": ring(nest(FILL), nest(USE)),
    "from the number to a size": ring(nest(FILL, "%i", "%m"), nest(USE, "%i", "%m"), symbols=("n", "m")),
    "from the number to twice of it": ring(nest(FILL, "%i", "%last", TWICE), nest(USE, "%i", "%last", TWICE)),
}
WRONG = {
    "an iteration of the outer loop less": ring(nest(FILL), nest(USE, until="%less"), LESS),
    "a use less in each": ring(nest(FILL), nest(USE, "%c0", "%last", ONE_LESS)),
    "uses from another number on": ring(nest(FILL, "%i", "%m"), nest(USE, "%c0", "%m"), symbols=("n", "m")),
    "slots by the inner number": ring(nest(FILL, counter="%k"), nest(USE, counter="%k")),
    "slots by the outer number": ring(nest(FILL, counter="%i"), nest(USE, counter="%i")),
    "a consumer by the inner number": ring(nest(FILL), nest(USE, counter="%k")),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_nests_are_proven(name: str) -> None:
    verdict = prove(kernel_of(RIGHT[name]))
    assert verdict.is_proven, verdict.first_error("k")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_nests_are_not(name: str) -> None:
    assert not prove(kernel_of(WRONG[name])).is_proven


def is_flat(producer: list[str], consumer: list[str]) -> bool:
    return with_flat_nests(Program(kernel_of(ring(producer, consumer, symbols=("n", "m"))))) is not None


def test_which_nests_are_one_loop() -> None:
    """Those that do nothing else, and of whose numbers nothing is made that decides."""
    plain = ["  scf.for %o = %c0 to %n step %c1 {", *turn("%o"), *USE, "  }"]
    assert is_flat(nest(FILL), plain)
    assert not is_flat(nest(FILL, "%c0", "%m"), plain), "a rectangle is told from its sizes"
    for counter in ("%i", "%k"):
        assert not is_flat(nest(FILL, counter=counter), plain), "a slot by a number of the loops"
    assert not is_flat(nest(FILL, "%c0", "%i", '  sync.sched_fence ["alu"]'), plain), "something else is done"
    group = ("  %group = pipe.group_id", binary("%last", "addi", "%i", "%group"))
    assert not is_flat(nest(FILL, "%c0", "%last", *group), plain), "each group has a number of its own"
    around = ["  scf.for %o = %c0 to %m step %c1 {", *nest(FILL), "  }"]
    assert not is_flat(around, plain), "the ring's counter begins anew"
