"""Classes of sizes and workgroups: all values of the unknowns for which a run goes as one that was looked at.

Every decision of a run says for which values it falls the same way. Loops may be longer than in the run by whole rounds after which the
run's state was seen to repeat: `Pump`s. A class is the conjunction.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from treadle.verify.symbols import Atoms, Form, Terms

if TYPE_CHECKING:
    from treadle.verify.integer_sets import Set

FEW_PIECES = 16
"""Of so many pieces it is not asked which make one: that takes longer than what is asked of all of them."""
SIMPLE_PIECES = 8
"""So few pieces are left as they are: to look for sizes that are numbers in them takes longer than it saves."""
SMALL, LARGER = 64, 8192
NEARLY = 16
"""Of large values one is taken that is larger than the least by such a part of it at most."""
FEW_PARTS = 8
QUADRATIC = 32
"""From about so many pieces on a question takes as long as there are pairs of them."""
MAX_COLUMNS = 20
"""Quotients and counts of rounds of a class: with more of them each step of the library takes too long, of which it counts nothing."""
FEW_QUOTIENTS = 12
"""With more quotients it takes longer to look for equalities than they save."""
ROWS_TIMES_CUBED_COLUMNS = 300
"""A class of so many constraints costs as much as a piece."""
Key = tuple[Terms, int]
Equation = tuple[Key, tuple[tuple[int, int], ...]]
"""A form that is the sum of (pump, iterations of one of its rounds), each pump with its own count of rounds."""


class Class:
    """One class, as constraints on forms. `loops`: the loops whose length has to be that of the run.

    `shared`: how often something was said of the class, whether it was new or not.
    """

    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self.loops: set[int] = set()
        self.shared = 0
        self._not_negative: dict[Key, None] = {}
        self._equations: dict[Equation, None] = {}

    def not_negative(self, form: Form) -> None:
        """The form is zero or more."""
        self.shared += bool(form.terms or form.iterations)
        if form.iterations:
            self.loops |= form.loops
        if form.terms and not self.atoms.is_never_negative(form):
            self._not_negative[form.key] = None

    def zero(self, form: Form) -> None:
        """The form is zero."""
        self.shared += bool(form.iterations)
        if form.iterations:
            self.loops |= form.loops
        self.pumped(form, ())

    def sign(self, form: Form, value: int) -> None:
        """The form has the sign that its value has here."""
        if value > 0:
            self.not_negative(Form(form.terms, form.constant - 1, form.iterations))
        elif value < 0:
            self.not_negative(Form(tuple([(a, -c) for a, c in form.terms]), -form.constant - 1, form.iterations))
        else:
            self.zero(form)

    def pumped(self, form: Form, rounds: tuple[tuple[int, int], ...]) -> None:
        """The form is a sum of whole rounds: so many iterations each, as often as the pump of that number is used."""
        self.shared += bool(form.terms or form.iterations or rounds)
        if form.terms or rounds:
            self._equations[form.key, rounds] = None

    def mark(self) -> tuple[frozenset[int], int, int]:
        """What is shared so far, for `go_back`."""
        return frozenset(self.loops), len(self._not_negative), len(self._equations)

    def go_back(self, mark: tuple[frozenset[int], int, int]) -> None:
        """Forget what was added since."""
        loops, inequalities, equations = mark
        self.loops = set(loops)
        while len(self._not_negative) > inequalities:
            self._not_negative.popitem()
        while len(self._equations) > equations:
            self._equations.popitem()

    # --- members

    def holds(self, values: Sequence[int]) -> bool:
        """Whether these values of the unknowns belong to the class."""
        return not self.others([tuple(values)])

    def others(self, all_values: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Those of these values of the unknowns that do not belong to the class."""
        least = self._least()
        return [values for values in all_values if not self._holds(values, least)]

    def _holds(self, values: Sequence[int], least: Mapping[Terms, int]) -> bool:
        value, known = self.atoms.value, dict(enumerate(values))
        for terms, constant in least.items():
            if value(terms, constant, known) < 0:
                return False
        sums = [(value(*form, known), rounds) for form, rounds in self._equations]
        return all(total == 0 for total, rounds in sums if not rounds) and _solvable([s for s in sums if s[1]], {})

    def _least(self) -> dict[Terms, int]:
        """The inequalities, of those that differ by a number the one that says all."""
        least: dict[Terms, int] = {}
        for terms, constant in self._not_negative:
            least[terms] = min(constant, least.get(terms, constant))
        return least

    def text(self, names: Sequence[str]) -> str:
        """The class as a condition in the notation of integer sets."""
        text = self.atoms.text
        parts = [f"{text(*form, names)} >= 0" for form in self._least().items()]
        pumps: dict[int, None] = {}
        for form, rounds in self._equations:
            total = " + ".join(f"{each} * k{pump}" for pump, each in rounds) or "0"
            parts.append(f"{text(*form, names)} = {total}")
            pumps |= dict.fromkeys(pump for pump, _ in rounds)
        parts += [f"k{pump} >= 0" for pump in pumps]
        if not pumps:
            return _all_of(parts) if parts else "true"
        return f"(exists {', '.join(f'k{pump}' for pump in pumps)} : {_all_of(parts)})"

    def by_residues(self) -> "Class":
        """The class with the same members, its constraints in terms of the residues that it fixes."""
        from treadle.verify.residues import Residues

        residues, found = Residues(self.atoms), Class(self.atoms)
        residues.learn_all([Form(*key) for key, rounds in self._equations if not rounds])
        for key in self._not_negative:
            form = residues.reduced(Form(*key))
            found.not_negative(form if form.terms or form.constant >= 0 else Form(*key))
        for key, rounds in self._equations:
            form = residues.reduced(Form(*key))
            found.pumped(form if form.terms or rounds or not form.constant else Form(*key), rounds)
        for form in residues.definitions():
            found.zero(form)
        return found

    def size(self) -> tuple[int, int, int]:
        """Constraints; quotients in them; quotients and counts of rounds."""
        forms = [*self._not_negative, *(form for form, _ in self._equations)]
        quotients = len(self.atoms.quotients_in([atom for terms, _ in forms for atom, _ in terms]))
        pumps = {pump for _, rounds in self._equations for pump, _ in rounds}
        return len(forms) + len(pumps) + 2 * quotients, quotients, quotients + len(pumps)


def _all_of(parts: Sequence[str]) -> str:
    """The conjunction, halved again and again: in a row, the library would make a set of each part and all before it."""
    if len(parts) <= FEW_PARTS:
        return " and ".join(parts)
    middle = len(parts) // 2
    return f"({_all_of(parts[:middle])} and {_all_of(parts[middle:])})"


def _solvable(sums: list[tuple[int, tuple[tuple[int, int], ...]]], known: Mapping[int, int]) -> bool:
    """Whether there are counts of rounds for all sums at once."""
    for total, rounds in sums:
        left = total - sum(known[pump] * each for pump, each in rounds if pump in known)
        open_rounds = [(pump, each) for pump, each in rounds if pump not in known]
        if left < 0 or (left and not open_rounds):
            return False
        if open_rounds:
            pump, each = open_rounds[0]
            counts = [left // each] if len(open_rounds) == 1 else range(left // each + 1)
            if len(open_rounds) == 1 and left % each:
                return False
            return any(_solvable(sums, {**known, pump: count}) for count in counts)
    return True


class Uncovered(Protocol):
    """The values of the unknowns that no class holds yet. `cost`: pieces of the set looked at so far, more for each where they are many."""

    cost: int

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """One after the other, as long as there are any."""
        ...

    def far(self, least: int) -> tuple[int, ...] | None:
        """Values of which each is at least so much; None where there are none."""
        ...

    def remove(self, covered: Class) -> None:
        """Leave out the members of a class."""
        ...


class UncoveredList:
    """A short list of all of them, each looked at."""

    def __init__(self, values: Sequence[tuple[int, ...]]) -> None:
        self._values = list(values)
        self.cost = 0

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        while self._values:
            yield self._values[0]

    def far(self, least: int) -> tuple[int, ...] | None:
        """Values of which each is at least so much; None where there are none."""
        return next((v for v in self._values if min(v) >= least), None)

    def remove(self, covered: Class) -> None:
        """Leave out the members of a class."""
        self._values = covered.others(self._values)


class TooHard(Exception):
    """Integer sets became too complicated."""


class UncoveredSet:
    """A set of any size, by integer sets, whose questions may cost so many operations. Raises `TooHard`."""

    def __init__(self, names: Sequence[str], domain: str, operations: int) -> None:
        from treadle.verify import integer_sets  # loading the library takes longer than most proofs

        self._names, self._sets = names, integer_sets
        self._account = integer_sets.Account(operations)
        self._boxes: dict[tuple[int, int, int | None], Set] = {}
        self._many = FEW_PIECES
        self.cost = 0
        with self._bounded():
            self._left = self._of(domain)

    def _of(self, condition: str) -> "Set":
        return self._account.integer_set(f"{{ [{', '.join(self._names)}] : {condition} }}")

    @contextmanager
    def _bounded(self) -> Generator[None]:
        try:
            with self._account.bounded():
                yield
        except self._sets.TooHard as error:
            raise TooHard from error

    def _within(self, low: int, high: int) -> "Set":
        """What is left where all values are within bounds."""
        return self._left.intersect(self._box(low, high, None))

    def _box(self, low: int, high: int, at: int | None) -> "Set":
        """Where all values, or the one at a place, are within bounds."""
        box = self._boxes.get((low, high, at))
        if box is None:
            names = self._names if at is None else self._names[at : at + 1]
            box = self._boxes[low, high, at] = self._of(" and ".join(f"{low} <= {name} < {high}" for name in names) or "true")
        return box

    def _values(self, found: "Set") -> tuple[int, ...] | None:
        point = self._sets.point_of(found)
        return None if point is None else tuple(point[name] for name in self._names)

    def _first(self) -> tuple[int, ...] | None:
        """The least of small ones, else one nearly as small as any: to find the least of numbers that are not small takes minutes, of which
        isl counts nothing.
        """
        if (found := self._values(self._within(-SMALL, SMALL).lexmin())) is not None:
            return found
        found = self._values(self._within(-LARGER, LARGER))
        found = self._nearly_least(self._values(self._left), LARGER) if found is None else self._nearly_least(found, SMALL)
        return None if found is None else self._others_least(found)

    def _nearly_least(self, found: tuple[int, ...] | None, empty: int) -> tuple[int, ...] | None:
        """Of large ones: a loop's length stands for itself and longer ones, so that each shorter one would be a class of its own."""
        while found is not None and (bound := max(map(abs, found)) + 1) > empty + empty // NEARLY:
            middle = max(empty + empty // NEARLY, int((empty * bound) ** 0.5))
            if (smaller := self._values(self._within(1 - middle, middle))) is None:
                empty = middle
            else:
                found = smaller
        return found

    def _others_least(self, found: tuple[int, ...]) -> tuple[int, ...]:
        """Where one value has to be large, others need not: each of them in turn is made as small as those before it leave it, if it may be
        small at all.
        """
        bound = max(map(abs, found)) + 1
        left = self._within(1 - bound, bound)
        for at in range(len(found)):
            empty, limit = 0, SMALL
            while (value := abs(found[at])) > empty:
                smaller = self._values(left.intersect(self._box(1 - min(limit, value), min(limit, value), at)))
                if smaller is None and limit == SMALL:
                    break
                found, empty = (found, limit) if smaller is None else (smaller, empty)
                limit = (empty + abs(found[at]) + 1) // 2
            left = left.intersect(self._box(-abs(found[at]), abs(found[at]) + 1, at))
        return found

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        while True:
            with self._bounded():
                found = self._first()
            if found is None:
                return
            yield found

    def far(self, least: int) -> tuple[int, ...] | None:
        """Values of which each is at least so much, not much more if there are such; None where there are none."""
        with self._bounded():
            return self._values(self._within(least, least + SMALL).lexmin()) or self._values(self._within(least, least + LARGER))

    def remove(self, covered: Class) -> None:
        """Leave out the members of a class."""
        rows, quotients, columns = covered.size()
        if quotients > FEW_QUOTIENTS:
            covered = covered.by_residues()
            rows, quotients, columns = covered.size()
        self.cost += rows * columns**3 // ROWS_TIMES_CUBED_COLUMNS
        if columns > MAX_COLUMNS:
            raise TooHard
        with self._bounded():
            # Where sizes of a piece are numbers, quotients of them are, too: pieces become fewer and simpler.
            taken = self._of(covered.text(self._names))
            self._left = self._left.subtract(taken.detect_equalities() if quotients <= FEW_QUOTIENTS else taken)
            if self._left.n_basic_set() > SIMPLE_PIECES:
                self._left = self._left.detect_equalities()
            if self._left.n_basic_set() > self._many:
                self._left = self._left.coalesce()
                self._many = max(FEW_PIECES, 2 * self._left.n_basic_set())
            pieces = self._left.n_basic_set()
            self.cost += pieces + pieces**2 // QUADRATIC
