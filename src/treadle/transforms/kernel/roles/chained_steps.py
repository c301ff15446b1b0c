"""Chained contractions a step apart: a step's first product is issued ahead of the last product of the step before.

S = Q K and O += P V, P computed from S. In the steady loop S of this step and P V of the step before are in flight together, and what is
computed from S runs under the latter. The first step's first part stands ahead of the loop, the last one's second part behind it. The
arrangement is that of FlashAttention-3 (arXiv 2407.08608, section 3.2).
"""

from collections.abc import Sequence

from treadle.analysis.element_bytes import tile_bytes
from treadle.analysis.structured_flow import yielded
from treadle.dialects import tile
from treadle.dialects.effects import HasEffects
from treadle.dialects.tile_types import is_tile
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.records import dataclass

_MOVES = ("tile.broadcast", "tile.permute")
_REGISTER_BYTES = 4
_SPARE_REGISTERS = 56
"""Of a thread, for running maxima, sums, slots, addresses, and what of the scores is on its way to be P."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A step in two parts. `issued`: up to its first contraction; `followed`: the rest of the first part; `behind`: the second part, which
    ends with the last contraction; `handed`: tiles of the first part that the second reads; `position`: of its sum among carried values.
    """

    issued: tuple[Operation, ...]
    followed: tuple[Operation, ...]
    behind: tuple[Operation, ...]
    handed: tuple[SSAValue, ...]
    position: int

    @property
    def last(self) -> tile.ContractOp:
        """The contraction that the second part ends with."""
        return next(op for op in reversed(self.behind) if isinstance(op, tile.ContractOp))

    def registers(self, threads: int) -> int:
        """Of a thread, for what is in flight together: both sums, and what the last contraction reads."""
        first = next(op for op in self.issued if isinstance(op, tile.ContractOp))
        return sum(-(-tile_bytes(value) // (threads * _REGISTER_BYTES)) for value in (first.result, self.last.result, self.last.a))


def chain_of(loop: scf.ForOp) -> Chain | None:
    """The parts of a loop whose last contraction reads, from registers, what is computed from another's result; None for other loops."""
    block, ends = loop.body.block, yielded(loop.body.block)
    ops = [op for op in block.ops if not isinstance(op, tile.CopyOp | scf.YieldOp)]
    contracts = [op for op in ops if isinstance(op, tile.ContractOp)]
    if len(contracts) < 2 or not contracts[-1].holds_registers() or list(ends).count(contracts[-1].result) != 1:
        return None
    position = list(ends).index(contracts[-1].result)
    behind = _second_part(ops, block.args[1 + position], contracts[-1])
    parts = [op for op in ops if op not in behind]
    first = next((at for at, op in enumerate(parts) if isinstance(op, tile.ContractOp)), None)
    if first is None or not _is_apart(block, behind, contracts[-1], block.args[1 + position]):
        return None
    own = {result for op in behind for result in op.results} | {block.args[1 + position]}
    local = {*block.args, *(result for op in parts for result in op.results)}
    handed = dict.fromkeys(v for op in ops if op in behind for v in op.operands if v in local and v not in own)
    if not all(is_tile(value) for value in handed):
        return None
    return Chain(tuple(parts[: first + 1]), tuple(parts[first + 1 :]), tuple(op for op in ops if op in behind), tuple(handed), position)


def _second_part(ops: Sequence[Operation], total: SSAValue, last: tile.ContractOp) -> set[Operation]:
    """What is computed from the sum so far, and what only moves values for that."""
    found: set[Operation] = {last}
    for op in ops:
        operands = [value for inner in op.walk() for value in inner.operands]
        if any(value is total or value.owner in found for value in operands):
            found.add(op)
    for op in reversed(ops):
        if op.name in _MOVES and all(use.operation in found for use in op.results[0].uses):
            found.add(op)
    return found


def _is_apart(block: Block, behind: set[Operation], last: tile.ContractOp, total: SSAValue) -> bool:
    """Whether nothing else of a step reads what the second part computes, and it does nothing but that."""
    for op in behind:
        if op.regions or (op is not last and (isinstance(op, tile.ContractOp) or (isinstance(op, HasEffects) and op.effects()))):
            return False
        others = [use.operation for result in op.results for use in result.uses if use.operation not in behind]
        if any(user is not block.last_op or op is not last for user in others):
            return False
    return all(use.operation in behind for use in total.uses)


def fits(loop: scf.ForOp, threads: int, registers: int) -> bool:
    """Whether a loop is a chain whose threads have registers for steps that overlap."""
    chain = chain_of(loop)
    return chain is not None and chain.registers(threads) + _SPARE_REGISTERS <= registers
