"""form-warp-pipeline: loops with stages become loops that groups of warps run some stages apart.

Level: tile to schedule. Reads: `pipe.stage` and `pipe.end_stage`, the loop's attribute `warp_pipeline`, accesses to shared memory with
their slots and layouts, waits and barriers between stages, the machine's queues and `stage_fence`. Writes: a slot behind each stage
(`sync.barrier`, bare or flushing, `sync.wait` for copies, `sync.set_priority`, `sync.sched_fence`), conditional barriers around the loop,
its attribute `warp_pipelined`; what reads the buffers of reductions and changes of layout in a later stage. Leaves alone: loops without
stages, and everything else in stages.

A barrier of the workgroup counts who arrives, not where. One group starts `gap` stages late, by conditional barriers ahead of the loop, and
from there on the groups meet at different places: while one computes, the other copies. Which slots flush follows from what the stages do
to shared memory (`plan/leap_frog.py`); what no barrier can order is refused (TR418). All checks come before anything is changed.
"""

from dataclasses import replace

from treadle.analysis.slot_values import SlotValues
from treadle.dialects import tile
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.kernel_ir import KernelPass, num_warps
from treadle.transforms.kernel.warp_pipelines.borders import WarpPipeline, read_pipelines
from treadle.transforms.kernel.warp_pipelines.joints import Parting, Planned, follows, join
from treadle.transforms.kernel.warp_pipelines.orders import SlotPlan, flushing, plan_slots
from treadle.transforms.kernel.warp_pipelines.rehoming import Homes, find_homes, move_home
from treadle.transforms.kernel.warp_pipelines.slots import Ends, write_slots


@register_pass
@dataclass(frozen=True)
class FormWarpPipelinePass(KernelPass):
    """Forms the warp pipelines of every kernel. Raises TR417 for stages that are none, TR418 for what their groups cannot share."""

    name = "form-warp-pipeline"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Form those of one kernel."""
        found = [(pipeline, find_homes(pipeline, kernel)) for pipeline in read_pipelines(kernel)]
        alone: list[Planned] = []
        for pipeline, homes in found:
            plan = plan_slots(pipeline, homes, kernel, spec)
            trips = SlotValues().trips(pipeline.loop).constant
            alone.append(Planned(pipeline, homes, plan, flushing(pipeline, plan, spec), trips))
        planned, ways = join(alone, kernel)
        for number, (each, way) in enumerate(zip(planned, ways, strict=True)):
            self._report(each.pipeline, each.homes, each.plan, kernel)
            self._report_way(each.pipeline, way, kernel)
            move_home(each.pipeline, each.homes)
            behind = planned[number + 1 : number + 2]
            meets = any(follows(each.pipeline, other.pipeline) for other in behind)
            goes_on = any(found.joins for found in ways[number + 1 : number + 2])
            ends = Ends(planned[number - 1].pipeline if way.joins else None, meets=meets, goes_on=goes_on)
            write_slots(each.pipeline, replace(each.plan, is_open=each.plan.is_open or way.joins), kernel, spec, ends)

    def _report_way(self, pipeline: WarpPipeline, way: Parting, kernel: tile.KernelOp) -> None:
        subject = f"{kernel.sym_name.data}: loop"
        if way.joins:
            emit("decision", self.name, subject, "the groups go on to it from the stages before as they are", location_of(pipeline.loop))
        elif way.reason:
            emit("decision", self.name, subject, f"the groups meet ahead of it: {way.reason}", location_of(pipeline.loop))

    def _report(self, pipeline: WarpPipeline, homes: Homes, plan: SlotPlan, kernel: tile.KernelOp) -> None:
        subject, place = f"{kernel.sym_name.data}: loop", location_of(pipeline.loop)
        labels = ", ".join(f"'{stage.label}'" for stage in pipeline.stages)
        each = num_warps(kernel) // pipeline.groups
        text = f"stages {labels} of {pipeline.groups} groups of {each} warps, {pipeline.gap} stage(s) apart"
        emit("decision", self.name, subject, text, place)
        for move in homes.moves:
            source, to = (pipeline.stages[number].label for number in (move.source, move.to))
            emit("decision", self.name, subject, f"{move.what} of stage '{source}' ends in stage '{to}', behind a barrier", place)
        for slot, reason in sorted(plan.flushing.items()):
            emit("decision", self.name, subject, f"the barrier {pipeline.border_name(slot)} flushes: {reason}", place)
        for slot, queue, pending in plan.waits:
            text = f"copies are waited for {pipeline.border_name(slot)}: '{queue}', {pending} pending"
            emit("decision", self.name, subject, text, place)
