"""Loops that are followed once for each start that they are given: only where nothing was said of the class."""

from collections.abc import Callable

import pytest
from hazards.kernels import kernel_of
from verify.class_programs import compared, passed, text

from treadle.ir.dialects import scf
from treadle.verify.check import prove
from treadle.verify.classes import Atoms, Form
from treadle.verify.program import Program
from treadle.verify.reasons import Reason
from treadle.verify.trace import Tracer, remembered
from treadle.verify.trace_state import State

SKIP = "  %skip = arith.constant false"
SOURCE = text(SKIP, "  scf.for %j = %c0 to %c3 step %c1 {", *passed(), "  }", symbols=("n",))


def said(state: State, op: scf.ForOp) -> dict[str, Callable[[], None]]:
    """Ways to say something of the class; `nothing` says nothing."""
    return {
        "nothing": lambda: state.covered.not_negative(Form((), 1)),
        "sign": lambda: state.covered.not_negative(state.atoms.unknown(0)),
        "equation": lambda: state.covered.zero(state.atoms.unknown(0)),
        "rounds": lambda: state.covered.pumped(Form((), 0), ((1, 2),)),
        "reason": lambda: state.commit(Reason((), ())),
        "length": lambda: state.depends(Form((), 0, ((1, 1),)), op),
    }


@pytest.mark.parametrize("what", ["nothing", "sign", "equation", "rounds", "reason", "length"])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_loop_that_says_something_of_the_class_is_followed_each_time(what: str, is_new: bool) -> None:
    """Also where it is not new: in the next run it may be."""
    program = Program(kernel_of(SOURCE))
    state = Tracer(program).state
    state.atoms = Atoms([-1])
    state.begin()
    (op,) = program.loops
    say = said(state, op)[what]
    calls = list[int]()

    def follow() -> None:
        calls.append(len(calls))
        state.out.append(7)
        say()

    run = remembered(state, op, follow)
    if not is_new:
        say()
    for _ in range(3):
        state.out = []
        run()
        assert state.out == [7]
    assert len(calls) == (1 if what == "nothing" else 3)


FIRST = (
    "  %end = scf.for %i = %c0 to %n step %c1 iter_args(%k = %c0) -> (index) {",
    "  %k1 = arith.addi %k, %c1 : index",
    "  %k2 = arith.remui %k1, %c2 : index",
    "  scf.yield %k2 : index\n  }",
)


@pytest.mark.parametrize(("skipped", "status"), [("%m", "refuted"), ("%c3", "proven")])
def test_the_same_start_for_other_sizes(skipped: str, status: str) -> None:
    """A loop behind another one, which begins with the same numbers for many sizes, but compares with another size."""
    lines = (
        *FIRST,
        "  scf.for %j = %end to %c2 step %c1 {",
        compared("  %skip", "eq", "%j", skipped),
        *passed(),
        "  }",
    )
    assert prove(kernel_of(text(*lines, symbols=("n", "m")))).status == status
