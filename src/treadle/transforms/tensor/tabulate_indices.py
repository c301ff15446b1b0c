"""tabulate-indices: numbers that long arithmetic computes from the index of one `scf.forall` become entries of a table.

Level: tensor, after inline-foralls. Reads: index arithmetic on a `dispatch.block_index` of known extent, of more than `MOST_OPERATIONS`
operations: where the groups of a list begin, and how long they are, written as a sum of a step for each group. Writes: `tensor.extract` at
the index from an `arith.constant` of all its numbers, or a product and a sum where they rise evenly. So what comes behind has one
operation, however long the list is.
Leaves alone: shorter arithmetic, which takes fewer operations than a search in memory; what two indices, or data, are computed from.
"""

from collections.abc import Callable
from typing import ClassVar, Final

from treadle.analysis.steps import (
    Steps,
    constant_steps,
    extremum,
    identity_steps,
    of_numbers,
    pointwise,
    weighted_sum,
)
from treadle.dialects import dispatch
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, tensor
from treadle.ir.passes import register_pass
from treadle.ir.simplify import constant_index
from treadle.ir.tables import table_of
from treadle.ir.tensors import TensorEmitter
from treadle.plan.expr import symbol
from treadle.plan.expr_tables import entry
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import erase_dead

MOST_OPERATIONS: Final = 80
"""What fewer operations compute stays arithmetic: sums over up to 17 groups."""
MOST_NUMBERS: Final = 1 << 16
"""Of loops with more iterations no table is made."""

_SUMS: Final = (arith.AddiOp, arith.SubiOp)
_EXTREMA: Final[dict[type[Operation], Callable[[int, int], int]]] = {arith.MinSIOp: min, arith.MaxSIOp: max}
_QUOTIENTS: Final[dict[type[Operation], Callable[[int, int], int]]] = {
    **dict.fromkeys((arith.DivUIOp, arith.DivSIOp, arith.FloorDivSIOp), lambda a, b: a // b),
    **dict.fromkeys((arith.CeilDivSIOp, arith.CeilDivUIOp), lambda a, b: -(-a // b)),
    **dict.fromkeys((arith.RemUIOp, arith.RemSIOp), lambda a, b: a % b),
}
"""Of numbers that are not negative, by positive ones."""
_FOLLOWED: Final = (*_SUMS, arith.MuliOp, *_EXTREMA, *_QUOTIENTS)


@dataclass(frozen=True, slots=True)
class _Source:
    """What index arithmetic is computed from: the index of one loop (None: numbers alone), by how many operations."""

    index: SSAValue | None
    operations: int


class _Arithmetic:
    """The index arithmetic of a function's block that the index of one loop decides."""

    def __init__(self, block: Block) -> None:
        self.sources: dict[SSAValue, _Source] = {}
        for op in block.ops:
            for value in op.results:
                if isinstance(value.type, builtin.IndexType) and (source := self._source(op, value)) is not None:
                    self.sources[value] = source
        self._known: dict[SSAValue, Steps | None] = {}

    def _source(self, op: Operation, value: SSAValue) -> _Source | None:
        if constant_index(value) is not None:
            return _Source(None, 0)
        if isinstance(op, dispatch.BlockIndexOp):
            count = constant_index(op.extent)
            return _Source(value, 0) if count is not None and 0 < count <= MOST_NUMBERS else None
        if isinstance(op, tensor.ExtractOp) and table_of(op) is not None:
            inner = self.sources.get(op.indices[0])
            return None if inner is None else _Source(inner.index, inner.operations + 1)
        if not isinstance(op, _FOLLOWED):
            return None
        found = [self.sources.get(operand) for operand in op.operands]
        sources = [each for each in found if each is not None]
        indices = {each.index for each in sources if each.index is not None}
        if len(sources) < len(found) or len(indices) > 1:
            return None
        return _Source(next(iter(indices), None), 1 + sum(each.operations for each in sources))

    def long_results(self) -> list[SSAValue]:
        """What more operations compute than stay, and something else has a use for."""
        return [
            value
            for value, source in self.sources.items()
            if source.index is not None
            and source.operations > MOST_OPERATIONS
            and any(result not in self.sources for use in value.uses for result in use.operation.results or (None,))
        ]

    def steps(self, value: SSAValue, count: int) -> Steps | None:
        """The numbers of a value; None where they are not known. Without recursion, as long lists are deep."""
        pending = [value]
        while pending:
            last = pending[-1]
            terms = self._terms(last)
            needed = [operand for operand, _ in terms] if terms is not None else self._operands(last)
            if last in self._known:
                pending.pop()
            elif unknown := [operand for operand in needed if operand not in self._known]:
                pending += unknown
            else:
                self._known[last] = self._sum(terms) if terms is not None else self._compute(last, count)
                pending.pop()
        return self._known[value]

    def _operands(self, value: SSAValue) -> list[SSAValue]:
        op = value.owner
        if isinstance(op, tensor.ExtractOp):
            return list(op.indices)
        return list(op.operands) if isinstance(op, _FOLLOWED) else []

    def _terms(self, value: SSAValue) -> list[tuple[SSAValue, int]] | None:
        """What a sum adds up that is no sum itself, and how often; None for what is no sum."""
        if not isinstance(value.owner, _SUMS):
            return None
        found: dict[SSAValue, int] = {}
        pending = [(value, 1)]
        while pending:
            each, factor = pending.pop()
            op = each.owner
            if isinstance(op, _SUMS) and each not in self._known:
                pending += [(op.lhs, factor), (op.rhs, factor if isinstance(op, arith.AddiOp) else -factor)]
            else:
                found[each] = found.get(each, 0) + factor
        return list(found.items())

    def _sum(self, terms: list[tuple[SSAValue, int]]) -> Steps | None:
        known = [(steps, factor) for operand, factor in terms if (steps := self._known[operand]) is not None]
        return weighted_sum(known) if len(known) == len(terms) else None

    def _compute(self, value: SSAValue, count: int) -> Steps | None:
        if (number := constant_index(value)) is not None:
            return constant_steps(count, number)
        op = value.owner
        if isinstance(op, dispatch.BlockIndexOp):
            return identity_steps(count)
        operands = [self._known[operand] for operand in self._operands(value)]
        known = [steps for steps in operands if steps is not None]
        if not isinstance(op, Operation) or len(known) < len(operands):
            return None
        if isinstance(op, tensor.ExtractOp):
            return _entries(table_of(op) or (), known[0])
        one, other = known
        if isinstance(op, arith.MuliOp):
            return _product(one, other)
        if (pick := _EXTREMA.get(type(op))) is not None:
            return extremum(one, other, pick)
        return pointwise(one, other, _QUOTIENTS[type(op)]) if one.least() >= 0 and other.least() > 0 else None


def _product(one: Steps, other: Steps) -> Steps:
    for steps, factor in ((one, other.constant), (other, one.constant)):
        if factor is not None:
            return weighted_sum([(steps, factor)])
    return pointwise(one, other, lambda a, b: a * b)


def _entries(table: tuple[int, ...], places: Steps) -> Steps | None:
    numbers = places.numbers()
    return of_numbers([table[at] for at in numbers]) if min(numbers) >= 0 and max(numbers) < len(table) else None


@register_pass
@dataclass(frozen=True)
class TabulateIndicesPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "tabulate-indices"

    def run(self, function: func.FuncOp) -> None:
        """Tabulate the long arithmetic of one function."""
        block = function.body.block
        if not any(isinstance(op, dispatch.BlockIndexOp) for op in block.ops):
            return
        arithmetic = _Arithmetic(block)
        results = arithmetic.long_results()
        for value in results:
            index, op = arithmetic.sources[value].index, value.owner
            count = constant_index(index.owner.extent) if index is not None and isinstance(index.owner, dispatch.BlockIndexOp) else None
            steps = None if count is None else arithmetic.steps(value, count)
            if index is None or steps is None or not isinstance(op, Operation):
                continue
            emit = TensorEmitter(op, {"index": index})
            found = emit.expression(entry(steps.numbers(), symbol("index")))
            found.name_hint = value.name_hint
            value.replace_all_uses_with(found)
        if results:
            erase_dead(function)
