"""Which operations become one kernel of rows, and that random programs of them keep their numbers."""

from random import Random

import numpy as np
import pytest
from numeric.test_coupled_reductions import lowered
from transforms.row_texts import Text, rows_text
from transforms.tensor.dispatch_programs import body_generics, compare, kernels, lower

from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.pipelines import tensor_passes
from treadle.sim.check import check
from treadle.sim.program import run_program
from treadle.sim.reference import evaluate_module

Value = tuple[str, tuple[int, ...], str]


def random_program(random: Random, sizes: tuple[int, ...]) -> str:
    """Reductions along rows and along columns, and elementwise operations of whole arrays, rows' and columns' values, in any order."""
    text = Text(sizes, "f32")
    known: list[Value] = [("%x", (0, 1), "f32")]
    for _ in range(random.randint(3, 8)):
        whole = [value for value in known if len(value[1]) == 2]
        step = random.choice(["row", "row", "row", "column", "whole", "whole", "whole", "kept"])
        source = random.choice(whole)
        if step in ("row", "column"):
            out = (0,) if step == "row" else (1,)
            body, start = random.choice(
                [
                    ("%s = arith.mulf %a0, %a0 : f32\n%r = arith.addf %s, %acc : f32", "0.0"),
                    ("%r = arith.addf %a0, %acc : f32", "0.5"),
                    ("%r = arith.maximumf %a0, %acc : f32", "0xFF800000"),
                ]
            )
            known.append(_value(text.generic([source], out, body, start=start)))
        elif step == "whole":
            other = random.choice(known)
            maps = (1, 0) if random.random() < 0.15 and sizes[0] == sizes[1] and len(other[1]) == 2 else other[1]
            op = random.choice(["arith.subf", "arith.addf", "arith.maximumf"])
            known.append(
                _value(text.generic([source, (other[0], maps, "f32")], (0, 1), f"%s = {op} %a0, %a1 : f32\n%r = math.tanh %s : f32"))
            )
        elif kept := [value for value in known if value[1] == (0,)]:
            known.append(_value(text.kept([random.choice(kept), random.choice(kept)], (0,), "%r = arith.addf %a0, %a1 : f32")))
    results = random.sample(known[1:], min(len(known) - 1, random.randint(1, 3)))
    return text.finished(results)


def _value(made: tuple[str, object, str]) -> Value:
    name, dims, element = made
    assert isinstance(dims, tuple)
    return name, dims, element


def array(sizes: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(sizes).astype(np.float32)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_keep_their_numbers(seed: int) -> None:
    random = Random(seed)
    sizes = random.choice([(7, 9), (5, 5), (9, 33), (1, 6), (4, 1)])
    compare(random_program(random, sizes), array(sizes))


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_computed_right(seed: int) -> None:
    random = Random(100 + seed)
    sizes = random.choice([(7, 9), (5, 77), (33, 130)])
    text = random_program(random, sizes)
    found = run_program(lowered(text, "sm_90a", "tile"), [array(sizes)])
    for got, want in zip(found, evaluate_module(parse_module(text, "test.mlir"), [array(sizes)]), strict=True):
        assert check(got, want).ok


@pytest.mark.parametrize(
    ("kind", "count"), [("softmax", 4), ("layer_norm", 5), ("rms_norm", 3), ("moments", 3), ("column_softmax", 4), ("group_norm", 5)]
)
def test_one_kernel(kind: str, count: int) -> None:
    sizes = (3, 4, 5, 7) if kind == "group_norm" else (9, 7)
    module, remarks = lower(rows_text(kind, sizes))
    (kernel,) = kernels(module)
    assert len(body_generics(kernel)) == count
    assert any("it walks the same rows" in remark.text for remark in remarks)


def test_rows_and_columns_are_two_kernels() -> None:
    text = Text((9, 7), "f32")
    x = ("%x", (0, 1), "f32")
    rows = text.generic([x], (0,), "%r = arith.addf %a0, %acc : f32", start="0.0")
    columns = text.generic([x], (1,), "%r = arith.addf %a0, %acc : f32", start="0.0")
    assert len(kernels(compare(text.finished([rows, columns]), array((9, 7))))) == 2


def test_a_transposed_result_is_read_by_another_kernel() -> None:
    text = Text((7, 7), "f32")
    x = ("%x", (0, 1), "f32")
    top = text.generic([x], (0,), "%r = arith.maximumf %a0, %acc : f32", start="0xFF800000")
    below = text.generic([x, top], (0, 1), "%r = arith.subf %a0, %a1 : f32")
    both = text.generic([below, (below[0], (1, 0), "f32")], (0, 1), "%r = arith.mulf %a0, %a1 : f32")
    module = compare(text.finished([both]), array((7, 7)))
    assert [len(body_generics(kernel)) for kernel in kernels(module)] == [2, 1]


def test_no_machine_no_rows() -> None:

    module = parse_module(rows_text("softmax", (9, 7)), "test.mlir")
    run_passes(module, tensor_passes())
    assert len(kernels(module)) == 3
