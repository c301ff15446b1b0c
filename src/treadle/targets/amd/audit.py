"""Judging finished assembly. A broken rule is an error that names kernel, rule and line, never a note.

Rules of every kernel: A4 (nothing of shared memory pending at a barrier), A9 (split barriers pair up). Of contractions also A2: no scratch,
no spills, no copies of accumulators in loops, and no matrix instruction lost.
"""

import re

from treadle.errors import InternalError
from treadle.targets.amd.assembly import Listing, parse
from treadle.targets.amd.counters import Violation, pending_at_barriers, unpaired_barriers
from treadle.targets.amd.metadata import KernelMetadata
from treadle.targets.interface import EmittedKernel

_MATRIX = re.compile(r"v_(mfma|smfmac|wmma|swmmac)_")


def matrix_instructions(listing: Listing) -> int:
    """How many matrix instructions stand in the text."""
    return sum(_MATRIX.match(one.mnemonic) is not None for one in listing.instructions)


def scratch_accesses(listing: Listing) -> list[Violation]:
    """Rule A2: accesses to memory of the thread's own, which only spilled registers and stack objects use."""
    return [
        Violation("A2", one.line, f"{one.mnemonic} {one.operands}") for one in listing.instructions if one.mnemonic.startswith("scratch_")
    ]


def accumulator_copies(listing: Listing) -> list[Violation]:
    """Rule A2: moves between the register files in loops."""
    inside = {at for first, last in listing.loops for at in range(first, last + 1)}
    code = listing.instructions
    copies = [code[at] for at in sorted(inside) if code[at].mnemonic.startswith("v_accvgpr_")]
    return [Violation("A2", one.line, f"{one.mnemonic} {one.operands} in a loop") for one in copies]


def violations(listing: Listing, *, contraction: bool) -> list[Violation]:
    """All broken rules that the instructions alone show."""
    found = pending_at_barriers(listing) + unpaired_barriers(listing)
    if contraction:
        found += scratch_accesses(listing) + accumulator_copies(listing)
    return sorted(found, key=lambda v: v.line)


def audit(emitted: EmittedKernel, assembly: str, metadata: KernelMetadata) -> dict[str, int]:
    """Counts by mnemonic of a kernel that breaks no rule; raises InternalError for one that does."""
    name, expected = emitted.symbol, emitted.expected
    listing = parse(assembly, name)
    found = violations(listing, contraction=expected.contraction)
    if found:
        first = found[0]
        more = f" ({len(found)} in all)" if len(found) > 1 else ""
        raise InternalError(f"kernel {name}, rule {first.rule}, line {first.line} of the assembly: {first.text}{more}")
    if expected.contraction and (metadata.private_bytes or metadata.vector_spills):
        raise InternalError(
            f"kernel {name}, rule A2: registers do not hold the tile ({metadata.vector_registers} registers, "
            f"{metadata.vector_spills} spilled, {metadata.private_bytes} bytes of scratch)"
        )
    matrix = matrix_instructions(listing)
    if matrix < expected.matrix_instructions:
        raise InternalError(f"kernel {name}: {matrix} matrix instructions in the assembly, {expected.matrix_instructions} emitted")
    return listing.counts()
