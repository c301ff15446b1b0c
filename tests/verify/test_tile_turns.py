"""Tiles that sets of warps take in turn: rings that go on by a size, stores of tiles by rounds; right ones proven, wrong ones not."""

from collections.abc import Callable

import pytest
from language.persistent_products import SMALL, lowered, plain

from treadle.dialects import pipe, sync, tile
from treadle.ir.core import BlockArgument, Operation
from treadle.ir.dialects import arith, builtin, scf
from treadle.verify.check import prove
from treadle.verify.program import Program
from treadle.verify.stores_apart import ASSUMED, stores_apart


def ping_pong() -> tile.KernelOp:
    return lowered(plain, 304, 304, 304, stages=2, GROUPS=2, **SMALL)[0]


def sizes_of(kernel: tile.KernelOp) -> list[Operation]:
    """The sums by which slots go on behind the tiles of the other set."""
    rings = Program(kernel).rings
    assert rings is not None
    return [use.operation for size in rings.sizes() for use in size.uses if use.operation.name == "arith.addi"]


def changed_by(op: Operation, at: int, number: int) -> None:
    """Let an operand be more by a number."""
    block, more = op.parent, arith.ConstantOp(builtin.IntegerAttr(number, builtin.IndexType()))
    total = arith.AddiOp(op.operands[at], more.result)
    assert block is not None
    block.insert_ops_before([more, total], op)
    op.operands[at] = total.result


def test_counters_that_go_on_by_a_size() -> None:
    """Each consumer's goes on by the steps of the other's tile; the proof needs few classes, for sizes are known modulo nothing."""
    kernel = ping_pong()
    rings = Program(kernel).rings
    assert rings is not None
    assert len(rings.counters) == 3 + 2
    assert sorted(ring.slots for ring in rings.rings) == [1, 1, 2, 2, 2, 2]
    assert len(rings.sizes()) == 2
    assert {step.times for steps in rings.steps.values() for step in steps} == {0, 1}
    verdict = prove(kernel, effort=16)
    assert verdict.is_proven
    assert verdict.classes <= 80


@pytest.mark.parametrize("number", [1, 2])
def test_slots_that_go_on_too_far(number: int) -> None:
    kernel = ping_pong()
    (op, *_) = sizes_of(kernel)
    changed_by(op, 1, number)
    assert not prove(kernel).is_proven


def changed_turn(kernel: tile.KernelOp, change: str) -> None:
    """Something about the waits by which the sets take turns: their first parity, or that it changes with each tile."""
    loop = consumers(kernel)[0]
    parity = next(op.parity for op in loop.walk() if isinstance(op, sync.WaitPhaseOp) and isinstance(op.parity, BlockArgument))
    at = list(loop.body.block.args).index(parity)
    if change == "first":
        flipped = arith.ConstantOp(builtin.IntegerAttr(0, builtin.i32))
        assert loop.parent is not None
        loop.parent.insert_op_before(flipped, loop)
        loop.operands[2 + at] = flipped.result
    else:
        end = loop.body.block.last_op
        assert end is not None
        end.operands[at - 1] = parity


@pytest.mark.parametrize("change", ["first", "same"])
def test_turns_that_are_not_taken(change: str) -> None:
    """Waits whose parity is wrong, from the beginning or from the second tile on."""
    kernel = ping_pong()
    changed_turn(kernel, change)
    assert not prove(kernel).is_proven


@pytest.mark.parametrize(("factor", "is_right"), [(3, False), (5, True)])
def test_slots_that_go_on_by_multiples(factor: int, is_right: bool) -> None:
    """Slots and phases of two slots come round in four uses: five times the steps are as good as once, three times are not."""
    kernel = ping_pong()
    for op in sizes_of(kernel):
        block, times = op.parent, arith.ConstantOp(builtin.IntegerAttr(factor, builtin.IndexType()))
        product = arith.MuliOp(op.operands[1], times.result)
        assert block is not None
        block.insert_ops_before([times, product], op)
        op.operands[1] = product.result
    assert prove(kernel, effort=16).is_proven == is_right


def test_slots_that_go_on_by_another_size() -> None:
    """As many uses as an array has rows: that is no tile's number of steps."""
    kernel = ping_pong()
    by_rows = next(arg for arg in kernel.body.block.args if arg.name_hint == "a_size0")
    for op in sizes_of(kernel):
        op.operands[1] = by_rows
    assert not prove(kernel).is_proven


def consumers(kernel: tile.KernelOp) -> list[scf.ForOp]:
    """The loops over tiles of both sets."""
    (roles,) = (op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    return [next(op for op in role.block.ops if isinstance(op, scf.ForOp) and op.walk() and _stores(op)) for role in roles.roles[1:]]


def _stores(loop: scf.ForOp) -> bool:
    return any(isinstance(op, tile.CopyOutOp) for op in loop.walk())


def same_tiles(kernel: tile.KernelOp) -> None:
    one, other = consumers(kernel)
    other.operands[0] = one.lb


def every_tile(kernel: tile.KernelOp) -> None:
    for loop in consumers(kernel):
        one = arith.ConstantOp(builtin.IntegerAttr(1, builtin.IndexType()))
        assert loop.parent is not None
        loop.parent.insert_op_before(one, loop)
        loop.operands[2] = one.result


@pytest.mark.parametrize("change", [same_tiles, every_tile])
def test_sets_that_store_the_same_tiles(change: Callable[[tile.KernelOp], None]) -> None:
    """What is known of tiles by rounds tells the sets' tiles apart, and no more than that."""
    right = ping_pong()
    known = stores_apart(Program(right, stores=True))
    assert known is not None
    assert all(why != ASSUMED for _, why in known)
    wrong = ping_pong()
    change(wrong)
    found = stores_apart(Program(wrong, stores=True))
    assert found is None or any(why == ASSUMED for _, why in found)
