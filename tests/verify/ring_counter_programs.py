"""Rings of any number of slots whose counters roles carry through nests of loops, in several ways; with one thing wrong, or none.

`Choices` says how a program is made. `text_of` makes it with its sizes as arguments, or as constants.
"""

from dataclasses import dataclass, replace
from random import Random

from hazards.schedules import ACC_LAYOUT, TILE_BYTES, alloc, constants, kernel, local_load, roles, slot, tma, view
from verify.class_programs import TILE, arguments

NUMBER, WRAPPED, LOOP = "number", "wrapped", "loop"
FAULTS = (
    "fewer steps",
    "more steps",
    "first slot",
    "first parity",
    "other quotient",
    "no wait for full",
    "no wait for empty",
    "early release",
    "release of the next",
    "no release at times",
    "steps of two",
    "starts anew",
    "tile of the next slot",
    "one more use between",
    "a slot by its number",
)


@dataclass(frozen=True)
class Choices:
    """`ways`: how producer and consumer carry the counter. `nested`: tiles of `m` steps each, else `n` steps; `up`: a rounded-up quotient.

    `behind`: the consumer frees a slot one use later. `skips`: every third tile is left out by both, under a branch. `fault`: what is wrong
    in the role of that number.
    """

    slots: int
    ways: tuple[str, str] = (NUMBER, NUMBER)
    nested: bool = True
    up: bool = False
    stride: str = "g"
    behind: bool = False
    skips: bool = False
    fault: str = ""
    role: int = 1

    def right(self) -> "Choices":
        """The same without a fault."""
        return replace(self, fault="")


def random_choices(random: Random, fault: str = "") -> Choices:
    nested = random.random() < 0.8
    ways = [random.choice((NUMBER, WRAPPED)) if nested else random.choice((NUMBER, WRAPPED, LOOP)) for _ in range(2)]
    slots = random.randint(2, 6)
    behind, skips = False, nested and random.random() < 0.3
    return Choices(
        slots, (ways[0], ways[1]), nested, random.random() < 0.4, random.choice(("g", "1", "5")), behind, skips, fault, random.randint(0, 1)
    )


class _Role:
    def __init__(self, choices: Choices, number: int) -> None:
        self.choices, self.number = choices, number
        self.way = choices.ways[number]
        self.fault = choices.fault if choices.role == number else ""
        self.count = 0

    def fresh(self, name: str) -> str:
        self.count += 1
        return f"%{name}{self.number}_{self.count}"

    def picks(self, carried: list[str]) -> tuple[list[str], str, str]:
        """Lines, slot and parity (i32) of a counter."""
        if self.way == WRAPPED:
            return [], carried[0], carried[1]
        slots = self.choices.slots
        divisor = slots + 1 if self.fault == "other quotient" else slots
        s, q, h, p = (self.fresh(name) for name in "sqhp")
        return (
            [
                f"  {s} = arith.remui {carried[0]}, %c{slots} : index\n  {q} = arith.divui {carried[0]}, %c{divisor} : index",
                f"  {h} = arith.remui {q}, %c2 : index\n  {p} = arith.index_cast {h} : index to i32",
            ],
            s,
            p,
        )

    @property
    def is_behind(self) -> bool:
        return self.choices.behind and self.number == 1

    def goes_on(self, carried: list[str], used: str = "") -> tuple[list[str], list[str]]:
        """Lines and values of the counter after a use; `used`: the slot that is freed with the next one."""
        lines, values = self.counter_goes_on(carried)
        return lines, [*values, used or carried[-1]] if self.is_behind else values

    def counter_goes_on(self, carried: list[str]) -> tuple[list[str], list[str]]:
        by = "%c2" if self.fault == "steps of two" else "%c1"
        following = self.fresh("b")
        lines = [f"  {following} = arith.addi {carried[0]}, {by} : index"]
        if self.way != WRAPPED:
            return lines, [following]
        wraps, flipped, s, p = (self.fresh(name) for name in ("w", "x", "s", "p"))
        less = self.fresh("l")
        lines += [
            f"  {wraps} = arith.cmpi uge, {following}, %c{self.choices.slots} : index",
            f"  {less} = arith.subi {following}, %c{self.choices.slots} : index",
            f"  {flipped} = arith.xori {carried[1]}, %one : i32",
            f"  {s} = arith.select {wraps}, {less}, {following} : index",
            f"  {p} = arith.select {wraps}, {flipped}, {carried[1]} : i32",
        ]
        return lines, [s, p]

    def next_slot(self, s: str) -> tuple[list[str], str]:
        one, found = self.fresh("o"), self.fresh("n")
        return [f"  {one} = arith.addi {s}, %c1 : index\n  {found} = arith.remui {one}, %c{self.choices.slots} : index"], found

    def use(self, carried: list[str], number: str) -> tuple[list[str], str]:
        """One use of the ring in iteration `number`, and its slot."""
        lines, s, p = self.picks(carried)
        slots = self.choices.slots
        f, e, t, data = (self.fresh(name) for name in "fetd")
        at = s
        if self.fault == "tile of the next slot":
            more, at = self.next_slot(s)
            lines += more
        if self.fault == "a slot by its number":
            at = self.fresh("a")
            lines.append(f"  {at} = arith.remui {number}, %c{slots} : index")
        lines += [
            f"  {f} = sync.mbarrier_slot %full[{s}] : !sync.mbarrier\n  {e} = sync.mbarrier_slot %empty[{s}] : !sync.mbarrier",
            slot(t, "%ring", (slots,), at),
        ]
        if not self.number:
            inverse = self.fresh("i")
            wait = f"  {inverse} = arith.xori {p}, %one : i32\n  sync.wait_phase {e} parity {inverse}"
            lines += [] if self.fault == "no wait for empty" else [wait]
            return [*lines, f"  sync.mbarrier_expect {f} bytes {TILE_BYTES} : i64", tma("%va", TILE, "%c0, %c0", t, f)], s
        read = local_load(data, t, ACC_LAYOUT)
        wait = [] if self.fault == "no wait for full" else [f"  sync.wait_phase {f} parity {p}"]
        freed = e
        if self.fault == "release of the next":
            more, following = self.next_slot(s)
            freed = self.fresh("e")
            lines += [*more, f"  {freed} = sync.mbarrier_slot %empty[{following}] : !sync.mbarrier"]
        release = [f"  sync.arrive {freed}"]
        if self.is_behind:
            before, first, old = carried[-1], self.fresh("z"), self.fresh("e")
            release = [
                f"  {first} = arith.cmpi ne, {before}, %c{slots} : index\n  scf.if {first} {{",
                f"  {old} = sync.mbarrier_slot %empty[{before}] : !sync.mbarrier\n  sync.arrive {old}\n  }}",
            ]
        if self.fault == "no release at times":
            rest, some = self.fresh("r"), self.fresh("c")
            release = [
                f"  {rest} = arith.remui {number}, %c7 : index\n  {some} = arith.cmpi ne, {rest}, %c3 : index",
                f"  scf.if {some} {{\n{release[0]}\n  }}",
            ]
        return [*lines, *release, *wait, read] if self.fault == "early release" else [*lines, *wait, read, *release], s

    def starts(self) -> tuple[list[str], list[str]]:
        """What is carried at first, and its types."""
        first = "%c1" if self.fault == "first slot" else "%c0"
        values, types = [f"%c{self.choices.slots}" if self.fault == "first parity" else first], ["index"]
        if self.way == WRAPPED:
            values, types = [first, "%one" if self.fault == "first parity" else "%even"], ["index", "i32"]
        return ([*values, f"%c{self.choices.slots}"], [*types, "index"]) if self.is_behind else (values, types)

    def loop(
        self, head: str, starts: list[str], types: list[str], body: list[str], ends: list[str], arguments: list[str]
    ) -> tuple[list[str], list[str]]:
        results = [self.fresh("y") for _ in starts]
        if not starts:
            return [f"  {head} {{", *body, "  }"], []
        carries = ", ".join(f"{argument} = {start}" for argument, start in zip(arguments, starts, strict=True))
        kinds = ", ".join(types)
        return [
            f"  {', '.join(results)} = {head} iter_args({carries}) -> ({kinds}) {{",
            *body,
            f"  scf.yield {', '.join(ends)} : {kinds}\n  }}",
        ], results

    def steps(self, starts: list[str], types: list[str], count: str) -> tuple[list[str], list[str]]:
        """A loop of so many uses."""
        number = self.fresh("k")
        if self.way == LOOP:
            return self.loop(f"scf.for {number} = %c0 to {count} step %c1", [], [], self.use([number], number)[0], [], [])
        arguments = [self.fresh("a") for _ in starts]
        body, used = self.use(arguments, number)
        more, ends = self.goes_on(arguments, used)
        return self.loop(f"scf.for {number} = %c0 to {count} step %c1", starts, types, [*body, *more], ends, arguments)

    def text(self) -> str:
        choices = self.choices
        count = {"fewer steps": "%fewer", "more steps": "%more"}.get(self.fault, "%steps")
        starts, types = self.starts()
        if not choices.nested:
            return "\n".join(self.steps(starts, types, count)[0])
        arguments = [self.fresh("t") for _ in starts]
        tile = self.fresh("tile")
        inner_starts = starts if self.fault == "starts anew" else arguments
        lines, ends = self.steps(inner_starts, types, count)
        if self.fault == "one more use between":
            more, ends = self.goes_on(ends)
            lines += more
        if choices.skips:
            rest, some = self.fresh("r"), self.fresh("c")
            kinds = ", ".join(types)
            names = [self.fresh("q") for _ in ends]
            lines = [
                f"  {rest} = arith.remui {tile}, %c3 : index\n  {some} = arith.cmpi ne, {rest}, %c2 : index",
                f"  {', '.join(names)} = scf.if {some} -> ({kinds}) {{",
                *lines,
                f"  scf.yield {', '.join(ends)} : {kinds}\n  }} else {{\n  scf.yield {', '.join(arguments)} : {kinds}\n  }}",
            ]
            ends = names
        stride = "%g" if choices.stride == "g" else f"%c{choices.stride}"
        return "\n".join(self.loop(f"scf.for {tile} = %w to %n step {stride}", starts, types, lines, ends, arguments)[0])


def text_of(choices: Choices, sizes: dict[str, int] | None = None) -> str:
    """The program; `sizes`: numbers for its arguments n, m and g, and w for the workgroup."""
    symbols = ("n", "m", "g") if choices.nested and choices.stride == "g" else ("n", "m") if choices.nested else ("n",)
    given = "" if sizes is None else "\n".join(f"  %{name} = arith.constant {sizes[name]} : index" for name in (*symbols, "w"))
    whole = "%m" if choices.nested else "%n"
    before = [
        f"  %whole = arith.addi {whole}, %c63 : index\n  %steps = arith.divui %whole, %c64 : index"
        if choices.up
        else f"  %steps = arith.addi {whole}, %c0 : index",
        "  %more = arith.addi %steps, %c1 : index\n  %positive = arith.maxsi %steps, %c1 : index",
        "  %fewer = arith.subi %positive, %c1 : index",
    ]
    if sizes is None:
        before.insert(0, "  %w = tile.program_id 0 : i64" if choices.nested else "  %w = arith.constant 0 : index")
    slots = choices.slots
    bodies = [_Role(choices, number).text() for number in range(2)]
    made = kernel(
        arguments(symbols if sizes is None else ()),
        view("%va", "%a", 64, 64),
        constants(*range(10), 63, 64),
        given,
        "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32",
        f"  %full = sync.mbarrier_alloc 1 : i64 slots {slots} : i64 : !sync.mbarrier",
        f"  %empty = sync.mbarrier_alloc 1 : i64 slots {slots} : i64 : !sync.mbarrier",
        alloc("%ring", slots),
        *before,
        roles(("producer", "consumer"), (1, 4), (1, 1), *bodies),
        warps=5,
        pointers=2,
        symbols=symbols if sizes is None else (),
    )
    grid = choices.stride if choices.nested and sizes is None else "1"
    return made.replace('grid = ["1"', f'grid = ["{grid}"')
