"""Kernels whose fault hangs on how many bits a number has (what wraps, is cut, or is -1 where its only bit is set), or on what selects.

Right ones beside them.
"""

from verify.class_programs import binary, compared, looped, once, passed, slotted, text


def _cut(cast: str, bits: int, limit: int, step: str = "%c1") -> str:
    """The barrier is left out in iterations from `limit` on whose number is 5 in so many bits."""
    kind = f"i{bits}"
    return looped(
        f"%t = arith.{cast} %i : index to {kind}",
        f"%k = arith.constant 5 : {kind}",
        f"%x0 = arith.cmpi eq, %t, %k : {kind}",
        compared("%x1", "sgt", "%i", f"%c{limit}"),
        binary("%skip", "andi", "%x0", "%x1", "i1"),
        bounds=f"%c0 to %n step {step}",
        numbers=(4, 5, limit),
    )


def _below_zero(cast: str, bits: int) -> str:
    """The barrier is left out in iterations whose number is negative in so many bits."""
    kind = f"i{bits}"
    lines = (f"%t = arith.{cast} %i : index to {kind}", f"%k = arith.constant 0 : {kind}", f"%skip = arith.cmpi slt, %t, %k : {kind}")
    return looped(*lines)


def _wrapped_sum(*, limit: int) -> str:
    """The barrier is left out where n + 100 is `limit` in eight bits."""
    lines = ("%n8 = arith.index_cast %n : index to i8", "%h = arith.constant 100 : i8", f"%k = arith.constant {limit} : i8")
    return once(*lines, binary("%sum", "addi", "%n8", "%h", "i8"), "%skip = arith.cmpi eq, %sum, %k : i8", symbols=("n",))


def _counted(bits: int, value: int, step: int) -> str:
    """The barrier is left out where a carried number of so many bits has a value."""
    kind = f"i{bits}"
    return text(
        f"  %z = arith.constant 0 : {kind}\n  %s1 = arith.constant {step} : {kind}\n  %k = arith.constant {value} : {kind}",
        f"  %end = scf.for %i = %c0 to %n step %c1 iter_args(%at = %z) -> ({kind}) {{",
        f"  %skip = arith.cmpi eq, %at, %k : {kind}",
        *passed(),
        f"  %next = arith.addi %at, %s1 : {kind}\n  scf.yield %next : {kind}\n  }}",
        symbols=("n",),
    )


def _of_bits(name: str, *, signed: str = "", constant: str = "false") -> str:
    """The barrier is left out by arithmetic on truth values, or by a comparison of one."""
    two = (compared("%x0", "sgt", "%n", "%c3"), compared("%x1", "sgt", "%n", "%c2"))
    last = f"%skip = arith.cmpi {signed}, %x0, %f : i1" if signed else binary("%skip", name, "%x0", "%x1", "i1")
    return once(*two, f"%f = arith.constant {constant}", last, symbols=("n",))


def _widened(cast: str) -> str:
    """A tile goes through slot (n - i) mod 3 of a ring by an unsigned remainder in 64 bits, to which 32 bits are widened."""
    lines = (
        binary("%d", "subi", "%n", "%i"),
        "%d32 = arith.index_cast %d : index to i32",
        f"%d64 = arith.{cast} %d32 : i32 to i64",
        "%three = arith.constant 3 : i64\n  %two = arith.constant 2 : i64",
        "%r = arith.remui %d64, %three : i64",
        "%m0 = arith.subi %n, %i : index",
        binary("%m1", "muli", "%i", "%c3"),
        binary("%m2", "addi", "%m0", "%m1"),
        binary("%e", "remui", "%m2", "%c3"),
        "%e64 = arith.index_cast %e : index to i64",
        "%skip = arith.cmpi ne, %r, %e64 : i64",
    )
    return looped(*lines, bounds="%c0 to %m step %c1", symbols=("n", "m"))


def _toggled(*lines: str) -> str:
    """%b is true in every other iteration."""
    return text(
        "  %f = arith.constant false\n  %tr = arith.constant true",
        "  %end = scf.for %i = %c0 to %n step %c1 iter_args(%b = %f) -> (i1) {",
        *(f"  {line}" for line in lines),
        *passed(),
        "  %next = arith.xori %b, %tr : i1\n  scf.yield %next : i1\n  }",
        symbols=("n",),
        numbers=(4, 5),
    )


def _in_turn(*lines: str) -> str:
    """%k goes round from 0 to 6."""
    return text(
        "  %end = scf.for %i = %c0 to %n step %c1 iter_args(%k = %c0) -> (index) {",
        *(f"  {line}" for line in lines),
        *passed(),
        f"  {compared('%is', 'eq', '%k', '%c6')}\n  %k1 = arith.addi %k, %c1 : index",
        "  %k2 = arith.select %is, %c0, %k1 : index\n  scf.yield %k2 : index\n  }",
        symbols=("n",),
        numbers=(4, 5, 6, 7, 20),
    )


FIFTH = compared("%x5", "eq", "%k", "%c5")
WRONG: dict[str, str] = {
    # --- bits that are cut
    "a number in eight bits": _cut("index_cast", 8, 20),
    "a number in eight bits, unsigned": _cut("index_castui", 8, 20),
    "a number in sixteen bits": _cut("index_cast", 16, 20, "%c5"),
    "the sign of eight bits": _below_zero("index_cast", 8),
    "the sign of eight bits, unsigned": _below_zero("index_castui", 8),
    "the sign of sixteen bits": _below_zero("index_cast", 16),
    "a sum in eight bits": _wrapped_sum(limit=-100),
    "a counter of eight bits": _counted(8, -5, 1),
    "a counter of eight bits in steps": _counted(8, 1, 3),
    "a constant that 32 bits do not hold": looped("%k = arith.constant 3000000000 : index", compared("%skip", "sgt", "%i", "%k")),
    "an unsigned remainder of what is widened below zero": _widened("extui"),
    # --- single bits
    "the sign of a truth value": _of_bits("", signed="slt"),
    "the lesser of two truth values": _of_bits("minsi"),
    "the sum of two truth values": _of_bits("addi"),
    "the sign of a truth value in a loop": _toggled("%skip = arith.cmpi slt, %b, %f : i1"),
    # --- selections
    "a selection of constants by what a loop carries": _toggled(
        "%t = arith.select %b, %c3, %c4 : index", compared("%skip", "eq", "%t", "%c3")
    ),
    "a selection of truth values by what a loop carries": _toggled(
        "%t = arith.select %b, %tr, %f : i1", "%skip = arith.cmpi eq, %t, %tr : i1"
    ),
    "a selection of constants in every seventh iteration": _in_turn(
        FIFTH, "%t = arith.select %x5, %c3, %c4 : index", compared("%skip", "eq", "%t", "%c3")
    ),
    "a selection in late iterations": _in_turn(
        FIFTH,
        "%t = arith.select %x5, %i, %n : index",
        compared("%x6", "slt", "%t", "%n"),
        compared("%x7", "sgt", "%i", "%c20"),
        binary("%skip", "andi", "%x6", "%x7", "i1"),
    ),
    "a slot by a shift of more bits than there are": slotted(
        "%far = arith.constant 40 : index",
        binary("%s0", "shrui", "%n", "%far"),
        binary("%w", "andi", "%s0", "%c1"),
        symbols=("n",),
        read="%c0",
    ),
}
RIGHT: dict[str, str] = {
    "no such sum in eight bits": looped(
        "%n8 = arith.index_cast %i : index to i8",
        "%two = arith.constant 2 : i8",
        binary("%even", "muli", "%n8", "%two", "i8"),
        "%k = arith.constant 5 : i8",
        "%skip = arith.cmpi eq, %even, %k : i8",
    ),
    "no such counter of eight bits": _counted(8, 1, 2),
    "the larger of two truth values is false": once(
        compared("%x0", "slt", "%n", "%c0"), "%f = arith.constant false", binary("%skip", "minsi", "%x0", "%f", "i1"), symbols=("n",)
    ),
    "a remainder of what is widened with its sign": _widened("extsi").replace("remui %d64", "remsi %d64").replace("%m step", "%n step"),
    "a selection of constants that are both others": _toggled(
        "%t = arith.select %b, %c2, %c4 : index", compared("%skip", "eq", "%t", "%c3")
    ),
    "a selection that the other condition excludes": _in_turn(
        FIFTH,
        "%t = arith.select %x5, %c3, %c4 : index",
        compared("%x6", "eq", "%t", "%c3"),
        compared("%x7", "eq", "%k", "%c4"),
        binary("%skip", "andi", "%x6", "%x7", "i1"),
    ),
}
