"""Pipelined loops whose trip count only the runtime knows, to the machine code of every target."""

import pytest
from targets.nvidia.test_dynamic_contractions import PLAIN

from treadle import machine, pipelines
from treadle.dialects import tile
from treadle.ir.dialects import scf
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.targets import registry


@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_two_stages_of_a_trip_count_that_only_the_runtime_knows(target: str, kind: str) -> None:
    """A trip count that does not fill two stages is none: no second loop, which the tools would drop and the audits miss."""
    module = parse_module(PLAIN.replace("f16", kind), "test.mlir")
    pipelines.lower(module, machine.target_spec(target), CompileOptions(roles=False, pipeline_stages=2, split_reduction="off"))
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    loops = [op for op in kernel.walk() if isinstance(op, scf.ForOp) and any(isinstance(inner, tile.ContractOp) for inner in op.walk())]
    assert len(loops) == 1
    backend = registry.backend(target)
    assert backend.assemble(backend.emit(kernel)).facts.spill_bytes == 0
