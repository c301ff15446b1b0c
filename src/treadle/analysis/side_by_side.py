"""Contractions that stand side by side."""

from collections.abc import Sequence

from treadle.dialects import tile


def side_by_side(contracts: Sequence[tile.ContractOp]) -> list[list[tile.ContractOp]]:
    """Contractions that follow one another directly, alike, none on another's accumulators: they share what they read."""
    groups: list[list[tile.ContractOp]] = []
    for op in contracts:
        last = groups[-1] if groups else []
        fits = (
            bool(last)
            and last[-1].next_op is op
            and op.instruction == last[-1].instruction
            and (op.a.type, op.b.type, op.accumulator.type) == (last[-1].a.type, last[-1].b.type, last[-1].accumulator.type)
            and not any(other.result in op.operands for other in last)
        )
        if fits:
            last.append(op)
        else:
            groups.append([op])
    return groups
