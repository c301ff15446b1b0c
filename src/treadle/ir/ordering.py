"""Putting things behind what they need."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from treadle.errors import InternalError
from treadle.ir.ancestry import captured, maker
from treadle.ir.core import Block, Operation, SSAValue

T = TypeVar("T", bound=Hashable)


class NeedsItselfError(InternalError):
    """`path`: each needs the next one, and the last the first."""

    def __init__(self, path: Sequence[Any]) -> None:
        super().__init__(f"{path[0]} needs itself")
        self.path = path


def dependence_order(starts: Iterable[T], needed: Callable[[T], Iterable[T]]) -> list[T]:
    """`starts` and all they need, each behind what `needed` gives for it, otherwise in the order in which they are met.

    Raises `NeedsItselfError`. Not by recursion: chains are as long as programs.
    """
    order: dict[T, None] = {}
    path: dict[T, None] = {}
    for start in starts:
        pending: list[tuple[T, bool]] = [(start, False)]
        while pending:
            node, leaving = pending.pop()
            if leaving:
                del path[node]
                order[node] = None
            elif node in path:
                found = list(path)
                raise NeedsItselfError(found[found.index(node) :])
            elif node not in order:
                path[node] = None
                pending.append((node, True))
                pending.extend((other, False) for other in reversed([*needed(node)]) if other not in order)
    return list(order)


def sort_by_definition(block: Block, more: Callable[[Operation], Iterable[SSAValue]] = lambda _: ()) -> None:
    """Reorder a block so that values are defined before their uses, otherwise keeping its order. `more`: what an operation is to stand
    behind, besides what it uses.
    """

    def needed(op: Operation) -> list[Operation]:
        makers = [maker(value) for value in (*captured(op), *more(op))]
        return [found for found in makers if found is not None and found.parent_block() is block]

    for op in dependence_order(list(block.ops), needed):
        op.detach()
        block.add_op(op)
