"""Classes of sizes and workgroups: all values of the unknowns for which a run goes as one that was looked at.

Every decision of a run says for which values it falls the same way. Loops may be longer than in the run by whole rounds after which the
run's state was seen to repeat: `Pump`s. A class is the conjunction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from treadle.verify.symbols import Atoms, Form, Terms

FEW_PARTS = 8
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
        sums: list[tuple[int, tuple[tuple[int, int], ...]]] = []
        for form, rounds in self._equations:
            total = value(*form, known)
            if rounds:
                sums.append((total, rounds))
            elif total:
                return False
        for terms, constant in least.items():
            if value(terms, constant, known) < 0:
                return False
        return not sums or _solvable(sums, {})

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
    if len(sums) == 1 and not known and len(sums[0][1]) == 1:
        total, ((_, each),) = sums[0]
        return total >= 0 and total % each == 0
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
