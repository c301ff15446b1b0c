"""Whether it matters what a tile has outside of the array that it was loaded of."""

from treadle.dialects import tile
from treadle.dialects.tile_types import is_tile
from treadle.ir.core import Operation, SSAValue

MAPS = ("arith.", "math.")


def outside_matters(load: tile.LoadOp) -> bool:
    """False where each element of a tile only becomes one at its own place of tiles that are stored where they were loaded, to arrays that
    are no longer: what is outside is never written.
    """
    todo: list[SSAValue] = [load.result]
    seen = set(todo)
    while todo:
        value = todo.pop()
        for use in value.uses:
            if isinstance(op := use.operation, tile.StoreOp):
                if not _is_stored_back(op, load):
                    return True
            elif not _is_map(op):
                return True
            else:
                todo += [result for result in op.results if result not in seen]
                seen.update(op.results)
    return False


def _is_map(op: Operation) -> bool:
    """Whether an operation computes each element of its results of the elements there."""
    return op.name.startswith(MAPS) and all(is_tile(value) for value in (*op.operands, *op.results))


def _is_stored_back(store: tile.StoreOp, load: tile.LoadOp) -> bool:
    """Whether a store is of the same places as a load, in an array that reaches no further."""
    if tuple(store.offsets) != tuple(load.offsets) or tile.ints(store.dims) != tile.ints(load.dims):
        return False
    sizes = zip(_sizes(store.view), _sizes(load.view), strict=True)
    return all(have is read or (isinstance(have, int) and isinstance(read, int) and have <= read) for have, read in sizes)


def _sizes(view: SSAValue) -> tuple[int | SSAValue, ...]:
    return view.owner.size_values() if isinstance(view.owner, tile.ViewOp) else ()
