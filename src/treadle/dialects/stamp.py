"""The `stamp` dialect: records of when an agent does what, for timelines measured in a kernel (docs/timeline.md).

The records of a launch are one array of i64: for each recorded workgroup and each of its agents `capacity` words. The first `HEADER` of
them tell when the agent began and ended, the rest are events in order: the event's number in the upper 16 bits, the low 48 bits of the
compute unit's clock below. One thread of each agent writes them. Stamps order nothing, and nothing in a kernel reads them.
"""

from treadle.dialects.effects import Effect, HasEffects
from treadle.ir.builtin import IndexType, IntegerAttr, MemRefType, StringAttr, i64
from treadle.ir.core import (
    Dialect,
    IRDLOperation,
    ParametrizedAttribute,
    SSAValue,
    TypeAttribute,
    VerifyException,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)

HEADER = 8
"""Words before the events: shared timer (ns), clock, compute unit at the beginning; shared timer, clock, number of events at the end."""
CLOCK_BITS = 48
MOST_EVENTS = 1 << 16


@irdl_attr_definition
class CursorType(ParametrizedAttribute, TypeAttribute):
    """`!stamp.cursor`: where an agent's next event goes; nowhere for agents that are not recorded, and behind the last place."""

    name = "stamp.cursor"


ISSUE_SPANS: dict[str, str] = {"matrix": "matrix: issue", "copy_out": "store: issue stores", "copy_in": "copy: issue copies"}
"""What closes a group of a queue, by the queue's role: the span that ends with the commit."""


class _Placed(IRDLOperation, HasEffects):
    """What knows an agent's place: `first` is the number of the role's first agent (outside roles each warp is one), `agents` their number.

    `workgroups`: how many of the grid are recorded; `workgroup`: the executing one's number.
    """

    records = operand_def(MemRefType)
    workgroup = operand_def(IndexType)
    first = prop_def(IntegerAttr)
    agents = prop_def(IntegerAttr)
    workgroups = prop_def(IntegerAttr)
    capacity = prop_def(IntegerAttr)

    def verify_(self) -> None:
        capacity = self.capacity.value.data
        if capacity <= HEADER or capacity & (capacity - 1):
            raise VerifyException(f"{self.name}: a capacity of {capacity} words is no power of two above {HEADER}")

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.records, "write"),)


_PLACE = "$records `[` $workgroup `]` `first` $first `agents` $agents `workgroups` $workgroups `capacity` $capacity"


@irdl_op_definition
class BeginOp(_Placed):
    """The executing agent's records begin."""

    name = "stamp.begin"
    result = result_def(CursorType)
    assembly_format = _PLACE + " attr-dict `:` type($records)"

    def __init__(self, records: SSAValue, workgroup: SSAValue, first: int, agents: int, workgroups: int, capacity: int) -> None:
        super().__init__(
            operands=[records, workgroup], properties=_places(first, agents, workgroups, capacity), result_types=[CursorType()]
        )


@irdl_op_definition
class EndOp(_Placed):
    """The executing agent's records end."""

    name = "stamp.end"
    cursor = operand_def(CursorType)
    assembly_format = "$cursor `,` " + _PLACE + " attr-dict `:` type($records)"

    def __init__(
        self, cursor: SSAValue, records: SSAValue, workgroup: SSAValue, first: int, agents: int, workgroups: int, capacity: int
    ) -> None:
        super().__init__(operands=[cursor, records, workgroup], properties=_places(first, agents, workgroups, capacity))


@irdl_op_definition
class EventOp(IRDLOperation, HasEffects):
    """The executing agent ends something (`ends`, a label), begins something (`begins`), or both; gives the next place."""

    name = "stamp.event"
    cursor = operand_def(CursorType)
    records = operand_def(MemRefType)
    number = prop_def(IntegerAttr)
    capacity = prop_def(IntegerAttr)
    ends = opt_prop_def(StringAttr)
    begins = opt_prop_def(StringAttr)
    result = result_def(CursorType)
    assembly_format = (
        "$cursor `,` $records `number` $number `capacity` $capacity (`ends` $ends^)? (`begins` $begins^)? attr-dict `:` type($records)"
    )

    def __init__(self, cursor: SSAValue, records: SSAValue, number: int, capacity: int, ends: str | None, begins: str | None) -> None:
        super().__init__(
            operands=[cursor, records],
            properties={
                "number": IntegerAttr(number, i64),
                "capacity": IntegerAttr(capacity, i64),
                "ends": None if ends is None else StringAttr(ends),
                "begins": None if begins is None else StringAttr(begins),
            },
            result_types=[CursorType()],
        )

    def verify_(self) -> None:
        if not 0 <= self.number.value.data < MOST_EVENTS:
            raise VerifyException(f"stamp.event: {self.number.value.data} is no event number below {MOST_EVENTS}")

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.records, "write"),)


def _places(first: int, agents: int, workgroups: int, capacity: int) -> dict[str, IntegerAttr]:
    values = {"first": first, "agents": agents, "workgroups": workgroups, "capacity": capacity}
    return {name: IntegerAttr(value, i64) for name, value in values.items()}


STAMP = Dialect("stamp", [BeginOp, EventOp, EndOp], [CursorType])
