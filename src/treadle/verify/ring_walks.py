"""The way of a ring's counter through a role: which values are functions of the count, and where it goes on.

`RingWalk` takes some arguments of a loop's block to be functions of a count and looks whether all that is carried bears it out. It follows
the role's code in order; what is known holds for the count as it is at that point, so whatever was computed before a loop in which the
counter goes on is known no more behind it, but for what that loop hands on.
"""

from collections.abc import Sequence

from treadle.ir.ancestry import operands_of
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.verify.ring_values import PICKING, RingSlice, RingValues, Table, Use, ahead, is_constant

Cell = Table
Known = dict[SSAValue, Table]
_MAX_TRIES = 12


class _Dropped(Exception):
    """What was taken to be carried is not: the walk begins anew without it."""


class _NoCounter(Exception):
    """The counter goes on in a loop that does not carry it."""


class RingWalk:
    """A walk through the block of a role along the counter that begins with a loop.

    `cells`: what the loop carries as functions of the count (0: its own number). `uses`: what picks slots and parities; `steps`: by how
    much the counter goes on before a loop or at the end of a block; `sizes`: by how many times the size besides, where it goes on by one;
    `moving`: the loops and branches in which it does. `dropped`: what is carried, and is no function of the count; walks add to it.
    """

    def __init__(
        self,
        values: RingValues,
        found: RingSlice,
        loop: scf.ForOp,
        cells: dict[int, Cell],
        start: int,
        place: tuple[int, int],
        dropped: set[Use],
    ) -> None:
        self.values, self.slice, self.loop, self.cells, self.start, self.place = values, found, loop, cells, start, place
        self._main = next(iter(cells))
        self._dropped = dropped
        self._is_number = self._main == 0
        self._forget()

    def _forget(self) -> None:
        self.uses: dict[Use, Table] = {}
        self.steps: dict[Operation, int] = {}
        self.sizes: dict[Operation, int] = {}
        self.moving: set[Operation] = set()
        self._places: dict[Table, list[tuple[int, int]]] = {}
        for at, cell in self.cells.items():
            for by in range(self.values.count if (self.loop, at) not in self._dropped else 0):
                self._places.setdefault(ahead(cell, by), []).append((at, by))

    def is_counter(self, role: Block) -> bool:
        """Whether all that is carried in a role bears it out."""
        for _ in range(_MAX_TRIES):
            self._forget()
            try:
                self._block(role, {})
                return True
            except _Dropped:
                continue
            except _NoCounter:
                return False
        return False

    def joins(self, others: Sequence["RingWalk"]) -> bool:
        """Whether this walk, where the size is 0 modulo the counts, and those where it is 1 and so on, are one, which this one is then."""
        walks, count = [self, *others], self.values.count
        self.uses = {use: table for use, table in self.uses.items() if all(walk.uses.get(use) == table for walk in others)}
        for op in {op for walk in walks for op in walk.steps}:
            by = [walk.steps.get(op, 0) for walk in walks]
            times = (by[1] - by[0]) % count
            if any(step != (by[0] + times * residue) % count for residue, step in enumerate(by)):
                return False
            self.steps[op], self.sizes[op] = by[0], times
        self.moving = {op for walk in walks for op in walk.moving}
        return bool(self.uses)

    def carried(self) -> set[int]:
        """The arguments of the loop that bear it out."""
        return {at for at in self.cells if (self.loop, at) not in self._dropped}

    # --- code in order

    def _block(self, block: Block, known: Known) -> tuple[Known, bool]:
        """What is known at the end of a block, and whether the counter went on in it."""
        moved = False
        for op in self.slice.ops(block):
            if isinstance(op, scf.ForOp):
                known, moves = self._loop(op, known)
                moved |= moves
            elif isinstance(op, scf.IfOp):
                known, moves = self._branch(op, known)
                moved |= moves
            elif known:
                if op.name in PICKING:
                    self._note(op, known)
                    continue
                table = self.values.result(op, known)
                if table is not None:
                    known[op.results[0]] = table
        return known, moved

    def _note(self, op: Operation, known: Known) -> None:
        for at, operand in enumerate(operands_of(op)):
            if at and operand in known:
                self.uses[op, at] = known[operand]

    def _step(self, op: Operation, by: int) -> None:
        if by:
            self.steps[op] = by

    def _shift(self, values: dict[int, Table | None]) -> tuple[int, dict[int, int]]:
        """How far the counter has gone on where values are cells of it again, and which cells they are; as many of them as may be."""
        found: dict[int, dict[int, int]] = {}
        for at, table in values.items():
            for cell, by in self._places.get(table, ()) if table is not None and not is_constant(table) else ():
                found.setdefault(by, {})[at] = cell
        if not found:
            return 0, {}
        by = max(found, key=lambda each: (len(found[each]), -each))
        return by, found[by]

    # --- loops

    def _loop(self, op: scf.ForOp, known: Known) -> tuple[Known, bool]:
        arguments, end = op.body.block.args, op.body.block.last_op
        if end is None:
            raise _NoCounter
        by, carried, cells = self._begin(op, known)
        if not carried:
            _, moved = self._block(op.body.block, dict(known))
            if moved or op is self.loop:
                raise _NoCounter
            return known, False
        inner, moved = self._block(op.body.block, {arguments[at]: cell for at, cell in cells.items()})
        ends = {at: self.values.of(end.operands[at - 1], inner) for at in cells if at}
        if op is self.loop and self._is_number:
            again = (self.values.constant(op.step) or 0) % self.values.count
            if moved:
                raise _NoCounter
        else:
            again, _ = self._shift({at: ends[at] for at in carried if at})
        left = [at for at, cell in cells.items() if at and ends[at] != ahead(cell, again)]
        if left:
            if op is self.loop and self._main in left:
                raise _NoCounter
            self._dropped |= {(op, at) for at in left}
            raise _Dropped
        self._step(op, by)
        self._step(end, again)
        handed_on: Known = {op.results[at - 1]: cell for at, cell in cells.items() if at}
        if not by and not again and not moved:
            return {**known, **handed_on}, False
        self.moving.add(op)
        return handed_on, True

    def _begin(self, op: scf.ForOp, known: Known) -> tuple[int, list[int], dict[int, Cell]]:
        """By how much the counter goes on before a loop, which arguments are cells there, and what these and others are in it."""
        if op is self.loop:
            by, carried, cells = 0, {at: at for at in self.cells}, dict(self.cells)
        else:
            begins = {at: self.values.of(value, known) for at, value in enumerate(op.iter_args, 1)} if known else {}
            by, carried = self._shift(begins)
            late = {at: self._late(table, by) for at, table in begins.items() if at not in carried} if carried else {}
            cells = {at: self.cells[cell] for at, cell in carried.items()} | {at: cell for at, cell in late.items() if cell is not None}
        cells = {at: cell for at, cell in cells.items() if (op, at) not in self._dropped}
        return by, [at for at in carried if at in cells], cells

    def _late(self, table: Table | None, by: int) -> Cell | None:
        """What a value is that was, or will be, a cell at another count than those that a loop begins with."""
        places = self._places.get(table) if table is not None and not is_constant(table) else None
        return ahead(self.cells[places[0][0]], (places[0][1] - by) % self.values.count) if places else None

    def _is_again(self, one: int | None, other: int) -> bool:
        return one is not None and self.cells[one] == self.cells[other]

    # --- branches

    def _branch(self, op: scf.IfOp, known: Known) -> tuple[Known, bool]:
        ends: list[tuple[Operation | None, Known]] = []
        moved = False
        for region in op.regions:
            end = region.block.last_op if region.blocks else None
            inner, moves = self._block(region.block, dict(known)) if region.blocks else (dict(known), False)
            ends.append((end, inner))
            moved |= moves
        tables: list[dict[int, Table | None]] = []
        for end, inner in ends:
            tables.append({at: self.values.of(end.operands[at], inner) for at in range(len(op.results))} if end is not None else {})
        one, other = tables if len(tables) > 1 else (tables[0], {})
        same = {op.results[at]: table for at, table in one.items() if table is not None and other.get(at) == table}
        if not moved and all(op.results[at] in same for at, table in one.items() if table is not None):
            return {**known, **same}, False
        (ahead_by, cells), (other_by, others) = self._shift(one), self._shift(other)
        both = {at: cell for at, cell in cells.items() if self._is_again(others.get(at), cell)}
        if not moved and (not both or ahead_by == other_by == 0):
            return {**known, **same}, False
        self.moving.add(op)
        if not both:
            return {}, True
        for (end, _), by in zip(ends, (ahead_by, other_by), strict=True):
            if end is not None:
                self._step(end, by)
        return {op.results[at]: self.cells[cell] for at, cell in both.items()}, True
