"""Slot values of real loops against their execution: every claim holds in every iteration, and the exact ones are exact."""

from typing import Any

import pytest

from treadle.analysis.slot_motion import LoopMotion
from treadle.analysis.slot_values import SlotValues, Trip, Trips
from treadle.analysis.slots import Atom, Congruence, Linear, Quotient, atom, exactly, same
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.ir.text import parse_module
from treadle.sim.values import operation_function

INTEGERS = (builtin.IndexType, builtin.IntegerType)

Environment = dict[Atom, int]


def evaluate(form: Linear, env: Environment) -> int:
    total = form.constant
    for a, c in form.terms:
        total += c * (evaluate(a.numerator, env) // a.divisor if isinstance(a, Quotient) else env[a])
    return total


class Run:
    """Executes a function on integers; `seen` holds every value with the environment it was computed in."""

    def __init__(self, text: str, *arguments: int) -> None:
        module = parse_module(text, "test")
        (self.function,) = (op for op in module.walk() if op.name == "func.func")
        block = self.function.regions[0].block
        self.env: Environment = dict(zip(block.args, arguments, strict=True))
        self.seen: list[tuple[SSAValue, int, Environment]] = []
        self.block(block)

    def give(self, value: SSAValue, result: Any) -> None:
        self.env[value] = int(result)
        self.seen.append((value, int(result), dict(self.env)))

    def block(self, block: Block) -> list[int]:
        for op in block.ops:
            if isinstance(op, scf.ForOp):
                self.loop(op)
            elif isinstance(op, scf.IfOp):
                taken = self.block(op.regions[0 if self.env[op.cond] else 1].block)
                for result, value in zip(op.results, taken, strict=True):
                    self.give(result, value)
            elif op is block.last_op:
                return [self.env[v] for v in op.operands]
            else:
                self.give(op.results[0], operation_function(op)(*(self.env[v] for v in op.operands)))
        return []

    def loop(self, op: scf.ForOp) -> None:
        values = [self.env[v] for v in op.iter_args]
        low, high, step = (self.env[v] for v in (op.lb, op.ub, op.step))
        count = 0
        for i in range(low, high, step):
            self.env[Trip(op)] = count
            self.give(op.body.block.args[0], i)
            for argument, value in zip(op.body.block.args[1:], values, strict=True):
                self.give(argument, value)
            values = self.block(op.body.block)
            count += 1
        self.env[Trips(op)] = count
        for result, value in zip(op.results, values, strict=True):
            self.give(result, value)


def holds(known: Congruence, value: int, env: Environment) -> bool:
    difference = value - evaluate(known.form, env)
    fits = difference % known.modulus == 0 if known.modulus else difference == 0
    return fits and (not known.bound or 0 <= value < known.bound)


WRAP = "%n1 = arith.addi {0}, %one : index\n%w = arith.cmpi eq, %n1, %n : index\n%next = arith.select %w, %zero, %n1 : index"
BODIES = {
    "wrap by equality": ("%s = %two", WRAP.format("%s"), "%next"),
    "wrap by inequality": (
        "%s = %two",
        "%n1 = arith.addi %s, %one : index\n%w = arith.cmpi ne, %n1, %n : index\n%next = arith.select %w, %n1, %zero : index",
        "%next",
    ),
    "wrap by subtraction": (
        "%s = %two",
        "%n1 = arith.addi %s, %two : index\n%w = arith.cmpi sge, %n1, %n : index\n%m = arith.subi %n1, %n : index\n"
        "%next = arith.select %w, %m, %n1 : index",
        "%next",
    ),
    "rotation": ("%s = %zero, %t = %one, %u = %two", "", "%t, %u, %s"),
    "counter": ("%s = %two", "%next = arith.addi %s, %one : index", "%next"),
    "remainder": ("%s = %two", "%n1 = arith.addi %s, %one : index\n%next = arith.remui %n1, %n : index", "%next"),
    "branch": (
        "%s = %two",
        "%n1 = arith.addi %s, %one : index\n%w = arith.cmpi eq, %n1, %n : index\n%back = arith.subi %n1, %n : index\n"
        "%next = scf.if %w -> (index) {\nscf.yield %back : index\n} else {\nscf.yield %n1 : index\n}",
        "%next",
    ),
    "irregular": ("%s = %one", "%next = arith.muli %s, %s : index", "%next"),
}


def loop_text(name: str, slots: int) -> str:
    args, body, yields = BODIES[name]
    count = args.count("=")
    types = ", ".join(["index"] * count)
    return f"""
func.func @f(%lb: index, %ub: index) {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %four = arith.constant 4 : index
  %n = arith.constant {slots} : index
  %r:{count} = scf.for %i = %lb to %ub step %four iter_args({args}) -> ({types}) {{
    {body}
    %d = arith.divui %i, %four : index
    %dd = arith.addi %d, %two : index
    %slot = arith.remui %dd, %n : index
    %odd = arith.andi %d, %one : index
    %flip = arith.xori %odd, %one : index
    scf.yield {yields} : {types}
  }}
  %after = arith.addi %r#0, %one : index
  %later = arith.remui %after, %n : index
  func.return
}}"""


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 7), (0, 36), (3, 40), (9, 2)])
def test_claims_hold_in_execution(name: str, low: int, high: int) -> None:
    slots = 5 if name != "irregular" else 3
    run = Run(loop_text(name, slots), low, high)
    values = SlotValues()
    for value, result, env in run.seen:
        if isinstance(value.type, INTEGERS):
            assert holds(values.of(value), result, env), f"{value} = {result} is not {values.of(value)}"


@pytest.mark.parametrize("name", [n for n in BODIES if n != "irregular"])
def test_regular_slots_are_forms_of_the_iteration(name: str) -> None:
    """All of them are told apart exactly, from each other and from earlier iterations."""
    text = loop_text(name, 5 if name != "rotation" else 3)
    function = Run(text, 0, 8).function
    (loop,) = (op for op in function.walk() if isinstance(op, scf.ForOp))
    values, slots = SlotValues(), 5 if name != "rotation" else 3
    slot = values.of(loop.body.block.args[1]).within(slots)
    trip = exactly(atom(Trip(loop)))
    speed = 2 if name == "wrap by subtraction" else 1
    start = 0 if name == "rotation" else 2
    expected = (trip.scaled(speed) + exactly(Linear(start))).remainder(slots)
    motion = LoopMotion(loop, values)
    assert same(slot, expected, slots) == "always"
    for _ in range(1, slots):
        slot = motion.around(slot)
        assert same(slot, expected, slots) == "never"
    assert same(motion.around(slot), expected, slots) == "always"


def test_slots_from_before_the_loop_meet_those_of_it() -> None:
    """What a prologue left in slot 3 is what iteration 1 finds in `(i + 2) mod 5`, whatever the number of iterations."""
    function = Run(loop_text("wrap by equality", 5), 0, 8).function
    (loop,) = (op for op in function.walk() if isinstance(op, scf.ForOp))
    values = SlotValues()
    motion = LoopMotion(loop, values)
    read = values.of(loop.body.block.args[1]).within(5)
    left = motion.enter(exactly(Linear(3)).within(5), motion.velocity(read))
    assert [same(left, read, 5), same(motion.around(left), read, 5)] == ["never", "always"]
    result = values.of(loop.results[0]).within(5)
    assert same(motion.leave(motion.around(left)), result, 5) == "always"


NESTED = """
func.func @f(%t: index, %k: index) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 3 : index
  %o = scf.for %a = %zero to %t step %one iter_args(%s = %zero) -> (index) {
    %in = scf.for %b = %zero to %k step %one iter_args(%c = %s) -> (index) {
      %n1 = arith.addi %c, %one : index
      %w = arith.cmpi eq, %n1, %n : index
      %next = arith.select %w, %zero, %n1 : index
      scf.yield %next : index
    }
    scf.yield %in : index
  }
  func.return
}"""


@pytest.mark.parametrize(("outer", "inner"), [(0, 0), (3, 2), (4, 3), (2, 7)])
def test_counters_carried_through_nested_loops(outer: int, inner: int) -> None:
    run = Run(NESTED, outer, inner)
    values = SlotValues()
    for value, result, env in run.seen:
        if isinstance(value.type, INTEGERS):
            assert holds(values.of(value), result, env)
    loops = [op for op in run.function.walk() if isinstance(op, scf.ForOp)]
    carried, start = values.of(loops[1].body.block.args[1]), values.of(loops[0].body.block.args[1])
    assert same((start + exactly(atom(Trip(loops[1])))).remainder(3), carried.within(3), 3) == "always"
    # Around the outer loop the counter has gone on by the inner trips, a size: the slot of an outer iteration ago is known relative to it.
    back = LoopMotion(loops[0], values).around(start.within(3))
    gone = exactly(atom(loops[1].ub))
    assert same((back + gone).remainder(3), start.within(3), 3) == "always"
