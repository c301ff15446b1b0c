"""Random kernels whose barrier is left out under a random condition, and whether that is ever so: by trying all small sizes.

Conditions are conjunctions of comparisons of sums, quotients and remainders of the loop's number, sizes and the workgroup's id with small
constants, so that what ever happens, happens for small values too.
"""

import random
from collections.abc import Callable

from verify.class_programs import binary, compared, looped, once

LARGEST = 40
GRID = 5
Values = dict[str, int]
Function = Callable[[Values], int]
_PREDICATES: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b,
    "sge": lambda a, b: a >= b,
}


class Draw:
    """One random kernel: its lines, and the condition as a function of the values by name."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.has_loop = self.random.random() < 0.7
        self.names = [*(["i"] if self.has_loop else []), "n", "m", "p"]

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def value(self, depth: int = 2) -> tuple[str, Function]:
        """An index value: its name and what it computes."""
        kind = self.random.choice(
            ["name", "constant", "sum", "multiple", "quotient", "remainder", "least"] if depth else ["name", "constant"]
        )
        if kind == "constant":
            number = self.random.randrange(6)
            return f"%c{number}", lambda _: number
        if kind == "name":
            name = self.random.choice(self.names)
            return f"%{name}", lambda values: values[name]
        made, (one, left) = self.fresh(), self.value(depth - 1)
        if kind in ("sum", "least"):
            other, right = self.value(depth - 1)
            self.lines.append(binary(made, "addi" if kind == "sum" else "minsi", one, other))
            return made, (lambda v: left(v) + right(v)) if kind == "sum" else (lambda v: min(left(v), right(v)))
        number = self.random.randrange(2, 6)
        name = {"multiple": "muli", "quotient": "divui", "remainder": "remui"}[kind]
        self.lines.append(binary(made, name, one, f"%c{number}"))
        by: dict[str, Function] = {
            "multiple": lambda v: left(v) * number,
            "quotient": lambda v: left(v) // number,
            "remainder": lambda v: left(v) % number,
        }
        return made, by[kind]

    def condition(self, name: str) -> Function:
        """A comparison named `name`."""
        predicate = self.random.choice(list(_PREDICATES))
        (one, left), (other, right) = self.value(), self.value()
        self.lines.append(compared(name, predicate, one, other))
        return lambda v: _PREDICATES[predicate](left(v), right(v))


def drawn(seed: int) -> tuple[str, bool]:
    """A kernel's text, and whether it is right: the condition never holds."""
    draw = Draw(seed)
    count = draw.random.randrange(1, 4)
    parts = [draw.condition(f"%q{at}") for at in range(count)]
    last = "%q0"
    for at in range(1, count):
        draw.lines.append(binary(f"%a{at}", "andi", last, f"%q{at}", "i1"))
        last = f"%a{at}"
    draw.lines.append(binary("%skip", "andi", last, last, "i1"))
    numbers = tuple(range(7))
    grid = draw.random.choice([str(GRID), "m"])
    step = draw.random.choice((1, 1, 2, 3))
    lower, bound = draw.random.choice(["c0", "p", "c1"]), draw.random.choice(["n", "c6", "b"])
    symbols = ("n", "m")
    if not draw.has_loop:
        text = once(*draw.lines, symbols=symbols, grid=grid, numbers=numbers)
    else:
        text = looped(
            *draw.lines,
            bounds=f"%{lower} to %{bound} step %c{step}",
            symbols=symbols,
            grid=grid,
            numbers=numbers,
            before=("%b = arith.minsi %n, %m : index",),
        )

    def iterations(n: int, m: int, p: int) -> range:
        if not draw.has_loop:
            return range(1)
        first = {"c0": 0, "c1": 1, "p": p}[lower]
        return range(first, {"n": n, "c6": 6, "b": min(n, m)}[bound], step)

    ever = any(
        all(part({"n": n, "m": m, "p": p, "i": i}) for part in parts)
        for n in range(LARGEST)
        for m in range(LARGEST)
        for p in range(GRID if grid == str(GRID) else m)
        for i in iterations(n, m, p)
    )
    return text, not ever
