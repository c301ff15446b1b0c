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

from treadle.dialects import tile
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.kernel_ir import KernelPass, num_warps
from treadle.transforms.kernel.warp_pipelines.borders import WarpPipeline, read_pipelines
from treadle.transforms.kernel.warp_pipelines.orders import SlotPlan, plan_slots
from treadle.transforms.kernel.warp_pipelines.rehoming import Homes, find_homes, move_home
from treadle.transforms.kernel.warp_pipelines.slots import write_slots


@register_pass
@dataclass(frozen=True)
class FormWarpPipelinePass(KernelPass):
    """Forms the warp pipelines of every kernel. Raises TR417 for stages that are none, TR418 for what their groups cannot share."""

    name = "form-warp-pipeline"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Form those of one kernel."""
        found = [(pipeline, find_homes(pipeline, kernel)) for pipeline in read_pipelines(kernel)]
        planned = [(pipeline, homes, plan_slots(pipeline, homes, kernel, spec)) for pipeline, homes in found]
        for pipeline, homes, plan in planned:
            self._report(pipeline, homes, plan, kernel)
            move_home(pipeline, homes)
            write_slots(pipeline, plan, kernel, spec)

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
