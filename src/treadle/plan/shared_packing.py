"""Placing buffers in shared memory: first fit over intervals of use. Pure."""

from collections.abc import Sequence

from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class BufferDemand:
    """Bytes, alignment (a power of two), and the first and last program point (inclusive) of use."""

    byte_count: int
    align: int
    start: int
    end: int


def pack_buffers(demands: Sequence[BufferDemand]) -> tuple[tuple[int, ...], int]:
    """Byte offset of each buffer and the total; buffers in use at the same time never share bytes.

    Greedy by size, largest first, each at the lowest offset that is free during its interval (the usual heuristic for offset assignment).
    """
    offsets = [0] * len(demands)
    placed: list[int] = []
    for index in sorted(range(len(demands)), key=lambda i: (-demands[i].byte_count, i)):
        demand = demands[index]
        rivals = sorted(
            (offsets[i], offsets[i] + demands[i].byte_count)
            for i in placed
            if demands[i].start <= demand.end and demand.start <= demands[i].end
        )
        at = 0
        for low, high in rivals:
            if at + demand.byte_count <= low:
                break
            at = max(at, -(-high // demand.align) * demand.align)
        offsets[index] = at
        placed.append(index)
    return tuple(offsets), max((offsets[i] + d.byte_count for i, d in enumerate(demands)), default=0)
