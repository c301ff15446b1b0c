"""Running passes over kernel texts and finding operations in the result."""

from typing import TypeVar

from treadle.ir.core import Operation
from treadle.ir.dialects import builtin
from treadle.ir.passes import Pass, run_passes
from treadle.ir.text import parse_module, print_module
from treadle.transforms.kernel.allocate_shared import AllocateSharedPass
from treadle.transforms.kernel.assign_layouts import AssignLayoutsPass
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.transforms.kernel.lower_layout_conversions import LowerLayoutConversionsPass
from treadle.transforms.kernel.lower_reductions import LowerReductionsPass
from treadle.transforms.kernel.order_issue import OrderIssuePass
from treadle.transforms.kernel.set_access_widths import SetAccessWidthsPass
from treadle.transforms.kernel.set_operand_staging import SetOperandStagingPass
from treadle.transforms.kernel.stage_operands import StageOperandsPass

Op = TypeVar("Op", bound=Operation)

ORDER: tuple[type[Pass], ...] = (
    SetAccessWidthsPass,
    SetOperandStagingPass,
    StageOperandsPass,
    AssignLayoutsPass,
    LowerReductionsPass,
    LowerLayoutConversionsPass,
    AllocateSharedPass,
    OrderIssuePass,
    InsertSyncPass,
)


def up_to(last: type[Pass] | None) -> list[Pass]:
    """The pipeline up to and including a pass (None: nothing)."""
    return [] if last is None else [kind() for kind in ORDER[: ORDER.index(last) + 1]]


def lowered(text: str, last: type[Pass] | None) -> builtin.ModuleOp:
    """A kernel text after the pipeline up to and including `last`; it still parses when printed."""
    module = parse_module(text, "test")
    run_passes(module, up_to(last))
    printed = print_module(module)
    assert print_module(parse_module(printed, "again")) == printed
    return module


def find(module: Operation, kind: type[Op]) -> list[Op]:
    """All operations of a kind, in order."""
    return [op for op in module.walk() if isinstance(op, kind)]


def skeleton(module: Operation, *prefixes: str) -> list[str]:
    """The names of the operations with one of the prefixes, in order; loops are bracketed by `for` and `end`."""
    names: list[str] = []

    def visit(op: Operation) -> None:
        shown = op.name.startswith(prefixes)
        if op.name == "scf.for":
            names.append("for")
        elif shown:
            names.append(op.name)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.ops:
                    visit(inner)
        if op.name == "scf.for":
            names.append("end")

    visit(module)
    return names
