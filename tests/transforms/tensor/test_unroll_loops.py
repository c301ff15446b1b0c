"""unroll-loops: iterations one after the other; what stays, what is refused."""

import numpy as np
import pytest
from transforms.tensor.dispatch_programs import compare

from treadle.errors import TreadleError
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.transforms.tensor.unroll_loops import UnrollLoopsPass


def loop(low: str, high: str, step: int = 1) -> str:
    return f"""func.func @f(%a: tensor<5x3xf32>, %n: index) -> tensor<3xf32> {{
  %low = arith.constant {low} : index
  %high = arith.constant {high} : index
  %step = arith.constant {step} : index
  %first = tensor.extract_slice %a[0, 0] [1, 3] [1, 1] : tensor<5x3xf32> to tensor<3xf32>
  %r = scf.for %i = %low to %high step %step iter_args(%x = %first) -> (tensor<3xf32>) {{
    %row = tensor.extract_slice %a[%i, 0] [1, 3] [1, 1] : tensor<5x3xf32> to tensor<3xf32>
    %s = scf.for %j = %low to %i step %step iter_args(%y = %x) -> (tensor<3xf32>) {{
      %t = arith.addf %y, %row : tensor<3xf32>
      scf.yield %t : tensor<3xf32>
    }}
    scf.yield %s : tensor<3xf32>
  }}
  return %r : tensor<3xf32>
}}"""


def unrolled(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "test.mlir")
    run_passes(module, [UnrollLoopsPass()])
    return module


@pytest.mark.parametrize(("low", "high", "step"), [("0", "5", 1), ("1", "5", 3), ("3", "3", 1), ("4", "2", 2)])
def test_iterations_follow_one_another(low: str, high: str, step: int) -> None:
    text = loop(low, high, step).replace(", %n: index", "")
    assert not [op for op in unrolled(text).walk() if isinstance(op, scf.ForOp)]
    compare(text, np.random.default_rng(2).standard_normal((5, 3)))


def test_leaves_loops_of_unknown_length_alone() -> None:
    text = loop("0", "5").replace("to %high", "to %n")
    assert len([op for op in unrolled(text).walk() if isinstance(op, scf.ForOp)]) == 2


def test_long_loops_are_refused_at_their_line() -> None:
    with pytest.raises(TreadleError, match="100000 iterations") as caught:
        unrolled(loop("0", "100000"))
    assert (caught.value.code, caught.value.location and caught.value.location.line) == ("TR301", 6)
