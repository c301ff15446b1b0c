"""Static ranges of index values: what bounds checks can be left out.

Read off the operations that compute an index; nothing is remembered between calls but a cache.
"""

from math import gcd

from treadle.dialects.agents import role_of
from treadle.dialects.pipe import GroupIdOp
from treadle.dialects.tile import KernelOp, LookupOp, ProgramIdOp
from treadle.ir.core import BlockArgument, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.plan import expr
from treadle.records import dataclass
from treadle.targets.simt.walk_ranges import column_limit, row_limit


@dataclass(frozen=True, slots=True)
class Range:
    """`low` <= value <= `high`, and the value is a multiple of `multiple` (0: the value is zero)."""

    low: int
    high: int
    multiple: int = 1

    @property
    def last(self) -> int:
        """The largest multiple that is not above `high`."""
        return self.high // self.multiple * self.multiple if self.multiple else 0


# Predicates of arith.cmpi: slt, sle, sgt, sge are 2 to 5, the unsigned ones 6 to 9.
_BELOW, _AT_MOST, _SWAPPED = (2, 4, 6, 8), (3, 5, 7, 9), (4, 5, 8, 9)


def constant_of(value: SSAValue) -> int | None:
    """The number of an `arith.constant` of integer or index type."""
    if isinstance(value.owner, arith.ConstantOp) and isinstance(value.owner.value, builtin.IntegerAttr):
        return value.owner.value.value.data
    return None


class Ranges:
    """Ranges of the index values of one kernel."""

    def __init__(self, kernel: KernelOp) -> None:
        self.kernel = kernel
        self.limit = (1 << (kernel.index_width() - 1)) - 1
        self.unknown = Range(-self.limit - 1, self.limit)
        self.grid = [expr.parse(text).as_int() for text in kernel.grid_text()]
        self._known: dict[SSAValue, Range] = {}

    def of(self, value: SSAValue) -> Range:
        """The range of an index value."""
        if value not in self._known:
            self._known[value] = self.unknown  # for cycles
            self._known[value] = self._clip(self._compute(value))
        return self._known[value]

    def may_repeat(self, loop: scf.ForOp) -> bool:
        """Whether a loop may make more than one trip. One that does not is no loop of the code: LLVM sees it too."""
        lower, upper, step = (self.of(value) for value in (loop.lb, loop.ub, loop.step))
        return upper.high - lower.low > step.low

    def inside(self, offset: SSAValue, extent: int, size: int | None) -> bool:
        """Whether `offset .. offset + extent` always lies in `0 .. size`."""
        at = self.of(offset)
        return size is not None and at.low >= 0 and at.last + extent <= size

    def decided(self, condition: SSAValue) -> bool | None:
        """What a comparison of index values always gives; None where it varies or nothing is known."""
        op = condition.owner
        if not isinstance(op, arith.CmpiOp) or not isinstance(op.lhs.type, builtin.IndexType):
            return None
        a, b, predicate = self.of(op.lhs), self.of(op.rhs), op.predicate.value.data
        if a.low < 0 or b.low < 0:
            return None  # signed and unsigned order differ
        if predicate in _SWAPPED:
            a, b = b, a
        if predicate in _BELOW:
            return True if a.high < b.low else False if a.low >= b.high else None
        if predicate in _AT_MOST:
            return True if a.high <= b.low else False if a.low > b.high else None
        return None

    def _compute(self, value: SSAValue) -> Range:
        if (number := constant_of(value)) is not None:
            return Range(number, number, abs(number))
        if isinstance(value, BlockArgument):
            return self._argument(value)
        op = value.owner
        if isinstance(op, ProgramIdOp):
            extent = self.grid[op.axis.value.data]
            return Range(0, self.limit if extent is None else max(extent - 1, 0))
        if isinstance(op, GroupIdOp):
            role = role_of(op)
            return Range(0, role.groups - 1 if role is not None else 0)
        if isinstance(op, LookupOp):
            return Range(min(op.table), max(op.table), gcd(*op.table))
        if isinstance(op, arith.IndexCastOp):
            return self.of(op.input)
        if isinstance(op, arith.AddiOp | arith.SubiOp | arith.MuliOp | arith.MinSIOp | arith.MaxSIOp):
            found = _binary(op, self.of(op.lhs), self.of(op.rhs))
            return _below(found, row_limit(op, self)) if isinstance(op, arith.AddiOp) else found
        if isinstance(op, arith.DivUIOp):
            found = _divide(op, self.of(op.lhs), self.of(op.rhs)) or self.unknown
            return _below(found, column_limit(op, self))
        if isinstance(op, arith.DivSIOp | arith.FloorDivSIOp | arith.RemSIOp | arith.RemUIOp):
            return _divide(op, self.of(op.lhs), self.of(op.rhs)) or self.unknown
        return self.unknown

    def _argument(self, value: BlockArgument) -> Range:
        owner = value.block.parent_op()
        if owner is self.kernel:
            return Range(0, self.limit)  # a size
        if isinstance(owner, scf.ForOp) and value.index == 0:
            low, high, step = self.of(owner.lb), self.of(owner.ub), self.of(owner.step)
            if step.low < 1:
                return self.unknown
            return Range(low.low, max(high.high - 1, low.low), gcd(low.multiple, step.multiple))
        return self.unknown

    def _clip(self, found: Range) -> Range:
        # Beyond its bits arithmetic wraps and nothing is known.
        return self.unknown if found.low < -self.limit - 1 or found.high > self.limit else found


def _below(found: Range, limit: int | None) -> Range:
    """Not above a limit, and not negative, where there is one."""
    return found if limit is None else Range(max(found.low, 0), min(found.high, limit), found.multiple if found.low >= 0 else 1)


def _binary(op: object, a: Range, b: Range) -> Range:
    if isinstance(op, arith.AddiOp):
        return Range(a.low + b.low, a.last + b.last, gcd(a.multiple, b.multiple))
    if isinstance(op, arith.SubiOp):
        return Range(a.low - b.high, a.high - b.low, gcd(a.multiple, b.multiple))
    if isinstance(op, arith.MuliOp):
        ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return Range(min(ends), max(ends), a.multiple * b.multiple)
    if isinstance(op, arith.MinSIOp):
        return Range(min(a.low, b.low), min(a.high, b.high), gcd(a.multiple, b.multiple))
    return Range(max(a.low, b.low), max(a.high, b.high), gcd(a.multiple, b.multiple))


def _divide(op: object, a: Range, b: Range) -> Range | None:
    if a.low < 0 or b.low < 1:
        return None
    if isinstance(op, arith.RemSIOp | arith.RemUIOp):
        return Range(0, min(a.high, b.high - 1), gcd(a.multiple, b.multiple) if b.low == b.high else 1)
    exact = b.low == b.high and a.multiple % b.low == 0
    return Range(a.low // b.high, a.high // b.low, a.multiple // b.low if exact else 1)
