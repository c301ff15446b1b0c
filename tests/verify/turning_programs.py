"""Kernels whose fault hangs on residues in a loop: of what is compared elsewhere too, of sums with sizes. Right ones beside them."""

from verify.class_programs import binary, compared, looped


def _skipped_fourth(*, quotient_first: bool) -> str:
    """The barrier is left out in every fourth iteration, told by the remainder of a quotient that is compared elsewhere, too."""
    elsewhere = (compared("%z", "slt", "%q", "%n"), "scf.if %z {\n}")
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


WRONG: dict[str, str] = {
    "a remainder of a quotient that is compared before": _skipped_fourth(quotient_first=True),
    "a remainder of a quotient that is compared behind": _skipped_fourth(quotient_first=False),
    **{f"residue {at} of a sum with a size": _skipped_residue(at) for at in range(4)},
}
RIGHT: dict[str, str] = {"no such residue of a sum with a size": _skipped_residue(4)}
