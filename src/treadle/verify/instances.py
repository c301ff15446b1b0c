"""In which agents a value that nobody computes is one number: workgroups of a cluster and groups of a role have their own where it hangs on
which of them they are, or on memory that may change, and where it matters to others which of them have it (`role_ends.py`).
"""

from collections.abc import Iterator, Sequence

from treadle.dialects import pipe, tile
from treadle.dialects.tile_attributes import is_shared
from treadle.ir.ancestry import ancestors, operands_of
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.verify.program import Program, is_first_axis, pointer_of
from treadle.verify.role_ends import is_of_an_end
from treadle.verify.scalars import constant_value, sources_of

_QUOTIENTS = ("arith.divui", "arith.divsi", "arith.floordivsi")
Instance = tuple[int, int]
"""Workgroup of the cluster and group of the role; -1 for all."""


def instances_of(program: Program, values: Sequence[SSAValue]) -> list[Instance]:
    """The instances of some values that are the same number wherever both are computed."""
    if all(is_of_an_end(program, value) for value in values):
        return [(-1, -1)]
    of_rank = of_group = False
    groups = max([_groups_of(value.owner) for value in values if isinstance(value.owner, Operation)], default=0)
    for op in _origins(program, values):
        is_changing = _may_change(program, op)
        of_rank |= is_changing or isinstance(op, pipe.ClusterRankOp) or (isinstance(op, tile.ProgramIdOp) and is_first_axis(op.result))
        of_group |= (is_changing or isinstance(op, pipe.GroupIdOp)) and bool(_groups_of(op))
    ranks = range(program.cluster) if of_rank and program.cluster > 1 else (-1,)
    return [(rank, group) for rank in ranks for group in (range(groups) if of_group and groups else (-1,))]


def _origins(program: Program, values: Sequence[SSAValue]) -> Iterator[Operation]:
    """All operations that have a part in some values."""
    work, seen = list(values), set[SSAValue]()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        op = value.owner
        if not isinstance(op, Operation):
            work += sources_of(value)
            continue
        yield op
        if not _is_of_cluster(program, op):
            work += sources_of(value) if isinstance(op, scf.ForOp | scf.IfOp) else operands_of(op)


def _is_of_cluster(program: Program, op: Operation) -> bool:
    """Whether an operation makes the number of the cluster of a workgroup's id: an id is that times the size, plus the rank."""
    if op.name not in _QUOTIENTS:
        return False
    whole, by = operands_of(op)
    divisor = constant_value(by.owner) if isinstance(by.owner, Operation) and by.owner.name == "arith.constant" else None
    return isinstance(whole.owner, tile.ProgramIdOp) and divisor is not None and divisor > 0 and divisor % program.cluster == 0


def _may_change(program: Program, op: Operation) -> bool:
    """Whether an operation may give another number to another agent that does the same: of memory that the kernel writes, or by regions."""
    if op.regions and not isinstance(op, scf.ForOp | scf.IfOp | tile.ReduceOp):
        return True
    for effect in program.effects(op):
        pointer = pointer_of(effect.resource)
        if effect.access != "write" and (is_shared(effect.resource.type) or pointer is None or pointer in program.written):
            return True
    return False


def _groups_of(op: Operation) -> int:
    """The groups of the role that executes an operation; 0 where that has one, or outside roles."""
    for inner in (op, *ancestors(op)):
        roles = inner.parent_op()
        if isinstance(roles, pipe.RolesOp):
            which = next(at for at, region in enumerate(roles.roles) if region is inner.parent_region())
            groups = roles.role_groups()[which]
            return groups if groups > 1 else 0
    return 0
