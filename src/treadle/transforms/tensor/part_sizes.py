"""Where the parts of a split loop begin and how long they are."""

from collections.abc import Sequence
from math import prod

from treadle.analysis.indexing import StructuredOp, loop_sizes, plain_dims
from treadle.dialects.split_attribute import ALL_LOOPS, SplitLoop
from treadle.errors import InternalError
from treadle.ir.core import SSAValue
from treadle.ir.emitter import Emitter, Index
from treadle.ir.tensors import TensorEmitter
from treadle.plan.expr import Expr, ceil_div, constant, maximum, minimum, parse, symbol
from treadle.records import dataclass


def loop_extents(view: StructuredOp, emit: TensorEmitter) -> list[Index]:
    """The extent of each loop: a number, or the size of an operand's axis."""
    found: dict[int, Index] = {dim: size for dim, size in enumerate(loop_sizes(view)) if size is not None}
    for value, map_ in view.operands():
        for axis, dim in enumerate(plain_dims(map_)):
            if dim is not None and dim not in found:
                found[dim] = emit.size(value, axis)
    return [found[dim] for dim in range(view.rank)]


@dataclass(frozen=True, slots=True)
class Part:
    """Loop `dim` (-1: all reduction loops as one) of `extent` in `count` parts of whole `step`s. Parts of known sizes differ by one step at
    most; else all but the last ones have one length, so that workgroups divide nothing.
    """

    dim: int
    extent: Index
    count: Index
    step: int

    def bounds(self, index: SSAValue, emit: Emitter) -> tuple[Index, Index]:
        """First element and number of elements of part `index`."""
        names: dict[str, Index] = {"k": self.extent, "s": self.count, "p": index}
        emit.symbols.update({name: value for name, value in names.items() if isinstance(value, SSAValue)})
        k, s, p = (constant(value) if isinstance(value, int) else symbol(name) for name, value in names.items())
        if isinstance(self.extent, int) and isinstance(self.count, int):
            each, more = divmod(-(-self.extent // self.step), self.count)
            first, behind = ((part * each + part * more // self.count) * self.step for part in (p, p + 1))
            if not more and self.extent % self.step == 0:
                return emit.expression(first), each * self.step
            length = behind - first
        else:
            length = maximum(1, ceil_div(ceil_div(k, self.step), s)) * self.step
            first = p * length
        return emit.expression(first), emit.expression(maximum(0, minimum(k - first, length)))


def _part_of_all(loop: SplitLoop, view: StructuredOp, extents: Sequence[Index]) -> Part:
    """All reduction loops as one, which have known extents."""
    sizes = [size for dim in view.reduction_dims if isinstance(size := extents[dim], int)]
    if len(sizes) < len(view.reduction_dims):
        raise InternalError("loops are split as one whose extents only the runtime knows")
    terms = prod(sizes)
    return Part(-1, terms, max(1, min(int(loop.parts), -(-terms // loop.step))), loop.step)


def part_of(loop: SplitLoop, view: StructuredOp, extents: Sequence[Index], emit: TensorEmitter) -> Part:
    """How a loop is split: not into more parts than there are steps, and into one at least. Of parts of one length, the last one is not
    empty: as many whole steps as asked for may need fewer parts.
    """
    if loop.loop == ALL_LOOPS:
        return _part_of_all(loop, view, extents)
    names = {f"r{number}": extents[dim] for number, dim in enumerate(view.reduction_dims)}
    names |= {f"n{number}": extents[dim] for number, dim in enumerate(view.parallel_dims)}
    known: dict[str, Expr | int] = {name: extent for name, extent in names.items() if isinstance(extent, int)}
    emit.symbols.update({name: extent for name, extent in names.items() if isinstance(extent, SSAValue)})
    own = symbol(f"r{loop.loop}").substitute(known)
    steps = ceil_div(own, loop.step)
    count = maximum(1, minimum(parse(loop.parts).substitute(known), steps))
    if not (own.is_constant and count.is_constant):
        count = maximum(1, ceil_div(steps, maximum(1, ceil_div(steps, count))))
    dim = view.reduction_dims[loop.loop]
    return Part(dim, extents[dim], emit.index(count), loop.step)
