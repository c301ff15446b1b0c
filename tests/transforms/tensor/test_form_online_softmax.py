"""A maximum and the sum of exponentials below it become one reduction where rows are walked part by part, and nothing else does."""

import numpy as np
import pytest
from transforms.row_texts import rows_text
from transforms.tensor.dispatch_programs import compare, kernels, lower

from treadle.analysis.indexing import Reduction, classify
from treadle.dialects import dispatch
from treadle.ir.dialects import builtin, linalg
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.pipelines import tensor_passes
from treadle.strategies.facts import OperationFacts
from treadle.transforms.tensor.form_online_softmax import FormOnlineSoftmaxPass


def reductions(text: str, target: str = "sm_90a") -> list[Reduction]:
    """What the reductions of a function are behind the pass."""
    module: builtin.ModuleOp = parse_module(text, "test.mlir")
    passes = tensor_passes(target_spec(target))
    place = next(number for number, item in enumerate(passes) if isinstance(item, FormOnlineSoftmaxPass))
    run_passes(module, passes[: place + 1])
    found = [classify(op) for op in module.walk() if isinstance(op, linalg.ops.GenericOp)]
    return [kind for kind in found if isinstance(kind, Reduction)]


def kinds(text: str) -> list[str]:
    return [one.kind for found in reductions(text) for one in found.coupled]


@pytest.mark.parametrize("element", ["f32", "f16"])
@pytest.mark.parametrize("sizes", [(300, 50_257), (-1, 50_257), (300, -1), (-1, -1)])
def test_rows_that_no_workgroup_holds(sizes: tuple[int, int], element: str) -> None:
    assert kinds(rows_text("softmax", sizes, element)) == ["online_softmax"]


@pytest.mark.parametrize("sizes", [(300, 8192), (8, 30_000), (77, 77)])
def test_rows_that_fit_are_left_alone(sizes: tuple[int, int]) -> None:
    assert kinds(rows_text("softmax", sizes)) == []
    assert len(reductions(rows_text("softmax", sizes))) == 2


@pytest.mark.parametrize("can", [False, True])
def test_few_long_rows_are_one_reduction_where_that_can_be_split(can: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OperationFacts, "is_separable", property(lambda facts: can))
    assert kinds(rows_text("softmax", (8, 1_000_003))) == ["online_softmax"] * can


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%d = arith.subf %a0, %a1", "%d = arith.subf %a1, %a0"),
        ("%r = math.exp %d", "%r = math.sqrt %d"),
        ("%r = arith.maximumf %a0, %acc", "%r = arith.minimumf %a0, %acc"),
        ("%z3 = arith.constant 0.0", "%z3 = arith.constant 1.0"),
        ("%r = arith.addf %a0, %acc : f32", "%r = arith.mulf %a0, %acc : f32"),
        ("%d = arith.subf %a0, %a1", "%s = arith.addf %a0, %a0 : f32\n%d = arith.subf %s, %a1"),
    ],
)
def test_what_only_looks_like_it_is_left_alone(old: str, new: str) -> None:
    text = rows_text("softmax", (300, 50_257))
    assert old in text
    assert kinds(text.replace(old, new)) == []


def test_what_a_user_has_grouped_is_left_alone() -> None:
    group = ", dispatch.group = #dispatch.group<a = root>}"
    text = rows_text("softmax", (300, 50_257)).replace('"parallel", "reduction"]}', f'"parallel", "reduction"]{group}', 1)
    assert group in text
    assert kinds(text) == []


@pytest.mark.parametrize("base", ["exp", "exp2"])
def test_the_numbers_stay(base: str) -> None:
    """Of rows that only the runtime knows, masked ones among them."""
    text = rows_text("softmax", (-1, -1)).replace("math.exp ", f"math.{base} ")
    array = np.random.default_rng(0).standard_normal((5, 77)).astype(np.float32)
    array[:, 40:60] = -np.inf
    module = compare(text, array)
    assert len(kernels(module)) == 1
    roots = [op for op in kernels(module)[0].body.block.ops if dispatch.ROOT in op.attributes]
    assert len(roots) == 1
    assert any("in one pass over the rows" in remark.text for remark in lower(text)[1])
