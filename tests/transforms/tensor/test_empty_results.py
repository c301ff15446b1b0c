"""Results without elements, known so at compile time, need no kernel, on any target."""

import numpy as np
import pytest

import treadle
from treadle.driver.lowering import lower
from treadle.driver.sources import Source
from treadle.options import CompileOptions

TARGETS = ("sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
PROGRAMS = {
    "copy": """func.func @f(%a: tensor<0x2x65xf32>) -> tensor<0x130xf32> {
  %0 = tensor.collapse_shape %a [[0], [1, 2]] : tensor<0x2x65xf32> into tensor<0x130xf32>
  return %0 : tensor<0x130xf32>
}""",
    "product": """func.func @f(%a: tensor<64x128xf16>, %b: tensor<128x0xf16>, %c: tensor<64x0xf32>) -> tensor<64x0xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<64x128xf16>, tensor<128x0xf16>) outs(%c : tensor<64x0xf32>) -> tensor<64x0xf32>
  return %0 : tensor<64x0xf32>
}""",
    "sum": """func.func @f(%a: tensor<0x70xf32>, %c: tensor<0xf32>) -> tensor<0xf32> {
  %0 = linalg.reduce { arith.addf } ins(%a : tensor<0x70xf32>) outs(%c : tensor<0xf32>) dimensions = [1]
  return %0 : tensor<0xf32>
}""",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_kernel(name: str, target: str) -> None:
    files = lower(Source(PROGRAMS[name], "f.mlir"), target, CompileOptions(tuned=False), None).files
    assert set(files) == {"manifest.json", "remarks.json"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_run(name: str) -> None:
    program = treadle.compile(PROGRAMS[name], target="sim")
    arrays = [np.ones([int(str(n)) for n in record.shape], "f2" if record.dtype == "f16" else "f4") for record in program.manifest.inputs]
    (found,) = program(*arrays)
    assert found.shape == tuple(program.manifest.outputs[0].shape)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_over_nothing_keep_their_kernel(target: str) -> None:
    text = PROGRAMS["sum"].replace("0x70", "70x0").replace("<0xf32>", "<70xf32>")
    assert len(lower(Source(text, "f.mlir"), target, CompileOptions(tuned=False), None).files) == 3
