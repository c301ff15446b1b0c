"""pipeline-loops: overlaps the iterations of a loop.

Level: tile. Reads: attribute `pipeline` of scf.for (see set-pipeline), effects of the body's operations. Writes: prologue, steady loop
(with attribute `pipelined`) and epilogue in place of the loop; slots (`pipe.slot`) of the buffers that stages hand over. Leaves alone:
loops without the attribute, and loops that the pre-flight check refuses: these lose the attribute, nothing else, and a remark says why.

The result is still sequential and computes what the loop computed, for every trip count; insert-sync orders what then overlaps. The
stages and their legality are `plan/stages.py`, the steps `plan/expansion.py`.
"""

from treadle.analysis.loop_body import LoopBody, read_loop, refusal_text
from treadle.dialects import tile
from treadle.dialects.stages import WARP_PIPELINE
from treadle.ir.core import Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.ir.locations import location_of, set_location
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.expansion import expand
from treadle.plan.stages import Refusal, Request, Schedule, plan_loop
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.kernel_ir import KernelPass, erase, insert_before
from treadle.transforms.kernel.pipelining.expanded_loop import emit_expansion, emit_versions
from treadle.transforms.kernel.pipelining.request import PIPELINE, PIPELINED, pipelined_attribute, read_request


def stacked_buffers(source: LoopBody, schedule: Schedule) -> dict[SSAValue, tile.AllocOp]:
    """Give every buffer with slots a new allocation beside the old one."""
    found: dict[SSAValue, tile.AllocOp] = {}
    for memory, count in zip(source.memory, schedule.slots, strict=True):
        if count == 1 or not isinstance(old := memory.owner, tile.AllocOp):
            continue
        buffer = tile.memref_type(memory)
        layout = tile.shared_layout_of(memory).stacked(count)
        new = tile.AllocOp(tile.shared_buffer_type((count, *buffer.get_shape()), buffer.element_type, layout))
        new.result.name_hint = memory.name_hint
        insert_before(old, new)
        found[memory] = new
    return found


def pipeline_loop(source: LoopBody, schedule: Schedule, request: Request) -> None:
    """Replace a loop by its schedule."""
    loop = source.loop
    before = loop.prev_op
    slots = stacked_buffers(source, schedule)
    expansion = expand(schedule, source.iterations)
    if schedule.tail == "versioned" and source.iterations is None:
        emitted = emit_versions(source, schedule, expansion, slots)
    else:
        emitted = emit_expansion(source, schedule, expansion, slots, Builder(InsertPoint.before(loop)), request.unroll)
    if emitted.sequential is not None:
        del emitted.sequential.attributes[PIPELINE]
        emitted.sequential.attributes.pop(WARP_PIPELINE, None)
        emitted.sequential.attributes[PIPELINED] = builtin.DictionaryAttr({"stages": builtin.IntegerAttr(1, builtin.i64)})
    if emitted.loop is not None:
        emitted.loop.attributes.update({name: value for name, value in loop.attributes.items() if name != PIPELINE})
        emitted.loop.attributes[PIPELINED] = pipelined_attribute(request, schedule)
        emitted.loop.body.block.args[0].name_hint = loop.body.block.args[0].name_hint
    new: Operation | None = loop.prev_op
    while new is not None and new is not before:
        set_location(new, loop)
        new = new.prev_op
    for result, value in zip(loop.results, emitted.results, strict=True):
        result.replace_all_uses_with(value)
    erase(loop)
    for memory in slots:
        if isinstance(old := memory.owner, tile.AllocOp):
            erase(old)


@register_pass
@dataclass(frozen=True)
class PipelineLoopsPass(KernelPass):
    """Pipelines the loops that carry `pipeline`."""

    name = "pipeline-loops"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite the loops of one kernel, inner ones first."""
        loops = [op for op in kernel.body.walk() if isinstance(op, scf.ForOp) and PIPELINE in op.attributes]
        for loop in reversed(loops):
            self._loop(kernel, loop)

    def _loop(self, kernel: tile.KernelOp, loop: scf.ForOp) -> None:
        request = read_request(loop)
        if request is None:
            return
        source = read_loop(loop)
        schedule = plan_loop(source.body, request, is_counted=source.iterations is not None)
        if isinstance(schedule, Refusal):
            text, at = refusal_text(schedule, source)
            emit("refusal", self.name, f"{kernel.sym_name.data}: loop", text, location_of(at))
            del loop.attributes[PIPELINE]
            return
        location = location_of(loop)
        pipeline_loop(source, schedule, request)
        slots = max(schedule.slots, default=1)
        parts = ", ".join(f"{c.name} (stage {c.stage})" for c in schedule.clusters)
        text = f"{schedule.stages} stages, {slots} slot(s) a buffer, {schedule.tail} end; a step runs {parts}"
        emit("decision", self.name, f"{kernel.sym_name.data}: loop", text, location)
