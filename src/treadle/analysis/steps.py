"""Whole numbers as functions of one index, piece by piece: what the arithmetic of a long list computes, in time that grows with its length.

A list of groups is written as a sum of as many steps of the group's number as there are groups. Added up one after the other its numbers
would be looked at as often as there are groups; here a sum of any length is added up at once, by what changes where.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """From `begin` to where the next piece begins: `value` at `begin`, `slope` more at each index behind it."""

    begin: int
    value: int
    slope: int

    def at(self, index: int) -> int:
        """The number at an index."""
        return self.value + self.slope * (index - self.begin)


@dataclass(frozen=True, slots=True)
class Steps:
    """The numbers at the indices 0 to `count` - 1; the first piece begins at 0."""

    count: int
    pieces: tuple[Piece, ...]

    def spans(self) -> Iterator[tuple[Piece, int]]:
        """Each piece with its end."""
        ends = [*(piece.begin for piece in self.pieces[1:]), self.count]
        return zip(self.pieces, ends, strict=True)

    def numbers(self) -> list[int]:
        """All numbers in order."""
        return [value for piece, end in self.spans() for value in _run(piece, end)]

    def least(self) -> int:
        """The smallest number."""
        return min(min(piece.value, piece.at(end - 1)) for piece, end in self.spans())

    @property
    def constant(self) -> int | None:
        """The number that all are; None where they differ."""
        only = self.pieces[0]
        return only.value if len(self.pieces) == 1 and (only.slope == 0 or self.count == 1) else None


def _run(piece: Piece, end: int) -> Iterable[int]:
    length = end - piece.begin
    return range(piece.value, piece.value + piece.slope * length, piece.slope) if piece.slope else [piece.value] * length


def constant_steps(count: int, value: int) -> Steps:
    """The same number everywhere."""
    return Steps(count, (Piece(0, value, 0),))


def identity_steps(count: int) -> Steps:
    """The index itself."""
    return Steps(count, (Piece(0, 0, 1),))


def of_numbers(numbers: Sequence[int]) -> Steps:
    """The function that has these numbers, of which there is one at least."""
    pieces: list[Piece] = []
    for index, value in enumerate(numbers):
        if pieces and pieces[-1].at(index) == value:
            continue
        if pieces and pieces[-1].begin == index - 1:  # any two numbers are one piece
            pieces[-1] = Piece(index - 1, pieces[-1].value, value - pieces[-1].value)
        else:
            pieces.append(Piece(index, value, 0))
    return Steps(len(numbers), tuple(pieces))


def weighted_sum(terms: Sequence[tuple[Steps, int]]) -> Steps:
    """The sum of functions, each times a factor; one term at least."""
    count = terms[0][0].count
    value = slope = 0
    changes: dict[int, tuple[int, int]] = {}
    for steps, factor in terms:
        before = steps.pieces[0]
        value, slope = value + factor * before.value, slope + factor * before.slope
        for piece in steps.pieces[1:]:
            jump, turn = changes.get(piece.begin, (0, 0))
            changes[piece.begin] = jump + factor * (piece.value - before.at(piece.begin)), turn + factor * (piece.slope - before.slope)
            before = piece
    pieces = [Piece(0, value, slope)]
    for begin in sorted(changes):
        jump, turn = changes[begin]
        if jump or turn:
            last = pieces[-1]
            pieces.append(Piece(begin, last.at(begin) + jump, last.slope + turn))
    return Steps(count, tuple(pieces))


def extremum(one: Steps, other: Steps, pick: Callable[[int, int], int]) -> Steps:
    """The smaller or the larger of two functions (`pick` is `min` or `max`)."""
    pieces: list[Piece] = []
    for a, b, begin, end in _common(one, other):
        left, right = Piece(begin, a.at(begin), a.slope), Piece(begin, b.at(begin), b.slope)
        first, last = (pick(left.at(at), right.at(at)) for at in (begin, end - 1))
        for each in (left, right):
            if (each.value, each.at(end - 1)) == (first, last):
                pieces.append(each)  # two lines: who wins at both ends wins between them
                break
        else:
            winner, loser = (left, right) if left.value == first else (right, left)
            # How far apart they are falls, from the winner's side at `begin` to the other one's.
            apart, closer = abs(loser.value - winner.value), abs(loser.slope - winner.slope)
            turn = begin + apart // closer + 1
            pieces += [winner, Piece(turn, loser.at(turn), loser.slope)]
    return weighted_sum([(Steps(one.count, tuple(pieces)), 1)])


def pointwise(one: Steps, other: Steps, compute: Callable[[int, int], int]) -> Steps:
    """Any function of two numbers."""
    return of_numbers([compute(a, b) for a, b in zip(one.numbers(), other.numbers(), strict=True)])


def _common(one: Steps, other: Steps) -> Iterator[tuple[Piece, Piece, int, int]]:
    """The pieces of both, where neither changes, with begin and end."""
    at, (left, right) = 0, (iter(one.spans()), iter(other.spans()))
    (a, a_end), (b, b_end) = next(left), next(right)
    while True:
        end = min(a_end, b_end)
        yield a, b, at, end
        if end == one.count:
            return
        at = end
        if a_end == end:
            a, a_end = next(left)
        if b_end == end:
            b, b_end = next(right)
