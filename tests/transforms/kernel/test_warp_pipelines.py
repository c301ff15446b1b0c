"""Random loops with stages: what form-warp-pipeline accepts is proven with the slots it chose and with no fewer; what it refuses is refuted
whatever its slots do, unless what it refuses is a wrong order, which no race detector knows to be wrong.
"""

from itertools import combinations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transforms.kernel.test_form_warp_pipeline import COLUMNS, PRIVATE, ROWS, Text, kernel_in

from treadle import TreadleError
from treadle.dialects import sync, tile
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.transforms.kernel.form_warp_pipeline import FormWarpPipelinePass
from treadle.transforms.kernel.warp_pipelines.borders import read_pipelines
from treadle.transforms.kernel.warp_pipelines.orders import SlotPlan
from treadle.transforms.kernel.warp_pipelines.slots import write_slots
from treadle.verify.check import prove

MANY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LAYOUTS = (ROWS, COLUMNS, PRIVATE)


@st.composite
def pipelines(draw: st.DrawFn) -> str:
    """A ring that one stage fills for some iterations ahead, and one or two stages that read it, in any order, with any layouts."""
    slots, stages = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    groups, gap = draw(st.sampled_from([(2, 1), (2, 1), (2, 2), (4, 1)]))
    text = Text(slots, groups=f"{{warp_pipeline = {{groups = {groups} : i64, gap = {gap} : i64}}}}")
    ahead = draw(st.integers(0, slots))
    fill, *reads = draw(st.lists(st.integers(0, stages - 1), min_size=2, max_size=3))
    for stage in range(stages):
        lines = [text.read(0, draw(st.sampled_from(LAYOUTS))) for read in reads if read == stage]
        if stage == fill:
            lines.insert(draw(st.integers(0, len(lines))), text.store(ahead))
        text.stage(str(stage), *lines)
    return str(text)


@MANY
@given(pipelines())
def test_what_is_accepted_is_proven_and_what_is_refused_is_wrong(text: str) -> None:
    module = parse_module(text, "staged.mlir")
    try:
        run_passes(module, [FormWarpPipelinePass()])
    except TreadleError as error:
        assert error.code == "TR418"
        if "is there sooner" not in error.message:  # that is the wrong order, and no race
            assert prove(flushed(text)).findings, text
        return
    kernel = kernel_in(module)
    assert prove(kernel).is_proven, text
    loop = next(op for op in kernel.walk() if isinstance(op, scf.ForOp))
    for slot in [op for op in loop.body.block.ops if isinstance(op, sync.BarrierOp) and op.bare is None]:
        slot.bare = builtin.UnitAttr()
        assert prove(kernel).findings, text
        slot.bare = None


@settings(MANY, max_examples=10)
@given(pipelines())
def test_no_smaller_set_of_slots_would_do(text: str) -> None:
    """Every choice of fewer slots that flush is refuted."""
    module = parse_module(text, "staged.mlir")
    try:
        run_passes(module, [FormWarpPipelinePass()])
    except TreadleError:
        return
    kernel = kernel_in(module)
    loop = next(op for op in kernel.walk() if isinstance(op, scf.ForOp))
    slots = [op for op in loop.body.block.ops if isinstance(op, sync.BarrierOp)]
    chosen = sum(op.bare is None for op in slots)
    for fewer in (those for count in range(chosen) for those in combinations(slots, count)):
        for slot in slots:
            slot.bare = None if slot in fewer else builtin.UnitAttr()
        assert prove(kernel).findings, text


def flushed(text: str) -> tile.KernelOp:
    """The kernel with slots that all flush, unchecked."""
    module = parse_module(text, "staged.mlir")
    kernel = kernel_in(module)
    for pipeline in read_pipelines(kernel):
        write_slots(pipeline, SlotPlan(dict.fromkeys(range(len(pipeline.stages)), ""), ()), kernel, target_spec("gfx942"))
    return kernel
