"""The float64 reference against NumPy, odd sizes first."""

import numpy as np
import pytest

from treadle.errors import TreadleError
from treadle.ir.text import parse_module
from treadle.sim import structured
from treadle.sim.reference import evaluate_module

RNG = np.random.default_rng(7)


def evaluate(text: str, *arrays: object) -> list[np.ndarray]:
    return [r.value for r in evaluate_module(parse_module(text, "test.mlir"), [np.asarray(a) for a in arrays])]


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def test_matmul_adds_to_its_output() -> None:
    a, b, c = f32(7, 33), f32(33, 5), f32(7, 5)
    text = """func.func @f(%a: tensor<7x33xf32>, %b: tensor<33x5xf32>, %c: tensor<7x5xf32>) -> tensor<7x5xf32> {
      %0 = linalg.matmul ins(%a, %b : tensor<7x33xf32>, tensor<33x5xf32>) outs(%c : tensor<7x5xf32>) -> tensor<7x5xf32>
      return %0 : tensor<7x5xf32>
    }"""
    assert np.allclose(evaluate(text, a, b, c)[0], a.astype("d") @ b + c, rtol=1e-14)


GENERIC = """func.func @f({args}) -> {out} {{
  %0 = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} ins({ins}) outs(%o : {out}) {{
  ^bb0({block}):
    {body}
  }} -> {out}
  return %0 : {out}
}}"""


def generic(maps: list[str], kinds: str, inputs: list[str], out: str, elements: list[str], body: str) -> str:
    """One `linalg.generic`; `kinds` is a letter (p, r) a loop; block arguments are %x0, %x1, .., %o0."""
    dims = ", ".join(f"d{i}" for i in range(len(kinds)))
    names = [f"%a{i}" for i in range(len(inputs))]
    return GENERIC.format(
        args=", ".join(f"{n}: {t}" for n, t in zip([*names, "%o"], [*inputs, out], strict=True)),
        out=out,
        maps=", ".join(f"affine_map<({dims}) -> ({m})>" for m in maps),
        kinds=", ".join({"p": '"parallel"', "r": '"reduction"'}[k] for k in kinds),
        ins=f"{', '.join(names)} : {', '.join(inputs)}",
        block=", ".join(f"{n}: {e}" for n, e in zip([*(f"%x{i}" for i in range(len(inputs))), "%o0"], elements, strict=True)),
        body="\n    ".join(body.split(";")),
    )


MULTIPLY_ADD = "%p = arith.mulf %x0, %x1 : f32;%s = arith.addf %o0, %p : f32;linalg.yield %s : f32"


@pytest.mark.parametrize(
    ("maps", "kinds", "shapes", "subscripts"),
    [
        (["d2, d0", "d1, d2", "d1, d0"], "ppr", [(9, 3), (5, 9), (5, 3)], "ki,jk->ji"),
        (["d0, d1, d3", "d0, d2, d3", "d0, d1, d2"], "pppr", [(2, 3, 7), (2, 5, 7), (2, 3, 5)], "bmk,bnk->bmn"),
        (["d0, d1", "d0, d1", "d0"], "pr", [(4, 11), (4, 11), (4,)], "ij,ij->i"),
        (["d0, d2, d3", "d3, d1, d2", "d1, d0"], "pprr", [(3, 5, 7), (7, 2, 5), (2, 3)], "akl,lbk->ba"),
        (["d0, d2", "d1", "d0, d1"], "ppr", [(3, 6), (4,), (3, 4)], "ik,j->ij"),
        (["d0", "d1", ""], "rr", [(5,), (3,), ()], "i,j->"),
        (["d0, d1", "d1", "d0"], "pr", [(1, 1), (1,), (1,)], "ij,j->i"),
    ],
)
def test_contractions(maps: list[str], kinds: str, shapes: list[tuple[int, ...]], subscripts: str) -> None:
    types = [f"tensor<{''.join(f'{n}x' for n in s)}f32>" for s in shapes]
    a, b, o = (f32(*s) for s in shapes)
    got = evaluate(generic(maps, kinds, types[:2], types[2], ["f32"] * 3, MULTIPLY_ADD), a, b, o)[0]
    assert np.allclose(got, np.einsum(subscripts, a.astype("d"), b) + o, rtol=1e-13)


def test_product_of_three_and_square() -> None:
    a, b, o = f32(3, 4), f32(4, 5), np.zeros((3, 5), "f")
    body = "%q = arith.mulf %x0, %x0 : f32;%p = arith.mulf %q, %x1 : f32;%s = arith.addf %p, %o0 : f32;linalg.yield %s : f32"
    text = generic(["d0, d2", "d2, d1", "d0, d1"], "ppr", ["tensor<3x4xf32>", "tensor<4x5xf32>"], "tensor<3x5xf32>", ["f32"] * 3, body)
    assert np.allclose(evaluate(text, a, b, o)[0], a.astype("d") ** 2 @ b, rtol=1e-13)


def test_reduction_beyond_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structured, "CHUNK_ELEMENTS", 50)
    a, b, o = f32(3, 17), f32(17, 5), f32(3, 5)
    for combiner, reduce in (("addf", np.sum), ("maximumf", np.max), ("mulf", np.prod)):
        body = f"%d = arith.subf %x0, %x1 : f32;%e = math.exp %d : f32;%s = arith.{combiner} %e, %o0 : f32;linalg.yield %s : f32"
        text = generic(
            ["d0, d2", "d2, d1", "d0, d1"], "ppr", ["tensor<3x17xf32>", "tensor<17x5xf32>"], "tensor<3x5xf32>", ["f32"] * 3, body
        )
        terms = np.exp(a.astype("d")[:, None, :] - b.T.astype("d")[None])
        combine = {"addf": np.add, "maximumf": np.maximum, "mulf": np.multiply}[combiner]
        assert np.allclose(evaluate(text, a, b, o)[0], combine(reduce(terms, axis=2), o), rtol=1e-12)


def test_integer_contraction_wraps() -> None:
    a, b = (RNG.integers(-128, 128, s, dtype=np.int8) for s in ((5, 300), (300, 3)))
    body = (
        "%y0 = arith.extsi %x0 : i8 to i32;%y1 = arith.extsi %x1 : i8 to i32;%p = arith.muli %y0, %y1 : i32;%s = arith.addi %o0, %p : i32"
    )
    maps, kinds = ["d0, d2", "d2, d1", "d0, d1"], "ppr"
    text = generic(
        maps, kinds, ["tensor<5x300xi8>", "tensor<300x3xi8>"], "tensor<5x3xi32>", ["i8", "i8", "i32"], body + ";linalg.yield %s : i32"
    )
    start = np.full((5, 3), 2**31 - 1, np.int32)
    got = evaluate(text, a, b, start)[0]
    assert got.dtype == np.int64
    expected = (a.astype("q") @ b.astype("q") + 2**31 - 1 + 2**31) % 2**32 - 2**31
    assert np.array_equal(got, expected)


def test_unknown_combiner_in_order() -> None:
    """argmax: two results that reduce together."""
    x = f32(6, 19)
    text = """func.func @f(%x: tensor<6x19xf32>, %v: tensor<6xf32>, %i: tensor<6xi32>) -> (tensor<6xf32>, tensor<6xi32>) {
      %0:2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>],
          iterator_types = ["parallel", "reduction"]} ins(%x : tensor<6x19xf32>) outs(%v, %i : tensor<6xf32>, tensor<6xi32>) {
      ^bb0(%a: f32, %best: f32, %place: i32):
        %j = linalg.index 1 : index
        %k = arith.index_cast %j : index to i32
        %more = arith.cmpf ogt, %a, %best : f32
        %n = arith.select %more, %a, %best : f32
        %p = arith.select %more, %k, %place : i32
        linalg.yield %n, %p : f32, i32
      } -> (tensor<6xf32>, tensor<6xi32>)
      return %0#0, %0#1 : tensor<6xf32>, tensor<6xi32>
    }"""
    best, place = evaluate(text, x, np.full(6, -np.inf, "f"), np.zeros(6, np.int32))
    assert np.array_equal(best, x.max(1))
    assert np.array_equal(place, x.argmax(1))


def test_strided_map_and_window() -> None:
    """A convolution of one dimension with stride 2: the input is read at 2 * d0 + d1."""
    x, w, o = f32(11), f32(3), np.zeros(5, "f")
    text = generic(["2 * d0 + d1", "d1", "d0"], "pr", ["tensor<11xf32>", "tensor<3xf32>"], "tensor<5xf32>", ["f32"] * 3, MULTIPLY_ADD)
    expected = [x[2 * i : 2 * i + 3].astype("d") @ w for i in range(5)]
    assert np.allclose(evaluate(text, x, w, o)[0], expected, rtol=1e-13)


@pytest.mark.parametrize("m", [0, 3])
def test_empty_reduction_keeps_the_initial_value(m: int) -> None:
    a, b, o = np.zeros((m, 0), "f"), np.zeros((0, 4), "f"), f32(m, 4)
    types = [f"tensor<{m}x0xf32>", "tensor<0x4xf32>"]
    got = evaluate(generic(["d0, d2", "d2, d1", "d0, d1"], "ppr", types, f"tensor<{m}x4xf32>", ["f32"] * 3, MULTIPLY_ADD), a, b, o)[0]
    assert np.array_equal(got, o)


def test_named_operations() -> None:
    x = f32(3, 5)
    text = """func.func @f(%x: tensor<3x5xf32>) -> (tensor<5x3xf32>, tensor<3x2x5xf32>, tensor<5xf32>) {
      %e0 = tensor.empty() : tensor<5x3xf32>
      %t = linalg.transpose ins(%x : tensor<3x5xf32>) outs(%e0 : tensor<5x3xf32>) permutation = [1, 0]
      %e1 = tensor.empty() : tensor<3x2x5xf32>
      %b = linalg.broadcast ins(%x : tensor<3x5xf32>) outs(%e1 : tensor<3x2x5xf32>) dimensions = [1]
      %one = arith.constant 1.0 : f32
      %e2 = tensor.empty() : tensor<5xf32>
      %i = linalg.fill ins(%one : f32) outs(%e2 : tensor<5xf32>) -> tensor<5xf32>
      %r = linalg.reduce ins(%x : tensor<3x5xf32>) outs(%i : tensor<5xf32>) dimensions = [0]
        (%in: f32, %acc: f32) {
          %s = arith.addf %in, %acc : f32
          linalg.yield %s : f32
        }
      return %t, %b, %r : tensor<5x3xf32>, tensor<3x2x5xf32>, tensor<5xf32>
    }"""
    transposed, broadcast, reduced = evaluate(text, x)
    assert np.array_equal(transposed, x.T)
    assert np.array_equal(broadcast, np.broadcast_to(x[:, None], (3, 2, 5)))
    assert np.allclose(reduced, 1 + x.astype("d").sum(0), rtol=1e-14)


def test_slices_and_reshapes() -> None:
    x, y = f32(6, 8), f32(2, 8)
    text = """func.func @f(%x: tensor<6x8xf32>, %y: tensor<2x8xf32>, %k: index)
        -> (tensor<8xf32>, tensor<6x8xf32>, tensor<2x3x8xf32>, tensor<48xf32>) {
      %row = tensor.extract_slice %x[%k, 0] [1, 8] [1, 1] : tensor<6x8xf32> to tensor<8xf32>
      %put = tensor.insert_slice %y into %x[1, 0] [2, 8] [3, 1] : tensor<2x8xf32> into tensor<6x8xf32>
      %e = tensor.expand_shape %x [[0, 1], [2]] output_shape [2, 3, 8] : tensor<6x8xf32> into tensor<2x3x8xf32>
      %c = tensor.collapse_shape %x [[0, 1]] : tensor<6x8xf32> into tensor<48xf32>
      return %row, %put, %e, %c : tensor<8xf32>, tensor<6x8xf32>, tensor<2x3x8xf32>, tensor<48xf32>
    }"""
    row, put, expanded, collapsed = evaluate(text, x, y, np.int64(4))
    expected = x.copy()
    expected[[1, 4]] = y
    assert np.array_equal(row, x[4])
    assert np.array_equal(put, expected)
    assert np.array_equal(expanded, x.reshape(2, 3, 8))
    assert np.array_equal(collapsed, x.reshape(48))


def test_forall_with_ragged_parts() -> None:
    """Split reduction: four parts of 5 over 17 columns, the last one short."""
    x = f32(3, 17)
    text = """func.func @f(%x: tensor<3x17xf32>) -> tensor<3x4xf32> {
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<3x4xf32>
      %i = linalg.fill ins(%zero : f32) outs(%e : tensor<3x4xf32>) -> tensor<3x4xf32>
      %r = scf.forall (%p) in (4) shared_outs(%o = %i) -> (tensor<3x4xf32>) {
        %start = affine.apply affine_map<(d0) -> (d0 * 5)>(%p)
        %size = affine.min affine_map<(d0) -> (5, 17 - d0 * 5)>(%p)
        %part = tensor.extract_slice %x[0, %start] [3, %size] [1, 1] : tensor<3x17xf32> to tensor<3x?xf32>
        %out = tensor.extract_slice %o[0, %p] [3, 1] [1, 1] : tensor<3x4xf32> to tensor<3xf32>
        %s = linalg.reduce ins(%part : tensor<3x?xf32>) outs(%out : tensor<3xf32>) dimensions = [1]
          (%in: f32, %acc: f32) {
            %a = arith.addf %in, %acc : f32
            linalg.yield %a : f32
          }
        scf.forall.in_parallel {
          tensor.parallel_insert_slice %s into %o[0, %p] [3, 1] [1, 1] : tensor<3xf32> into tensor<3x4xf32>
        }
      }
      return %r : tensor<3x4xf32>
    }"""
    expected = np.stack([x[:, i : i + 5].astype("d").sum(1) for i in range(0, 17, 5)], axis=1)
    assert np.allclose(evaluate(text, x)[0], expected, rtol=1e-14)


def test_loops_and_branches() -> None:
    x = f32(4)
    text = """func.func @f(%x: tensor<4xf32>, %n: index) -> (tensor<4xf32>, f32) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %r = scf.for %i = %c0 to %n step %c1 iter_args(%v = %x) -> (tensor<4xf32>) {
        %w = arith.addf %v, %x : tensor<4xf32>
        scf.yield %w : tensor<4xf32>
      }
      %big = arith.cmpi sgt, %n, %c2 : index
      %s = scf.if %big -> (f32) {
        %a = tensor.extract %r[%c1] : tensor<4xf32>
        scf.yield %a : f32
      } else {
        %b = tensor.extract %x[%c0] : tensor<4xf32>
        scf.yield %b : f32
      }
      return %r, %s : tensor<4xf32>, f32
    }"""
    for n in (0, 1, 5):
        total, scalar = evaluate(text, x, np.int64(n))
        assert np.allclose(total, (n + 1) * x.astype("d"), rtol=1e-13)
        assert np.isclose(scalar, (6 * x[1]) if n > 2 else x[0], rtol=1e-6)


def test_what_cannot_be_evaluated_is_a_user_error() -> None:
    text = "func.func @f(%x: tensor<4xf80>) -> tensor<4xf80> {\n  return %x : tensor<4xf80>\n}"
    with pytest.raises(TreadleError) as caught:
        evaluate(text, np.zeros(4))
    assert caught.value.code == "TR320"


@pytest.mark.parametrize(
    ("op", "expected"),
    [("addi", [True, False, True]), ("maxsi", [False, False, True]), ("minsi", [True, True, True]), ("maxui", [True, True, True])],
)
def test_reductions_of_truth_values(op: str, expected: list[bool]) -> None:
    """Sums count modulo 2; as a signed number the truth is -1."""
    x = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]], bool)
    text = f"""func.func @f(%x: tensor<3x3xi1>, %o: tensor<3xi1>) -> tensor<3xi1> {{
      %0 = linalg.reduce {{ arith.{op} }} ins(%x : tensor<3x3xi1>) outs(%o : tensor<3xi1>) dimensions = [1]
      return %0 : tensor<3xi1>
    }}"""
    start = np.full(3, op == "maxsi")
    assert evaluate(text, x, start)[0].tolist() == expected


@pytest.mark.parametrize("k", [2, 3])
def test_products_of_truth_values_count_modulo_2(k: int) -> None:
    body = "%p = arith.muli %a, %b : i1\n    %s = arith.addi %o, %p : i1\n    linalg.yield %s : i1"
    maps = ["affine_map<(d0, d1, d2) -> (d0)>", "affine_map<(d0, d1, d2) -> (d1, d2)>", "affine_map<(d0, d1, d2) -> (d1)>"]
    text = f"""func.func @f(%a: tensor<{k}xi1>, %b: tensor<2x3xi1>, %o: tensor<2xi1>) -> tensor<2xi1> {{
      %0 = linalg.generic {{indexing_maps = [{", ".join(maps)}], iterator_types = ["reduction", "parallel", "reduction"]}}
          ins(%a, %b : tensor<{k}xi1>, tensor<2x3xi1>) outs(%o : tensor<2xi1>) {{
      ^bb0(%a0: i1, %b0: i1, %o0: i1):
        {body.replace("%a,", "%a0,").replace("%b :", "%b0 :").replace("%o,", "%o0,")}
      }} -> tensor<2xi1>
      return %0 : tensor<2xi1>
    }}"""
    b = np.array([[1, 1, 1], [1, 1, 0]], bool)
    assert evaluate(text, np.ones(k, bool), b, np.zeros(2, bool))[0].tolist() == [k == 3, False]
