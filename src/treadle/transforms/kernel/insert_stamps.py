"""insert-stamps: a kernel that records when its agents do what.

Level: schedule. Reads: the final kernel. Writes: one more output, an array of records, to every kernel and launch (and to what the host
program returns); `stamp.begin` and `stamp.end` around each agent's program, `stamp.event` between what it does. Leaves alone: everything
else; stamps order nothing, so that verify-schedule proves the kernel with them as it proves it without.

Neighbouring operations of one kind are one span, named "kind: what it does". Scalars and views are nobody's.
"""

from typing import cast

from treadle.analysis.recorded_agents import RecordLayout, agents_of, record_layout
from treadle.analysis.spans import span_of
from treadle.dialects import dispatch, stamp, tile
from treadle.dialects.tile_attributes import PointerType
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.passes import Context, Pass, register_pass
from treadle.plan.expr import parse
from treadle.records import dataclass
from treadle.transforms.kernel.carried_values import carried_through
from treadle.transforms.kernel.kernel_ir import erase, insert_before, kernels

DEFAULT_WORKGROUPS, DEFAULT_CAPACITY = 4, 4096


def _is_single(span: str) -> bool:
    """Whether equal neighbours are two spans all the same."""
    return span.startswith("wait:")


def _has_spans(op: Operation) -> bool:
    return any(span_of(inner) is not None for inner in op.walk())


class _Stamps:
    """Puts stamps into one kernel whose records `view` shows."""

    def __init__(self, view: SSAValue, workgroup: SSAValue, layout: RecordLayout) -> None:
        self.view, self.workgroup, self.layout = view, workgroup, layout
        self._numbers: dict[tuple[str | None, str | None], int] = {}

    def agent(self, block: Block, first: int) -> None:
        """The program of agents: all of a block, behind the number of the workgroup where that is made in it."""
        place = (first, len(self.layout.lanes), self.layout.workgroups, self.layout.capacity)
        begin, made = stamp.BeginOp(self.view, self.workgroup, *place), cast(Operation, self.workgroup.owner)
        insert_before(cast(Operation, made.next_op if made.parent is block else block.first_op), begin)
        cursor = self._block(block, begin.result)
        insert_before(cast(Operation, block.last_op), stamp.EndOp(cursor, self.view, self.workgroup, *place))

    def _event(self, before: Operation, cursor: SSAValue, ends: str | None, begins: str | None) -> SSAValue:
        number = self._numbers.setdefault((ends, begins), len(self._numbers) + 1)
        op = stamp.EventOp(cursor, self.view, number, self.layout.capacity, ends, begins)
        insert_before(before, op)
        return op.result

    def _block(self, block: Block, cursor: SSAValue) -> SSAValue:
        under_way: str | None = None
        for op in tuple(block.ops):
            is_control = isinstance(op, scf.ForOp | scf.IfOp) and _has_spans(op)
            span = None if is_control else span_of(op)
            if is_control or op is block.last_op:
                if under_way is not None:
                    cursor = self._event(op, cursor, under_way, None)
                under_way = None
                if is_control:
                    cursor = carried_through(op, cursor, self._block).results[-1]
            elif span is not None and (span != under_way or _is_single(span)):
                cursor = self._event(op, cursor, under_way, span)
                under_way = span
        return cursor


def _records_view(kernel: tile.KernelOp, layout: RecordLayout) -> tuple[SSAValue, SSAValue]:
    """One more output of a kernel, as an array of words, and the executing workgroup's number (large outside the grid's first row)."""
    block = kernel.body.block
    outputs = len(block.args) - len(kernel.symbol_names())
    pointer = block.insert_arg(PointerType(builtin.i64), outputs)
    kernel.properties["arg_align"] = tile.i64_array([*tile.ints(kernel.arg_align), 256])
    kernel.properties["output_count"] = builtin.IntegerAttr(kernel.output_count.value.data + 1, builtin.i64)
    view = tile.ViewOp(pointer, [layout.words], [1], align=256)
    ids = [tile.ProgramIdOp(axis) for axis in range(3) if axis == 0 or kernel.grid_text()[axis] != "1"]
    made: list[Operation] = [view, *ids]
    number: SSAValue = ids[0].result
    for later in ids[1:]:
        none = arith.ConstantOp(builtin.IntegerAttr(0, builtin.IndexType()))
        many = arith.ConstantOp(builtin.IntegerAttr(layout.workgroups, builtin.IndexType()))
        is_first = arith.CmpiOp(later.result, none.result, "eq")
        choice = arith.SelectOp(is_first.result, number, many.result)
        made += [none, many, is_first, choice]
        number = choice.result
    insert_before(cast(Operation, block.first_op), *made)
    return view.result, number


def stamp_kernel(kernel: tile.KernelOp, workgroups: int, capacity: int) -> RecordLayout:
    """Make a kernel record; gives the layout of its records."""
    layout = record_layout(kernel, workgroups, capacity)
    stamps = _Stamps(*_records_view(kernel, layout), layout)
    first = 0
    for block, names in agents_of(kernel):
        stamps.agent(block, first)
        first += len(names)
    return layout


def _return_records(program: dispatch.ProgramOp, layouts: dict[str, RecordLayout]) -> None:
    """Every launch of a recording kernel writes an array of its own, which the program returns behind its results."""
    end = program.body.block.last_op
    if not isinstance(end, dispatch.ReturnOp):
        raise InternalError("a host program without dispatch.return")
    for op in tuple(program.body.block.ops):
        if isinstance(op, dispatch.LaunchOp):
            name = op.kernel.string_value()
            records = dispatch.AllocOp([layouts[name].words], dispatch.BufferType(builtin.i64))
            wider = dispatch.LaunchOp(name, list(op.inputs), [*op.outputs, records.result], op.symbol_values())
            insert_before(op, records, wider)
            erase(op)
            end.operands = (*end.operands, records.result)


@register_pass
@dataclass(frozen=True)
class InsertStampsPass(Pass):
    """Makes every kernel of a module record `workgroups` of its workgroups, `capacity` words (a power of two) an agent."""

    name = "insert-stamps"
    workgroups: int = DEFAULT_WORKGROUPS
    capacity: int = DEFAULT_CAPACITY

    def apply(self, ctx: Context, module: builtin.ModuleOp, /) -> None:
        """Run on a whole module: its kernels and its host program."""
        layouts: dict[str, RecordLayout] = {}
        for kernel in kernels(module):
            grid = [parse(text) for text in kernel.grid_text()]
            most = grid[0].evaluate({}) if not grid[0].symbols() else self.workgroups
            layouts[kernel.sym_name.data] = stamp_kernel(kernel, max(1, min(self.workgroups, most)), self.capacity)
        for op in module.body.block.ops:
            if isinstance(op, dispatch.ProgramOp):
                _return_records(op, layouts)
