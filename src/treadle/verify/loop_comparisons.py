"""The comparisons of loops that turn once as a loop goes on: those of a form that is affine in the number of the iteration, and where that
is; and unsigned divisions that repeat with their operand.

Kernels whose loops decide nothing by comparisons, minima and divisions do without this module (`turning_points.py` asks).
"""

from collections.abc import Iterable
from math import lcm

from treadle.ir.core import BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.records import Record
from treadle.verify.limits_of_values import most_of
from treadle.verify.piecewise import Piece, Pieces, difference, pieces
from treadle.verify.scalars import Linear, LinearForms, add, constant_value, loop_around
from treadle.verify.signs import never_negative

_SIGNED_LAST = 5
_EQUALITIES = (0, 1)
_FROM_ZERO = (2, 5, 6, 9)
"""Comparisons that a difference of zero or more decides: slt, sge, ult, uge. For the other orders it is one or more."""
MAX_PLACES = 16


class Turn(Record):
    """A form that decides something in a loop.

    `per_iteration`: how much it grows. `rest`: values with factors, and a constant, that make up the form of iteration 0. `limits`: where
    it turns: from a limit on upwards where it grows, from minus a limit on downwards where it falls; one that does neither is on one side.
    """

    per_iteration: int
    rest: tuple[tuple[SSAValue, int], ...]
    constant: int
    limits: tuple[int, ...]

    def places(self, count: int) -> tuple[int, ...]:
        """The values of the form of iteration 0 from which on it turns an iteration earlier, or later, of so many."""
        each = self.per_iteration
        if not each:
            return self.limits
        firsts = [limit if each > 0 else 1 - limit for limit in self.limits]
        return tuple(sorted({first - each * at for first in firsts for at in range(count)}))


class Covered(Record):
    """A comparison that turning points cover: they, the `residues` (values, with the modulus to which they matter) and the truth values
    of selections decide it.
    """

    turns: tuple[Turn, ...]
    residues: tuple[tuple[SSAValue, int], ...]
    conditions: tuple[SSAValue, ...]

    @property
    def only_limit(self) -> int | None:
        """The limit of the one form that decides; None where there are more, or something else decides, too."""
        if self.residues or self.conditions or len(self.turns) != 1 or len(self.turns[0].limits) != 1:
            return None
        return self.turns[0].limits[0]


class Placed(Record):
    """A turning point of a loop of at most `count` iterations whose place `around`, the loop around it, decides, which turns at `turn`."""

    around: scf.ForOp
    turn: Turn
    count: int


class ComparisonsOfLoops:
    """What turns in loops. `steps`: for each loop the carried values that grow by a constant, by position; `home`: the loop of each such
    value, and of the numbers of iterations.
    """

    def __init__(self, forms: LinearForms, steps: dict[scf.ForOp, dict[int, int]], home: dict[SSAValue, scf.ForOp]) -> None:
        self.forms, self._steps, self._home = forms, steps, home

    def covered(self, op: Operation) -> tuple[scf.ForOp, Covered] | None:
        """The loop that covers a comparison, minimum or maximum, and how; None where none does."""
        loop = loop_around(op)
        return None if loop is None else self._covered_in(loop, op)

    def _covered_in(self, loop: scf.ForOp, op: Operation) -> tuple[scf.ForOp, Covered] | None:
        predicate = op.properties.get("predicate")
        which = int(predicate.value.data) if isinstance(predicate, builtin.IntegerAttr) else 0
        left, right = op.operands
        decides = (0, 1) if which in _EQUALITIES and op.name == "arith.cmpi" else (0,) if which in _FROM_ZERO else (1,)
        compared: list[tuple[Pieces | None, tuple[int, ...]]] = [(difference(self.forms, left, right), decides)]
        if which > _SIGNED_LAST:  # numbers below zero are large ones then
            compared += [(pieces(self.forms, left), (0,)), (pieces(self.forms, right), (0,))]
        wanted: list[tuple[Piece, tuple[int, ...]]] = []
        residues: dict[SSAValue, int] = {}
        conditions: dict[SSAValue, None] = {}
        for found, limits in compared:
            if found is None or not self._collect(found, limits, wanted, residues, conditions):
                return None
        is_constant = all(not piece.form[0] for piece, _ in wanted)
        if not is_constant:
            home = self._innermost_of(piece for piece, _ in wanted)
            if home is None and all(self._in_no_loop(value) for value in op.operands):
                return None
            loop = home or loop  # what is made of loop numbers that cancel is on one side
        if is_constant:
            return loop, Covered((), tuple(residues.items()), tuple(conditions))
        turns = [self._turn(loop, piece, limits) for piece, limits in wanted]
        if any(turn is None for turn in turns):
            return None
        return loop, Covered(tuple(dict.fromkeys(turn for turn in turns if turn is not None)), tuple(residues.items()), tuple(conditions))

    def _collect(
        self,
        found: Pieces,
        limits: tuple[int, ...],
        wanted: list[tuple[Piece, tuple[int, ...]]],
        residues: dict[SSAValue, int],
        conditions: dict[SSAValue, None],
    ) -> bool:
        """The pieces that decide about a value, those of which it takes residues, too: they must stay zero or more."""
        conditions |= dict.fromkeys(found.conditions)
        wanted += [(piece, limits) for piece in found.all] + [(piece, (1,)) for piece in found.pivots]
        for value, modulus in found.residues:
            inner = pieces(self.forms, value)
            if inner is None:
                return False
            residues[value] = lcm(residues.get(value, 1), modulus)
            wanted += [(piece, (0,)) for piece in inner.all]
        return True

    def changes_of_sign(self, op: Operation) -> dict[scf.ForOp, dict[Turn, None]] | None:
        """Where the operand of an unsigned division changes its sign, by the loop that turns there; None where nothing says so."""
        if never_negative(op.operands[0]):
            return {}
        turns = self._sign_turns(op.operands[0])
        return None if turns is None else {turns[0]: dict.fromkeys(turns[1])}

    def placed(self, covered: dict[Operation, dict[Operation, Covered]]) -> dict[tuple[Operation, Turn], Placed]:
        """Turning points of loops of few iterations, whose places a loop around decides."""
        found: dict[tuple[Operation, Turn], Placed] = {}
        for loop in self._steps:
            count = self._most_iterations(loop)
            if not 0 < count <= MAX_PLACES:
                continue
            for turn in dict.fromkeys(turn for each in covered[loop].values() for turn in each.turns):
                form: Linear = ((), turn.constant)
                for value, factor in turn.rest:
                    form = add(form, self.forms.of(value), factor)
                around, limits = self._innermost(form), turn.places(count)
                made = self._turn(around, Piece(form), limits) if around is not None else None
                if around is not None and made is not None:
                    found[loop, turn] = Placed(around, made, count)
        return found

    def _most_iterations(self, loop: scf.ForOp) -> int:
        """How many iterations a loop has at most, of any of its executions; 0 where that is not known."""
        span, step = add(self.forms.of(loop.ub), self.forms.of(loop.lb), -1), self.forms.of(loop.step)
        if step[0] or not step[1] > 0:
            return 0
        last, first = most_of(loop.ub), self.forms.of(loop.lb)
        most = span[1] if not span[0] else last - first[1] if last is not None and not first[0] else 0
        return max(0, -(-most // step[1]))

    def _sign_turns(self, value: SSAValue) -> tuple[scf.ForOp, list[Turn]] | None:
        made = pieces(self.forms, value)
        loop = None if made is None or made.residues else self._innermost_of([*made.all, *made.pivots])
        if made is None or loop is None:
            return None
        turns = [self._turn(loop, piece, (0,)) for piece in made.all] + [self._turn(loop, piece, (1,)) for piece in made.pivots]
        known = [turn for turn in turns if turn is not None]
        return (loop, known) if len(known) == len(turns) else None

    def _in_no_loop(self, value: SSAValue) -> bool:
        found = pieces(self.forms, value)
        return found is not None and self._innermost_of(found.all) is None

    def _innermost_of(self, made: Iterable[Piece]) -> scf.ForOp | None:
        loops = [loop for piece in made if (loop := self._innermost(piece.form)) is not None]
        return max(loops, key=_depth, default=None)

    def _innermost(self, form: Linear) -> scf.ForOp | None:
        loops = [self._home[value] for atom, _ in form[0] if (value := self.forms.value_of(atom)) in self._home]
        return max(loops, key=_depth, default=None)

    def _turn(self, loop: scf.ForOp, piece: Piece, limits: tuple[int, ...]) -> Turn | None:
        """Where a piece comes to a limit, or falls below it: `form + r` with every r that it may have, or a quotient."""
        grows, rest = 0, list[tuple[SSAValue, int]]()
        step = loop.step.owner
        for atom, factor in piece.form[0]:
            value = self.forms.value_of(atom)
            if self._home.get(value) is not loop:
                if not _is_outside(value, loop):
                    return None
                rest.append((value, factor))
            elif isinstance(value, BlockArgument) and value.index:
                grows += factor * self._steps[loop][value.index - 1]
                rest.append((loop.iter_args[value.index - 1], factor))
            else:
                known = constant_value(step) if isinstance(step, Operation) and step.name == "arith.constant" else None
                if known is None:
                    return None
                grows += factor * known
                rest.append((loop.lb, factor))
        sign = -1 if grows < 0 else 1
        limits = limits if grows >= 0 else tuple(1 - limit for limit in limits)  # below 0: at -1 or less
        if piece.source is not None:  # floor(f / d) <= -limit where f <= -d * limit + d - 1
            reached = {piece.divisor * limit + (1 - piece.divisor if grows < 0 else 0) for limit in limits}
            return Turn(grows, tuple(rest), piece.form[1], tuple(sorted(reached)))
        reached = {piece.divisor * limit - sign * r for limit in limits for r in range(piece.low, piece.high + 1)}
        return Turn(grows, tuple(rest), piece.form[1], tuple(sorted(reached)))


def _depth(loop: Operation) -> int:
    depth, parent = 0, loop.parent_op()
    while parent is not None:
        depth, parent = depth + 1, parent.parent_op()
    return depth


def _is_outside(value: SSAValue, loop: Operation) -> bool:
    """Whether a value is there before the loop begins."""
    at = value.block.parent_op() if isinstance(value, BlockArgument) else value.owner
    while isinstance(at, Operation):
        if at is loop:
            return False
        at = at.parent_op()
    return True
