"""Operations of the `tile` dialect on counters that workgroups of one launch share: who of them is the last, and whose turn it is.

See docs/schedule.md, "Arrivals" and "Turns".
"""

from collections.abc import Sequence
from typing import ClassVar

from treadle.dialects.effects import Effect, HasEffects, Slice
from treadle.dialects.limits import check_is_straight, check_one_of
from treadle.dialects.tile_attributes import is_shared
from treadle.dialects.tile_boxes import view_slice
from treadle.dialects.tile_types import memref_type
from treadle.ir.core import (
    IRDLOperation,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    var_operand_def,
)
from treadle.ir.dialects import builtin

MEMORY_ORDERS = ("relaxed", "release", "acquire", "acq_rel")
"""What an arrival says about other memory, in the words of C++ and PTX; between all workgroups of the device."""


class CounterOp(IRDLOperation, HasEffects):
    """What a workgroup does, once, at an element of a view of counters, at which `count` workgroups do so."""

    counters = operand_def(builtin.MemRefType)
    offsets = var_operand_def(builtin.IndexType)
    count = operand_def(builtin.IndexType)

    def verify_(self) -> None:
        kind = memref_type(self.counters)
        if is_shared(kind) or kind.element_type != builtin.i32:
            raise VerifyException(f"{self.name} counts in a view of i32, got {kind}")
        if len(self.offsets) != len(kind.get_shape()):
            raise VerifyException(f"{self.name} needs {len(kind.get_shape())} offsets, got {len(self.offsets)}")
        check_is_straight(self, "each workgroup arrives once (in a role, each of its groups)", in_role=True)

    @property
    def releases(self) -> bool:
        """Whether it passes on what was done before it."""
        return False

    @property
    def acquires(self) -> bool:
        """Whether it takes over what was passed on at the counter."""
        return False

    def effects(self) -> tuple[Effect, ...]:
        box = view_slice(self.offsets, (), ())
        return (Effect(self.counters, "read", box), Effect(self.counters, "write", box))


@irdl_op_definition
class ArriveLastOp(CounterOp):
    """The workgroup arrives at a counter: whether it is the last of the `count` workgroups that do.

    The counter goes from 0 to `count` - 1, and back to 0 with the last arrival: counters are zero before the first launch, and behind
    every one. What each workgroup did before its arrival is there for the last one.
    """

    name = "tile.arrive_last"
    result = result_def(builtin.i1)
    assembly_format = "$counters `[` $offsets `]` `of` $count attr-dict `:` type($counters)"

    def __init__(self, counters: SSAValue, offsets: Sequence[SSAValue], count: SSAValue) -> None:
        super().__init__(operands=[counters, list(offsets), count], result_types=[builtin.i1])


class OrderedCounterOp(CounterOp):
    """One that one thread of the workgroup does. `order`: what it says about other memory.

    A release passes on what the thread knows to be done, an acquire takes over what was passed on at the counter before it.
    """

    order = prop_def(builtin.StringAttr)
    ORDERS: ClassVar[Sequence[str]] = MEMORY_ORDERS

    @property
    def releases(self) -> bool:
        """Whether it passes on what was done before it."""
        return self.order.data in ("release", "acq_rel")

    @property
    def acquires(self) -> bool:
        """Whether it takes over what was passed on at the counter."""
        return self.order.data in ("acquire", "acq_rel")

    def set_order(self, order: str) -> None:
        """Replace the order."""
        self.properties["order"] = builtin.StringAttr(order)

    def verify_(self) -> None:
        super().verify_()
        check_one_of("the order", self.order.data, self.ORDERS)


@irdl_op_definition
class CountInOp(OrderedCounterOp):
    """An arrival as one thread of the workgroup makes it: it counts, and leaves in `flag` (shared, one i32) whether it is the last."""

    name = "tile.count_in"
    flag = operand_def(builtin.MemRefType)
    assembly_format = "$counters `[` $offsets `]` `of` $count `order` $order `into` $flag attr-dict `:` type($counters) `,` type($flag)"

    def __init__(self, counters: SSAValue, offsets: Sequence[SSAValue], count: SSAValue, flag: SSAValue, order: str = "relaxed") -> None:
        super().__init__(operands=[flag, counters, list(offsets), count], properties={"order": builtin.StringAttr(order)})

    def verify_(self) -> None:
        super().verify_()
        _check_flag(self.flag)

    def effects(self) -> tuple[Effect, ...]:
        return (*super().effects(), Effect(self.flag, "write", Slice((0,), (1,)), completion="queue", queue="local"))


class _TurnOp(OrderedCounterOp):
    """What a workgroup does at a counter for turn number `turn` (0 to `count` - 1)."""

    turn = operand_def(builtin.IndexType)

    def __init__(self, counters: SSAValue, offsets: Sequence[SSAValue], turn: SSAValue, count: SSAValue, order: str = "relaxed") -> None:
        super().__init__(operands=[turn, counters, list(offsets), count], properties={"order": builtin.StringAttr(order)})


@irdl_op_definition
class AwaitTurnOp(_TurnOp):
    """The workgroup goes on when its turn has come: when the counter is `turn`.

    One thread waits; with the order "acquire" it takes over what the turns before passed on. Who has an earlier turn at the counter must
    have a lower number in the grid: such workgroups have begun, and do not wait for this one.
    """

    name = "tile.await_turn"
    assembly_format = "$counters `[` $offsets `]` `turn` $turn `of` $count `order` $order attr-dict `:` type($counters)"
    ORDERS: ClassVar[Sequence[str]] = ("relaxed", "acquire")


@irdl_op_definition
class PassTurnOp(_TurnOp):
    """The workgroup whose turn it is ends it: the counter becomes `turn` + 1, or 0 behind the last turn, as it was before the launch.

    One thread does; with the order "release" it passes on what it knows to be done.
    """

    name = "tile.pass_turn"
    assembly_format = "$counters `[` $offsets `]` `turn` $turn `of` $count `order` $order attr-dict `:` type($counters)"
    ORDERS: ClassVar[Sequence[str]] = ("relaxed", "release")


@irdl_op_definition
class LocalFlagOp(IRDLOperation, HasEffects):
    """Whether the flag of an arrival (one i32 of shared memory) is set: every thread reads it."""

    name = "tile.local_flag"
    flag = operand_def(builtin.MemRefType)
    result = result_def(builtin.i1)
    assembly_format = "$flag attr-dict `:` type($flag)"

    def __init__(self, flag: SSAValue) -> None:
        super().__init__(operands=[flag], result_types=[builtin.i1])

    def verify_(self) -> None:
        _check_flag(self.flag)

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.flag, "read", Slice((0,), (1,)), completion="queue", queue="local"),)


def _check_flag(flag: SSAValue) -> None:
    kind = memref_type(flag)
    if not is_shared(kind) or kind.element_type != builtin.i32 or tuple(kind.get_shape()) != (1,):
        raise VerifyException(f"a flag is one i32 of shared memory, got {kind}")
