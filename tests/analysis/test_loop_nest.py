"""The loop nest of a kernel is read without working anything out twice: passes ask for it several times a kernel."""

from collections import Counter
from typing import Any

import pytest

from treadle import pipelines
from treadle.analysis import indexing
from treadle.analysis.loop_nest import loop_nest
from treadle.analysis.root_positions import KernelSizes
from treadle.dialects import dispatch
from treadle.frontends import mlir
from treadle.ir.dialects import arith, builtin
from treadle.machine import target_spec
from treadle.options import CompileOptions

TEXT = """func.func @f(%a: tensor<?x64xf16>, %b: tensor<64x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %y = linalg.matmul ins(%a, %b : tensor<?x64xf16>, tensor<64x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r = linalg.exp ins(%y : tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
"""


def kernel_of(text: str, *, first: bool = False) -> dispatch.KernelOp:
    module = mlir.load(text, "test.mlir")
    pipelines.lower(module, target_spec("sm_90a"), CompileOptions(), until="dispatch")
    found = [op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)]
    assert first or len(found) == 1
    return found[0]


def test_each_operation_is_classified_and_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, counts = kernel_of(TEXT), Counter[str]()

    def counted(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any) -> Any:
            counts[name] += 1
            return original(*args)

        monkeypatch.setattr(owner, name, call)

    counted(indexing, "_contraction")
    counted(KernelSizes, "_extents")
    nest = loop_nest(kernel)
    assert (nest.kind, len(nest.consumer_dims)) == ("contraction", 1)
    assert counts == {"_contraction": 1, "_extents": 1}


def test_a_view_keeps_what_it_computes() -> None:
    root = loop_nest(kernel_of(TEXT)).root
    assert root.computation is root.computation
    assert indexing.classify(root.op) == root.computation


def test_a_kernel_that_has_changed_is_read_anew() -> None:
    """Sizes of equal texts are kept, none of an operation: where its part of a sum begins is told by a constant that a pass may replace."""
    kernel = kernel_of(
        """func.func @f(%a: tensor<64x6464xf16>, %b: tensor<6464x64xf16>, %c: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = linalg.matmul {treadle.split_reduction = 4} ins(%a, %b : tensor<64x6464xf16>, tensor<6464x64xf16>)
      outs(%c : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}
""",
        first=True,
    )
    before = loop_nest(kernel)
    assert loop_nest(kernel).accesses == before.accesses
    constants = [op for op in kernel.body.block.ops if isinstance(op, arith.ConstantOp) and isinstance(op.value, builtin.IntegerAttr)]
    for op in constants:
        assert isinstance(op.value, builtin.IntegerAttr)
        op.properties["value"] = builtin.IntegerAttr(2 * op.value.value.data, op.value.type)
    after = loop_nest(kernel)
    assert after.accesses != before.accesses
    assert [axis.size for axis in after.axes if axis.is_reduction] != [axis.size for axis in before.axes if axis.is_reduction]
