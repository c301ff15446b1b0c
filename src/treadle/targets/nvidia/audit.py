"""Judging machine code: what ptxas said and what the SASS holds. A bad verdict is an error that names the operation, never a note."""

import re
from collections import Counter
from collections.abc import Sequence

from treadle.errors import KernelRejected
from treadle.targets.interface import EmittedKernel
from treadle.targets.nvidia.sass import MATRIX, Code, parse, slow_in_loops, touched_accumulators
from treadle.targets.nvidia.sass_words import decode
from treadle.targets.nvidia.toolchain import KernelResources, disassemble_cubin

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")


def instruction_counts(sass: str) -> dict[str, int]:
    """How often each mnemonic (without its suffixes) stands in disassembled code."""
    return dict(Counter(_INSTRUCTION.findall(sass)))


def _origin(emitted: EmittedKernel, place: Code | int | None) -> str:
    """The operation that an instruction, or a line of the line table, comes from, as words."""
    sources = emitted.expected.sources
    line = place if isinstance(place, int) else 0 if place is None else place.line
    return f" (from {sources[line - 1]})" if 0 < line <= len(sources) else ""


def _line_of_remark(remark: str, ptx: str) -> int:
    """The line of the line table that a remark about a line of PTX is about; 0 where it names none."""
    place = re.search(r"line (\d+)", remark)
    if place is None:
        return 0
    named = [m.group(1) for text in ptx.splitlines()[: int(place.group(1))] if (m := re.match(r"\s*\.loc\s+\d+\s+(\d+)", text))]
    return int(named[-1]) if named else 0


def audited_counts(emitted: EmittedKernel, resources: KernelResources, warnings: tuple[str, ...], cubin: bytes, ptx: str) -> dict[str, int]:
    """How often each mnemonic stands in a kernel's machine code, which is right; raises as `audit` does.

    The code is read from its bits. Where they are not all known here, or something seems wrong, nvdisasm has the last word, but not about
    spills, of which ptxas says itself how many there are.
    """
    words = decode(cubin, emitted.symbol)
    if words is not None:
        counts = dict(Counter(word.mnemonic for word in words))
        try:
            audit(emitted, resources, warnings, counts, words, ptx)
        except KernelRejected:  # the disassembly knows the operations' lines, and exactly which registers are touched
            if _spilled(resources):
                raise
        else:
            return counts
    sass = disassemble_cubin(cubin, lines=True)
    counts = instruction_counts(sass)
    audit(emitted, resources, warnings, counts, parse(sass), ptx)
    return counts


def _spilled(resources: KernelResources) -> bool:
    return bool(resources.spill_store_bytes or resources.spill_load_bytes or resources.stack_bytes)


def audit(
    emitted: EmittedKernel,
    resources: KernelResources,
    warnings: tuple[str, ...],
    counts: dict[str, int],
    code: Sequence[Code] = (),
    ptx: str = "",
) -> None:
    """Raise KernelRejected, naming the kernel and where it can the operation, for:

    serialised matrix instructions (ptxas' C75xx), spills and local memory of contractions, missing instructions, other waits than those
    of the IR, accumulators touched in flight, and slow instructions within groups of a main loop.
    """
    name, expected = emitted.symbol, emitted.expected
    bad = [line for line in warnings if re.search(r"C75\d\d|Potential Performance Loss", line)]
    if bad:
        line = _line_of_remark(bad[0], ptx) or next((one.line for one in code if one.is_matrix), 0)
        # C7519 is no serialisation, but a second wgmma.fence: registers were set between ours and the instruction.
        what = "adds a fence to" if "C7519" in bad[0] else "serialises"
        raise KernelRejected(name, f"ptxas {what} matrix instructions{_origin(emitted, line)}: {bad[0]}")
    local = counts.get("LDL", 0) + counts.get("STL", 0)
    if expected.contraction and (_spilled(resources) or local):
        culprit = next((one for one in code if one.mnemonic in ("LDL", "STL")), None)
        raise KernelRejected(
            name,
            f"registers do not hold the tile ({resources.registers} registers, {resources.spill_store_bytes} bytes stored, "
            f"{resources.spill_load_bytes} loaded, {resources.stack_bytes} of stack, {local} local accesses){_origin(emitted, culprit)}",
        )
    _audit_counts(emitted, code, counts)
    for one in touched_accumulators(code):
        raise KernelRejected(name, f"{one.mnemonic}{one.suffix}{one.operands} touches an accumulator in flight{_origin(emitted, one)}")
    for one in slow_in_loops(code):
        raise KernelRejected(name, f"{one.mnemonic} among the matrix instructions of a main loop{_origin(emitted, one)}")


def _audit_counts(emitted: EmittedKernel, code: Sequence[Code], counts: dict[str, int]) -> None:
    """Nothing is missing, and waits for matrix instructions are as many as in the schedule.

    ptxas may copy a loop body (peeling, unrolling), never drop a part of one that may run; what can be seen never to run is not emitted.
    """
    name, expected = emitted.symbol, emitted.expected
    matrix = sum(counts.get(mnemonic, 0) for mnemonic in MATRIX)
    wanted = (
        ("matrix instructions", matrix, expected.matrix_instructions),
        ("tensor copies", counts.get("UTMALDG", 0), expected.bulk_copies),
        ("tensor stores", counts.get("UTMASTG", 0), expected.bulk_stores),
    )
    for words, found, count in wanted:
        if found < count:
            raise KernelRejected(name, f"{found} {words} in the machine code, {count} emitted")
    waits = [one for one in code if one.pending is not None]
    is_copied = matrix > expected.matrix_instructions
    if code and (len(waits) < expected.matrix_waits or (len(waits) > expected.matrix_waits and not is_copied)):
        where = _origin(emitted, waits[-1] if waits else None)
        raise KernelRejected(name, f"{len(waits)} waits for matrix instructions, {expected.matrix_waits} emitted{where}")
