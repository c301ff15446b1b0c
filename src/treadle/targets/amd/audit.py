"""Judging finished assembly. A broken rule is an error that names kernel, rule, operation and line, never a note.

Rules of every kernel: A1 (each operation's instructions are there, loops are the schedule's), A3 and A5 (no load is waited for before the
schedule uses it), A4 (nothing of shared memory pending at a barrier), A6 (no direct copy is waited for before the schedule waits), A7
(stages of warp pipelines stay apart), A9 (split barriers pair up, no caches invalidated in loops). Of contractions also A2: no scratch, no
spills, no copies of accumulators in loops, and no matrix instruction lost.
"""

from math import prod

from treadle.errors import KernelRejected
from treadle.machine import target_spec
from treadle.targets.amd import rules
from treadle.targets.amd.assembly import Listing, parse
from treadle.targets.amd.counters import Counters, Violation
from treadle.targets.amd.emitted import emitted_amounts
from treadle.targets.amd.metadata import KernelMetadata
from treadle.targets.amd.stages import misplaced_stages
from treadle.targets.interface import EmittedKernel


def violations(listing: Listing, emitted: EmittedKernel) -> list[Violation]:
    """All broken rules that the instructions show, in the order of the text."""
    expected = emitted.expected
    spec = target_spec(emitted.cpu)
    counters = Counters(listing, own_store_counter=spec.queue_for("store") is not None)
    found = rules.pending_at_barriers(counters, expected.points) + rules.unpaired_barriers(listing) + rules.invalidations(counters)
    amounts = emitted_amounts(emitted.llvm_text)
    if prod(emitted.block) <= spec.subgroup_size:
        for found_at in amounts.values():  # one wave meets nobody: LLVM leaves its barriers out
            del found_at["barrier"]
    found += rules.misplaced_loops(counters, expected.points, amounts) + rules.lost_instructions(listing, expected.points, amounts)
    found += rules.drained_loads(counters, expected.points) + rules.drained_copies(counters, expected.points)
    found += misplaced_stages(listing, expected.points)
    if expected.contraction:
        found += rules.scratch_accesses(listing) + rules.accumulator_copies(counters)
    return sorted(found, key=lambda v: v.line)


def audit(emitted: EmittedKernel, assembly: str, metadata: KernelMetadata) -> dict[str, int]:
    """Counts by mnemonic of a kernel that breaks no rule; raises KernelRejected for one that does."""
    name, expected = emitted.symbol, emitted.expected
    listing = parse(assembly, name, expected.sources)
    if expected.contraction and (metadata.private_bytes or metadata.vector_spills):
        raise KernelRejected(
            name,
            f"rule A2: registers do not hold the tile ({metadata.vector_registers} registers, "
            f"{metadata.vector_spills} spilled, {metadata.private_bytes} bytes of scratch)",
        )
    found = violations(listing, emitted)
    if found:
        first = found[0]
        more = f" ({len(found)} in all)" if len(found) > 1 else ""
        raise KernelRejected(name, f"rule {first.rule}, line {first.line} of the assembly: {first.text}{more}")
    matrix = len(Counters(listing, own_store_counter=True).at("matrix"))
    if matrix < expected.matrix_instructions:
        raise KernelRejected(name, f"{matrix} matrix instructions in the assembly, {expected.matrix_instructions} emitted")
    return listing.counts()
