"""What docs/schedule.md says lies outside the exact fragment: right programs that are not proven, each naming what was not decided.

One that is proven some day moves to the right programs of `test_classes.py`, and its line leaves the document.
"""

import pytest
from hazards.kernels import kernel_of
from hazards.programs_global import on_grid, one, strided, update, view_of
from verify.class_programs import LOADED, binary, compared, loaded, once, passed, text
from verify.step_programs import FILL, USE, ring, turn

from treadle.dialects import tile
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


def quotient(divisor: str, grid: str) -> str:
    """The barrier is left out where the workgroup's id over a number is no less than m: never."""
    return once(binary("%row", "divui", "%p", divisor), compared("%skip", "sge", "%row", "%m"), symbols=("n", "m"), grid=grid, numbers=(4,))


def shifted(predicate: str) -> str:
    """The barrier is left out where 1 shifted by n, or n by 1, is 3."""
    return once(binary("%bit", "shli", *(("%c1", "%n") if predicate == "by a size" else ("%n", "%c1"))), THREE, symbols=("n",))


def stops(limit: str) -> list[str]:
    """What the loop carries grows up to iteration `limit`, and the tile's barrier is left out where it is larger: never."""
    return [
        "  %last = scf.for %i = %c0 to %n step %c1 iter_args(%v = %c0) -> (index) {",
        compared("%skip", "sgt", "%v", limit),
        *passed(),
        compared("%goes", "slt", "%i", limit),
        "  %more = arith.addi %v, %c1 : index\n  %next = arith.select %goes, %more, %v : index",
        "  scf.yield %next : index\n  }",
    ]


def from_tile(distance: str) -> str:
    """Tile t, of those in turns of a size, is stored where it was, and loaded `distance` before that: both are of one workgroup."""
    kind = strided(("%n", 64), (64, 1))
    lines = ["  %w = tile.program_id 0 : i64\n  %first = arith.addi %w, %g : index", view_of("%v", ("%n", 64), (64, 1))]
    lines += ["  scf.for %t = %first to %n step %g {", binary("%s", "subi", "%t", distance), binary("%q", "muli", "%s", "%c64")]
    return on_grid(one(*lines, binary("%o", "muli", "%t", "%c64"), update("%q, %c0", kind, back="%o, %c0"), "  }", symbols=("n", "g")), "g")


def comes_round(bits: int) -> str:
    """Both roles go round the first two slots of a ring by a counter of so many bits, which begins anew at zero."""
    numbers = [f"  %k{number} = arith.constant {number} : i{bits}" for number in (0, 1, 2)]

    def side(body: tuple[str, ...]) -> list[str]:
        parts = [
            binary(f"%{name}", kind, *of, f"i{bits}") for name, kind, of in (("s0", "remui", ("%b", "%k2")), ("q0", "divui", ("%b", "%k2")))
        ]
        casts = [binary("%h0", "remui", "%q0", "%k2", f"i{bits}"), f"  %s = arith.index_castui %s0 : i{bits} to index"]
        casts += [f"  %h = arith.index_castui %h0 : i{bits} to index\n  %p = arith.index_cast %h : index to i32"]
        head = f"  %z = scf.for %i = %c0 to %n step %c1 iter_args(%b = %k0) -> (i{bits}) {{"
        return [head, *parts, *casts, *turn("%b")[2:], *body, f"  %b2 = arith.addi %b, %k1 : i{bits}\n  scf.yield %b2 : i{bits}\n  }}"]

    return ring(side(FILL), side(USE), *numbers)


THREE = compared("%skip", "eq", "%bit", "%c3")
LIMITS = {
    "quotients by sizes": quotient("%n", "n * m"),
    "shifts by sizes": shifted("by a size"),
    "counters that stop at a size": text(*stops("%m"), symbols=("n", "m")),
    "a tile before, in turns of a size": from_tile("%g"),
    "products of sizes": no_such_product("%n"),
    "what loops carry is multiplied": text(*doubled(), symbols=("n",)),
    "synchronisation behind conditions on data": either_way(),
    "counters that come round late": comes_round(16),
    "counters of triangular loops that do something else": ring(triangular(FILL), triangular(USE, '  sync.sched_fence ["alu"]')),
}


@pytest.mark.parametrize("name", LIMITS)
def test_right_programs_outside_the_exact_fragment(name: str) -> None:
    verdict = prove(kernel_of(LIMITS[name]))
    assert verdict.status == "not proven" and not verdict.findings
    left = verdict.undecided[0]
    assert not isinstance(left.op, tile.KernelOp) and left.reason


def test_the_same_within_it() -> None:
    """Each but for what puts it outside is proven, so that no other fault is what the verdicts above are about."""
    producer, consumer = ([line.replace("to %i step", "to %c5 step") for line in triangular(body)] for body in (FILL, USE))
    within = {
        "quotients by constants": quotient("%c4", "4 * m"),
        "shifts by constants": shifted("by one"),
        "counters that stop at a number": text(*stops("%c3"), symbols=("n",)),
        "the same tile, in turns of a size": from_tile("%c0"),
        "products with constants": no_such_product("%c4"),
        "what loops carry grows evenly": text(*[line.replace("muli", "addi") for line in doubled()], symbols=("n",)),
        "counters that come round soon": comes_round(8),
        "rectangular loops": ring(producer, consumer),
    }
    assert {name: prove(kernel_of(body)).status for name, body in within.items()} == dict.fromkeys(within, "proven")
