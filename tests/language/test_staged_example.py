"""examples/staged_matmul.py runs without a GPU, says what became of its stages, and compiles with the sizes that it measures."""

import inspect
import runpy
from typing import Any

import numpy as np
import pytest
from language.staged_kernels import kernel_of, module_of

from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.options import CompileOptions
from treadle.targets.registry import backend


def example() -> dict[str, Any]:
    return runpy.run_path("examples/staged_matmul.py")


def test_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    example()["main"]([])
    told = capsys.readouterr().out
    for target in example()["TARGETS"]:
        how = (
            "the stages' rings are the producer's: "
            if target == "sm_90a"
            else "stages 'memory', 'compute' of 2 groups of 4 warps, 1 stage(s) apart\n"
        )
        assert f"{target}\n  {how}" in told
    assert told.count("\n  proven") == len(example()["TARGETS"])


def test_the_sizes_that_are_measured() -> None:
    """On Hopper: matrix instructions, and no register goes to memory."""
    found = example()
    a, b, c = np.zeros((512, 1024), np.float16), np.zeros((1024, 512), np.float16), np.zeros((512, 512), np.float32)
    module = module_of(found["staged"], (2, 4), a, b, c, **found["TILE"])
    kernel = kernel_of(scheduled(read_source(module, "tile"), "sm_90a", CompileOptions(), None))
    code = backend("sm_90a")
    facts = code.assemble(code.emit(kernel)).facts
    assert facts.instructions["HGMMA"] == 8
    assert not facts.spill_bytes


def test_its_length() -> None:
    assert len(inspect.getsource(example()["staged"].function).splitlines()) <= 20
