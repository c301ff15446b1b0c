"""Pairs of kernels with a producer and a consumer whose inner loops are as long as the iteration around says; the first is wrong."""

from collections.abc import Callable

from verify.class_programs import binary, compared
from verify.step_programs import ring
from verify.twins_rings import Lines, around, carrying, fill, tagged, use

WRONG: dict[str, str] = {}
RIGHT: dict[str, str] = {}
LEFT = [binary("%left", "subi", "%n", "%i"), "  %last = arith.minsi %left, %c4 : index"]
"""As many uses as are left of n, but no more than four."""


def pair(name: str, wrong: str, right: str) -> None:
    WRONG[name], RIGHT[name] = wrong, right


def beside(producer: Lines, last: Lines | None = None, symbols: tuple[str, ...] = ("n",)) -> str:
    """A consumer that takes the uses of each iteration one by one."""
    return ring(around(producer), around([*(last or LEFT), *carrying(use("%b"), "%last", start="%b0")]), symbols=symbols)


def under(condition: Lines, uses: Lines) -> Lines:
    """Uses of the count %b under a condition %is; %b2 is the count behind them."""
    other = "  scf.yield %b3 : index\n  } else {\n  scf.yield %b : index\n  }"
    return [*condition, "  %b2 = scf.if %is -> (index) {", *uses, "  %b3 = arith.addi %b, %c1 : index", other]


def carried(body: Lines, last: str, *, step: str = "%c1", first: str = "%b0", number: str = "k", result: str = "y1") -> Lines:
    """A loop of uses whose body makes %b2 of the count %b."""
    head = f"  %{result} = scf.for %{number} = %c0 to {last} step {step} iter_args(%b = {first}) -> (index) {{"
    return [head, *body, "  scf.yield %b2 : index\n  }"]


def compared_within(predicate: str) -> str:
    """The producer's inner loop goes on for some iterations, in which it does nothing."""
    body = under([compared("%is", predicate, "%k", "%last")], fill("%b"))
    return beside([*LEFT, binary("%more", "addi", "%last", "%c3"), *carried(body, "%more")])


def by_twos(predicate: str) -> str:
    """Two uses an iteration of the inner loop, but the last one where their number is odd."""
    second = [binary("%k1", "addi", "%k", "%c1"), compared("%is", predicate, "%k1", "%last")]
    two = [*fill("%b"), binary("%bb", "addi", "%b", "%c1")]
    end = "  scf.yield %b3 : index\n  } else {\n  scf.yield %bb : index\n  }"
    body = [*two, *second, "  %b2 = scf.if %is -> (index) {", *tagged(fill("%bb"), "1"), "  %b3 = arith.addi %bb, %c1 : index", end]
    return beside([*LEFT, *carried(body, "%last", step="%c2")])


def in_blocks(most: str) -> str:
    """The uses of an iteration in blocks of three."""
    count = [binary("%up", "addi", "%last", "%c2"), binary("%blocks", "divui", "%up", "%c3")]
    rest = [binary("%o", "muli", "%j", "%c3"), binary("%l", "subi", "%last", "%o"), f"  %some = arith.minsi %l, {most} : index"]
    inner = [*rest, *carrying(fill("%b"), "%some", start="%bj", result="b2")]
    head = "  %y1 = scf.for %j = %c0 to %blocks step %c1 iter_args(%bj = %b0) -> (index) {"
    return beside(
        [
            *LEFT,
            *count,
            head,
            *[line.replace("yield %b2", "yield %b4").replace("%b2 = arith", "%b4 = arith") for line in inner],
            "  scf.yield %b2 : index\n  }",
        ]
    )


def blocks(body: Lines, length: int, most: str) -> Lines:
    """Uses in blocks, n in all."""
    count = [binary("%up", "addi", "%n", f"%c{length - 1}"), binary("%blocks", "divui", "%up", f"%c{length}")]
    rest = [binary("%o", "muli", "%i", f"%c{length}"), binary("%l", "subi", "%n", "%o"), f"  %some = arith.minsi %l, {most} : index"]
    return [*count, *around([*rest, *carrying(body, "%some", start="%b0")], "%i = %c0 to %blocks step %c1")]


def blocks_of(length: int, most: str) -> str:
    """The producer takes its uses in blocks of three, the consumer in blocks of another length."""
    return ring(blocks(fill("%b"), 3, "%c3"), blocks(use("%b"), length, most))


def tiles_in_blocks(last: str) -> str:
    """Tiles of m uses, which the producer takes in blocks of four, the consumer in blocks of three."""

    def side(body: Lines, length: int, last: str) -> Lines:
        count = [binary("%up", "addi", last, f"%c{length - 1}"), binary("%blocks", "divui", "%up", f"%c{length}")]
        rest = [
            binary("%o", "muli", "%k", f"%c{length}"),
            binary("%l", "subi", last, "%o"),
            f"  %some = arith.minsi %l, %c{length} : index",
        ]
        inner = [*rest, *carrying(body, "%some", number="x", start="%bk", result="y0"), "  scf.yield %y0 : index\n  }"]
        head = "  %y1 = scf.for %k = %c0 to %blocks step %c1 iter_args(%bk = %b0) -> (index) {"
        return around([*count, head, *inner], "%i = %w to %n step %g")

    return ring(side(fill("%b"), 4, "%m"), side(use("%b"), 3, last), symbols=("n", "m", "g"), grid="g")


def least_of_three(other: str) -> str:
    """Iteration i takes i uses, but no more than four, and than m."""
    last = ["  %four = arith.minsi %i, %c4 : index", "  %last = arith.minsi %four, {} : index"]
    first, second = ([line.format(most) for line in last] for most in ("%m", other))
    fence = '  sync.sched_fence ["alu"]'  # two loops of which one does nothing else are one
    return beside([*first, fence, *carrying(fill("%b"), "%last", start="%b0")], [*second, fence], symbols=("n", "m"))


def from_below_zero(more: int) -> str:
    """Loops whose first iteration is number -2; the consumer's uses are those of its numbers and `more`."""

    def side(body: Callable[[str], Lines], more: int) -> Lines:
        sums = [f"  %two = arith.constant {more} : index", binary("%j", "addi", "%i", "%two")]
        return ["  scf.for %i = %first to %last step %c1 {", *sums, *body("%j"), "  }"]

    first = ("  %first = arith.constant -2 : index", binary("%last", "addi", "%n", "%first"))
    return ring(side(fill, 2), side(use, more), *first)


pair("numbers from below zero", from_below_zero(5), from_below_zero(2))
pair("uses compared with an inner loop's end", compared_within("sle"), compared_within("slt"))
pair("two uses an inner iteration", by_twos("sle"), by_twos("slt"))
pair("an iteration's uses in blocks", in_blocks("%c2"), in_blocks("%c3"))
pair("blocks of two beside blocks of three", blocks_of(2, "%c1"), blocks_of(2, "%c2"))
pair("blocks of four beside blocks of three", blocks_of(4, "%c3"), blocks_of(4, "%c4"))
pair("tiles in blocks of four and of three", tiles_in_blocks("%n"), tiles_in_blocks("%m"))
pair("the least of three", least_of_three("%n"), least_of_three("%m"))
