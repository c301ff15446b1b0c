"""What docs/schedule.md says lies outside the exact fragment: right programs that are not proven, each naming what was not decided.

One that is proven some day moves to the right programs of `test_classes.py`, and its line leaves the document.
"""

import pytest
from hazards.kernels import kernel_of
from verify.class_programs import LOADED, binary, compared, loaded, once, passed, text
from verify.step_programs import FILL, USE, ring, turn

from treadle.verify.check import prove


def triangular(body: tuple[str, ...], *before: str) -> list[str]:
    """Iteration i takes i uses of a ring, whose counter both loops carry; `before` them it does something else."""
    return [
        "  %z = scf.for %i = %c0 to %n step %c1 iter_args(%b0 = %c0) -> (index) {",
        *before,
        "  %y1 = scf.for %k = %c0 to %i step %c1 iter_args(%b = %b0) -> (index) {",
        *turn("%b"),
        *body,
        "  %b2 = arith.addi %b, %c1 : index\n  scf.yield %b2 : index\n  }\n  scf.yield %y1 : index\n  }",
    ]


def doubled() -> list[str]:
    """What the loop carries is doubled in each iteration, and the tile's barrier left out where it is zero: never."""
    return [
        "  %last = scf.for %i = %c0 to %n step %c1 iter_args(%v = %c1) -> (index) {",
        compared("%skip", "eq", "%v", "%c0"),
        *passed(),
        "  %next = arith.muli %v, %c3 : index\n  scf.yield %next : index\n  }",
    ]


def either_way() -> str:
    """The consumer hands its slot back on both sides of a condition on data."""
    arrive, data = USE[-1], [line.replace("%f", "%u0") for line in (*LOADED, f"  {loaded('%u')}")]
    use = (*USE[:-1], *data, f"  scf.if %u {{\n{arrive}\n  }} else {{\n{arrive}\n  }}")
    producer, consumer = (["  scf.for %i = %c0 to %n step %c1 {", *turn("%i"), *body, "  }"] for body in (FILL, use))
    return ring(producer, consumer)


def no_such_product(factor: str) -> str:
    """The barrier is left out where n times a factor is a number that is neither a square nor a multiple of 4: never."""
    return once(binary("%product", "muli", "%n", factor), compared("%skip", "eq", "%product", "%c6"), symbols=("n",), numbers=(4, 6))


LIMITS = {
    "products of sizes": no_such_product("%n"),
    "what loops carry is multiplied": text(*doubled(), symbols=("n",)),
    "synchronisation behind conditions on data": either_way(),
    "counters of triangular loops that do something else": ring(triangular(FILL), triangular(USE, '  sync.sched_fence ["alu"]')),
}


@pytest.mark.parametrize("name", LIMITS)
def test_right_programs_outside_the_exact_fragment(name: str) -> None:
    verdict = prove(kernel_of(LIMITS[name]))
    assert verdict.status == "not proven" and not verdict.findings
    left = verdict.undecided[0]
    assert left.op.name and left.reason


def test_the_same_within_it() -> None:
    """Each but for what puts it outside is proven, so that no other fault is what the verdicts above are about."""
    producer, consumer = ([line.replace("to %i step", "to %c5 step") for line in triangular(body)] for body in (FILL, USE))
    within = {
        "products with constants": no_such_product("%c4"),
        "what loops carry grows evenly": text(*[line.replace("muli", "addi") for line in doubled()], symbols=("n",)),
        "rectangular loops": ring(producer, consumer),
    }
    assert {name: prove(kernel_of(body)).status for name, body in within.items()} == dict.fromkeys(within, "proven")
