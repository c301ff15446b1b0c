"""Arithmetic without a form as arithmetic that has one: bits of numbers, remainders as differences, unsigned minima and maxima.

`x and 6` is `x mod 8 - x mod 2`, `x or 6` that much less than `x + 6`, `x - 3 * (x / 3)` is `x mod 3`: for all numbers of so many bits, the
lowest of which are those of a remainder by a power of two, whatever the sign. The kernel means the same.
"""

from collections.abc import Iterator

from treadle.dialects import tile
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin
from treadle.verify.plain_arithmetic import Origins
from treadle.verify.program import Program
from treadle.verify.scalars import INDEX_BITS, constant_value, width_of
from treadle.verify.signs import never_negative

MAX_RUNS = 4
"""Of bits of a mask that stand together."""
_BITS = ("arith.andi", "arith.ori", "arith.xori")
_UNSIGNED = {"arith.minui": (arith.MinSIOp, 6), "arith.maxui": (arith.MaxSIOp, 8)}
"""The signed operation, and the predicate by which the first operand is chosen."""
_REMAINDERS: dict[str, type[arith.RemUIOp | arith.RemSIOp]] = {
    "arith.divui": arith.RemUIOp,
    "arith.shrui": arith.RemUIOp,
    "arith.divsi": arith.RemSIOp,
}


def with_equal_arithmetic(program: Program) -> tuple[tile.KernelOp, Origins] | None:
    """A clone with such arithmetic; None where there is nothing to replace."""
    wanted = [op for op in program.ops if _is_replaced(op) and op.results[0] in program.deciding]
    if not wanted:
        return None
    clone = program.kernel.clone()
    origins: Origins = dict(zip(clone.walk(), program.kernel.walk(), strict=True))
    copies = {source: copy for copy, source in origins.items()}
    for op in wanted:
        made = _Equal(copies[op])
        for new in made.operations:
            origins[new] = op
    return clone, origins


def _is_replaced(op: Operation) -> bool:
    if len(op.results) != 1 or width_of(op.results[0].type) < INDEX_BITS:
        return False
    if op.name in _BITS:
        found = _masked(op)
        is_parity = found is not None and found[1] == 1 and not isinstance(op.results[0].type, builtin.IndexType)
        return found is not None and not is_parity  # of one turned round, tables say what it is
    return op.name in _UNSIGNED or (op.name == "arith.subi" and _divided(op) is not None)


def _constant(value: SSAValue) -> int | None:
    owner = value.owner
    return constant_value(owner) if isinstance(owner, Operation) and owner.name == "arith.constant" else None


def _masked(op: Operation) -> tuple[SSAValue, int] | None:
    """What bits are taken of, or set or turned in, and which; None where that is no number, or has a form already."""
    for value, other in (op.operands, tuple(reversed(op.operands))):
        mask = _constant(other)
        if mask is None or mask <= 0 or _constant(value) is not None or sum(1 for _ in _runs(mask)) > MAX_RUNS:
            continue
        return None if op.name == "arith.andi" and mask & (mask + 1) == 0 else (value, mask)
    return None


def _runs(mask: int) -> Iterator[tuple[int, int]]:
    """Where the bits of a mask that stand together begin and end, as powers of two."""
    while mask:
        low = mask & -mask
        high = mask + low & ~mask
        yield low, high
        mask &= ~(high - low)


def _divided(op: Operation) -> tuple[SSAValue, int, str] | None:
    """What a difference is the remainder of, by what, and the operation that divides; None where it is none."""
    whole, multiple = op.operands
    if (times := _times(multiple)) is None or not isinstance(owner := times[0].owner, Operation) or owner.name not in _REMAINDERS:
        return None
    by = _constant(owner.operands[1])
    if by is None or owner.operands[0] is not whole or (not 0 < by < INDEX_BITS and "shr" in owner.name):
        return None
    by = 1 << by if "shr" in owner.name else by
    return (whole, by, owner.name) if by == times[1] > 0 else None


def _times(value: SSAValue) -> tuple[SSAValue, int] | None:
    op = value.owner
    if not isinstance(op, Operation) or op.name not in ("arith.muli", "arith.shli"):
        return None
    for one, other in (op.operands, tuple(reversed(op.operands)))[: 2 if op.name == "arith.muli" else 1]:
        if (factor := _constant(other)) is not None and 0 <= factor < (1 << INDEX_BITS if op.name == "arith.muli" else INDEX_BITS - 1):
            return one, factor if op.name == "arith.muli" else 1 << factor
    return None


class _Equal:
    """One operation, replaced. `operations`: what it became."""

    def __init__(self, op: Operation) -> None:
        self.op, self.operations = op, list[Operation]()
        found = self._bits() if op.name in _BITS else self._extreme() if op.name in _UNSIGNED else self._remainder()
        op.results[0].replace_all_uses_with(found)
        op.detach()
        op.erase()

    def _made(self, op: Operation) -> SSAValue:
        block = self.op.parent_block()
        if block is not None:
            block.insert_ops_before([op], self.op)
        self.operations.append(op)
        return op.results[0]

    def _number(self, number: int) -> SSAValue:
        kind = self.op.results[0].type
        return self._made(arith.ConstantOp(builtin.IntegerAttr(number, kind)))  # type: ignore[arg-type]

    def _rest(self, value: SSAValue, modulus: int) -> SSAValue:
        return self._made(arith.RemUIOp(value, self._number(modulus)))

    def _bits(self) -> SSAValue:
        value, mask = _masked(self.op) or (self.op.operands[0], 0)
        found: SSAValue | None = None
        for low, high in _runs(mask):
            bits = self._rest(value, high)
            if low > 1:
                bits = self._made(arith.SubiOp(bits, self._rest(value, low)))
            found = bits if found is None else self._made(arith.AddiOp(found, bits))
        if found is None or self.op.name == "arith.andi":
            return value if found is None else found
        if self.op.name == "arith.xori":
            found = self._made(arith.MuliOp(found, self._number(2)))
        return self._made(arith.SubiOp(self._made(arith.AddiOp(value, self._number(mask))), found))

    def _extreme(self) -> SSAValue:
        one, other = self.op.operands
        signed, predicate = _UNSIGNED[self.op.name]
        if never_negative(one) and never_negative(other):
            return self._made(signed(one, other))
        return self._made(arith.SelectOp(self._made(arith.CmpiOp(one, other, predicate)), one, other))

    def _remainder(self) -> SSAValue:
        value, by, name = _divided(self.op) or (self.op.operands[0], 1, "arith.divui")
        return self._made(_REMAINDERS[name](value, self._number(by)))
