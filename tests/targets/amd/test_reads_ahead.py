"""Loops that read shared memory a step ahead, several steps a trip: right in the emulator for every trip count, proven, and audited."""

import pytest
from targets.amd import emulator, programs

from treadle.dialects import tile
from treadle.frontends.mlir import load
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import run_passes
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower, prove, unproven_schedule_passes
from treadle.plan.stages import Mode, Request
from treadle.transforms.kernel.pipeline_loops import PipelineLoopsPass
from treadle.transforms.kernel.pipelining.request import PIPELINE, request_attribute

CDNA = ("gfx942", "gfx950")


def lowered(program: programs.Program, target: str, request: Request) -> builtin.ModuleOp:
    """A module after insert-sync whose loops are pipelined by a request; copies bring the operands where its mode is "async"."""
    module, spec, options = load(program.text), target_spec(target), CompileOptions()
    lower(module, spec, options, until="tile")
    path = builtin.DictionaryAttr({"path": builtin.StringAttr("direct" if request.mode == "async" else "threads")})
    for op in module.walk():
        if isinstance(op, tile.ContractOp):
            op.attributes["staging"] = builtin.DictionaryAttr({"a": path, "b": path})
    passes = unproven_schedule_passes(options, spec)
    at = next(at for at, one in enumerate(passes) if isinstance(one, PipelineLoopsPass))
    run_passes(module, passes[:at])
    for op in module.walk():
        if isinstance(op, scf.ForOp) and any(isinstance(inner, tile.ContractOp) for inner in op.body.walk()):
            op.attributes[PIPELINE] = request_attribute(request)
    run_passes(module, passes[at:])
    return module


def pipelined(module: builtin.ModuleOp) -> list[scf.ForOp]:
    return [op for op in module.walk() if isinstance(op, scf.ForOp) and "pipelined" in op.attributes]


def is_right(program: programs.Program, module: builtin.ModuleOp, target: str, orders: list[str]) -> None:
    compiled = emulator.compile_kernels(module, target)
    for order in orders:
        (found,) = emulator.EmulatedProgram(module, target, order, compiled)(*program.arrays())
        assert (found == program.expected()).all()


REQUESTS = [("async", 3, 2), ("async", 4, 1), ("async", 5, 4), ("stream", 4, 1), ("stream", 4, 2), ("stream", 4, 3), ("stream", 5, 2)]


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("trips", [3, 9])
@pytest.mark.parametrize(("mode", "stages", "unroll"), REQUESTS)
@pytest.mark.parametrize("target", CDNA)
def test_every_trip_count_is_right(target: str, mode: Mode, stages: int, unroll: int, trips: int) -> None:
    step = 32 if target == "gfx942" else 64
    program = programs.matmul(33, 40, trips * step - 24, "f16", "f32", transposed="b")
    module = lowered(program, target, Request(stages, mode, reads_ahead=True, unroll=unroll))
    is_right(program, module, target, ["forward", "reverse"])


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("kind", ["f16", "i8"])
@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_loads_through_registers_on_other_machines(target: str, kind: str) -> None:
    program = programs.matmul(33, 40, 400, kind, "i32" if kind == "i8" else "f32", transposed="b")
    module = lowered(program, target, Request(4, "stream", reads_ahead=True, unroll=2))
    assert pipelined(module)
    is_right(program, module, target, ["forward", "reverse"])


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("target", CDNA)
@pytest.mark.parametrize("trips", [1, 2, 3, 4, 9])
def test_trip_counts_that_only_the_runtime_knows(target: str, trips: int) -> None:
    k = 64 * trips - 8
    program = programs.matmul(33, 40, k, "f16", "f32", transposed="b")
    text = program.text.replace(f"x{k}x", "x?x")
    module = lowered(programs.Program(text, program.inputs, program.reference), target, Request(4, "stream", reads_ahead=True, unroll=2))
    assert len(pipelined(module)) % 2 == 0, "the steady loop, of one step a trip, and the loop for short ones"
    prove(module, CompileOptions())
    is_right(program, module, target, ["forward", "reverse"])


@pytest.mark.parametrize(("mode", "stages", "unroll"), REQUESTS)
@pytest.mark.parametrize("target", CDNA)
def test_they_are_proven(target: str, mode: Mode, stages: int, unroll: int) -> None:
    program = programs.matmul(130, 72, 1000, "bf16", "f32", transposed="b")
    module = lowered(program, target, Request(stages, mode, reads_ahead=True, unroll=unroll))
    assert len(pipelined(module)) == 1
    prove(module, CompileOptions())


@pytest.mark.parametrize("target", CDNA)
def test_whole_large_tiles_read_ahead_by_default(target: str) -> None:
    module = load(programs.matmul(4096, 4096, 4096, "f16", "f32", transposed="b").text)
    lower(module, target_spec(target), CompileOptions())
    (loop,) = pipelined(module)
    request = loop.attributes["pipelined"]
    assert isinstance(request, builtin.DictionaryAttr) and "reads_ahead" in request.data
    assert emulator.compile_kernels(module, target)


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("target", CDNA)
def test_a_whole_large_tile_is_right(target: str) -> None:
    program = programs.matmul(256, 256, 416, "f16", "f32", transposed="b")
    module = load(program.text)
    lower(module, target_spec(target), CompileOptions(tile=(256, 256, 32), warps=(4, 2)))
    assert ["reads_ahead" in str(loop.attributes["pipelined"]) for loop in pipelined(module)] == [True]
    is_right(program, module, target, ["forward", "shuffled"])
