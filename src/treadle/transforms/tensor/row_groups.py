"""Which reductions become one kernel of rows, with what is computed between and behind them (`analysis/row_structure.py`).

A group grows from its first reduction in program order, as long as every operation that joins reads it at the same rows: softmax is a
maximum, an exponential, a sum and a quotient; layer normalisation a sum, a sum of squares and what they scale. Memory is read once, or as
often as rows are walked that no workgroup holds; but a row is one workgroup's, so few long rows stay apart.
"""

from treadle.analysis.folds import is_separable
from treadle.analysis.indexing import Reduction, StructuredOp, classify, view_of
from treadle.analysis.row_sizes import is_even, row_sizes
from treadle.analysis.row_structure import Rows, needs_rows, rows_of
from treadle.analysis.shapes import infer_shapes
from treadle.analysis.sizes import Shapes
from treadle.ir.dialects import func, linalg
from treadle.machine import TargetSpec
from treadle.plan.row_tiles import is_worth_it
from treadle.transforms.tensor.groups import Group, Grouping, closes_cycle


def join_rows(grouping: Grouping, spec: TargetSpec | None) -> None:
    """Merge the groups of reductions that should share a kernel of rows, with elementwise operations. Remarks tell of what is merged.

    `spec`: the machine, None where nobody knows it: then none are.
    """
    function = grouping.flow.block.parent_op()
    if spec is None or not isinstance(function, func.FuncOp):
        return
    shapes: Shapes | None = None
    for group in list(grouping.groups):
        if group in grouping.groups and _is_plain(group):
            shapes = shapes or infer_shapes(function)
            if _is_worth_it(view_of(group.root), spec):
                _extend(grouping, group, shapes)


def _is_plain(group: Group) -> bool:
    """Whether a group holds one reduction that can be folded in parts, and nothing else, and no user has named it."""
    if group.name is not None or len(group.members) > 1 or group.producers:
        return False
    kind = classify(group.root)
    return isinstance(kind, Reduction) and is_separable(view_of(group.root), kind)


def _is_worth_it(view: StructuredOp, spec: TargetSpec) -> bool:
    rows, length, contiguous = row_sizes(view)
    return is_worth_it(rows, length, contiguous=contiguous, spec=spec)


def _extend(grouping: Grouping, group: Group, shapes: Shapes) -> None:
    """Take in all later operations that walk the same rows; nothing where they are no kernel of rows together."""
    joined: list[linalg.ops.GenericOp] = [group.root]
    roots: list[linalg.ops.GenericOp] = [group.root]
    trial = Group(roots=[group.root])
    results, read = set(group.root.results), {value for value, _ in view_of(group.root).operands()}
    for op in grouping.nodes[grouping.flow.position(group.root) + 1 :]:
        view, own = view_of(op), grouping.owner.get(op)
        is_root = own is not None and own is not group and _is_plain(own)
        if not (is_root or (grouping.free(op) and view.is_parallel)):
            continue
        values = {value for value, _ in view.operands()}
        if values.isdisjoint(results) and not (is_root and not values.isdisjoint(read)):
            continue
        added = [*roots, op] if is_root else roots
        rows = rows_of([view_of(one) for one in (*joined, op)], added)
        if (
            not isinstance(rows, Rows)
            or not is_even(view_of(group.root), view, rows, shapes)
            or closes_cycle(grouping, trial, op, consumer=True)
        ):
            continue
        joined.append(op)
        roots = added
        (trial.roots if is_root else trial.consumers).append(op)
        results.update(op.results)
        read.update(values)
    _take(grouping, group, joined, roots)


def _take(grouping: Grouping, group: Group, joined: list[linalg.ops.GenericOp], roots: list[linalg.ops.GenericOp]) -> None:
    """Let a group have all of `joined`, where they need a kernel of rows."""
    if not needs_rows([view_of(op) for op in joined], roots):
        return
    group.is_rows = True
    for op in joined[1:]:
        grouping.join(group, op, "it walks the same rows")
