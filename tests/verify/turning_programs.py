"""Kernels whose fault hangs on residues in a loop: of what is compared elsewhere too, of sums with sizes. Right ones beside them."""

import re

from hazards.schedules import ACC_LAYOUT, ROWS_LAYOUT, alloc, load, local_load, local_store, slot, store
from verify.class_programs import TILE, binary, compared, looped, text


def _skipped_fourth(*, quotient_first: bool) -> str:
    """The barrier is left out in every fourth iteration, told by the remainder of a quotient that is compared elsewhere, too."""
    elsewhere = (compared("%z", "slt", "%q", "%n"), 'scf.if %z {\n  sync.sched_fence ["alu"]\n}')
    remainder = (binary("%f", "muli", "%q", "%c4"), binary("%d", "subi", "%i", "%f"), compared("%skip", "eq", "%d", "%c3"))
    lines = (*elsewhere, *remainder) if quotient_first else (*remainder, *elsewhere)
    return looped(binary("%q", "divui", "%i", "%c4"), *lines, numbers=(4,))


def _skipped_residue(residue: int) -> str:
    """The barrier is left out in iteration 2 where i + n has this residue modulo 4."""
    return looped(
        binary("%s0", "addi", "%i", "%n"),
        binary("%r", "remui", "%s0", "%c4"),
        compared("%x0", "eq", "%r", f"%c{residue}"),
        compared("%x1", "eq", "%i", "%c2"),
        binary("%skip", "andi", "%x0", "%x1", "i1"),
        bounds="%c0 to %c5 step %c1",
        numbers=(4, 5),
    )


def _by_a_bit(limit: str) -> str:
    """The barrier is left out in iteration 2, or in one, by the last bit of n; or never, where the limit is below these."""
    return looped(
        "%n32 = arith.index_cast %n : index to i32",
        "%bit = arith.trunci %n32 : i32 to i1",
        "%t = arith.select %bit, %i, %c9 : index",
        compared("%x0", "eq", "%t", "%c2"),
        compared("%x1", "slt", "%i", limit),
        binary("%skip", "andi", "%x0", "%x1", "i1"),
        bounds="%c0 to %c5 step %c1",
        numbers=(5, 9),
    )


def _falling(bound: str, read: str) -> str:
    """A tile goes through slot (n + 63 - i) mod 3 of a ring; `read`: what is added to that number to read it."""
    lines = (
        binary("%top", "addi", "%n", "%c63"),
        binary("%d", "subi", "%top", "%i"),
        binary("%w", "remui", "%d", "%c3"),
        binary("%more", "muli", "%i", read),
        binary("%e", "addi", "%d", "%more"),
        binary("%r", "remui", "%e", "%c3"),
    )
    body = [
        f"  scf.for %i = %c0 to {bound} step %c1 {{",
        *(f"  {line}" for line in lines),
        slot("%to", "%ring", (3,), "%w"),
        slot("%from", "%ring", (3,), "%r"),
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%to", ROWS_LAYOUT),
        "  sync.barrier",
        local_load("%y", "%from", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        "  sync.barrier",
        "  }",
    ]
    return text(alloc("%ring", 3), *body, symbols=("n", "m"), numbers=(63,))


def _ahead(by: str) -> str:
    """Each workgroup has some of 23 rows of tiles in turns of 528, and brings them two turns ahead, as far as there are any `by` ahead."""
    copied = [load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT), local_store("%x", "%to", ROWS_LAYOUT)]

    def brought(ahead: str, at: str, tile: str) -> list[str]:
        ring = [slot("%to", "%ring", (3,), at), binary("%later", "addi", tile, ahead), compared("%more", "slt", "%later", "%tiles")]
        lines = [*ring, "  scf.if %more {", *copied, "  }"]
        return [re.sub(r"%(to|later|more|x)\b", rf"%\1{at[1:]}", line) for line in lines]

    def wrapped(at: str, number: str) -> list[str]:
        following, is_last = binary(f"%n{number}", "addi", at, "%c1"), compared(f"%e{number}", "eq", f"%n{number}", "%c3")
        return [following, is_last, f"%f{number} = arith.select %e{number}, %c0, %n{number} : index"]

    lines = [
        binary("%over", "addi", "%n", "%c31"),
        binary("%columns", "divui", "%over", "%c32"),
        binary("%tiles", "muli", "%columns", "%c23"),
        *brought("%c0", "%c0", "%p"),
        *brought("%c528", "%c1", "%p"),
        "%end:2 = scf.for %i = %p to %tiles step %c528 iter_args(%w = %c2, %r = %c0) -> (index, index) {",
        *brought(by, "%w", "%i"),
        "  sync.barrier",
        slot("%from", "%ring", (3,), "%r"),
        local_load("%y", "%from", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        "  sync.barrier",
        *wrapped("%w", "0"),
        *wrapped("%r", "1"),
        "  scf.yield %f0, %f1 : index, index",
        "  }",
    ]
    grid = "min(23 * ((n + 31) // 32), 528)"
    return text(alloc("%ring", 3), *lines, symbols=("n",), grid=grid, numbers=(23, 31, 32, 528, 1056, 1584))


WRONG: dict[str, str] = {
    "a selection by the last bit of a size": _by_a_bit("%c5"),
    "a remainder of a quotient that is compared before": _skipped_fourth(quotient_first=True),
    "a remainder of a quotient that is compared behind": _skipped_fourth(quotient_first=False),
    **{f"residue {at} of a sum with a size": _skipped_residue(at) for at in range(4)},
    "an unsigned remainder of what falls below zero": _falling("%m", "%c3"),
    "one of many tiles fewer ahead": _ahead("%c1584"),
}
RIGHT: dict[str, str] = {
    "a selection by the last bit of a size": _by_a_bit("%c2"),
    "no such residue of a sum with a size": _skipped_residue(4),
    "an unsigned remainder of what falls": _falling("%n", "%c3"),
    "many tiles ahead": _ahead("%c1056"),
}
