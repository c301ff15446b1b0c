"""expand-classifications: comparisons that say the same of every number of a type."""

import ml_dtypes
import numpy as np
import pytest

from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.sim.reference import evaluate_module
from treadle.transforms.tensor.expand_classifications import ExpandClassificationsPass
from treadle.transforms.tensor.generalize_named_ops import GeneralizeNamedOpsPass

SMALL = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}


def expanded(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "test.mlir")
    run_passes(module, [GeneralizeNamedOpsPass(), ExpandClassificationsPass()])
    return module


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite", "isnormal"])
@pytest.mark.parametrize("element", SMALL)
def test_every_number_of_a_type(name: str, element: str) -> None:
    bits = np.dtype(SMALL[element]).itemsize * 8
    values = np.arange(1 << bits, dtype=f"u{bits // 8}").view(SMALL[element])
    text = f"""func.func @f(%a: tensor<{1 << bits}x{element}>) -> tensor<{1 << bits}xi1> {{
  %0 = math.{name} %a : tensor<{1 << bits}x{element}>
  return %0 : tensor<{1 << bits}xi1>
}}"""
    wide = values.astype(np.float64)
    smallest = float(ml_dtypes.finfo(SMALL[element]).smallest_normal)
    kinds = {"isnan": np.isnan(wide), "isinf": np.isinf(wide), "isfinite": np.isfinite(wide)}
    expected = kinds.get(name, np.isfinite(wide) & (np.abs(wide) >= smallest))
    module = expanded(text)
    assert not [op for op in module.walk() if op.name == f"math.{name}"]
    for found in (evaluate_module(module, [values]), evaluate_module(parse_module(text, "test.mlir"), [values])):
        assert np.array_equal(found[0].value.astype(bool), expected)


def test_leaves_other_operations_alone() -> None:
    text = "func.func @f(%a: f32) -> f32 {\n  %0 = math.exp %a : f32\n  return %0 : f32\n}"
    assert print_module(expanded(text)) == print_module(parse_module(text, "test.mlir"))
