"""The steady loop of a listing as a `LoopReport`: what the audit's rules read, counted, whoever compiled it."""

from collections.abc import Iterable, Mapping, Sequence

from treadle.machine import TargetSpec
from treadle.targets.amd.assembly import Listing
from treadle.targets.amd.counters import Counters, Kind
from treadle.targets.amd.cycles import class_of, loop_cycles
from treadle.targets.amd.flow import Ages
from treadle.targets.amd.lane_values import BankUse, bank_uses
from treadle.targets.amd.metadata import KernelMetadata
from treadle.targets.amd.rules import scratch_accesses
from treadle.targets.loop_report import LoopReport


def steady_loop(counters: Counters) -> frozenset[int] | None:
    """The innermost loop with the most matrix instructions, the first of several; None where no loop has any."""
    found = [loop for loop in counters.loops if any(counters.kinds[at] == "matrix" for at in loop)]
    inner = [loop for loop in found if not any(other < loop for other in found)]
    amount = {loop: sum(counters.kinds[at] == "matrix" for at in loop) for loop in inner}
    return max(inner, key=lambda loop: (amount[loop], -min(loop)), default=None)


def _retired(counters: Counters, loop: frozenset[int]) -> dict[int, tuple[str, ...]]:
    """For each wait of a loop, the kinds of accesses that it may wait for."""
    found: dict[int, tuple[str, ...]] = {}

    def observe(at: int, ages: Ages) -> None:
        waits = counters.waits_at(at)
        if at in loop and waits:
            over = [old for old, age in ages.items() if age >= waits.get(counters.counter_at(old), age + 1)]
            found[at] = tuple(sorted({kind for old in over if (kind := counters.kinds[old]) is not None}))

    counters.may_be_pending(observe)
    return found


def _within_stages(loop: frozenset[int], counters: Counters) -> frozenset[int]:
    """The places from the first to the last matrix instruction of each stage: between barriers, or in a trip of a loop that has none.

    By control flow, not by the order of the text: places that some matrix instruction comes to, and that come to one, without a border.
    """
    listing, kinds = counters.listing, counters.kinds
    barriers = {at for at in loop if kinds[at] == "barrier"}
    code = range(len(listing.instructions))
    starts = set[int]() if barriers else {0, *(to for at in code if at not in loop for to in listing.successors(at))}
    ahead: dict[int, list[int]] = {at: [] for at in loop}
    behind: dict[int, list[int]] = {at: [] for at in loop}
    inside = loop - barriers
    for at in inside:
        for to in listing.successors(at):
            if to in inside and to not in starts:
                ahead[at].append(to)
                behind[to].append(at)
    matrix = [at for at in loop if kinds[at] == "matrix"]
    return frozenset(_reached(matrix, ahead) & _reached(matrix, behind))


def _reached(begin: Iterable[int], edges: Mapping[int, Sequence[int]]) -> set[int]:
    todo = list(begin)
    found = set(todo)
    while todo:
        for to in edges[todo.pop()]:
            if to not in found:
                found.add(to)
                todo.append(to)
    return found


def _conflicts(uses: Mapping[int, BankUse | None]) -> float | None:
    if not uses:
        return 0.0
    known = [use for use in uses.values() if use is not None]
    if len(known) < len(uses):
        return None
    return sum(use.extra for use in known) / max(1, sum(use.wavefronts for use in known))


def occupancy(spec: TargetSpec, metadata: KernelMetadata, warps: int) -> tuple[int, int]:
    """Workgroups that a compute unit holds at a time, by registers, shared memory and warps; and of their waves, those on a matrix unit."""
    lane_registers = spec.registers_per_unit // (spec.matrix_units * spec.subgroup_size)
    granule = spec.register_granule
    used = -(-max(metadata.vector_registers, 1) // granule) * granule
    waves = min(lane_registers // used, spec.max_threads_per_unit // spec.subgroup_size // spec.matrix_units)
    workgroups = waves * spec.matrix_units // warps
    if metadata.shared_bytes:
        workgroups = min(workgroups, spec.shared_bytes_per_unit // metadata.shared_bytes)
    workgroups = max(1, workgroups)
    return workgroups, max(1, workgroups * warps // spec.matrix_units)


def loop_report(listing: Listing, metadata: KernelMetadata, spec: TargetSpec, broken: tuple[str, ...] = ()) -> LoopReport | None:
    """What the steady loop costs; None where no loop multiplies."""
    counters = Counters(listing, own_store_counter=spec.queue_for("store") is not None)
    loop = steady_loop(counters)
    if loop is None:
        return None
    ordered = sorted(loop)
    kinds: list[Kind | None] = [counters.kinds[at] for at in ordered]
    matrix = [at for at in ordered if counters.kinds[at] == "matrix"]
    stages = _within_stages(loop, counters)
    waits = _retired(counters, loop)
    uses = bank_uses(listing, loop, spec.banks, spec.subgroup_size)
    warps = max(1, metadata.threads // spec.subgroup_size)
    workgroups, waves = occupancy(spec, metadata, warps)
    cycles, share = loop_cycles(listing, loop, uses, spec, waves, max(1, min(waves, warps // spec.matrix_units)))
    return LoopReport(
        kernel=listing.kernel,
        matrix=len(matrix),
        instructions=len(ordered),
        vector=sum(class_of(listing.instructions[at], counters.kinds[at]) == "vector" for at in ordered),
        inner_waits=tuple(waits[at] for at in ordered if at in waits and at in stages),
        drains=sum(counters.waits_at(at).get("vector", 1) == 0 for at in ordered),
        loads=kinds.count("load"),
        copies=kinds.count("copy"),
        shared_loads=kinds.count("local_load"),
        shared_stores=kinds.count("local_store"),
        barriers=kinds.count("barrier"),
        moves=sum(listing.instructions[at].mnemonic.startswith("v_accvgpr_") for at in ordered),
        scratch=len(scratch_accesses(listing)),
        conflicts=_conflicts(uses),
        registers=metadata.vector_registers,
        shared_bytes=metadata.shared_bytes,
        workgroups=workgroups,
        waves=waves,
        cycles=cycles,
        matrix_share=share,
        broken=broken,
    )
