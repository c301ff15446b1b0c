"""Random kernels of the exact fragment, and whether they are right: by trying all small sizes, workgroups and iterations at once.

Tiles pass through a ring in shared memory under conditions: conjunctions, disjunctions, exclusive ors and selections of comparisons of
sums, multiples, quotients, remainders, minima and selections of loop numbers, workgroup ids and sizes. Conditions are the same for all
warps, so a kernel is right where each slot that is read was written, and a barrier stands between each write and read of one.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hazards.schedules import ACC_LAYOUT, ROWS_LAYOUT, alloc, load, local_load, local_store, slot, store
from verify.class_programs import TILE, text

LARGEST, GRID, INNER = 30, 5, 3
DIVISORS = ((2, 3), (2, 4), (2, 5), (3, 4), (3, 6), (4, 6))
"""Residues of more than these together make more classes than a proof of a text by hand looks at."""
Array = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Term = tuple[Any, ...]
"""An expression: its kind, then terms, or numbers and names."""
Values = dict[str, Array]
_VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "addi": lambda a, b: a + b,
    "muli": lambda a, b: a * b,
    "divui": lambda a, b: a // b,
    "remui": lambda a, b: a % b,
    "minsi": np.minimum,
    "maxsi": np.maximum,
}
_TRUTHS: dict[str, Callable[[Any, Any], Any]] = {"andi": lambda a, b: a & b, "ori": lambda a, b: a | b, "xori": lambda a, b: a ^ b}
_PREDICATES: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
}
_BY_NUMBERS = ("muli", "divui", "remui")


def computed(term: Term, values: Values) -> Any:
    """What an expression is for these values."""
    kind, *of = term
    if kind == "constant":
        return of[0]
    if kind == "name":
        return values[of[0]]
    if kind == "select":
        return np.where(computed(of[0], values), computed(of[1], values), computed(of[2], values))
    if kind in _PREDICATES:
        return _PREDICATES[kind](computed(of[0], values), computed(of[1], values))
    return {**_VALUES, **_TRUTHS}[kind](computed(of[0], values), computed(of[1], values))


def named(term: Term, lines: list[str], made: Iterator[int]) -> str:
    """The name of an expression's value; `lines` compute it."""
    kind, *of = term
    if kind == "constant":
        return f"%c{of[0]}"
    if kind == "name":
        return f"%{of[0]}"
    operands = ", ".join([named(each, lines, made) for each in of])
    name, is_truth = f"%v{next(made)}", _is_truth(term)
    if kind in _PREDICATES:
        lines.append(f"{name} = arith.cmpi {kind}, {operands} : index")
    else:
        lines.append(f"{name} = arith.{kind} {operands} : {'i1' if is_truth else 'index'}")
    return name


def _is_truth(term: Term) -> bool:
    return term[0] in _PREDICATES or term[0] in _TRUTHS or (term[0] == "select" and _is_truth(term[2]))


# --- statements


@dataclass(frozen=True)
class Write:
    slot: Term


@dataclass(frozen=True)
class Read:
    slot: Term


@dataclass(frozen=True)
class Barrier:
    pass


@dataclass(frozen=True)
class If:
    condition: Term
    then: tuple["Statement", ...]
    other: tuple["Statement", ...] = ()


@dataclass(frozen=True)
class Inner:
    """A loop over %j, to a name or to what is left of the loop over %i, `INNER` at most: "rest". `sums`: with %at for %i + %j."""

    bound: str
    body: tuple["Statement", ...]
    sums: bool = False


Statement = Write | Read | Barrier | If | Inner


@dataclass(frozen=True)
class Kernel:
    """`lower`, `bound`, `step` of the loop over %i; None: no loop."""

    grid: str
    slots: int
    body: tuple[Statement, ...]
    loop: tuple[str, str, int] | None


def uses_rest(body: tuple[Statement, ...]) -> bool:
    """Whether a loop goes to what is left of the one around it, or is told apart by its place in it."""
    return any(
        each.sums or each.bound == "rest" or uses_rest(each.body)
        if isinstance(each, Inner)
        else isinstance(each, If) and (uses_rest(each.then) or uses_rest(each.other))
        for each in body
    )


def text_of(kernel: Kernel) -> str:
    """The kernel at schedule level."""
    made = iter(range(10**6))
    lines = _lines(kernel.body, kernel.slots, made)
    if kernel.loop is not None:
        lower, bound, step = kernel.loop
        left = (
            [f"%left = arith.subi %{bound}, %i : index", f"%rest = arith.minsi %left, %c{INNER} : index"] if uses_rest(kernel.body) else []
        )
        lines = [f"scf.for %i = %{lower} to %{bound} step %c{step} {{", *left, *lines, "}"]
    lines = [alloc("%ring", kernel.slots), "%b = arith.minsi %n, %m : index", *lines]
    return text(*(f"  {line}" for line in lines), symbols=("n", "m"), grid=kernel.grid, numbers=tuple(range(7)))


def _lines(body: tuple[Statement, ...], slots: int, made: Iterator[int]) -> list[str]:
    lines: list[str] = []
    for each in body:
        at = next(made)
        match each:
            case Barrier():
                lines.append("sync.barrier")
            case Write():
                lines.append(slot(f"%w{at}", "%ring", (slots,), named(each.slot, lines, made)))
                lines += [load(f"%x{at}", "%va", TILE, "%c0, %c0", ROWS_LAYOUT), local_store(f"%x{at}", f"%w{at}", ROWS_LAYOUT)]
            case Read():
                lines.append(slot(f"%r{at}", "%ring", (slots,), named(each.slot, lines, made)))
                lines += [local_load(f"%y{at}", f"%r{at}", ACC_LAYOUT), store(f"%y{at}", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16")]
            case If():
                condition = named(each.condition, lines, made)
                lines += [f"scf.if {condition} {{", *_lines(each.then, slots, made)]
                lines += ["} else {", *_lines(each.other, slots, made), "}"] if each.other else ["}"]
            case Inner():
                sums = ["%at = arith.addi %i, %j : index"] if each.sums else []
                lines += [f"scf.for %j = %c0 to %{each.bound} step %c1 {{", *sums, *_lines(each.body, slots, made), "}"]
    return lines


# --- whether it is right


class _Run:
    """All small sizes and workgroups at once. `wrong`: those that show a fault."""

    def __init__(self, kernel: Kernel, values: Values) -> None:
        self.values = values
        shape = values["n"].shape
        self.written, self.read, self.ever = (np.zeros((kernel.slots, *shape), bool) for _ in range(3))
        self.wrong = np.zeros(shape, bool)

    def execute(self, body: tuple[Statement, ...], where: Mask) -> None:
        for each in body:
            match each:
                case Barrier():
                    self.written &= ~where
                    self.read &= ~where
                case Write() | Read():
                    self._access(each, where)
                case If():
                    holds = np.broadcast_to(np.asarray(computed(each.condition, self.values), bool), where.shape)
                    self.execute(each.then, where & holds)
                    self.execute(each.other, where & ~holds)
                case Inner():
                    limit = computed(_term(each.bound), self.values)
                    for j in range(int(np.max(limit))):
                        self.values["j"] = np.full_like(self.values["n"], j)
                        self.values["at"] = self.values["i"] + j
                        self.execute(each.body, where & (j < limit))

    def _access(self, access: Write | Read, where: Mask) -> None:
        at = computed(access.slot, self.values)
        for number in range(len(self.ever)):
            here = where & (at == number)
            if isinstance(access, Write):
                self.wrong |= here & self.read[number]
                self.written[number] |= here
                self.ever[number] |= here
            else:
                self.wrong |= here & (self.written[number] | ~self.ever[number])
                self.read[number] |= here


def _term(name: str) -> Term:
    return ("constant", int(name[1:])) if name[1:].isdigit() else ("name", name)


def is_right(kernel: Kernel, sizes: tuple[int, int] | None = None) -> bool:
    """Whether no small sizes and workgroup ids show a fault, or these sizes, whatever the id."""
    if sizes is None:
        ranges = [np.arange(LARGEST), np.arange(LARGEST), np.arange(GRID if kernel.grid.isdigit() else LARGEST)]
    else:
        ranges = [np.array([sizes[0]]), np.array([sizes[1]]), np.arange(GRID if kernel.grid.isdigit() else sizes[1])]
    n, m, p = (each.ravel() for each in np.meshgrid(*ranges, indexing="ij"))
    if not kernel.grid.isdigit():
        n, m, p = (each[p < m] for each in (n, m, p))
    values: Values = {"n": n, "m": m, "p": p, "b": np.minimum(n, m), "i": np.zeros_like(n)}
    run = _Run(kernel, values)
    if kernel.loop is None:
        run.execute(kernel.body, np.ones(n.shape, bool))
        return not run.wrong.any()
    first, bound, step = computed(_term(kernel.loop[0]), values) + 0 * n, computed(_term(kernel.loop[1]), values), kernel.loop[2]
    for turn in range(max(0, int(np.max(bound - first, initial=0)))):
        values["i"] = first + turn * step
        if not (where := values["i"] < bound).any():
            break
        values["rest"] = np.minimum(bound - values["i"], INNER)
        run.execute(kernel.body, where)
    return not run.wrong.any()


# --- drawing


class Draw:
    """One random kernel. `rests`: loops inside the one over %i go to what is left of it, rather often."""

    def __init__(self, seed: int, *, rests: bool = False) -> None:
        self.random = random.Random(seed)
        self.rests = rests
        self.has_loop = self.random.random() < 0.75
        self.scopes = [[*(["i", "i"] if self.has_loop else []), "n", "m", "p"]]
        self.names = self.scopes[0]
        self.divisors = self.random.choice(DIVISORS)
        self.slots = self.random.choice((1, 2, 2, 3))

    def value(self, depth: int = 2) -> Term:
        """An index value of zero or more."""
        kinds = ["name", "constant", "addi", *_BY_NUMBERS, "remui", "minsi", "maxsi", "select"]
        kind = self.random.choice(kinds if depth else ["name", "name", "constant"])
        if kind == "name":
            return "name", self.random.choice(self.names)
        if kind == "constant":
            return "constant", self.random.randrange(6)
        if kind in _BY_NUMBERS:
            return kind, self.value(depth - 1), ("constant", self.random.choice(self.divisors))
        if kind == "select":
            return kind, self.comparison(0), self.value(depth - 1), self.value(depth - 1)
        return kind, self.value(depth - 1), self.value(depth - 1)

    def comparison(self, depth: int = 2) -> Term:
        """Of values of one loop."""
        self.names = self.random.choice(self.scopes) if depth else self.names
        return self.random.choice(list(_PREDICATES)), self.value(depth), self.value(min(depth, 1) if self.random.random() < 0.3 else 0)

    def condition(self, depth: int = 1) -> Term:
        """A truth value."""
        kind = self.random.choice(["andi", "andi", "ori", "xori", "select", "comparison"] if depth else ["comparison"])
        if kind == "comparison":
            return self.comparison(self.random.choice((1, 1, 1, 2)))
        if kind == "select":
            return kind, *(self.condition(depth - 1) for _ in range(3))
        return kind, self.condition(depth - 1), self.condition(depth - 1)

    def slot(self) -> Term:
        self.names = self.random.choice(self.scopes)
        return "remui", self.value(1), ("constant", self.slots)

    def part(self, depth: int = 1) -> tuple[Statement, ...]:
        """A tile's way through the ring, with conditions about what of it happens."""
        at, one, other = self.slot(), self.condition(), self.condition(0)
        both, either = ("andi", one, other), ("ori", one, other)
        whole = (Write(at), Barrier(), Read(at), Barrier())
        match self.random.randrange(7 if depth else 5):
            case 0:
                return (If(one, whole),)
            case 1:
                return If(one, (Write(at),)), If(either, (Barrier(),)), If(both, (Read(at),)), Barrier()
            case 2:
                return Write(at), If(both, (), (Barrier(),)), Read(at), Barrier()
            case 3:
                return Write(at), Barrier(), Read(at), If(one, (Barrier(),))
            case 4:
                return If(one, whole[:3], (Write(self.slot()),)), Barrier()
            case 5:
                return (If(one, self.part(0), self.part(0)),)
            case _:
                sums = self.rests and self.has_loop
                self.scopes.append(["j", "j", *(["at", "at"] if sums else []), "n", "m", "p"])
                body = self.part(0)
                self.names = self.scopes[0]
                del self.scopes[1]
                bound = self.random.choice(("c2", f"c{INNER}", "m"))
                return (Inner("rest" if sums and self.random.random() < 0.5 else bound, body, sums),)

    def kernel(self) -> Kernel:
        body = self.part() if self.random.random() < 0.8 else (*self.part(), *self.part())
        loop = None
        if self.has_loop:
            loop = self.random.choice(("c0", "c0", "c1", "p")), self.random.choice(("n", "c6", "b")), self.random.choice((1, 1, 2, 3))
        return Kernel(self.random.choice((str(GRID), "m")), self.slots, body, loop)

    # --- broken twins

    def broken(self, kernel: Kernel) -> Kernel:
        """A twin with one slip: a barrier left out, a slot moved on, a comparison off by one or turned to another."""
        slips = list(_slips(kernel.body, self, kernel.slots))
        return Kernel(kernel.grid, kernel.slots, self.random.choice(slips), kernel.loop)


def _slips(body: tuple[Statement, ...], draw: Draw, slots: int) -> Iterator[tuple[Statement, ...]]:
    for at, each in enumerate(body):
        before, behind = body[:at], body[at + 1 :]
        match each:
            case Barrier():
                yield (*before, *behind)
                yield (*before, If(draw.condition(1), (each,)), *behind)
            case Write() | Read():
                moved = ("remui", ("addi", each.slot, ("constant", 1)), ("constant", slots))
                yield (*before, type(each)(moved), *behind)
                yield (*before, type(each)(("select", draw.condition(1), moved, each.slot)), *behind)
            case If():
                yield (*before, If(_off_by_one(each.condition, draw.random), each.then, each.other), *behind)
                for then in _slips(each.then, draw, slots):
                    yield (*before, If(each.condition, then, each.other), *behind)
                for other in _slips(each.other, draw, slots):
                    yield (*before, If(each.condition, each.then, other), *behind)
            case Inner():
                for inner in _slips(each.body, draw, slots):
                    yield (*before, Inner(each.bound, inner, each.sums), *behind)


def _off_by_one(condition: Term, draws: random.Random) -> Term:
    kind, *of = condition
    if kind in _PREDICATES:
        return kind, of[0], ("addi", of[1], ("constant", 1))
    at = draws.randrange(len(of))
    return kind, *of[:at], _off_by_one(of[at], draws), *of[at + 1 :]


def drawn(seed: int, *, rests: bool = False) -> tuple[Kernel, Kernel]:
    """A kernel, and a twin of it with one slip. `rests`: loops may go to what is left of the one around."""
    draw = Draw(seed, rests=rests)
    kernel = draw.kernel()
    return kernel, draw.broken(kernel)
