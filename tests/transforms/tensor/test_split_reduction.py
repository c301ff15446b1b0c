"""split-reduction: the structure that it writes, which upstream MLIR accepts, what it computes, and what it refuses."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.errors import TreadleError
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.sim.reference import evaluate_module
from treadle.transforms.tensor.split_reduction import SplitReductionPass

RNG = np.random.default_rng(3)


def matmul(m: int, n: int, k: int, attribute: str) -> str:
    return f"""func.func @f(%a: tensor<{m}x{k}xf32>, %b: tensor<{k}x{n}xf32>, %c: tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
      %0 = linalg.matmul {{treadle.split_reduction = {attribute}}} ins(%a, %b : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>)
        outs(%c : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
      return %0 : tensor<{m}x{n}xf32>
    }}"""


def split(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "text")
    run_passes(module, (SplitReductionPass(),))
    return module


def test_the_structure_of_ragged_parts() -> None:
    module = split(matmul(123, 456, 51234, '#dispatch.split<r0 = "77" step 666>'))
    loop = next(op for op in module.walk() if op.name == "scf.forall")
    names = [op.name for op in loop.regions[0].block.ops]
    slices = ["tensor.extract_slice"] * 3
    scalars = {name for name in names if name.startswith("arith.")}
    assert scalars == {"arith.constant", "arith.muli", "arith.addi", "arith.minsi", "arith.maxsi"}, "a part's place takes no division"
    assert [name for name in names if name not in scalars] == [*slices, "linalg.fill", "linalg.matmul", "scf.forall.in_parallel"]
    text = print_module(module)
    assert "scf.forall (%2) in (77)" in text
    assert "mapping = [#gpu.block<z>]" in text
    merge = next(op for op in module.walk() if op.name == "linalg.generic")
    assert [str(operand.type) for operand in merge.operands] == ["tensor<77x123x456xf32>", "tensor<123x456xf32>"]
    assert merge.operands[1].name_hint == "c", "the original initial value is used once, in the merge"


@pytest.mark.parametrize("attribute", ['#dispatch.split<r0 = "77" step 666>', "77 : i64", '#dispatch.split<r0 = "66" step 64>'])
def test_upstream_accepts_it(attribute: str, tmp_path: Path) -> None:
    tool = shutil.which("iree-opt", path=f"{Path(sys.executable).parent}")
    if tool is None:
        pytest.skip("iree-opt is not installed")
    file = tmp_path / "split.mlir"
    file.write_text(print_module(split(matmul(123, 456, 51234, attribute))))
    found = subprocess.run([tool, str(file)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 80), st.integers(2, 90), st.integers(1, 20))
def test_parts_compute_the_whole_and_are_balanced(m: int, n: int, k: int, parts: int, step: int) -> None:
    text = matmul(m, n, k, f'#dispatch.split<r0 = "{parts}" step {step}>')
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n))]
    (found,) = evaluate_module(split(text), arrays)
    np.testing.assert_allclose(found.value, arrays[0].astype(np.float64) @ arrays[1] + arrays[2], atol=1e-5)
    steps = -(-k // step)
    count = min(parts, steps)
    lengths = [steps * (p + 1) // count - steps * p // count for p in range(count)]
    assert sum(lengths) == steps
    assert max(lengths) - min(lengths) <= 1


def test_leaves_alone_what_is_not_asked_for() -> None:
    text = matmul(5, 6, 70, '"off"')
    assert not any(op.name == "scf.forall" for op in split(text).walk())
    assert not any(op.name == "scf.forall" for op in split(text.replace('treadle.split_reduction = "off"', "")).walk())
    assert not any(op.name == "scf.forall" for op in split(matmul(5, 6, 70, "1 : i64")).walk())


@pytest.mark.parametrize(
    ("attribute", "words"), [('#dispatch.split<r1 = "4">', "r1 is none"), ("0 : i64", "into 0 parts"), ('"many"', "neither a number")]
)
def test_refusals(attribute: str, words: str) -> None:
    with pytest.raises(TreadleError, match=f"TR308.*{words}") as caught:
        split(matmul(5, 6, 70, attribute))
    assert caught.value.location is not None
    assert caught.value.location.line == 2
