"""Pairs of kernels with a producer and a consumer around a ring of three tiles, which differ in one thing; the first of each is wrong."""

import re

from hazards.schedules import TILE_BYTES, alloc, roles, slot, tma
from verify.class_programs import LOADED, TILE, binary, compared, loaded
from verify.step_programs import FILL, USE, ring, turn

WRONG: dict[str, str] = {}
RIGHT: dict[str, str] = {}
Lines = list[str]
COUNTED = "memref<8xi64, strided<[1]>>"
ONE = "tensor<1xi64, #tile.layout<register = [], lane = [], warp = [], repeat = [1]>>"


def pair(name: str, wrong: str, right: str) -> None:
    WRONG[name], RIGHT[name] = wrong, right


def number(name: str, value: int) -> str:
    return f"  %{name} = arith.constant {value} : index"


def fill(counter: str = "%i") -> Lines:
    return [*turn(counter), *FILL]


def use(counter: str = "%i") -> Lines:
    return [*turn(counter), *USE]


def tagged(lines: Lines, tag: str) -> Lines:
    """The same use again in one block."""
    return [re.sub(r"%(s|q|h|p|f|e|t|inv|y)\b", rf"%\g<1>{tag}", line) for line in lines]


def loop(body: Lines, last: str = "%n", first: str = "%c0", step: str = "%c1") -> Lines:
    return [f"  scf.for %i = {first} to {last} step {step} {{", *body, "  }"]


def carrying(body: Lines, last: str, number: str = "k", start: str = "%c0", result: str = "y1") -> Lines:
    """A loop that carries the counter %b."""
    head = f"  %{result} = scf.for %{number} = %c0 to {last} step %c1 iter_args(%b = {start}) -> (index) {{"
    return [head, *body, "  %b2 = arith.addi %b, %c1 : index\n  scf.yield %b2 : index\n  }"]


def around(inner: Lines, head: str = "%i = %c0 to %n step %c1") -> Lines:
    return [f"  %z = scf.for {head} iter_args(%b0 = %c0) -> (index) {{", *inner, "  scf.yield %y1 : index\n  }"]


# --- numbers of uses, slots, parities


def twice(times: int) -> str:
    """Both roles go round with counters that begin anew in a second loop; the first has a multiple of so many uses."""
    producer, consumer = [[*loop(body(), "%nn"), *loop(body(), "%nn")] for body in (fill, use)]
    return ring(producer, consumer, number("times", times), binary("%nn", "muli", "%n", "%times"))


def from_offset(first: int) -> str:
    more = binary("%j", "addi", "%i", "%first")
    return ring(loop([more, *fill("%j")]), loop([more, *use("%j")]), number("first", first))


def by_multiples(one: int, other: int) -> str:
    """Slot i * factor mod 3 in each role."""

    def side(body: tuple[str, ...], factor: int) -> Lines:
        lines = turn("%i")
        lines[0] = f"  %by = arith.constant {factor} : index\n  %m = arith.muli %i, %by : index\n  %s = arith.remui %m, %c3 : index\n"
        lines[0] += "  %q = arith.divui %i, %c3 : index"
        return loop([*lines, *body])

    return ring(side(FILL, one), side(USE, other))


def rotated(order: str) -> str:
    """Three slots that change places from use to use; the consumer's in another order than the producer's unless it is the same."""

    def side(body: tuple[str, ...], order: str) -> Lines:
        head = "  %z0, %z1, %z2, %zp = scf.for %i = %c0 to %n step %c1 iter_args(%s = %c0, %s1 = %c1, %s2 = %c2, %p = %even)"
        pick = "  %f = sync.mbarrier_slot %full[%s] : !sync.mbarrier\n  %e = sync.mbarrier_slot %empty[%s] : !sync.mbarrier"
        last = [compared("%last", "eq", "%s1", "%c0"), "  %flipped = arith.xori %p, %one : i32"]
        last += ["  %pn = arith.select %last, %flipped, %p : i32", f"  scf.yield {order}, %pn : index, index, index, i32\n  }}"]
        return [f"{head} -> (index, index, index, i32) {{", pick, slot("%t", "%ring", (3,), "%s"), *body, *last]

    return ring(side(FILL, "%s1, %s2, %s"), side(USE, order))


def by_difference(factor: int) -> str:
    """The consumer's slot is i - factor * (i / 3)."""
    lines = turn("%i")
    lines[0] = "  %q = arith.divui %i, %c3 : index\n  %q3 = arith.muli %q, %by : index\n  %s = arith.subi %i, %q3 : index"
    return ring(loop(fill()), loop([*lines, *USE]), number("by", factor))


pair("counters that begin anew", twice(3), twice(6))
pair("counters from an offset", from_offset(3), from_offset(6))
pair("slots by multiples", by_multiples(5, 4), by_multiples(5, 2))
pair("rotated slots", rotated("%s2, %s, %s1"), rotated("%s1, %s2, %s"))
pair("a slot by a difference", by_difference(2).replace("%s = arith.subi", "%s = arith.minsi"), by_difference(3))

# --- lengths


def least(more: str) -> str:
    """Iteration i takes min(i + 1, 4) uses, the consumer's one more or less than that."""

    def side(body: Lines, more: str) -> Lines:
        lines = [binary("%h0", "addi", "%i", more), "  %last = arith.minsi %h0, %c4 : index"]
        return around([*lines, *carrying(body, "%last", start="%b0")])

    return ring(side(fill("%b"), "%c1"), side(use("%b"), more))


def blocks(most: str) -> str:
    """The producer takes its uses in blocks of four, the last of which is what is left; the consumer one by one."""
    head = "  %nb0 = arith.addi %n, %c3 : index\n  %nb = arith.divui %nb0, %c4 : index\n  scf.for %i = %c0 to %nb step %c1 {"
    lines = [binary("%o", "muli", "%i", "%c4"), binary("%l", "subi", "%n", "%o"), f"  %last = arith.minsi %l, {most} : index"]
    inner = ["  scf.for %k = %c0 to %last step %c1 {", binary("%j", "addi", "%o", "%k"), *fill("%j"), "  }"]
    return ring([head, *lines, *inner, "  }"], loop(use()))


def by_twos(rest: str) -> str:
    """The consumer takes two uses an iteration, and one more where their number is odd (or even)."""
    two = [binary("%j", "muli", "%i", "%c2"), binary("%j1", "addi", "%j", "%c1"), *use("%j"), *tagged(use("%j1"), "1")]
    last = [binary("%r", "remui", "%n", "%c2"), compared("%is_odd", "eq", "%r", rest), binary("%jl", "subi", "%n", "%c1")]
    half = binary("%half", "divui", "%n", "%c2")
    return ring(loop(fill()), [half, *loop(two, "%half"), *last, "  scf.if %is_odd {", *use("%jl"), "  }"])


def skipped(rest: str) -> str:
    """Persistent tiles, of which each role leaves out the odd ones, or the even ones."""

    def side(body: Lines, rest: str) -> Lines:
        head = "  %z = scf.for %tile = %w to %n step %g iter_args(%b = %c0) -> (index) {"
        lines = [binary("%r", "remui", "%tile", "%c2"), compared("%is", "eq", "%r", rest), "  %y1 = scf.if %is -> (index) {", *body]
        return [
            head,
            *lines,
            "  %b2 = arith.addi %b, %c1 : index\n  scf.yield %b2 : index\n  } else {\n  scf.yield %b : index\n  }",
            "  scf.yield %y1 : index\n  }",
        ]

    return ring(side(fill("%b"), "%c1"), side(use("%b"), rest), symbols=("n", "g"), grid="g")


def ragged(more: str) -> str:
    """Tile t of a persistent kernel has min(t + 1, m) steps."""

    def side(body: Lines, more: str) -> Lines:
        lines = [binary("%t1", "addi", "%tile", more), "  %last = arith.minsi %t1, %m : index"]
        return around([*lines, *carrying(body, "%last", start="%b0")], "%tile = %w to %n step %far")

    return ring(side(fill("%b"), "%c1"), side(use("%b"), more), number("far", 132), symbols=("n", "m"), grid="132")


def ring_of_a_size(limit: str) -> str:
    """The roles go round the first slots of the ring alone, as many as a size says; the consumer round `limit` of them."""

    def side(body: tuple[str, ...], limit: str) -> Lines:
        head = "  %z, %zp = scf.for %i = %c0 to %n step %c1 iter_args(%s = %c0, %p = %even) -> (index, i32) {"
        pick = "  %f = sync.mbarrier_slot %full[%s] : !sync.mbarrier\n  %e = sync.mbarrier_slot %empty[%s] : !sync.mbarrier"
        wrap = [binary("%sn", "addi", "%s", "%c1"), compared("%wraps", "sge", "%sn", limit), "  %flipped = arith.xori %p, %one : i32"]
        wrap += ["  %s3 = arith.select %wraps, %c0, %sn : index", "  %p3 = arith.select %wraps, %flipped, %p : i32"]
        return [head, pick, slot("%t", "%ring", (3,), "%s"), *body, *wrap, "  scf.yield %s3, %p3 : index, i32\n  }"]

    limits = "  %some = arith.minsi %m, %c3 : index\n  %limit = arith.maxsi %some, %c1 : index"
    return ring(side(FILL, "%limit"), side(USE, limit), limits, symbols=("n", "m"))


def peeled(*, guarded: bool) -> str:
    """The consumer waits for the first tile ahead of its loop (where there is one)."""
    first = ["  %f0 = sync.mbarrier_slot %full[%c0] : !sync.mbarrier", "  sync.wait_phase %f0 parity %even"]
    return ring(
        loop(fill()), [*([compared("%any", "sgt", "%n", "%c0"), "  scf.if %any {", *first, "  }"] if guarded else first), *loop(use())]
    )


pair("loops of min(i + 1, 4) uses", least("%c2"), least("%c1"))
pair("blocks of four and one by one", blocks("%c3"), blocks("%c4"))
pair("two uses an iteration", by_twos("%c0"), by_twos("%c1"))
pair("tiles left out", skipped("%c0"), skipped("%c1"))
pair("tiles of as many steps as their number", ragged("%c2"), ragged("%c1"))
pair("as many slots as a size says", ring_of_a_size("%c3"), ring_of_a_size("%limit"))
pair("a wait ahead of the loop", peeled(guarded=False), peeled(guarded=True))

# --- releases, bytes, groups


def released_late(distance: int) -> str:
    old = "  %sb = arith.remui %ib, %c3 : index\n  %eb = sync.mbarrier_slot %empty[%sb] : !sync.mbarrier\n  sync.arrive %eb\n  }"
    late = [compared("%later", "sge", "%i", f"%c{distance}"), "  scf.if %later {", binary("%ib", "subi", "%i", f"%c{distance}"), old]
    return ring(loop(fill()), loop([*turn("%i"), *USE[:-1], *late]))


def released_where(predicate: str, limit: str, *otherwise: str) -> str:
    last = [compared("%is", predicate, "%i", limit), "  scf.if %is {", USE[-1], "  } else {", *otherwise, "  }"]
    less = binary("%less", "subi", "%n", "%c4"), binary("%less3", "subi", "%n", "%c3")
    return ring(loop(fill()), loop([*turn("%i"), *USE[:-1], *last]), *less, symbols=("n", "m"))


def second_copy(predicate: str) -> str:
    """A second tile in iterations up to m, announced in those below m."""
    to = [slot("%t2", "%ring2", (3,), "%s"), tma("%va", TILE, "%c0, %c0", "%t2", "%f")]
    both, one = (f"  sync.mbarrier_expect %f bytes {count * TILE_BYTES} : i64" for count in (2, 1))
    lines = [compared("%is", "slt", "%i", "%m"), "  scf.if %is {", both, "  } else {", one, "  }", FILL[2]]
    lines += [compared("%brings", predicate, "%i", "%m"), "  scf.if %brings {", *to, "  }"]
    return ring(loop([*turn("%i"), FILL[0], *lines]), loop(use()), alloc("%ring2", 3), symbols=("n", "m"))


def two_groups(arrivals: int) -> str:
    made = (
        ring(loop(fill()), loop(use()))
        .replace("groups = array<i64: 1, 1>", "groups = array<i64: 1, 2>")
        .replace("num_warps = 5", "num_warps = 9")
    )
    return made.replace("%empty = sync.mbarrier_alloc 1", f"%empty = sync.mbarrier_alloc {arrivals}")


pair("releases two or three uses late", released_late(3), released_late(2))
pair("releases on one way", released_where("slt", "%m"), released_where("slt", "%m", USE[-1]))
pair("the last releases left out", released_where("slt", "%less"), released_where("slt", "%less3"))
pair("a second copy at times", second_copy("sle"), second_copy("slt"))
pair("as many arrivals as groups", two_groups(1), two_groups(2))

# --- roles that follow one another


def second_roles(first: int, start: int) -> str:
    """Behind roles that make 6 n + `first` uses, others go on with the use `start`: the same slot and phase, or another."""
    before = [number("six", 6), "  %n0 = arith.muli %n, %six : index", number("first", first), "  %uses = arith.addi %n0, %first : index"]
    before += [number("start", start), "  %last = arith.addi %n, %start : index"]
    made = ring(loop(fill(), "%uses"), loop(use(), "%uses"), *before)
    sides = ("\n".join(loop(body(), "%last", "%start")) for body in (fill, use))
    return made.replace("  tile.return", roles(("again", "reads"), (1, 4), (1, 1), *sides) + "\n  tile.return")


pair("roles that go on with the ring", second_roles(12, 4), second_roles(12, 0))
pair("roles that go on within a round", second_roles(13, 4), second_roles(13, 1))

# --- flat loops, and numbers that no index holds


def unsigned_rest(divided: int) -> str:
    """Iteration i takes i uses; the releases are left out where the remainder of a number by 7, as an unsigned one of 32 bits, is 3."""
    rest = ["  %d = arith.remui %divided, %seven : index", compared("%skip", "eq", "%d", "%c3")]
    release = f"  scf.if %skip {{\n  }} else {{\n{USE[-1]}\n  }}"
    producer, consumer = (around(carrying(body, "%i", start="%b0")) for body in (fill("%b"), [*turn("%b"), *USE[:-1], release]))
    return ring(producer, consumer, number("divided", divided), number("seven", 7), *rest)


pair("a remainder of all 32 bits", unsigned_rest(-1), unsigned_rest(9))

# --- stretches in which a role does nothing


def at_times(*, last: str) -> str:
    """Of n + m iterations only the n-th takes uses of the ring, the consumer's as many as half of `last`."""

    def side(body: Lines, last: str) -> Lines:
        lines = [binary("%i1", "addi", "%i", "%c1"), compared("%is", "eq", "%i1", "%n"), binary("%half", "divui", last, "%c2")]
        inner = ["  %y1 = scf.if %is -> (index) {", *carrying(body, "%half", start="%b0", result="y0"), "  scf.yield %y0 : index"]
        return around([*lines, *inner, "  } else {\n  scf.yield %b0 : index\n  }"], "%i = %c0 to %both step %c1")

    both = binary("%both", "addi", "%n", "%m")
    return ring(side(fill("%b"), "%n"), side(use("%b"), last), both, symbols=("n", "m"))


def fewer_at_first(most: str) -> str:
    """Iteration i takes min(i, 2) uses in a loop, the consumer's as many as another number says, and one behind it."""

    def side(body: Lines, more: Lines, most: str) -> Lines:
        lines = [f"  %last = arith.minsi %i, {most} : index", *carrying(body, "%last", start="%b0", result="y0")]
        return around([*lines, *tagged(more, "9"), "  %y1 = arith.addi %y0, %c1 : index"])

    return ring(side(fill("%b"), fill("%y0"), "%c2"), side(use("%b"), use("%y0"), most))


pair("fewer uses in the first iterations", fewer_at_first("%c3"), fewer_at_first("%c2"))
pair("one iteration of many", at_times(last="%both"), at_times(last="%n"))


def two_rings(last: str) -> str:
    """A producer fills one ring n times and then another m times, for a consumer each; the second one's is filled `last` times."""

    def second(lines: Lines) -> Lines:
        return [re.sub(r"%(full|empty|ring)\b", r"%\g<1>2", line) for line in lines]

    producer = [*loop(fill()), *second(loop(fill(), last))]
    barriers = (f"  %{name}2 = sync.mbarrier_alloc 1 : i64 slots 3 : i64 : !sync.mbarrier" for name in ("full", "empty"))
    text = ring(producer, loop(use()), *barriers, alloc("%ring2", 3), symbols=("n", "m")).replace('"consumer"]', '"consumer", "other"]')
    for before, after in (("num_warps = 5", "num_warps = 9"), ("1, 4>", "1, 4, 4>"), ("1, 1>", "1, 1, 1>"), ("0, 0>,", "0, 0, 0>,")):
        text = text.replace(before, after)
    at = text.rindex("}) : () -> ()\n  tile.return")
    text = text[:at] + "}, {\n" + "\n".join(second(loop(use(), "%m"))) + "\n  pipe.end_role\n" + text[at:]
    return text.replace("registers = array<i64: 0, 0>", "registers = array<i64: 0, 0, 0>")


pair("two rings one after the other", two_rings("%n"), two_rings("%m"))

# --- data


def of_data(*body: str, producer: str, consumer: str) -> str:
    """Lengths that are made of loaded numbers."""

    def element(name: str, at: str) -> str:
        return (
            f"  %{name}t = tile.load %counts[{at}] dims array<i64: 0> vector 1 : i64 : {COUNTED} -> {ONE}\n"
            f"  %{name} = tile.extract %{name}t : {ONE}"
        )

    own = [element("own", "%c0")] if producer == "%own" else []
    other = [element("own", "%c0" if consumer == "%own" else "%c1")] if consumer in ("%own", "%other") else []
    view = f"  %counts = tile.view %d offset 0 : i64 align 256 : i64 sizes [] strides [] : !tile.ptr<i64> -> {COUNTED}"
    made = ring([*own, *loop(fill(), producer)], [*other, *loop(use(), consumer.replace("other", "own"))], view, element("k", "%c0"), *body)
    made = made.replace("%c: !tile.ptr<f16>", "%d: !tile.ptr<i64>, %c: !tile.ptr<f16>")
    return made.replace("arg_align = array<i64: 256, 256>", "arg_align = array<i64: 256, 256, 256>")


def where(one: str, other: str) -> str:
    """Each role does its loop where a truth value that nobody knows holds, which may be the same one."""
    no = "  %yes = arith.constant true\n  %nu = arith.xori %u, %yes : i1\n  %nnu = arith.xori %nu, %yes : i1"
    producer, consumer = ([f"  scf.if {when} {{", *loop(body()), "  }"] for when, body in ((one, fill), (other, use)))
    return ring(producer, consumer, *(line.replace("%f", "%d") for line in (*LOADED, f"  {loaded('%u')}")), no)


LEAST = ("  %k2 = arith.minsi %k, %c5 : index", "  %k3 = arith.minsi %c5, %k : index")
pair("lengths by data", of_data(producer="%own", consumer="%other"), of_data(producer="%own", consumer="%own"))
pair("the least of data", of_data(*LEAST, producer="%k", consumer="%k2"), of_data(*LEAST, producer="%k2", consumer="%k3"))
pair("roles where data says so", where("%u", "%nu"), where("%u", "%nnu"))
