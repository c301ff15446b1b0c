"""Text that must be refused: the code, the line and the words."""

import pytest

import treadle.dialects  # noqa: F401 # pyright: ignore[reportUnusedImport]
from treadle.errors import TreadleError
from treadle.ir.text import parse_module

ARGS = "%a: tensor<3x5xf32>, %b: tensor<5x7xf32>, %c: tensor<3x7xf32>, %i: index, %d: tensor<?x7xf32>, %e: tensor<3xf32>"
FORALL = """%0 = scf.forall (%x, %y) in (3, 5) shared_outs(%o = %a) -> (tensor<3x5xf32>) {{
      scf.forall.in_parallel {{
      }}
    }} {{mapping = [{mapping}]}}"""

COND = "%p = arith.constant true\n%0 = scf.if %p -> (tensor<3x5xf32>) "

CASES: list[tuple[str, str, str, str]] = [
    ("unknown op", "%0 = linalg.frobnicate ins(%a : tensor<3x5xf32>)", "TR102", "operation 'linalg.frobnicate' is not known"),
    (
        "a side of a conditional that yields nothing",
        COND + "{ scf.yield %a : tensor<3x5xf32> } else { %1 = arith.negf %a : tensor<3x5xf32> }",
        "TR201",
        "its else side yields nothing, expected tensor<3x5xf32>",
    ),
    (
        "a side of a conditional that yields another type",
        COND + "{ scf.yield %c : tensor<3x7xf32> } else { scf.yield %a : tensor<3x5xf32> }",
        "TR201",
        "its first side yields tensor<3x7xf32>, expected tensor<3x5xf32>",
    ),
    (
        "a conditional without an else side",
        COND + "{ scf.yield %a : tensor<3x5xf32> }",
        "TR201",
        "it has results and no else side",
    ),
    ("unknown dialect", "flow.dispatch.workgroups()", "TR102", "'flow.dispatch.workgroups'"),
    ("syntax", "%0 = tensor.empty( : tensor<3xf32>", "TR101", ""),
    ("undefined value", "%0 = tensor.cast %nobody : tensor<3xf32> to tensor<?xf32>", "TR101", "nobody"),
    ("type of a use", "%0 = tensor.cast %a : tensor<4x5xf32> to tensor<?x5xf32>", "TR101", "tensor<3x5xf32>"),
    (
        "extract_slice result",
        "%0 = tensor.extract_slice %a[0, 0] [2, 2] [1, 1] : tensor<3x5xf32> to tensor<3x7xf32>",
        "TR201",
        "the result has shape 3x7, but the slice has sizes 2x2",
    ),
    (
        "extract_slice drops a dimension that is not 1",
        "%0 = tensor.extract_slice %a[0, 0] [3, 2] [1, 1] : tensor<3x5xf32> to tensor<2xf32>",
        "TR201",
        "has sizes 3x2",
    ),
    (
        "extract_slice out of bounds",
        "%0 = tensor.extract_slice %a[2, 0] [2, 5] [1, 1] : tensor<3x5xf32> to tensor<2x5xf32>",
        "TR201",
        "reaches element 3 of dimension 0, which has 3 elements",
    ),
    (
        "extract_slice rank",
        "%0 = tensor.extract_slice %a[0] [2] [1] : tensor<3x5xf32> to tensor<2xf32>",
        "TR201",
        "expected 2 offsets for a tensor of rank 2, found 1",
    ),
    (
        "extract_slice static size against dynamic result",
        "%0 = tensor.extract_slice %a[0, 0] [%i, 5] [1, 1] : tensor<3x5xf32> to tensor<2x5xf32>",
        "TR201",
        "has sizes ?x5",
    ),
    (
        "insert_slice source",
        "%0 = tensor.insert_slice %a into %c[0, 0] [3, 4] [1, 1] : tensor<3x5xf32> into tensor<3x7xf32>",
        "TR201",
        "the source has shape 3x5, but the slice has sizes 3x4",
    ),
    (
        "matmul inner dimension",
        "%0 = linalg.matmul ins(%a, %c : tensor<3x5xf32>, tensor<3x7xf32>) outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>",
        "TR201",
        "dimension 1 of operand 0 is 5, but dimension 0 of operand 1 is 3 and both are loop d2",
    ),
    (
        "matmul against a dynamic operand",
        "%0 = linalg.matmul ins(%a, %d : tensor<3x5xf32>, tensor<?x7xf32>) outs(%a : tensor<3x5xf32>) -> tensor<3x5xf32>",
        "TR201",
        "both are loop d1",
    ),
    (
        "matmul rank",
        "%0 = linalg.matmul ins(%a, %e : tensor<3x5xf32>, tensor<3xf32>) outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>",
        "TR201",
        "operand 1 has rank 1, expected 2",
    ),
    (
        "matmul result type",
        "%0 = linalg.matmul ins(%a, %b : tensor<3x5xf32>, tensor<5x7xf32>) outs(%c : tensor<3x7xf32>) -> tensor<7x3xf32>",
        "TR201",
        "result types (tensor<7x3xf32>) must be the types of outs",
    ),
    (
        "matmul one input",
        "%0 = linalg.matmul ins(%a : tensor<3x5xf32>) outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>",
        "TR101",
        "two inputs and one output",
    ),
    (
        "fill result type",
        "%f = arith.constant 0.0 : f32 %0 = linalg.fill ins(%f : f32) outs(%a : tensor<3x5xf32>) -> tensor<3xf32>",
        "TR201",
        "must be the types of outs",
    ),
    (
        "transpose permutation",
        "%0 = linalg.transpose ins(%a : tensor<3x5xf32>) outs(%a : tensor<3x5xf32>) permutation = [0, 0]",
        "TR201",
        "[0, 0] is no permutation",
    ),
    (
        "transpose shape",
        "%0 = linalg.transpose ins(%a : tensor<3x5xf32>) outs(%a : tensor<3x5xf32>) permutation = [1, 0]",
        "TR201",
        "sizes disagree",
    ),
    (
        "reduce dimension",
        "%0 = linalg.reduce { arith.addf } ins(%a : tensor<3x5xf32>) outs(%e : tensor<3xf32>) dimensions = [2]",
        "TR201",
        "rank 2",
    ),
    (
        "reduce shape",
        "%0 = linalg.reduce { arith.addf } ins(%a : tensor<3x5xf32>) outs(%e : tensor<3xf32>) dimensions = [0]",
        "TR201",
        "sizes disagree",
    ),
    (
        "broadcast shape",
        "%0 = linalg.broadcast ins(%e : tensor<3xf32>) outs(%a : tensor<3x5xf32>) dimensions = [0]",
        "TR201",
        "sizes disagree",
    ),
    ("collapse", "%0 = tensor.collapse_shape %a [[0, 1]] : tensor<3x5xf32> into tensor<16xf32>", "TR201", "makes 15"),
    ("expand", "%0 = tensor.expand_shape %e [[0, 1]] output_shape [2, 2] : tensor<3xf32> into tensor<2x2xf32>", "TR201", "makes 4"),
    (
        "expand output_shape",
        "%0 = tensor.expand_shape %e [[0, 1]] output_shape [3, 1] : tensor<3xf32> into tensor<1x3xf32>",
        "TR201",
        "output_shape [3, 1] differs",
    ),
    (
        "expand groups",
        "%0 = tensor.expand_shape %a [[0], [1]] output_shape [3, 5, 1] : tensor<3x5xf32> into tensor<3x5x1xf32>",
        "TR201",
        "must list the dimensions 0 to 2",
    ),
    ("empty sizes", "%0 = tensor.empty() : tensor<?xf32>", "TR201", "1 dynamic dimension(s), but 0 size(s)"),
    (
        "pad",
        "%f = arith.constant 0.0 : f32 %0 = tensor.pad %e low[1] high[1] { ^bb0(%k: index): tensor.yield %f : f32 } "
        ": tensor<3xf32> to tensor<6xf32>",
        "TR201",
        "expected 1 + 3 + 1",
    ),
    ("cast element", "%0 = tensor.cast %e : tensor<3xf32> to tensor<?xf16>", "TR201", "cannot convert elements"),
    ("trunci that widens", "%k = arith.constant 1 : i8 %0 = arith.trunci %k : i8 to i32", "TR201", "cannot convert i8 to i32"),
    ("cast shape", "%0 = arith.fptosi %e : tensor<3xf32> to tensor<4xi32>", "TR201", "same shape"),
    ("select condition", "%k = arith.constant 1 : i8 %0 = arith.select %k, %a, %a : i8, tensor<3x5xf32>", "TR201", "condition must be i1"),
    ("predicate", "%0 = arith.cmpf less, %a, %a : tensor<3x5xf32>", "TR101", "unknown predicate 'less'"),
    ("iterator", '%0 = linalg.generic {indexing_maps = [], iterator_types = ["sideways"]}', "TR101", "unknown iterator type"),
    ("dense bits", "%0 = arith.constant dense<0x1FFFFFFFF> : tensor<3xf32>", "TR101", "no bit pattern of f32"),
    ("mapping count", FORALL.format(mapping="#gpu.block<x>"), "TR201", "mapping has 1 entries for 2 dimension(s)"),
    ("mapping twice", FORALL.format(mapping="#gpu.block<x>, #gpu.block<x>"), "TR201", "one id for two dimensions"),
    ("mapping kinds", FORALL.format(mapping="#gpu.block<x>, #gpu.thread<y>"), "TR201", "different kinds"),
    ("mapping linear", FORALL.format(mapping="#gpu.block<x>, #gpu.block<linear_dim_1>"), "TR201", "mixes linear_dim"),
    ("mapping id", FORALL.format(mapping="#gpu.block<x>, #gpu.block<w>"), "TR101", "expected one of x, y, z"),
    ("mapping attribute", FORALL.format(mapping="1 : i32, 2 : i32"), "TR201", "every mapping entry"),
    ("forall bounds", "scf.forall (%x, %y) in (3) { }", "TR101", "expected 2 bound(s), found 1"),
]


@pytest.mark.parametrize(("statement", "code", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_is_refused(statement: str, code: str, words: str) -> None:
    text = f"func.func @f({ARGS}) {{\n    {statement}\n    return\n}}\n"
    with pytest.raises(TreadleError) as caught:
        parse_module(text, "user.mlir")
    error = caught.value
    assert error.code == code, error
    assert words in error.message, error
    assert error.location is not None
    assert error.location.file == "user.mlir"
    assert error.location.line >= 2 or "nobody" in words


def test_parallel_insert_writes_a_shared_output() -> None:
    text = """func.func @f(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = scf.forall (%i) in (3) shared_outs(%o = %a) -> (tensor<3xf32>) {
    %s = tensor.extract_slice %o[%i] [1] [1] : tensor<3xf32> to tensor<1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %a[%i] [1] [1] : tensor<1xf32> into tensor<3xf32>
    }
  }
  return %0 : tensor<3xf32>
}"""
    with pytest.raises(TreadleError, match="must write one of the shared_outs"):
        parse_module(text, "user.mlir")


def test_error_names_the_operation_and_column() -> None:
    text = "func.func @f(%a: tensor<3xf32>) {\n  %0 = tensor.cast %a : tensor<3xf32> to tensor<4xf32>\n  return\n}"
    with pytest.raises(TreadleError) as caught:
        parse_module(text, "user.mlir")
    assert str(caught.value.location) == "user.mlir:2:8"
    assert "'tensor.cast'" in caught.value.message
