"""split-divided-loops: arrays that are read at the quotient of a loop are walked by strides; anything else is left alone."""

import numpy as np
import pytest
from generators.attention_texts import generic

import treadle
from treadle.dialects import mlir_ext
from treadle.ir.dialects import func, tensor
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.transforms.tensor.generalize_named_ops import GeneralizeNamedOpsPass
from treadle.transforms.tensor.generics import generics
from treadle.transforms.tensor.split_divided_loops import NAME, SplitDividedLoopsPass

PRODUCT = "^bb0(%x: f32, %y: f32, %o: f32):\n %t = arith.mulf %x, %y : f32\n %u = arith.addf %o, %t : f32\n linalg.yield %u : f32"
SUM = "^bb0(%x: f32, %y: f32, %o: f32):\n %t = arith.addf %x, %y : f32\n linalg.yield %t : f32"
PLACE = (
    "^bb0(%x: f32, %y: f32, %o: f32):\n %i = linalg.index 0 : index\n %j = arith.index_cast %i : index to i32\n"
    " %p = arith.sitofp %j : i32 to f32\n %t = arith.addf %x, %p : f32\n %u = arith.addf %t, %y : f32\n linalg.yield %u : f32"
)


def program(maps: str, shapes: tuple[str, str, str], body: str, behind: str = "") -> str:
    """Of a and b one generic, and a second one of its result where `behind` is its text."""
    a, b, c = (f"tensor<{shape}xf32>" for shape in shapes)
    made = generic("%r", maps, f"%a, %b : {a}, {b}", f"%f : {c}", body)
    return (
        f"func.func @f(%a: {a}, %b: {b}) -> {c} {{\n %zero = arith.constant 0.0 : f32\n %e = tensor.empty() : {c}\n"
        f" %f = linalg.fill ins(%zero : f32) outs(%e : {c}) -> {c}\n{made}\n{behind} return {'%s' if behind else '%r'} : {c}\n}}\n"
    )


SHARED = program("hmk,(h floordiv 3)kn->hmn", ("6x5x7", "2x7x4", "6x5x4"), PRODUCT)


def shaped(text: str) -> tuple[list[int], int, int]:
    """Loops of each generic, and how many expansions and joints there are."""
    module = parse_module(text, "test.mlir")
    run_passes(module, (GeneralizeNamedOpsPass(), SplitDividedLoopsPass()))
    (function,) = (op for op in module.walk() if isinstance(op, func.FuncOp))
    ranks = [len(op.iterator_types.data) for op in generics(function)]
    kinds = [type(op) for op in module.walk()]
    return ranks, kinds.count(mlir_ext.ExpandShapeOp), kinds.count(mlir_ext.CollapseShapeOp)


def run(text: str, *shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return (*arrays, *treadle.compile(text, target="sim")(*arrays))


def test_operands_that_loops_share() -> None:
    assert shaped(SHARED) == ([5], 1, 1)
    a, b, c = run(SHARED, (6, 5, 7), (2, 7, 4))
    np.testing.assert_allclose(c, a @ b.repeat(3, 0), rtol=1e-4, atol=1e-5)


def test_what_follows_is_split_with_it() -> None:
    kind = "tensor<6x5x4xf32>"
    behind = generic("%s", "hmn,hmn->hmn", f"%r, %r : {kind}, {kind}", f"%e : {kind}", SUM) + "\n"
    text = program("hmk,(h floordiv 3)kn->hmn", ("6x5x7", "2x7x4", "6x5x4"), PRODUCT, behind)
    assert shaped(text) == ([5, 4], 1, 1)  # nothing is joined between the two
    a, b, c = run(text, (6, 5, 7), (2, 7, 4))
    np.testing.assert_allclose(c, 2 * (a @ b.repeat(3, 0)), rtol=1e-4, atol=1e-5)


def test_remainders_and_places() -> None:
    text = program("hm,(h mod 3)m->hm", ("6x5", "3x5", "6x5"), PLACE)
    assert shaped(text) == ([2], 0, 0)  # a remainder alone is no reason
    text = program("(h floordiv 3)m,hm->hm", ("2x5", "6x5", "6x5"), PLACE)
    assert shaped(text)[0] == [3]
    a, b, c = run(text, (2, 5), (6, 5))
    np.testing.assert_allclose(c, a.repeat(3, 0) + b + np.arange(6)[:, None], rtol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        program("hm,(h floordiv 4)m->hm", ("6x5", "2x5", "6x5"), SUM),  # 4 does not divide 6
        program("hm,(h floordiv 3)m->hm", ("6x5", "4x5", "6x5"), SUM),  # only the front of an array is read
    ],
)
def test_what_is_left_alone(text: str) -> None:
    assert shaped(text) == ([2], 0, 0)


def test_sizes_of_the_runtime_are_asked_of_what_is_split() -> None:
    text = SHARED.replace("6x5x7", "6x?x7").replace("6x5x4", "6x?x4").replace(
        " %e = tensor.empty()", " %one = arith.constant 1 : index\n %m = tensor.dim %a, %one : tensor<6x?x7xf32>\n %e = tensor.empty(%m)"
    )  # fmt: skip
    module = parse_module(text, "test.mlir")
    run_passes(module, (SplitDividedLoopsPass(),))
    assert all(op.source.owner is not None for op in module.walk() if isinstance(op, tensor.DimOp))
    a, b, c = run(text, (6, 9, 7), (2, 7, 4))
    np.testing.assert_allclose(c, a @ b.repeat(3, 0), rtol=1e-4, atol=1e-5)


def test_its_name() -> None:
    assert NAME == "split-divided-loops"
