"""Everything the tensor level is written in parses, verifies, prints, reads back as printed, and what we print is MLIR to iree-opt."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import treadle.dialects  # noqa: F401 # pyright: ignore[reportUnusedImport]
from treadle.dialects.mlir_ext import ForallOp, GenericOp, MatmulOp, MaxOp, ReduceOp
from treadle.dialects.mlir_ext.scalar_bodies import same_body
from treadle.ir.builtin import DenseIntOrFPElementsAttr, IntegerType, is_tensor
from treadle.ir.core import Operation
from treadle.ir.dialects import arith, linalg
from treadle.ir.text import parse_module, print_module

SEEDS = Path(__file__).parents[1] / "seeds"
SPLIT = "// -----"
PIECES = [
    *((path.stem, path.read_text()) for path in sorted(SEEDS.glob("split_k_step*.mlir"))),
    *((f"constructs_{number}", piece) for number, piece in enumerate((SEEDS / "constructs.mlir").read_text().split(SPLIT))),
]


def first(module: Operation, kind: type) -> Operation:
    return next(op for op in module.walk() if isinstance(op, kind))


@pytest.mark.parametrize(("name", "text"), PIECES, ids=[name for name, _ in PIECES])
def test_prints_as_it_reads_back(name: str, text: str) -> None:
    printed = print_module(parse_module(text, f"{name}.mlir"))
    assert print_module(parse_module(printed, "printed.mlir")) == printed


def test_iree_opt_accepts_what_we_print(tmp_path: Path) -> None:
    tool = shutil.which("iree-opt", path=str(Path(sys.executable).parent)) or shutil.which("iree-opt")
    if tool is None:
        pytest.skip("iree-opt is not installed")
    path = tmp_path / "all.mlir"
    path.write_text(f"{SPLIT}\n".join(print_module(parse_module(text, name)) for name, text in PIECES))
    result = subprocess.run([tool, "--split-input-file", str(path)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("func.func @") == path.read_text().count("func.func @")


KNOWN_TO_MLIR = [
    (name, text)
    for name, text in PIECES
    if name.startswith("constructs") and not any(word in text for word in ("_transpose_", "linalg.sub", "expand_shape %a [[0], [1, 2]] :"))
]
"""Pieces without names and forms that newer MLIR has dropped."""


@pytest.mark.parametrize("flags", [(), ("--mlir-print-op-generic",)], ids=["custom", "generic"])
@pytest.mark.parametrize(("name", "text"), KNOWN_TO_MLIR, ids=[name for name, _ in KNOWN_TO_MLIR])
def test_what_mlir_prints_means_the_same(name: str, text: str, flags: tuple[str, ...]) -> None:
    tool = shutil.which("iree-opt", path=str(Path(sys.executable).parent)) or shutil.which("iree-opt")
    if tool is None:
        pytest.skip("iree-opt is not installed")
    result = subprocess.run([tool, *flags, "-"], input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    ours, theirs = parse_module(text, f"{name}.mlir"), parse_module(result.stdout, "printed.mlir")
    structured = linalg.abstract_ops.LinalgStructuredOperation
    found = [[op for op in module.walk() if isinstance(op, structured)] for module in (ours, theirs)]
    assert [(op.name, op.get_indexing_maps()) for op in found[0]] == [(op.name, op.get_indexing_maps()) for op in found[1]]
    for one, other in zip(*found, strict=True):
        assert same_body(one.body, other.body)


def test_the_threads_split_loop() -> None:
    module = parse_module(dict(PIECES)["split_k_step1"], "step1.mlir")
    loop = first(module, ForallOp)
    assert isinstance(loop, ForallOp)
    assert (loop.rank, loop.upper_bounds, loop.is_normalized) == (1, [77], True)
    assert str(loop.mapping) == "[#gpu.block<z>]"
    clamp = first(module, MaxOp)
    assert isinstance(clamp, MaxOp)
    assert clamp.map.data.eval([-4], []) == (0, -4)


def test_transposed_names_become_matmul_with_maps() -> None:
    text = next(text for _, text in PIECES if "matmul_transpose_a" in text)
    module = parse_module(text, "t.mlir")
    ops = [op for op in module.walk() if isinstance(op, MatmulOp)]
    assert [str(op.get_indexing_maps().data[0].data) for op in ops] == ["(d0, d1, d2) -> (d2, d0)", "(d0, d1, d2) -> (d0, d2)"]
    assert [[str(kind.data) for kind in op.get_iterator_types()] for op in ops] == [["parallel", "parallel", "reduction"]] * 2


def test_mixed_contraction_extends_before_it_multiplies() -> None:
    text = next(text for _, text in PIECES if "matmul_i8_i32" in text)
    body = first(parse_module(text, "t.mlir"), MatmulOp).regions[0].block
    assert [op.name for op in body.ops] == ["arith.extsi", "arith.extsi", "arith.muli", "arith.addi", "linalg.yield"]


def test_short_reduction_applies_the_op_to_accumulator_then_element() -> None:
    text = """func.func @f(%a: tensor<3x5xf32>, %o: tensor<3xf32>) -> tensor<3xf32> {
      %0 = linalg.reduce { arith.subf } ins(%a : tensor<3x5xf32>) outs(%o : tensor<3xf32>) dimensions = [1]
      return %0 : tensor<3xf32>
    }"""
    block = first(parse_module(text, "t.mlir"), ReduceOp).regions[0].block
    op = block.first_op
    assert isinstance(op, arith.SubfOp)
    assert list(op.operands) == [block.args[1], block.args[0]]


def test_hexadecimal_dense_floats_are_bit_patterns() -> None:
    text = next(text for _, text in PIECES if "0xFF800000" in text)
    constant = first(parse_module(text, "t.mlir"), arith.ConstantOp)
    assert isinstance(constant, arith.ConstantOp)
    assert isinstance(constant.value, DenseIntOrFPElementsAttr)
    assert set(constant.value.get_values()) == {float("-inf")}


def test_comparison_of_tiles_gives_bits_of_the_same_shape() -> None:
    module = parse_module(next(text for _, text in PIECES if "arith.cmpf olt" in text), "t.mlir")
    kind = first(module, arith.CmpfOp).results[0].type
    assert is_tensor(kind)
    assert (kind.get_shape(), kind.element_type) == ((3, 5), IntegerType(1))


def test_named_elementwise_becomes_generic_with_attributes_kept() -> None:
    text = """func.func @f(%a: tensor<3xf32>, %o: tensor<3xf32>) -> tensor<3xf32> {
      %0 = linalg.exp {keep = 1 : i32} ins(%a : tensor<3xf32>) outs(%o : tensor<3xf32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }"""
    op = first(parse_module(text, "t.mlir"), GenericOp)
    assert "keep" in op.attributes
