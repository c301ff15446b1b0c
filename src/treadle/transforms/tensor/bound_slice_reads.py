"""bound-slice-reads: numbers of a tensor that slices begin at, or are as long as, become numbers that blocks read within bounds.

Level: tensor, after inline-foralls. Reads: `arith.index_cast` of `tensor.extract` at places that depend on a block index, where offsets and
sizes of slices are computed from it. Writes: `dispatch.read_index`, whose value lies within every array that is sliced with it; the sizes
of these slices, which are none below 0 and do not leave the array either. So no block leaves an array, whatever the tensor holds. That its
numbers are those the user meant, and that blocks do not write the same rows, is the promise of who calls.
Leaves alone: elements that no slice depends on, which operations gather in their bodies.
Refuses with TR301 slices that begin at anything else than such a number, or take steps of it.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from treadle.analysis.data_flow import DataFlow
from treadle.analysis.index_arithmetic import affine_value
from treadle.analysis.sizes import cannot_compile
from treadle.dialects import dispatch
from treadle.ir.ancestry import maker
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import affine, arith, builtin, func, tensor
from treadle.ir.emitter import Index
from treadle.ir.ordering import sort_by_definition
from treadle.ir.passes import register_pass
from treadle.ir.tables import table_of
from treadle.ir.tensors import TensorEmitter, mixed
from treadle.plan.expr import symbol
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import erase_dead

_SCALAR_DIALECTS: Final = ("arith", "affine")
_HINT: Final = "let a slice begin at one number that tensor.extract and arith.index_cast give, and compute its size from such numbers"


@dataclass(frozen=True, slots=True)
class _Cut:
    """An axis of a slice: of which tensor, where it begins and how long it is."""

    op: tensor.ExtractSliceOp | tensor.InsertSliceOp
    whole: SSAValue
    axis: int
    offset: Index
    size: Index
    stride: Index


def _cuts(block: Block) -> Iterator[_Cut]:
    for op in block.ops:
        if not isinstance(op, tensor.ExtractSliceOp | tensor.InsertSliceOp):
            continue
        whole = op.source if isinstance(op, tensor.ExtractSliceOp) else op.dest
        lists = (
            mixed(op.static_offsets.get_values(), op.offsets),
            mixed(op.static_sizes.get_values(), op.sizes),
            mixed(op.static_strides.get_values(), op.strides),
        )
        for axis, (offset, size, stride) in enumerate(zip(*lists, strict=True)):
            yield _Cut(op, whole, axis, offset, size, stride)


def _element(op: Operation) -> tensor.ExtractOp | None:
    """The element of i32 or i64 that an operation takes for an index; None where it is no such operation."""
    if not isinstance(op, arith.IndexCastOp) or not isinstance(op.result.type, builtin.IndexType):
        return None
    source = op.input.owner
    while isinstance(source, arith.ExtSIOp):
        source = source.input.owner
    if not isinstance(source, tensor.ExtractOp) or source.result.type not in (builtin.i32, builtin.i64):
        return None
    return source if table_of(source) is None else None  # numbers of the text are known


class _Numbers:
    """The elements of tensors that index values of a function's block are computed from."""

    def __init__(self, block: Block) -> None:
        self._flow = DataFlow(block)
        self._known: dict[SSAValue, frozenset[Operation]] = {}

    def is_read(self, op: Operation) -> bool:
        """Whether an operation takes an element for an index that blocks may have different ones of."""
        return _element(op) is not None and bool(self._flow.blocks_of(op))

    def of(self, index: Index) -> frozenset[Operation]:
        """The reads that an index is computed from."""
        if isinstance(index, int):
            return frozenset()
        # Sums over long lists of groups are deep: no call a level.
        pending = [index]
        while pending:
            value = pending[-1]
            op = None if value in self._known else maker(value)
            if op is None or op.name.split(".")[0] not in _SCALAR_DIALECTS:
                self._known.setdefault(value, frozenset())
            elif self.is_read(op):
                self._known[value] = frozenset((op,))
            elif unknown := [operand for operand in op.operands if operand not in self._known]:
                pending += unknown
                continue
            else:
                self._known[value] = frozenset().union(*(self._known[operand] for operand in op.operands))
            pending.pop()
        return self._known[index]


def _check(cut: _Cut, numbers: _Numbers) -> None:
    """Refuse an offset that is computed from reads, and steps."""
    read = numbers.of(cut.offset)
    if numbers.of(cut.stride):
        raise cannot_compile(cut.op, what=f"'{cut.op.name}' with a step that a tensor gives", hint=_HINT)
    if read and not (isinstance(cut.offset, SSAValue) and cut.offset.owner in read):
        raise cannot_compile(cut.op, what=f"'{cut.op.name}' at an offset that is computed from numbers of a tensor", hint=_HINT)


def _check_place(read: Operation, numbers: _Numbers) -> None:
    """Refuse a number whose place another one tells."""
    element = _element(read)
    if element is not None and any(numbers.of(index) for index in element.indices):
        what = "an offset or a size that is read from a tensor at a place that a tensor gives"
        hint = "read it at indices that are computed from constants, sizes and the index of scf.forall"
        raise cannot_compile(element, what=what, hint=hint)


def _most(cut: _Cut, emit: TensorEmitter) -> SSAValue:
    """What an offset or a size may be at most, that the slice lies within its array where the other one is 0 or a number."""
    size = emit.size(cut.whole, cut.axis)
    if isinstance(cut.size, int) and cut.size > 0:
        return emit.insert(arith.MaxSIOp(emit.subtract(size, cut.size), emit.constant(0)))
    return emit.value(size)


def _least_of(values: Sequence[SSAValue], emit: TensorEmitter) -> SSAValue:
    found = values[0]
    for value in values[1:]:
        found = emit.minimum(found, value)
    return found


def _bound_read(cast: Operation, cuts: Sequence[_Cut]) -> None:
    """Read the number within the bounds of all slices that are computed from it."""
    if (element := _element(cast)) is None:
        return
    emit = TensorEmitter(cast)
    most = _least_of([_most(cut, emit) for cut in cuts], emit)
    read = emit.insert(dispatch.ReadIndexOp(element.tensor, element.indices, most))
    read.name_hint = cast.results[0].name_hint
    cast.results[0].replace_all_uses_with(read)


def _difference(op: Operation) -> tuple[SSAValue | None, SSAValue | None]:
    """What an operation subtracts from what; None twice for any other one."""
    if isinstance(op, arith.SubiOp):
        return op.lhs, op.rhs
    if isinstance(op, affine.ApplyOp) and len(op.operands) == 2:
        map_, names = op.map.data, [symbol("a"), symbol("b")]
        found = affine_value(map_.results[0], names[: map_.num_dims], names[map_.num_dims :])
        for left, right in ((0, 1), (1, 0)):
            if found == names[left] - names[right]:
                return op.operands[left], op.operands[right]
    return None, None


def _bound_size(size: SSAValue, cuts: Sequence[_Cut]) -> None:
    """Let a size be none below 0, and no slice of it end behind its array. The difference of an end and the offset does not."""
    op = maker(size)
    if op is None:
        return
    following = op.next_op
    emit = TensorEmitter(cuts[0].op if following is None else following)
    before, found = set(size.uses), size
    if not isinstance(op, dispatch.ReadIndexOp):
        found = emit.insert(arith.MaxSIOp(size, emit.constant(0)))
    for cut in cuts:
        end, start = _difference(op)
        ends_at_read = end is not None and isinstance(end.owner, dispatch.ReadIndexOp) and start is cut.offset
        if not ends_at_read and not (cut.offset == 0 and found is size):
            found = emit.insert(arith.MinSIOp(found, emit.subtract(emit.size(cut.whole, cut.axis), cut.offset)))
    if found is not size:
        found.name_hint = size.name_hint
        size.replace_uses_with_if(found, lambda use: use in before)


@register_pass
@dataclass(frozen=True)
class BoundSliceReadsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "bound-slice-reads"

    def run(self, function: func.FuncOp) -> None:
        """Bound what the slices of one function are told by tensors."""
        block = function.body.block
        if not any(isinstance(op, dispatch.BlockIndexOp) for op in block.ops):
            return
        numbers = _Numbers(block)
        told = [cut for cut in _cuts(block) if numbers.of(cut.offset) or numbers.of(cut.size) or numbers.of(cut.stride)]
        if not told:
            return
        by_read: dict[Operation, list[_Cut]] = {}
        by_size: dict[SSAValue, list[_Cut]] = {}
        for cut in told:
            _check(cut, numbers)
            for read in numbers.of(cut.offset) | numbers.of(cut.size):
                by_read.setdefault(read, []).append(cut)
            if isinstance(cut.size, SSAValue):
                by_size.setdefault(cut.size, []).append(cut)
        sizes = {size for size in by_size if numbers.of(size)}
        for read in by_read:
            _check_place(read, numbers)
        for read, cuts in by_read.items():
            _bound_read(read, cuts)
        for cuts in by_size.values():
            after = [cut for cut in _cuts(block) if any(cut.op is one.op and cut.axis == one.axis for one in cuts)]
            if cuts[0].size in sizes and isinstance(after[0].size, SSAValue):
                _bound_size(after[0].size, after)
        sort_by_definition(block)  # bounds are behind what they are computed from
        erase_dead(function)
