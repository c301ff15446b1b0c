"""Pairs of kernels that differ in one number or operation: sizes, workgroups, loop numbers and data decide whether a barrier is left out.

Of each pair the first has sizes or iterations in which it is, the second none.
"""

from verify.class_programs import LOADED, binary, compared, loaded, looped, once, passed, text

WRONG: dict[str, str] = {}
RIGHT: dict[str, str] = {}
BOTH = ("n", "m")


def pair(name: str, wrong: str, right: str) -> None:
    WRONG[name], RIGHT[name] = wrong, right


def number(name: str, value: int) -> str:
    return f"%{name} = arith.constant {value} : index"


# --- arithmetic of sizes


def below_zero(kind: str, by: int, value: int) -> str:
    """What n is more than 10 is divided, shifted or cut to a remainder."""
    lines = (
        binary("%d", "subi", "%n", "%c10"),
        binary("%r", kind, "%d", f"%c{by}"),
        number("k", value),
        compared("%skip", "eq", "%r", "%k"),
    )
    return once(*lines, symbols=("n",), numbers=(10, by))


for kind, by, wrong, right in (
    ("remsi", 3, -2, -3),
    ("floordivsi", 4, -3, -4),
    ("divsi", 4, -2, -3),
    ("ceildivsi", 4, -2, -3),
    ("remui", 3, 1, 3),
    ("shrsi", 2, -3, -4),
    ("shli", 2, -16, -15),
):
    pair(f"{kind} of what may be below zero", below_zero(kind, by, wrong), below_zero(kind, by, right))


def unsigned_apart(guard: str) -> str:
    """What n is more than m is less than 5 as an unsigned number, and n more (or less) than m."""
    lines = (binary("%d", "subi", "%n", "%m"), compared("%x0", "ult", "%d", "%c5"), compared("%y0", guard, "%n", "%m"))
    return once(*lines, binary("%skip", "andi", "%x0", "%y0", "i1"), symbols=BOTH, numbers=(5,))


def unsigned_extreme(kind: str, predicate: str, value: int) -> str:
    """The lesser or larger of n - m and 7 as unsigned numbers, where n is less than m."""
    lines = (binary("%d", "subi", "%n", "%m"), binary("%u", kind, "%d", "%c7"), compared("%y0", "slt", "%n", "%m"))
    last = (compared("%x0", predicate, "%u", f"%c{value}"), binary("%skip", "andi", "%x0", "%y0", "i1"))
    return once(*lines, *last, symbols=BOTH, numbers=(value, 7))


pair("an unsigned difference", unsigned_apart("sgt"), unsigned_apart("slt"))
pair("an unsigned minimum", unsigned_extreme("minui", "ne", 6), unsigned_extreme("minui", "ne", 7))
pair("an unsigned maximum", unsigned_extreme("maxui", "ne", 7), unsigned_extreme("maxui", "eq", 7))


def bits(kind: str, mask: int, predicate: str, other: str, *numbers: int, loop: bool) -> str:
    """Bits of a size, or of a loop's number."""
    value = "%i" if loop else "%n"
    lines = (binary("%r", kind, value, f"%c{mask}"), compared("%skip", predicate, "%r", other))
    return (looped if loop else once)(*lines, symbols=("n",), numbers=(mask, *numbers))


for loop in (False, True):
    of, value = ("a loop's number", "%i") if loop else ("a size", "%n")
    pair(f"bits of {of}", bits("andi", 6, "eq", "%c4", 4, loop=loop), bits("andi", 6, "eq", "%c5", 5, loop=loop))
    pair(f"bits apart of {of}", bits("andi", 9, "eq", "%c8", 8, loop=loop), bits("andi", 9, "eq", "%c10", 10, loop=loop))
    pair(f"a bit set in {of}", bits("ori", 4, "eq", "%c5", 5, loop=loop), bits("ori", 4, "eq", "%c3", loop=loop))
    pair(f"a bit of {of} turned", bits("xori", 1, "sgt", value, loop=loop), bits("xori", 1, "eq", value, loop=loop))


def narrow_product(bits: int) -> str:
    """A product of two numbers of so many bits is below zero."""
    kind = f"i{bits}"
    casts = (f"%n8 = arith.index_cast %n : index to {kind}", f"%m8 = arith.index_cast %m : index to {kind}")
    cut = (
        binary("%x8", "remui", "%n8", "%k8", kind),
        binary("%y8", "remui", "%m8", "%k8", kind),
        binary("%p8", "muli", "%x8", "%y8", kind),
    )
    last = f"%skip = arith.cmpi slt, %p8, %z8 : {kind}"
    return once(*casts, f"%k8 = arith.constant 100 : {kind}\n  %z8 = arith.constant 0 : {kind}", *cut, last, symbols=BOTH)


pair("a product that wraps", narrow_product(8), narrow_product(32))


def rounded(limit: int) -> str:
    """What the next multiple of 64 is more than n."""
    lines = (binary("%a0", "addi", "%n", "%c63"), binary("%a1", "divui", "%a0", "%c64"), binary("%a2", "muli", "%a1", "%c64"))
    last = (binary("%d", "subi", "%a2", "%n"), compared("%skip", "sge", "%d", f"%c{limit}"))
    return once(*lines, *last, symbols=("n",), numbers=(63, 64, limit))


def twice(kind: str, one: int, other: int, both: int) -> str:
    """A quotient of a quotient, or a remainder of a remainder, against one of n."""
    lines = (binary("%a0", kind, "%n", f"%c{one}"), binary("%a1", kind, "%a0", f"%c{other}"), binary("%d", kind, "%n", f"%c{both}"))
    return once(*lines, compared("%skip", "ne", "%a1", "%d"), symbols=("n",), numbers=(one, other, both))


pair("the next multiple", rounded(63), rounded(64))
pair("a quotient of a quotient", twice("divui", 3, 4, 13), twice("divui", 3, 4, 12))
pair("a remainder of a remainder", twice("remui", 12, 5, 5), twice("remui", 12, 4, 4))

# --- grids


def on_grid(grid: str, *lines: str) -> str:
    return once(*lines, symbols=BOTH, grid=grid, numbers=(4, 8, 63, 64))


SWIZZLED = (
    *(binary("%g", "divui", "%p", "%c8"), binary("%f", "muli", "%g", "%c4"), binary("%l", "subi", "%n", "%f")),
    binary("%z0", "minsi", "%l", "%c4"),
)
SUM = binary("%nm", "addi", "%n", "%m")
pair(
    "a grid of the least",
    on_grid("min(n, 64)", compared("%skip", "eq", "%p", "%c63")),
    on_grid("min(n, 64)", compared("%skip", "eq", "%p", "%c64")),
)
pair(
    "rows in groups of four",
    on_grid("2 * n", *SWIZZLED, compared("%skip", "slt", "%z0", "%c2")),
    on_grid("2 * n", *SWIZZLED, compared("%skip", "sle", "%z0", "%c0")),
)
pair(
    "a grid of two factors",
    on_grid("min(n - 5, 3) * min(m - 5, 3)", SUM, compared("%skip", "eq", "%nm", "%c0")),  # of two below zero there are nine
    on_grid("min(n, 3) * min(m, 3)", SUM, compared("%skip", "eq", "%nm", "%c0")),
)
pair(
    "the last tile's number",
    *(
        text(
            "  %t = scf.for %i = %p to %n step %c132 iter_args(%q = %p) -> (index) {\n  scf.yield %i : index\n  }",
            f"  %r = arith.remui %t, %c132 : index\n  %skip = arith.cmpi {predicate}, %r, {other} : index",
            *passed(),
            symbols=("n",),
            grid="132",
            numbers=(132,),
        )
        for predicate, other in (("eq", "%c3"), ("ne", "%p"))
    ),
)

# --- loops


def floor_in_loop(kind: str, by: int, value: int) -> str:
    lines = (
        binary("%d", "subi", "%i", "%c5"),
        binary("%q", kind, "%d", f"%c{by}"),
        number("k", value),
        compared("%skip", "eq", "%q", "%k"),
    )
    return looped(*lines, numbers=(5, by))


for kind, by, wrong, right in (
    ("floordivsi", 4, -2, -3),
    ("divsi", 4, -1, -2),
    ("remsi", 4, -3, -4),
    ("remui", 4, 3, 4),
    ("shrsi", 2, -2, -3),
):
    pair(f"{kind} below zero in a loop", floor_in_loop(kind, by, wrong), floor_in_loop(kind, by, right))


def nest(last: str, predicate: str) -> str:
    """An inner loop to m, or to what is left of it; the sum of both numbers against m."""
    outer = ["  scf.for %i = %c0 to %n step %c1 {", binary("%l", "subi", "%m", "%i"), f"  scf.for %k = %c0 to {last} step %c1 {{"]
    return text(*outer, binary("%j", "addi", "%i", "%k"), compared("%skip", predicate, "%j", "%m"), *passed(), "  }\n  }", symbols=BOTH)


def carried(start: str, *body: str, skip: tuple[str, str, str]) -> str:
    """A number that a loop carries: `body` makes %next of %v; compared at the start of each iteration."""
    head = f"  %end = scf.for %i = %c0 to %n step %c1 iter_args(%v = {start}) -> (index) {{"
    lines = [head, compared("%skip", *skip), *passed(), *body, "  scf.yield %next : index\n  }"]
    return text(*lines, symbols=BOTH, numbers=(4, 5, 6))


def anew(limit: str) -> tuple[str, ...]:
    return (
        binary("%more", "addi", "%v", "%c1"),
        compared("%wraps", "eq", "%more", limit),
        "%next = arith.select %wraps, %c0, %more : index",
    )


STOPS = (compared("%goes", "slt", "%i", "%c4"), binary("%more", "addi", "%v", "%c1"), "%next = arith.select %goes, %more, %v : index")
pair("an inner loop to the rest", nest("%m", "sgt"), nest("%l", "sge"))
pair(
    "a counter that begins anew",
    carried("%c0", *anew("%c6"), skip=("eq", "%v", "%c5")),
    carried("%c0", *anew("%c5"), skip=("eq", "%v", "%c5")),
)
pair("a counter that stops", carried("%c0", *STOPS, skip=("sgt", "%v", "%c3")), carried("%c0", *STOPS, skip=("sgt", "%v", "%c4")))


def swapped(rest: int, other: str) -> str:
    """Two sizes that change places in each iteration, and what the first is at the end of an even (or odd) number of them."""
    lines = ["  %t, %u = scf.for %i = %c0 to %k step %c1 iter_args(%x0 = %m, %y0 = %n) -> (index, index) {"]
    lines += ["  scf.yield %y0, %x0 : index, index\n  }"]
    lines += [binary("%r", "remui", "%k", "%c2"), compared("%w0", "eq", "%r", f"%c{rest}"), compared("%w1", "ne", "%t", other)]
    return text(*lines, binary("%skip", "andi", "%w0", "%w1", "i1"), *passed(), symbols=("n", "m", "k"))


pair("sizes that change places", swapped(0, "%n"), swapped(1, "%n"))

# --- data


def of_truth(cast: str, value: int, *lines: str) -> str:
    made = (f"%v = arith.{cast} %u : i1 to i32", f"%k = arith.constant {value} : i32", *(lines or ("%w = arith.addi %v, %zero : i32",)))
    return once(*LOADED, loaded("%u"), "%zero = arith.constant 0 : i32", *made, "%skip = arith.cmpi eq, %w, %k : i32")


TWICE = "%w = arith.addi %v, %v : i32"
pair("the sign of data", of_truth("extsi", -1), of_truth("extui", -1))
pair("data twice", of_truth("extui", 2, TWICE), of_truth("extui", 1, TWICE))
