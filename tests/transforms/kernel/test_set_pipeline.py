"""set-pipeline: what is chosen, from which facts, and what the user is told."""

from typing import Any

import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.pipelined_kernels import CASES
from generators.tile_pipeline import find, lowered

from treadle.driver import trace
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import parse_passes, run_passes
from treadle.ir.text import parse_module
from treadle.machine import known_targets, target_spec
from treadle.options import CompileOptions
from treadle.pipelines import overlaps, pipelining_passes
from treadle.plan.stages import Request
from treadle.remarks import Remark, collect_remarks
from treadle.transforms.kernel.lower_layout_conversions import LowerLayoutConversionsPass
from treadle.transforms.kernel.pipelining.request import PIPELINE, read_request
from treadle.transforms.kernel.set_pipeline import SetPipelinePass

BULK = kernel_texts.matmul(512, 512, 512)
MFMA = kernel_texts.matmul(512, 512, 512, target="gfx942", instruction="mfma_16x16x16_f32_f16", tile=(128, 128, 32), warps=(2, 2))


GFX942 = target_spec("gfx942")
FEW: dict[str, Any] = {"instruction": "mfma_16x16x16_f32_f16", "warps": (2, 2)}


def decided(text: str, options: SetPipelinePass) -> tuple[list[Request | None], list[Remark]]:
    module = lowered(text, LowerLayoutConversionsPass)
    with collect_remarks() as log:
        run_passes(module, [options])
    return [read_request(loop) for loop in find(module, scf.ForOp)], log.remarks


def test_depth_is_chosen_by_shared_memory() -> None:
    requests, (remark,) = decided(BULK, SetPipelinePass())
    assert requests == [Request(3, "async")]  # 32 KiB a stage: three let two workgroups be resident
    assert remark.kind == "decision" and "3 stages, mode async: " in remark.text
    wide = kernel_texts.matmul(512, 512, 512, tile=(128, 256, 64))
    assert decided(wide, SetPipelinePass())[0] == [Request(4, "async")]


AHEAD = Request(5, "stream", reads_ahead=True, unroll=2)


def test_shared_memory_is_read_ahead_where_registers_hold_it_twice() -> None:
    requests, (remark,) = decided(MFMA, SetPipelinePass())
    assert requests == [AHEAD] and "reads of shared memory a step ahead, 2 steps a trip" in remark.text
    copied = kernel_texts.matmul(
        512, 512, 512, target="gfx950", instruction="mfma_16x16x32_f32_f16", tile=(128, 128, 32), warps=(2, 2), b_transposed=True
    )
    assert decided(copied, SetPipelinePass())[0] == [Request(5, "async", reads_ahead=True, unroll=4)]
    crowded: dict[str, Any] = {
        "instruction": "wmma11_16x16x16_f32_f16",
        "tile": (128, 128, 32),
        "warps": (2, 4),
    }  # each half of a warp holds A and B
    assert decided(kernel_texts.matmul(512, 512, 512, target="gfx1100", **crowded), SetPipelinePass())[0] == [Request(2, "stream")]
    deep = kernel_texts.matmul(512, 512, 512, target="gfx942", tile=(128, 128, 128), **FEW)
    assert decided(deep, SetPipelinePass())[0] == [Request(2, "stream")], "two slots do not fit shared memory"
    assert decided(MFMA, SetPipelinePass(tail="guarded"))[0] == [Request(2, "stream", tail="guarded")]


@pytest.mark.parametrize(
    ("k", "tile", "warps", "instruction", "target", "stages"),
    [
        (256, (64, 64, 32), (2, 2), "mfma_16x16x16_f32_f16", "gfx942", 5),
        (255, (64, 64, 32), (2, 2), "mfma_16x16x16_f32_f16", "gfx942", 5),
        (224, (64, 64, 32), (2, 2), "mfma_16x16x16_f32_f16", "gfx942", 4),  # seven steps leave one trip of two
        (2048, (256, 256, 32), (4, 2), "mfma_16x16x16_f32_f16", "gfx942", 4),  # one step is longer than two latencies
        (2048, (32, 32, 32), (2, 2), "wmma12_16x16x16_f32_f16", "gfx1201", 5),
        (2048, (64, 64, 64), (2, 2), "wmma12_16x16x16_f32_f16", "gfx1201", 4),  # registers hold one step's loads
    ],
)
def test_loads_run_two_steps_ahead_of_short_steps(
    k: int, tile: tuple[int, int, int], warps: tuple[int, int], instruction: str, target: str, stages: int
) -> None:
    text = kernel_texts.matmul(512, 512, k, target=target, instruction=instruction, tile=tile, warps=warps)
    assert decided(text, SetPipelinePass())[0] == [Request(stages, "stream", reads_ahead=True, unroll=2)]


def test_options_override() -> None:
    assert decided(BULK, SetPipelinePass(stages=2))[0] == [Request(2, "async")]
    assert decided(BULK, SetPipelinePass(stages=3, mode="async-late", tail="guarded"))[0] == [Request(3, "async-late", 0, "guarded")]
    assert decided(MFMA, SetPipelinePass(stages=3, buffers=2))[0] == [Request(3, "stream", 2, unroll=2)]
    assert decided(BULK, SetPipelinePass(stages=1)) == ([None], [])
    (spelled,) = parse_passes("set-pipeline{stages=4,mode=async-late}")
    assert spelled == SetPipelinePass(stages=4, mode="async-late")


def test_what_does_not_fit_is_made_smaller() -> None:
    requests, remarks = decided(BULK, SetPipelinePass(stages=9))
    assert requests == [Request(7, "async")]  # 7 x 32 KiB of 227
    assert [r.kind for r in remarks] == ["note", "decision"] and "7 stages instead: 9" in remarks[0].text
    requests, remarks = decided(MFMA, SetPipelinePass(stages=5))
    assert requests == [Request(3, "stream", unroll=2)] and "at most 3" in remarks[0].text
    requests, (remark,) = decided(MFMA, SetPipelinePass(stages=2, buffers=5))
    assert requests == [None] and remark.kind == "refusal" and "shared-memory" in remark.text


def test_contractions_are_pipelined_where_the_row_says_so() -> None:
    assert [p.name for p in pipelining_passes(1)] == ["set-pipeline", "pipeline-loops"]
    assert [p.name for p in pipelining_passes(0)] == ["hoist-loads", "set-pipeline", "pipeline-loops", "cse", "dce"]
    found = {target: overlaps(CompileOptions(), target_spec(target)) for target in known_targets()}
    assert found == {name: name != "sm_90a" for name in found}
    assert overlaps(CompileOptions(pipeline_stages=0), target_spec("sm_90a")) and not overlaps(CompileOptions(pipeline_stages=1), GFX942)
    assert decided(MFMA, SetPipelinePass(stages=-1))[0] == [AHEAD]
    halves = MODULE.replace("f32", "f16")
    for text, target, count in ((MODULE, "gfx942", 1), (MODULE, "sm_90a", 1), (halves, "sm_90a", 0)):
        traced = trace(text, target=target, options=CompileOptions(roles=False), until="schedule")
        assert traced.stages["schedule"].count("pipelined = {stages") == count


def test_other_loops_are_pipelined_on_request_alone() -> None:
    for stages, request in ((-1, None), (0, Request(2, "stream"))):
        module = builtin.ModuleOp([CASES["prefetch_add"](None)])
        run_passes(module, [SetPipelinePass(stages=stages)])
        assert [read_request(loop) for loop in find(module, scf.ForOp)] == [request]


@pytest.mark.parametrize(("m", "stages"), [(128, 2), (512, None)])
def test_a_stream_needs_registers_for_what_is_ahead(m: int, stages: int | None) -> None:
    text = kernel_texts.matmul(m, 512, 512, target="gfx942", instruction="mfma_16x16x16_f32_f16", tile=(m, 256, 32), warps=(2, 2))
    requests, remarks = decided(text, SetPipelinePass())
    assert requests == ([None] if stages is None else [Request(stages, "stream")])
    assert remarks[-1].kind == ("refusal" if stages is None else "decision") and ("(registers)" in remarks[-1].text) == (stages is None)


def test_loops_around_loops_and_decided_loops_are_left_alone() -> None:
    module = builtin.ModuleOp([CASES["nested"](None)])
    run_passes(module, [SetPipelinePass(stages=3)])
    outer, inner = find(module, scf.ForOp)
    assert PIPELINE not in outer.attributes and read_request(inner) == Request(3, "stream")
    with collect_remarks() as log:
        run_passes(module, [SetPipelinePass(stages=2)])
    assert read_request(inner) == Request(3, "stream") and log.remarks == []


def test_a_refusal_names_the_line() -> None:
    text = kernel_texts.matmul(123, 456, 51234)
    module = parse_module(text, "kernel.mlir")
    run_passes(module, parse_passes("set-access-widths,set-operand-staging,stage-operands,assign-layouts"))
    with collect_remarks() as log:
        run_passes(module, [SetPipelinePass()])
    (remark,) = log.remarks
    assert remark.kind == "refusal" and "(mixed-copies): tile.local_store" in remark.text
    assert remark.location is not None and remark.location.file == "kernel.mlir"


MODULE = """
func.func @f(%a: tensor<33x200xf32>, %b: tensor<200x17xf32>) -> tensor<33x17xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<33x17xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<33x17xf32>) -> tensor<33x17xf32>
  %c = linalg.matmul ins(%a, %b : tensor<33x200xf32>, tensor<200x17xf32>) outs(%i : tensor<33x17xf32>) -> tensor<33x17xf32>
  return %c : tensor<33x17xf32>
}
"""


def test_explained_on_the_way_through_the_compiler() -> None:
    told: dict[int, list[str]] = {}
    for stages in (1, 0, 3):
        found = trace(MODULE, target="gfx942", options=CompileOptions(pipeline_stages=stages), until="schedule")
        told[stages] = [r.text for r in found.remarks if r.pass_name in ("set-pipeline", "pipeline-loops")]
        assert ("pipelined = {stages" in found.stages["schedule"]) == (stages != 1)
    assert told[1] == []
    assert [text.split(",")[0] for text in told[0]] == ["5 stages", "5 stages"]
    assert [text.split(",")[0] for text in told[3]] == ["3 stages", "3 stages"]
