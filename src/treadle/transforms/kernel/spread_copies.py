"""spread-copies: a loop's copies by the threads are issued between its multiply-adds, not all at once.

Level: tile. Reads: `spreads_copies` of the kernel's form; copies that pipeline-loops has put under the condition that there is a step so
far ahead; the machine's queue of such copies. Writes: the copies between the steps of multiply-adds, without the condition; those that turn
their operand in parts along k (`pipe.part`). Leaves alone: kernels of other forms, loops of matrix instructions, loops with fewer
multiply-adds than places, conditions of more than copies.

A copy of single elements takes a wavefront for each row that a warp touches. What the warp reads next from shared memory waits behind all
of them, and the registers of their addresses are held until then. Issued a few at a time, behind the reads of the step of multiply-adds
that follows, they run under the arithmetic. Without the condition there is no branch to keep them together. Copies of steps that there are
not bring what lies behind the loop's end, zeros behind the array's, to slots that nobody reads; the form asks where loops are long.
"""

from collections.abc import Iterator, Sequence

from treadle.analysis.divisibility import constant_value
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.scalar_dependence import depends_on
from treadle.dialects import pipe, tile
from treadle.ir.ancestry import ancestors
from treadle.ir.core import Operation
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.locations import location_of, set_location
from treadle.ir.passes import register_pass
from treadle.layout.turned_copy import SECTOR_BYTES
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.forms import tiles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import KernelPass, erase, insert_before
from treadle.transforms.kernel.pipelining.request import PIPELINED

NAME = "spread-copies"
SIGNED_LESS = 2


def guarded_copies(loop: scf.ForOp, path: str) -> scf.IfOp | None:
    """The condition of a loop, that a step is not behind its end, under which there is nothing but copies of this path and their places."""
    for op in loop.body.block.ops:
        compared = op.cond.owner if isinstance(op, scf.IfOp) else None
        if not isinstance(op, scf.IfOp) or op.results or op.false_region.blocks or not isinstance(compared, arith.CmpiOp):
            continue
        inner = [one for one in op.true_region.block.ops if not isinstance(one, scf.YieldOp)]
        copies = [one for one in inner if isinstance(one, tile.CopyOp) and one.path.data == path]
        places = [one for one in inner if isinstance(one, arith.ConstantOp | arith.AddiOp | arith.MuliOp) or _divides_by_number(one)]
        is_step = compared.predicate.value.data == SIGNED_LESS and compared.rhs is loop.ub
        if copies and is_step and len(copies) + len(places) == len(inner):
            return op
    return None


def _divides_by_number(op: Operation) -> bool:
    return isinstance(op, arith.DivUIOp | arith.RemUIOp) and bool(constant_value(op.rhs))


def turned_parts(copy: tile.CopyOp) -> tuple[int, int]:
    """Along which dimension of its buffer, and in how many parts, a copy is issued: a sector of each row where it turns what lies along
    that dimension, else (0, 1).
    """
    dims, layout = tile.ints(copy.dims), tile.shared_layout_of(copy.destination)
    strides = tile.view_strides(copy.view)
    inner = next((axis for axis, dim in enumerate(dims) if strides[dim] == 1), None)
    if inner is None or layout.offset[0][inner]:
        return 0, 1
    sector = SECTOR_BYTES // element_bytes(tile.memref_type(copy.destination).element_type)
    count = layout.shape[inner] // sector
    return (inner, count) if count > 1 and pipe.part_layout(layout, inner, count) is not None else (0, 1)


def _rows_stay_apart(kernel: tile.KernelOp, loop: scf.ForOp) -> bool:
    """Whether what is computed of one row or column of the loop's results comes into no other: nothing else contracts, nothing reduces or
    adds to computed places.
    """
    return not any(
        isinstance(op, tile.ReduceOp | tile.AtomicOp) or (isinstance(op, tile.ContractOp) and op.parent_op() is not loop)
        for op in kernel.walk()
    )


def _repeated(copy: tile.CopyOp, loop: scf.ForOp) -> tuple[int, ...]:
    """Dimensions of a copy's tile that may end behind the array and lie along rows or columns of the result, each a row in memory."""
    place, strides, sizes = loop.body.block.args[0], tile.view_strides(copy.view), tile.memref_type(copy.view).get_shape()
    shape = tile.memref_type(copy.destination).get_shape()

    def is_repeated(axis: int, dim: int) -> bool:
        may_end = sizes[dim] > 0 and sizes[dim] % shape[axis] != 0
        return may_end and strides[dim] not in (None, 1) and not depends_on(copy.offsets[dim], [place], loop.body.block)

    return tuple(axis for axis, dim in enumerate(tile.ints(copy.dims)) if is_repeated(axis, dim))


def _issued(copy: tile.CopyOp, repeats: Sequence[int]) -> Iterator[Sequence[Operation]]:
    """A copy as it is issued: its parts, each with what tells where it goes."""
    axis, count = turned_parts(copy)
    vector = copy.vector.value.data if copy.vector is not None else 0
    if count == 1:
        path = copy.path.data
        yield [
            tile.CopyOp(copy.view, list(copy.offsets), tile.ints(copy.dims), copy.destination, path=path, vector=vector, repeats=repeats)
        ]
        return
    along, size = tile.ints(copy.dims)[axis], tile.shared_layout_of(copy.destination).shape[axis] // count
    for number in range(count):
        which, distance = (arith.ConstantOp(builtin.IntegerAttr(value, builtin.IndexType())) for value in (number, number * size))
        place = arith.AddiOp(copy.offsets[along], distance.result)
        part = pipe.PartOp(copy.destination, which.result, axis, count)
        offsets = [place.result if dim == along else offset for dim, offset in enumerate(copy.offsets)]
        dims, path = tile.ints(copy.dims), copy.path.data
        moved = tile.CopyOp(copy.view, offsets, dims, part.result, path=path, vector=vector, repeats=repeats)
        yield [which, distance, place, part, moved]


def spread(loop: scf.ForOp, path: str) -> int | str:
    """Issue a loop's copies between its multiply-adds; returns at how many places, or why nothing is changed."""
    contracts = [op for op in loop.body.block.ops if isinstance(op, tile.ContractOp) and op.instruction.data == "fma"]
    guard = guarded_copies(loop, path)
    if guard is None:
        return "no condition that a step is not behind the loop's end has copies alone"
    if not contracts or not guard.is_before_in_block(contracts[0]):
        return "no multiply-adds stand behind the copies"
    inner = list(guard.true_region.block.ops)
    copies = [op for op in inner if isinstance(op, tile.CopyOp)]
    count = sum(turned_parts(copy)[1] for copy in copies)
    if 2 * count > len(contracts):
        return f"{len(contracts)} multiply-adds are too few for {count} copies"
    for op in inner:
        if not isinstance(op, tile.CopyOp | scf.YieldOp):
            op.detach()
            insert_before(guard, op)
    apart = _rows_stay_apart(next(op for op in ancestors(loop) if isinstance(op, tile.KernelOp)), loop)
    number = 0
    for copy in copies:
        for ops in _issued(copy, _repeated(copy, loop) if apart else ()):
            for op in ops:
                set_location(op, copy)
            # Ahead of the next multiply-adds, whose operands are being read then.
            insert_before(contracts[number * len(contracts) // count + 1], *ops)
            number += 1
    erase(guard)
    return count


@register_pass
@dataclass(frozen=True)
class SpreadCopiesPass(KernelPass):
    """Issues copies between multiply-adds."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite the loops of one kernel."""
        queue, config = spec.queue_for("copy_in"), config_of(kernel)
        if queue is None or not isinstance(config, tiles.Config) or not config.spreads_copies:
            return
        for loop in [op for op in kernel.walk() if isinstance(op, scf.ForOp) and PIPELINED in op.attributes]:
            subject, place = f"{kernel.sym_name.data}: loop", location_of(loop)
            if isinstance(found := spread(loop, queue.path), str):
                emit("refusal", NAME, subject, f"copies are not issued between the multiply-adds: {found}", place)
            else:
                text = f"copies ('{queue.path}') are issued at {found} places between the multiply-adds of a step, whether or not it is one"
                emit("decision", NAME, subject, text, place)
