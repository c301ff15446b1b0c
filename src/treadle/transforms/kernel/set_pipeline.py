"""set-pipeline: which loops are pipelined, how and how deep.

Level: tile. Reads: innermost loops (effects of their bodies, which the pre-flight check of pipeline-loops needs), the sizes of shared
buffers and when they are in use, the machine's shared memory. Writes: attribute `pipeline = {stages, mode}` on scf.for. Leaves alone: loops
that carry it already, loops around loops, kernels with roles or whose config says `is_sequential`, loops with stages (`pipe.stage`), and
loops that the check refuses; a remark says which rule and which operation. Where nobody asks (`stages` = -1), all but those of
`analysis/overlapped_loops.py` too.

Loops with asynchronous copies are pipelined by them (mode "async"), others by registers (mode "stream"), where these hold what is ahead.
What matrix instructions read from shared memory is read a step ahead of them, if registers hold it twice and a unit two workgroups, or as
many as before.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from treadle.analysis.element_bytes import buffer_bytes, element_bytes, tile_bytes
from treadle.analysis.liveness import buffer_intervals
from treadle.analysis.loop_body import LoopBody, read_loop, refusal_text
from treadle.analysis.overlapped_loops import overlaps_unasked
from treadle.dialects import pipe, tile
from treadle.dialects.stages import WARP_PIPELINE
from treadle.dialects.tile_types import is_tile
from treadle.errors import SourceLocation
from treadle.ir.dialects import scf
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.pipeline_depth import (
    BESIDE_FETCHED,
    BESIDE_STREAM,
    DEEP,
    REGISTER_BYTES,
    RESIDENT,
    RING_SLOTS,
    choose_depth,
    stream_registers,
)
from treadle.plan.shared_packing import BufferDemand, pack_buffers
from treadle.plan.stages import Mode, Refusal, Request, Schedule, Tail, plan_loop
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.contraction import ContractionConfig
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import KernelPass, num_warps
from treadle.transforms.kernel.pipelining.request import PIPELINE, PIPELINED, request_attribute

STREAM_DEEPEST = 3
AHEAD_STAGES = 4
"""Of a stream whose computation reads shared memory a step ahead: read, write, fetch, compute."""
FEWEST_TRIPS = 2
"""Of several steps each, that a loop makes: pipeline-loops gives those with fewer a step a trip."""
COVERED = 2
"""How many latencies of a load the steps of a unit's workgroups take where loads one step ahead are there in time, meetings and what all
of them ask for at once included.
"""
SLOTS_OF_GROUPS = 3
"""One that is read, one that is filled, and one that a group which is behind may still read."""


def shared_bytes(kernel: tile.KernelOp, source: LoopBody, schedule: Schedule | None, spec: TargetSpec) -> int:
    """Bytes of shared memory the kernel needs with the loop's buffers in slots (an upper bound: descriptors' alignment for all)."""
    counts = dict(zip(source.memory, schedule.slots, strict=True)) if schedule is not None else {}
    demands: list[BufferDemand] = []
    for alloc, interval in buffer_intervals(kernel).items():
        size = buffer_bytes(alloc.result) * counts.get(alloc.result, 1)
        demands.append(BufferDemand(size, spec.descriptor_align_bytes, interval.start, interval.end))
    _, total = pack_buffers(demands)
    copies = sum(isinstance(op, tile.CopyOp) for op in source.loop.body.walk())
    return total + copies * spec.barrier_bytes * max(counts.values(), default=1)


def registers_ahead(kernel: tile.KernelOp, loop: scf.ForOp, spec: TargetSpec) -> int:
    """Registers of a thread for what the loop carries, loads of the next step, and the rest of the step."""
    threads = num_warps(kernel) * spec.subgroup_size
    carried = sum(tile_bytes(value) for value in loop.iter_args if is_tile(value))
    loads = [op for op in loop.body.walk() if isinstance(op, tile.LoadOp)]
    return stream_registers(carried, [(tile_bytes(op.result), _access_bytes(op)) for op in loads], threads)


def loaded_registers(kernel: tile.KernelOp, loop: scf.ForOp, spec: TargetSpec) -> int:
    """Of them, those for a step's loads."""
    threads = num_warps(kernel) * spec.subgroup_size
    loads = [op for op in loop.body.walk() if isinstance(op, tile.LoadOp)]
    return stream_registers(0, [(tile_bytes(op.result), _access_bytes(op)) for op in loads], threads) - BESIDE_STREAM


def multiply_clocks(loop: scf.ForOp, spec: TargetSpec) -> float:
    """Clocks of a compute unit for the matrix instructions of a workgroup's step."""
    clocks = 0.0
    for op in loop.body.walk():
        if isinstance(op, tile.ContractOp) and op.instruction.data not in ("", "fma"):
            (m, k), (_, n) = op.operand_shape(op.a), op.operand_shape(op.b)
            clocks += m * n * k / spec.macs_per_clock(spec.instruction(op.instruction.data))
    return clocks


def fetched_registers(loop: scf.ForOp) -> int:
    """Registers of a thread for what the matrix instructions of a step read from shared memory; 0 where none read registers."""
    found = 0
    if not any(isinstance(op, tile.ContractOp) and op.instruction.data not in ("", "fma") for op in loop.body.walk()):
        return 0
    for op in loop.body.walk():
        if isinstance(op, tile.LocalLoadOp) and (layout := tile.layout_of(op.result)) is not None:
            found += -(-layout.num_registers * element_bytes(tile.tile_type(op.result).element_type) // REGISTER_BYTES)
    return found


def multiplies_by_element(loop: scf.ForOp) -> bool:
    """Whether the loop contracts without matrix instructions: LLVM gathers the operands of all steps of a trip, which no registers hold."""
    return any(isinstance(op, tile.ContractOp) and op.instruction.data in ("", "fma") for op in loop.body.walk())


def _access_bytes(op: tile.LoadOp) -> int:
    return op.vector.value.data * element_bytes(tile.tile_type(op.result).element_type)


def reads_arrays_of_known_sizes(loop: scf.ForOp) -> bool:
    """Whether no load of the loop needs a branch for elements outside its array: behind one, loads in flight are no longer counted, and the
    later ones are waited for with the earlier.
    """
    views = [op.view.owner for op in loop.body.walk() if isinstance(op, tile.LoadOp)]
    return all(
        isinstance(view, tile.ViewOp) and all(isinstance(number, int) for number in (*view.size_values(), *view.stride_values()))
        for view in views
    )


def _ring_without_roles(kernel: tile.KernelOp) -> int:
    """How many steps of a loop are to be in flight in a kernel whose form has roles, which were refused; 0 for others."""
    config = config_of(kernel)
    if not isinstance(config, roles.Config) or config.is_sequential or kernel.group_count() > 1:
        return 0
    return 0 if any(isinstance(op, pipe.RolesOp) for op in kernel.body.walk()) else config.num_stages


def loads_two_ahead(kernel: tile.KernelOp, loop: scf.ForOp, registers: int, by_memory: int, spec: TargetSpec) -> bool:
    """Whether loads are to run two steps ahead of their stores, not one: where the steps of all workgroups on a unit do not cover a load's
    latency well, and registers hold what is in flight for as many workgroups as before.

    `registers`: of a thread, with loads one step ahead; `by_memory`: workgroups on a unit by shared memory.
    """
    threads = num_warps(kernel) * spec.subgroup_size
    deeper = registers + loaded_registers(kernel, loop, spec)
    if deeper + BESIDE_STREAM - BESIDE_FETCHED > spec.max_registers_per_thread or not reads_arrays_of_known_sizes(loop):
        return False
    resident, held = (min(by_memory, spec.registers_per_unit // (threads * each)) for each in (registers, deeper))
    step = multiply_clocks(loop, spec)
    return held == resident and held * step < COVERED * spec.rates.streaming.latency_clocks


@register_pass
@dataclass(frozen=True)
class SetPipelinePass(KernelPass):
    """Decides `pipeline` of every innermost loop.

    `stages`: 0 for the compiler's choice, 1 for none (but where roles were to bring operands ahead and are refused), -1 for its choice in
    loops that overlap unasked. `mode`, `buffers` (slots), `tail`: "auto" or 0 for the compiler's choice.
    """

    name = "set-pipeline"
    stages: int = 0
    mode: Literal["auto", "async", "async-late", "stream"] = "auto"
    buffers: int = 0
    tail: Literal["auto", "peeled", "versioned", "guarded"] = "auto"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Decide for one kernel."""
        if self.stages == 1:
            if (ring := _ring_without_roles(kernel)) > 1:
                replace(self, stages=ring)._loops(kernel, spec, only_copies=True)
            return
        if any(isinstance(op, pipe.RolesOp) for op in kernel.body.walk()):
            emit("note", self.name, kernel.sym_name.data, "left alone: roles overlap by themselves", location_of(kernel))
            return
        config = config_of(kernel)
        if isinstance(config, ContractionConfig) and config.is_sequential:
            emit("note", self.name, kernel.sym_name.data, "left alone: its pipelined form was rejected", location_of(kernel))
            return
        self._loops(kernel, spec)

    def _loops(self, kernel: tile.KernelOp, spec: TargetSpec, *, only_copies: bool = False) -> None:
        """Decide for the innermost loops of a kernel, or for those alone that contract what asynchronous copies bring."""
        for loop in kernel.body.walk():
            if isinstance(loop, scf.ForOp) and not any(isinstance(op, scf.ForOp) for op in loop.body.walk()):
                inside = {type(op) for op in loop.body.walk()}
                if self.stages < 0 and not overlaps_unasked(loop, spec):
                    continue
                if only_copies and (not {tile.ContractOp, tile.CopyOp} <= inside or tile.CopyOutOp in inside):
                    continue
                # A loop that is to be cut into stages is pipelined first, unless its ring is the user's.
                staged = pipe.StageOp | pipe.SlotOp if WARP_PIPELINE in loop.attributes else pipe.StageOp
                has_stages = any(isinstance(op, staged) for op in loop.body.walk())
                if PIPELINE not in loop.attributes and PIPELINED not in loop.attributes and not has_stages:
                    self._decide(kernel, loop, spec)

    def _decide(self, kernel: tile.KernelOp, loop: scf.ForOp, spec: TargetSpec) -> None:
        source = read_loop(loop)
        subject, place = f"{kernel.sym_name.data}: loop", location_of(loop)
        copies = any(unit.copies for unit in source.body.units)
        mode: Mode = ("async" if copies else "stream") if self.mode == "auto" else self.mode
        tail: Tail | None = None if self.tail == "auto" else self.tail
        if tail is None and mode == "async" and multiplies_by_element(loop):
            tail = "guarded"  # each step is long code
        deepest = STREAM_DEEPEST if mode == "stream" else DEEP
        # Groups that run a loop some stages apart fill one slot while they read others.
        buffers = self.buffers or (SLOTS_OF_GROUPS if mode == "stream" and WARP_PIPELINE in loop.attributes else 0)
        request = Request(min(max(self.stages, 0) or 2, deepest) if mode == "stream" else max(self.stages, 0) or 2, mode, buffers, tail)
        plan = plan_loop(source.body, request, is_counted=source.iterations is not None)
        if isinstance(plan, Refusal):
            text, at = refusal_text(plan, source)
            emit("refusal", self.name, subject, text, location_of(at))
            return

        def needed(stages: int) -> int:
            deeper = plan_loop(source.body, replace(request, stages=stages), is_counted=source.iterations is not None)
            return shared_bytes(kernel, source, deeper, spec) if isinstance(deeper, Schedule) else 2 * spec.shared_bytes_per_unit

        limit, unit = spec.shared_bytes_per_workgroup, spec.shared_bytes_per_unit
        request = self._with_slots_that_fit(request, needed, limit, subject, place)
        if self.stages > 0:
            chosen = next((n for n in range(request.stages, 1, -1) if needed(n) <= limit), 1)
        elif (registers := registers_ahead(kernel, loop, spec)) > spec.max_registers_per_thread and mode == "stream":
            text = f"not pipelined (registers): loads one step ahead and accumulators take {registers} of {spec.max_registers_per_thread}"
            emit("refusal", self.name, subject, text, place)
            return
        elif (ahead := self._reading_ahead(kernel, source, request, spec)) is not None:
            loop.attributes[PIPELINE] = request_attribute(ahead)
            text = f"{ahead.stages} stages, mode {mode}, reads of shared memory a step ahead, {ahead.unroll} steps a trip"
            emit("decision", self.name, subject, text, place)
            return
        else:  # a stream of three stages hides no more than one of two, for it issues its loads a step's computation ahead too
            chosen = choose_depth(needed, limit, unit, 2 if mode == "stream" else deepest)
        if chosen == 1:
            text = f"not pipelined (shared-memory): two stages need {needed(2)} bytes of {limit}"
            emit("refusal", self.name, subject, text, place)
            return
        if chosen < self.stages:
            reason = f"{self.stages} stages were asked for" + (f", mode {mode} has at most {deepest}" if mode == "stream" else "")
            emit("note", self.name, subject, f"{chosen} stages instead: {reason}, {limit} bytes of shared memory are there", place)
        # Registers that hold two steps' loads change places in every step: without moves, which would wait for them, only in two.
        moves = mode == "stream" and chosen == STREAM_DEEPEST and request.tail != "guarded" and source.iterations is not None
        request = replace(request, stages=chosen, unroll=2 if moves and not multiplies_by_element(loop) else 1)
        loop.attributes[PIPELINE] = request_attribute(request)
        emit("decision", self.name, subject, f"{chosen} stages, mode {mode}: {needed(chosen)} of {limit} bytes of shared memory", place)

    def _with_slots_that_fit(
        self, request: Request, needed: Callable[[int], int], limit: int, subject: str, place: SourceLocation | None
    ) -> Request:
        """The request with slots that groups of warps share, if there is the memory: else the loop may not be cut, but overlaps."""
        if not request.buffers or self.buffers or (slots := needed(2)) <= limit:
            return request
        text = f"as many slots as without groups of warps: the {SLOTS_OF_GROUPS} that these share need {slots} bytes of {limit}"
        emit("refusal", self.name, subject, text, place)
        return replace(request, buffers=0)

    def _reading_ahead(self, kernel: tile.KernelOp, source: LoopBody, request: Request, spec: TargetSpec) -> Request | None:
        """The request that reads shared memory a step ahead; None where registers do not hold a step's operands twice."""
        if self.buffers or request.mode == "async-late" or request.tail == "guarded" or source.iterations is None:
            return None
        threads = num_warps(kernel) * spec.subgroup_size
        now, fetched = registers_ahead(kernel, source.loop, spec), fetched_registers(source.loop)
        ahead = now + 2 * fetched - BESIDE_STREAM + BESIDE_FETCHED
        resident, held = spec.registers_per_unit // (threads * ahead), spec.registers_per_unit // (threads * now)
        if not fetched or ahead > spec.max_registers_per_thread or resident < min(RESIDENT, max(held, 1)):
            return None
        for slots in (RING_SLOTS, 2) if request.mode == "async" else (2,):  # two slots leave no copies in flight at a meeting
            stages = slots + 1 if request.mode == "async" else AHEAD_STAGES
            asked = replace(request, stages=stages, reads_ahead=True, unroll=slots)
            plan = plan_loop(source.body, asked, is_counted=source.iterations is not None)
            shared = shared_bytes(kernel, source, plan, spec) if isinstance(plan, Schedule) else 0
            if isinstance(plan, Schedule) and shared <= spec.shared_bytes_per_workgroup:
                # Loads of two steps change places in registers: without moves, which would wait for them, only in trips of two steps.
                turns = request.mode == "stream" and (source.iterations or 0) >= AHEAD_STAGES + FEWEST_TRIPS * slots
                by_memory = spec.shared_bytes_per_unit // max(shared, 1)
                deeper = turns and loads_two_ahead(kernel, source.loop, ahead, by_memory, spec)
                return replace(asked, stages=AHEAD_STAGES + 1) if deeper else asked
        return None
