"""What nobody knows before a kernel runs and something depends on, and which values it may have together.

Sizes and workgroup ids; and results of arithmetic that is no affine form of these (products of two sizes, loaded numbers), which are taken
to be free: any value they might have. Equal expressions are one unknown.
"""

from collections.abc import Iterator

from treadle.dialects import tile
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.plan.expr import Expr
from treadle.plan.expr import parse as parse_expr
from treadle.records import Record
from treadle.verify.program import Program, is_first_axis
from treadle.verify.scalars import LinearForms, constant_value, is_narrow, loop_around, scalar_function, sources_of, width_of
from treadle.verify.turning_points import TurningPoints

MAX_WORKGROUPS = (1 << 31) - 1
MAX_LISTED = 4096
MAX_SUM = (1 << 63) - 1
"""Of as many sizes as an index has numbers."""
_BY_CONSTANTS = frozenset("arith." + name for name in ["muli", "remui", "remsi", "divui", "divsi", "floordivsi", "ceildivsi", "ceildivui"])


class Unknown(Record):
    """One unknown: the values that are it, what messages call it, the least and the greatest value.

    `computes`: the operation whose result is taken to be free although it follows from the others. `rank`, `group`: the workgroup of the
    cluster, and the group of the role, in which its values are it; -1 for all.
    """

    values: tuple[SSAValue, ...]
    name: str
    low: int
    high: int
    factor: int = 1
    computes: Operation | None = None
    rank: int = -1
    group: int = -1

    def is_in(self, rank: int, group: int) -> bool:
        """Whether its values are it in a group of a workgroup (-1: outside roles)."""
        return self.rank in (-1, rank) and self.group == group

    @property
    def axis(self) -> int | None:
        """The axis of the grid that it is the workgroup's id along; None of others."""
        owner = self.values[0].owner
        return owner.axis.value.data if isinstance(owner, tile.ProgramIdOp) else None


class Unknowns:
    """The unknowns of a program, in order. `varies`: values that depend on them, or on a loop whose length does.

    `largest_index`: no index is larger.
    """

    def __init__(self, program: Program, points: TurningPoints) -> None:
        self.program = program
        self.largest_index = (1 << program.kernel.index_width() - 1) - 1
        self.all: list[Unknown] = [self._given(value) for value in program.unknowns]
        self._scalars = list(self._deciding_scalars())
        loaded = [op.results[0] for op in self._scalars if _is_loaded(op)]
        self.varies = self._closure([*(value for unknown in self.all for value in unknown.values), *loaded], points)
        self._add_free()

    def _deciding_scalars(self) -> Iterator[Operation]:
        """Operations outside loops whose result decides something."""
        deciding = self.program.deciding
        for op in self.program.ops:
            results = op.results
            if len(results) == 1 and not op.regions and not deciding.isdisjoint(results) and width_of(results[0].type):
                if loop_around(op) is None:
                    yield op

    def _closure(self, seeds: list[SSAValue], points: TurningPoints) -> set[SSAValue]:
        users: dict[SSAValue, list[SSAValue]] = {}
        for value in self.program.deciding:
            for source in sources_of(value):
                users.setdefault(source, []).append(value)
        for loop in self.program.loops:
            number = loop.body.block.args[0]
            facts = points.of(loop)
            for source in (loop.ub, *(value for turn in (*facts.turns(facts.covered), *facts.signs) for value, _ in turn.rest)):
                users.setdefault(source, []).append(number)
        found: set[SSAValue] = set()
        while seeds:
            value = seeds.pop()
            if value not in found:
                found.add(value)
                seeds += users.get(value, [])
        return found

    def _given(self, value: SSAValue) -> Unknown:
        program = self.program
        values = program.same_as(value)
        if not isinstance(value.owner, tile.ProgramIdOp):
            width = width_of(value.type)
            is_size = isinstance(value.type, builtin.IndexType)
            low = 0 if is_size or width == 1 else -(1 << width - 1)
            high = MAX_SUM if value in program.sums else self.largest_index if is_size else 1 if width == 1 else (1 << width - 1) - 1
            return Unknown(values, program.name_of(value), low, high)
        axis = value.owner.axis.value.data
        factor = program.cluster if is_first_axis(value) else 1
        return Unknown(values, f"workgroup id {axis}", 0, MAX_WORKGROUPS // factor, factor)

    # --- results that are taken to be free

    def _add_free(self) -> None:
        forms = LinearForms(structural=True, written=self.program.written)
        found: dict[object, list[SSAValue]] = {}
        for op in self._scalars:
            if _is_loaded(op) or self._is_product(op):
                found.setdefault(forms.of(op.results[0]), []).append(op.results[0])
        if not found:
            return
        from treadle.verify.instances import instances_of  # most kernels compute with sizes and workgroup ids alone

        for values in found.values():
            op = values[0].owner
            width = width_of(values[0].type, op if isinstance(op, Operation) else None)
            low = 0 if width == 1 or self._is_positive(values[0]) else -(1 << width - 1)
            high = self.largest_index if isinstance(values[0].type, builtin.IndexType) else 1 if width == 1 else (1 << width - 1) - 1
            computes = op if isinstance(op, Operation) and not _is_loaded(op) else None
            for rank, group in instances_of(self.program, values):
                self.all.append(Unknown(tuple(values), self.program.name_of(values[0]), low, high, 1, computes, rank, group))

    def _is_product(self, op: Operation) -> bool:
        """Whether a result that varies is no form of the operands: a product of two that vary, a quotient by one."""
        if op.name not in _BY_CONSTANTS:
            return False
        varying = [operand in self.varies for operand in op.operands]
        return all(varying) or (varying[1] and op.name != "arith.muli")

    def _is_positive(self, value: SSAValue) -> bool:
        """Whether a value is zero or more for all sizes, as far as signs tell."""
        owner = value.owner
        if not isinstance(owner, Operation):
            return any(value in unknown.values and unknown.low >= 0 for unknown in self.all)
        if is_narrow(owner):
            return False  # what wraps, or is cut, may be anything
        if owner.name == "arith.constant":
            return (constant_value(owner) or 0) >= 0
        if isinstance(owner, tile.ProgramIdOp):
            return True
        if owner.name == "arith.maxsi":
            return any(self._is_positive(v) for v in owner.operands)
        names = ("addi", "muli", "divui", "divsi", "remui", "ceildivui", "ceildivsi", "floordivsi", "minsi", "index_cast")
        return owner.name in {"arith." + name for name in names} and all(self._is_positive(v) for v in owner.operands)

    # --- their values

    def listed(self) -> list[tuple[int, ...]] | None:
        """All values that they have together, where these are few: workgroup ids of a grid that is known."""
        limits: list[int] = []
        total = 1
        for unknown in self.all:
            count = self._grid_limit(unknown)
            if count is None:
                return None
            limits.append(count)
            total *= count
        if total > MAX_LISTED:
            return None
        points: list[tuple[int, ...]] = [()]
        for limit in limits:
            points = [(*point, value) for point in points for value in range(limit)]
        return points

    def _grid_limit(self, unknown: Unknown) -> int | None:
        axis = unknown.axis
        value = None if axis is None else self.grid()[axis].as_int()
        return None if value is None else value // unknown.factor

    def grid(self) -> list[Expr]:
        """How many workgroups there are along each axis."""
        return [parse_expr(text.data) for text in self.program.kernel.grid.data if isinstance(text, builtin.StringAttr)]


def _is_loaded(op: Operation) -> bool:
    """Whether nothing is known about a result: it is no arithmetic that the checker can do."""
    is_given = isinstance(op, tile.ProgramIdOp) or op.name.startswith(("pipe.", "sync."))
    return not is_given and op.name != "arith.constant" and scalar_function(op) is None
