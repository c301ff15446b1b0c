"""Affine forms of what the compiler does not know (sizes, workgroup ids, results of arithmetic that is not affine), and classes of sizes
and workgroups: all values of these unknowns for which a run goes as one that was looked at.

A form holds for all members of a class; a number that every member of the class has needs none. Quotients by constants are atoms of their
own, so that remainders and numbers of steps are forms too.

Every decision of a run says for which values it falls the same way. Loops may be longer than in the run by whole rounds after which the
run's state was seen to repeat: `Pump`s. A class is the conjunction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd

Terms = tuple[tuple[int, int], ...]
"""Atoms with their factors, sorted by atom."""
Iterations = tuple[tuple[int, int], ...]
"""Loops (by the number of the operation) with what a value grows by in each of their iterations, `UNEVENLY` where that is no one number."""
UNEVENLY = 0


class Form:
    """`sum of factor * atom + constant`, in one iteration of the loops of `iterations`, which stands for others of them, too.

    In those the value is larger, all that was computed in the iteration by as many iterations: a difference that grows by nothing is the
    same in all of them.
    """

    __slots__ = ("constant", "iterations", "terms")

    def __init__(self, terms: Terms, constant: int, iterations: Iterations = ()) -> None:
        self.terms, self.constant, self.iterations = terms, constant, iterations

    @property
    def key(self) -> tuple[Terms, int]:
        """The form without its loops."""
        return self.terms, self.constant

    @property
    def loops(self) -> frozenset[int]:
        """Loops whose iteration it holds for alone."""
        return frozenset([loop for loop, _ in self.iterations])


Symbol = Form | None
"""What stands beside a number: None where every member of the class has that number."""


def of(symbol: Symbol, value: int) -> Form:
    """The form of a value."""
    return Form((), value) if symbol is None else symbol


def combined(one: Form, other: Form, factor: int = 1) -> Form:
    """`one + factor * other`."""
    if not other.terms:
        terms = one.terms
    else:
        found = dict(one.terms)
        for atom, count in other.terms:
            found[atom] = found.get(atom, 0) + factor * count
        terms = tuple(sorted([(atom, count) for atom, count in found.items() if count]))
    iterations = grown(one.iterations, other.iterations, factor) if other.iterations else one.iterations
    return Form(terms, one.constant + factor * other.constant, iterations)


def grown(one: Iterations, other: Iterations, factor: int = 1) -> Iterations:
    """What `one + factor * other` grows by."""
    found = dict(one)
    for loop, each in other:
        before = found.get(loop)
        if before is None:
            found[loop] = factor * each
        elif UNEVENLY in (before, each):
            found[loop] = UNEVENLY
        elif before + factor * each:
            found[loop] = before + factor * each
        else:
            del found[loop]
    return tuple(sorted(found.items())) if factor else one


def scaled(form: Form, factor: int) -> Form:
    """`factor * form`."""
    if not factor:
        return Form((), 0)
    iterations = tuple([(loop, factor * each) for loop, each in form.iterations])
    return Form(tuple([(atom, factor * count) for atom, count in form.terms]), factor * form.constant, iterations)


def shifted(form: Form, constant: int) -> Form:
    """`form + constant`."""
    return Form(form.terms, form.constant + constant, form.iterations)


def kept(form: Form) -> Form:
    """A form whose value other iterations of its loops see."""
    return Form(form.terms, form.constant, tuple([(loop, UNEVENLY) for loop, _ in form.iterations])) if form.iterations else form


def _whole(count: int, divisor: int) -> int:
    """How often a divisor is in a factor, towards zero."""
    return count // divisor if count >= 0 else -(-count // divisor)


class Atoms:
    """The atoms of a kernel's forms: its unknown values, in their order, then quotients `floor(form / divisor)`.

    `lows`: the least value of each unknown.
    """

    def __init__(self, lows: Sequence[int]) -> None:
        self.unknowns = len(lows)
        self._lows: list[int | None] = list(lows)
        self._quotients: list[tuple[Form, int]] = []
        self._known: dict[tuple[Terms, int, int], int] = {}

    def unknown(self, at: int, factor: int = 1, constant: int = 0) -> Form:
        """`factor * unknown + constant`."""
        return Form(((at, factor),), constant)

    def quotient(self, form: Form, divisor: int) -> Form:
        """`floor(form / divisor)` for a positive divisor."""
        whole = [(atom, times) for atom, count in form.terms if (times := _whole(count, divisor))]
        left = [(atom, rest) for atom, count in form.terms if (rest := count - divisor * _whole(count, divisor))]
        rest = Form(tuple(left), form.constant % divisor)
        evenly = tuple([(loop, each // divisor if each % divisor == 0 else UNEVENLY) for loop, each in form.iterations])
        taken = Form(tuple(whole), form.constant // divisor, evenly)
        if not rest.terms:
            return taken
        if (common := gcd(divisor, *[count for _, count in left])) > 1:
            smaller = Form(tuple([(atom, count // common) for atom, count in left]), rest.constant // common)
            return combined(taken, self.quotient(smaller, divisor // common))
        if len(rest.terms) == 1 and rest.terms[0][1] == 1 and rest.terms[0][0] >= self.unknowns:
            # A quotient of a quotient is one of its dividend.
            divided, before = self._quotients[rest.terms[0][0] - self.unknowns]
            return combined(taken, self.quotient(shifted(divided, before * rest.constant), before * divisor))
        key = (*rest.key, divisor)
        atom = self._known.get(key)
        if atom is None:
            atom = self._known[key] = self.unknowns + len(self._quotients)
            self._quotients.append((rest, divisor))
            least = self._least(rest)
            self._lows.append(None if least is None else least // divisor)
        return combined(taken, Form(((atom, 1),), 0))

    def ceiling(self, form: Form, divisor: int) -> Form:
        """`ceil(form / divisor)` for a positive divisor."""
        return self.quotient(shifted(form, divisor - 1), divisor)

    def remainder(self, form: Form, divisor: int) -> Form:
        """`form - divisor * floor(form / divisor)`."""
        return combined(form, self.quotient(form, divisor), -divisor)

    def is_never_negative(self, form: Form) -> bool:
        """Whether a form is zero or more for all values of the unknowns because it is a sum of remainders and of what has no less."""
        left = form
        for atom, count in form.terms:
            if atom >= self.unknowns and count < 0:
                divided, divisor = self._quotients[atom - self.unknowns]
                if count % divisor:
                    return False
                left = combined(left, self.remainder(divided, divisor), count // divisor)
        least = self._least(left)
        return least is not None and least >= 0

    def _least(self, form: Form) -> int | None:
        """No more than the least value of a form; None where nothing is known of it."""
        total = form.constant
        for atom, count in form.terms:
            low = self._lows[atom]
            if count < 0 or low is None:
                return None
            total += count * low
        return total

    def parts(self, atom: int) -> tuple[Form, int] | None:
        """What a quotient divides, and by what; None for an unknown."""
        return self._quotients[atom - self.unknowns] if atom >= self.unknowns else None

    def quotients_in(self, atoms: Iterable[int]) -> set[int]:
        """The quotients among atoms, and those in them."""
        found, work = set[int](), list(atoms)
        while work:
            atom = work.pop()
            if atom >= self.unknowns and atom not in found:
                found.add(atom)
                work += [inner for inner, _ in self._quotients[atom - self.unknowns][0].terms]
        return found

    def value(self, terms: Terms, constant: int, values: dict[int, int]) -> int:
        """The value of a form for these values of the unknowns, by their numbers; those of quotients are added to them."""
        total = constant
        for atom, count in terms:
            known = values.get(atom)
            if known is None:
                form, divisor = self._quotients[atom - self.unknowns]
                known = values[atom] = self.value(form.terms, form.constant, values) // divisor
            total += count * known
        return total

    def text(self, terms: Terms, constant: int, names: Sequence[str]) -> str:
        """A form in the notation of integer sets."""
        parts = [str(constant)] if constant or not terms else []
        for atom, count in terms:
            if atom < self.unknowns:
                name = names[atom]
            else:
                form, divisor = self._quotients[atom - self.unknowns]
                name = f"floor(({self.text(form.terms, form.constant, names)}) / {divisor})"
            parts.append(name if count == 1 else f"{count} * {name}")
        return " + ".join(parts)


FEW_PARTS = 8
Key = tuple[Terms, int]
Equation = tuple[Key, tuple[tuple[int, int], ...]]
"""A form that is the sum of (pump, iterations of one of its rounds), each pump with its own count of rounds."""


class Class:
    """One class, as constraints on forms. `loops`: the loops whose length has to be that of the run.

    `inequalities`: forms that are zero or more; `equations`: forms that are sums of rounds. `shared`: how often something was said of the
    class, whether it was new or not.
    """

    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self.loops: set[int] = set()
        self.shared = 0
        self.inequalities: dict[Key, None] = {}
        self.equations: dict[Equation, None] = {}

    def not_negative(self, form: Form) -> None:
        """The form is zero or more."""
        self.shared += bool(form.terms or form.iterations)
        if form.iterations:
            self.loops |= form.loops
        if form.terms and not self.atoms.is_never_negative(form):
            self.inequalities[form.key] = None

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
            self.equations[form.key, rounds] = None

    def mark(self) -> tuple[frozenset[int], int, int]:
        """What is shared so far, for `go_back`."""
        return frozenset(self.loops), len(self.inequalities), len(self.equations)

    def go_back(self, mark: tuple[frozenset[int], int, int]) -> None:
        """Forget what was added since."""
        loops, inequalities, equations = mark
        self.loops = set(loops)
        while len(self.inequalities) > inequalities:
            self.inequalities.popitem()
        while len(self.equations) > equations:
            self.equations.popitem()

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
        for form, rounds in self.equations:
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
        for terms, constant in self.inequalities:
            least[terms] = min(constant, least.get(terms, constant))
        return least

    def text(self, names: Sequence[str]) -> str:
        """The class as a condition in the notation of integer sets."""
        text = self.atoms.text
        parts = [f"{text(*form, names)} >= 0" for form in self._least().items()]
        pumps: dict[int, None] = {}
        for form, rounds in self.equations:
            total = " + ".join(f"{each} * k{pump}" for pump, each in rounds) or "0"
            parts.append(f"{text(*form, names)} = {total}")
            pumps |= dict.fromkeys(pump for pump, _ in rounds)
        parts += [f"k{pump} >= 0" for pump in pumps]
        if not pumps:
            return _all_of(parts) if parts else "true"
        return f"(exists {', '.join(f'k{pump}' for pump in pumps)} : {_all_of(parts)})"

    def size(self) -> tuple[int, int, int]:
        """Constraints; quotients in them; quotients and counts of rounds."""
        forms = [*self.inequalities, *(form for form, _ in self.equations)]
        quotients = len(self.atoms.quotients_in([atom for terms, _ in forms for atom, _ in terms]))
        pumps = {pump for _, rounds in self.equations for pump, _ in rounds}
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
