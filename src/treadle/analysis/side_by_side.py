"""Contractions that stand side by side."""

from collections.abc import Sequence

from treadle.dialects import tile


def side_by_side(contracts: Sequence[tile.ContractOp]) -> list[list[tile.ContractOp]]:
    """Contractions that follow one another directly, alike: they share what they read. One may go on with the accumulators of the one
    before it, if nobody else reads these; none reads another's results otherwise.
    """
    groups: list[list[tile.ContractOp]] = []
    for op in contracts:
        last = groups[-1] if groups else []
        fits = (
            bool(last)
            and last[-1].next_op is op
            and op.instruction == last[-1].instruction
            and (op.a.type, op.b.type, op.accumulator.type) == (last[-1].a.type, last[-1].b.type, last[-1].accumulator.type)
            and (goes_on(op, last[-1]) or not any(other.result in op.operands for other in last))
        )
        if fits:
            last.append(op)
        else:
            groups.append([op])
    return groups


def goes_on(op: tile.ContractOp, before: tile.ContractOp) -> bool:
    """Whether a contraction goes on with another's accumulators, which it alone reads."""
    return op.accumulator is before.result and before.result.has_one_use()
