"""Judging machine code: what ptxas said and what the SASS holds. A bad verdict is an error, never a note."""

import re
from collections import Counter

from treadle.codegen.toolchain import KernelResources
from treadle.errors import InternalError
from treadle.targets.interface import EmittedKernel

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")
_MATRIX = ("HGMMA", "QGMMA", "IGMMA")


def instruction_counts(sass: str) -> dict[str, int]:
    """How often each mnemonic (without its suffixes) stands in disassembled code."""
    return dict(Counter(_INSTRUCTION.findall(sass)))


def audit(emitted: EmittedKernel, resources: KernelResources, warnings: tuple[str, ...], counts: dict[str, int]) -> None:
    """Raise InternalError, naming the kernel, for serialised matrix instructions, spills of contractions, missing instructions."""
    name = emitted.symbol
    # C7519 is no serialisation: older versions of ptxas add a wgmma.fence where registers are set up behind ours.
    bad = [line for line in warnings if re.search(r"C75(?!19)\d\d|Potential Performance Loss", line)]
    if bad:
        raise InternalError(f"kernel {name}: ptxas serialises matrix instructions: {bad[0]}")
    spilled = resources.spill_store_bytes + resources.spill_load_bytes + resources.stack_bytes
    local = counts.get("LDL", 0) + counts.get("STL", 0)
    if emitted.expected.contraction and (spilled or local):
        raise InternalError(
            f"kernel {name}: registers do not hold the tile ({resources.registers} registers, {resources.spill_store_bytes} bytes stored, "
            f"{resources.spill_load_bytes} loaded, {resources.stack_bytes} of stack, {local} local accesses)"
        )
    found = sum(counts.get(mnemonic, 0) for mnemonic in _MATRIX)
    # ptxas may copy a loop body (peeling), never drop an instruction of it.
    if found < emitted.expected.matrix_instructions:
        raise InternalError(
            f"kernel {name}: {found} matrix instructions in the machine code, {emitted.expected.matrix_instructions} emitted"
        )
    if counts.get("UTMALDG", 0) < emitted.expected.bulk_copies:
        raise InternalError(
            f"kernel {name}: {counts.get('UTMALDG', 0)} tensor copies in machine code, {emitted.expected.bulk_copies} emitted"
        )
