"""Split reductions end to end on the simulator: all combiners and types, ragged sizes, several loops, producers and consumers."""

from dataclasses import dataclass
from random import Random

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numeric import test_coupled_reductions as coupled
from numeric import test_folds as folds
from transforms.reduction_texts import reduction

import treadle
from treadle.errors import TreadleError
from treadle.options import CompileOptions
from treadle.plan.expr import as_expr
from treadle.sim.check import check

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
}
FLOATS = {"arith.addf": "0.0", "arith.mulf": "1.0", "arith.maximumf": "-65504.0", "arith.minimumf": "65504.0", "arith.maxnumf": "-65504.0"}
INTEGERS = {
    "arith.addi": "0",
    "arith.muli": "1",
    "arith.maxsi": "-128",
    "arith.minsi": "127",
    "arith.andi": "-1",
    "arith.ori": "0",
    "arith.xori": "0",
}
RNG = np.random.default_rng(23)


@dataclass(frozen=True)
class Case:
    """result[i, j] = start, joined with every x[k, i, l, j] by `combiner`; the loops k and l in so many parts."""

    sizes: tuple[int, int, int, int]
    kind: str
    combiner: str
    parts: str

    @property
    def text(self) -> str:
        k, i, h, j = self.sizes
        x, r = f"tensor<{k}x{i}x{h}x{j}x{self.kind}>", f"tensor<{i}x{j}x{self.kind}>"
        start = (FLOATS | INTEGERS)[self.combiner]
        return f"""func.func @f(%x: {x}) -> {r} {{
          %z = arith.constant {start} : {self.kind}
          %e = tensor.empty() : {r}
          %s = linalg.fill ins(%z : {self.kind}) outs(%e : {r}) -> {r}
          %r = linalg.generic {{treadle.split_reduction = #dispatch.split<{self.parts}>,
              indexing_maps = [affine_map<(k, i, l, j) -> (k, i, l, j)>, affine_map<(k, i, l, j) -> (i, j)>],
              iterator_types = ["reduction", "parallel", "reduction", "parallel"]}} ins(%x : {x}) outs(%s : {r}) {{
            ^bb0(%v: {self.kind}, %acc: {self.kind}):
            %t = {self.combiner} %acc, %v : {self.kind}
            linalg.yield %t : {self.kind}
          }} -> {r}
          return %r : {r}
        }}"""

    def array(self) -> np.ndarray:
        """Values whose products stay representable."""
        if self.kind[0] == "i":
            return RNG.integers(-3, 4, self.sizes).astype(DTYPES[self.kind])
        centre, spread = (1.0, 0.02) if self.combiner == "arith.mulf" else (0.0, 1.0)
        return (centre + spread * RNG.standard_normal(self.sizes)).astype(DTYPES[self.kind])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(sorted(DTYPES)))
    combiner = draw(st.sampled_from(sorted(INTEGERS if kind[0] == "i" else FLOATS)))
    sizes = tuple(draw(st.integers(1, most)) for most in (40, 5, 30, 9))
    loops = [
        f'r{number} = "{draw(st.integers(2, 7))}" step {draw(st.integers(1, 9))}' for number in draw(st.sampled_from(((0,), (1,), (0, 1))))
    ]
    return Case(sizes, kind, combiner, ", ".join(loops))  # type: ignore[arg-type]


@settings(max_examples=16)
@given(cases())
def test_reductions(case: Case) -> None:
    program = treadle.compile(case.text, target="sim")
    x = case.array().astype(DTYPES[case.kind])
    for found, wanted in zip(program(x), program.reference(x), strict=True):
        assert (verdict := check(np.asarray(found), wanted)).ok, verdict


def weighted(sizes: tuple[int, int, int, int], loop: int, parts: str) -> str:
    """The sum of what `Case` reduces, each element multiplied by one loop's index."""
    return Case(sizes, "i32", "arith.addi", parts).text.replace(
        "%t = arith.addi %acc, %v",
        f"%n = linalg.index {loop} : index\n %w = arith.index_cast %n : index to i32\n %p = arith.muli %v, %w : i32\n"
        " %t = arith.addi %acc, %p",
    )


@pytest.mark.parametrize("loop", range(4))
@pytest.mark.parametrize("sizes", [(40, 2, 3, 5), (5, 3, 31, 2)])
def test_bodies_that_read_an_index(loop: int, sizes: tuple[int, int, int, int]) -> None:
    """A part counts from its own start, so a loop whose index is computed with stays whole; the others are split."""
    text = weighted(sizes, loop, "-").replace("treadle.split_reduction = #dispatch.split<->,", "")
    program = treadle.compile(text, target="sim", options=CompileOptions(split_reduction="3"))
    assert len(program.manifest.kernels) == 2
    x = RNG.integers(-3, 4, sizes).astype(np.int32)
    np.testing.assert_array_equal(program(x)[0], program.reference(x)[0].value)
    weights = np.moveaxis(np.arange(sizes[loop]).reshape(-1, 1, 1, 1), 0, loop)
    np.testing.assert_array_equal(program(x)[0], (x * weights).sum(axis=(0, 2)))


def test_a_loop_whose_index_is_read_stays_whole() -> None:
    with pytest.raises(TreadleError, match=r"TR308.*r0 is none that can be split"):
        treadle.compile(weighted((40, 2, 3, 5), 0, 'r0 = "3"'), target="sim")
    program = treadle.compile(weighted((40, 2, 3, 5), 0, 'r1 = "3"'), target="sim")
    assert len(program.manifest.kernels) == 2


def linear(m: int, n: int, k: int, kind: str, attribute: str, scaled: bool) -> str:
    """gelu-like consumer of (x * s) w + bias, in `kind` outside and f32 sums inside."""
    x, w, r, f = f"tensor<{m}x{k}x{kind}>", f"tensor<{k}x{n}x{kind}>", f"tensor<{m}x{n}x{kind}>", f"tensor<{m}x{n}xf32>"
    scale = f"""%es = tensor.empty() : {x}
      %a = linalg.generic {{indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (k)>, affine_map<(i, k) -> (i, k)>],
        iterator_types = ["parallel", "parallel"]}} ins(%x, %s : {x}, tensor<{k}x{kind}>) outs(%es : {x}) {{
        ^bb0(%p: {kind}, %q: {kind}, %o: {kind}):
        %t = arith.mulf %p, %q : {kind}
        linalg.yield %t : {kind}
      }} -> {x}"""
    operand = "%a" if scaled else "%x"
    return f"""func.func @f(%x: {x}, %w: {w}, %s: tensor<{k}x{kind}>, %b: tensor<{n}xf32>) -> {r} {{
      %z = arith.constant 0.0 : f32
      %e = tensor.empty() : {f}
      %0 = linalg.fill ins(%z : f32) outs(%e : {f}) -> {f}
      {scale if scaled else ""}
      %1 = linalg.matmul {{treadle.split_reduction = {attribute}}} ins({operand}, %w : {x}, {w}) outs(%0 : {f}) -> {f}
      %er = tensor.empty() : {r}
      %2 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]}} ins(%1, %b : {f}, tensor<{n}xf32>) outs(%er : {r}) {{
        ^bb0(%p: f32, %q: f32, %o: {kind}):
        %t = arith.addf %p, %q : f32
        %u = math.tanh %t : f32
        %v = arith.truncf %u : f32 to {kind}
        linalg.yield %v : {kind}
      }} -> {r}
      return %2 : {r}
    }}"""


@pytest.mark.parametrize(("m", "n", "k", "scaled"), [(13, 21, 150, True), (64, 72, 517, False), (1, 40, 333, True)])
def test_producers_and_consumers_stay_in_two_kernels(m: int, n: int, k: int, scaled: bool) -> None:
    program = treadle.compile(linear(m, n, k, "f16", '#dispatch.split<r0 = "4" step 32>', scaled), target="sim")
    assert program.stages["dispatch"].count("dispatch.launch") == 2
    arrays = [0.1 * RNG.standard_normal(s) for s in ((m, k), (k, n), (k,), (n,))]
    given_arrays = [a.astype(np.float32 if i == 3 else np.float16) for i, a in enumerate(arrays)]
    for found, wanted in zip(program(*given_arrays), program.reference(*given_arrays), strict=True):
        assert (verdict := check(np.asarray(found), wanted)).ok, verdict


def test_convolution_over_its_channels() -> None:
    text = """func.func @f(%x: tensor<1x9x10x37xf32>, %w: tensor<3x3x37x5xf32>, %o: tensor<1x7x8x5xf32>) -> tensor<1x7x8x5xf32> {
      %0 = linalg.conv_2d_nhwc_hwcf {treadle.split_reduction = #dispatch.split<r2 = "3" step 8>,
        dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
        ins(%x, %w : tensor<1x9x10x37xf32>, tensor<3x3x37x5xf32>) outs(%o : tensor<1x7x8x5xf32>) -> tensor<1x7x8x5xf32>
      return %0 : tensor<1x7x8x5xf32>
    }"""
    program = treadle.compile(text, target="sim")
    arrays = [RNG.standard_normal(s).astype(np.float32) for s in ((1, 9, 10, 37), (3, 3, 37, 5), (1, 7, 8, 5))]
    assert program.stages["dispatch"].count("dispatch.launch") == 2
    for found, wanted in zip(program(*arrays), program.reference(*arrays), strict=True):
        assert (verdict := check(np.asarray(found), wanted)).ok, verdict


def test_batches() -> None:
    text = """func.func @f(%a: tensor<3x7x130xf32>, %b: tensor<3x130x9xf32>, %c: tensor<3x7x9xf32>) -> tensor<3x7x9xf32> {
      %0 = linalg.batch_matmul {treadle.split_reduction = 4 : i64} ins(%a, %b : tensor<3x7x130xf32>, tensor<3x130x9xf32>)
        outs(%c : tensor<3x7x9xf32>) -> tensor<3x7x9xf32>
      return %0 : tensor<3x7x9xf32>
    }"""
    program = treadle.compile(text, target="sim")
    arrays = [RNG.standard_normal(s).astype(np.float32) for s in ((3, 7, 130), (3, 130, 9), (3, 7, 9))]
    for found, wanted in zip(program(*arrays), program.reference(*arrays), strict=True):
        assert (verdict := check(np.asarray(found), wanted)).ok, verdict


def test_floats_are_reordered_only_where_they_may_be() -> None:
    text = Case((4000, 1, 300, 3), "f32", "arith.addf", 'r0 = "2"').text.replace(
        'treadle.split_reduction = #dispatch.split<r0 = "2", merge = kernel>,', ""
    )
    text = text.replace('treadle.split_reduction = #dispatch.split<r0 = "2">,', "")
    launches = {
        allowed: treadle.compile(text, "sm_90a", CompileOptions(reassociate=allowed)).stages["dispatch"].count("dispatch.launch")
        for allowed in (True, False)
    }
    assert launches == {True: 2, False: 1}


def of_any_length(kind: str, attribute: str) -> str:
    a, b, c = f"tensor<13x?x{kind}>", f"tensor<?x21x{kind}>", "tensor<13x21xf32>"
    return f"""func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
      %0 = linalg.matmul {attribute} ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
      %e = tensor.empty() : {c}
      %1 = linalg.exp ins(%0 : {c}) outs(%e : {c}) -> {c}
      return %1 : {c}
    }}"""


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_one_program_for_all_lengths(kind: str) -> None:
    """The number of parts is an expression; where it is 1 there is one launch and no workspace."""
    text = of_any_length(kind, '{treadle.split_reduction = #dispatch.split<r0 = "min(6, r0 // 32)" step 16>}')
    program = treadle.compile(text, target="sim")
    for k in (0, 1, 2, 63, 64, 95, 96, 517, 2051):
        shapes = ((13, k), (k, 21), (13, 21))
        arrays = [(0.1 * RNG.standard_normal(s)).astype(np.float32 if i == 2 else DTYPES[kind]) for i, s in enumerate(shapes)]
        for found, wanted in zip(program(*arrays), program.reference(*arrays), strict=True):
            assert (verdict := check(np.asarray(found), wanted)).ok, verdict
    for k, parts in ((63, 1), (64, 2), (5000, 6)):
        launches = [launch for launch in program.manifest.launches if as_expr(launch.grid[0]).evaluate({"s0": k}) > 0]
        assert len(launches) == (1 if parts == 1 else 2)
        sizes = [as_expr(buffer.bytes).evaluate({"s0": k}) for buffer in program.manifest.buffers if buffer.role == "temporary"]
        assert max(sizes, default=0) == (0 if parts == 1 else parts * 13 * 21 * 4)
    with pytest.raises(TreadleError, match="TR7"):
        program(np.zeros((13, 64), DTYPES[kind]), np.zeros((65, 21), DTYPES[kind]), np.zeros((13, 21), np.float32))


def test_the_number_of_parts_of_any_length_is_the_models() -> None:
    program = treadle.compile(of_any_length("f32", ""), "sm_90a")
    (text,) = [remark.text for remark in program.remarks if remark.pass_name == "set-split-reduction"]
    assert "r0 //" in text
    assert len(program.manifest.launches) == 3


FOLDS = [name for name in folds.CASES if name != "argmax_beside_sum"]


@pytest.mark.parametrize("name", FOLDS)
def test_values_that_are_reduced_together(name: str) -> None:
    """Mean and variance, sums under a running maximum, what is declared associative: merged as they are within a workgroup."""
    generator = np.random.default_rng(5)
    for rows, columns, parts in ((3, 77, 3), (2, 1000, 7)):
        text = folds.text_of(name, rows, columns).replace('"reduction"]', f'"reduction"], treadle.split_reduction = {parts} : i64')
        given_arrays = folds.arguments(name, rows, columns, generator)
        program = treadle.compile(text, target="sim")
        assert program.stages["dispatch"].count("dispatch.launch") == 2
        folds.agrees(list(program(*given_arrays)), text, given_arrays)


@pytest.mark.parametrize(("kind", "nan", "body"), coupled.FOLDED[::3])
def test_the_index_of_an_extremum(kind: str, nan: str, body: str) -> None:
    """To the bit that of the loop: ties go to the first, NaN as the body says."""
    worst = "0xFF800000" if kind == "argmax" else "0x7F800000"
    for rows, columns, parts in ((5, 77, 4), (2, 1500, 9)):
        text = reduction(body, {"m": "f32", "i": "i32"}, shape=(rows, columns))
        text = text.replace('"reduction"]', f'"reduction"], treadle.split_reduction = {parts} : i64')
        for number, (element, value) in enumerate((("f32", worst), ("i32", "0"))):
            kept = f"tensor<{rows}x{element}>"
            text = text.replace(f", %s{number}: {kept}", "")
            text = text.replace("{\n", f"""{{
              %c{number} = arith.constant {value} : {element}
              %e{number} = tensor.empty() : {kept}
              %s{number} = linalg.fill ins(%c{number} : {element}) outs(%e{number} : {kept}) -> {kept}
            """, 1)  # fmt: skip
        x = coupled.arrays(kind, rows, columns, Random(7))[0]
        program = treadle.compile(text, target="sim")
        assert program.stages["dispatch"].count("dispatch.launch") == 2
        coupled.agrees(list(program(x)), text, [x])


def test_both_ways_of_a_program_share_a_merged_kernel() -> None:
    """A reduction of known length is split in both of the host's ways, by one kernel, whose last workgroup merges."""
    a, b, c, x, y = "tensor<13x?xf32>", "tensor<?x21xf32>", "tensor<13x21xf32>", "tensor<13x700xf32>", "tensor<700x21xf32>"
    text = f"""func.func @f(%a: {a}, %b: {b}, %c: {c}, %x: {x}, %y: {y}) -> ({c}, {c}) {{
      %0 = linalg.matmul {{treadle.split_reduction = #dispatch.split<r0 = "min(6, r0 // 32)" step 16>}} ins(%a, %b : {a}, {b})
        outs(%c : {c}) -> {c}
      %1 = linalg.matmul {{treadle.split_reduction = #dispatch.split<r0 = "5" step 16, merge = last>}} ins(%x, %y : {x}, {y})
        outs(%c : {c}) -> {c}
      return %0, %1 : {c}, {c}
    }}"""
    program = treadle.compile(text, target="sim")
    assert [launch.kernel for launch in program.manifest.launches].count("f_k2_merged") == 2
    for k in (1, 64, 517):
        arrays = [RNG.standard_normal(s).astype(np.float32) for s in ((13, k), (k, 21), (13, 21), (13, 700), (700, 21))]
        for found, wanted in zip(program(*arrays), program.reference(*arrays), strict=True):
            assert (verdict := check(np.asarray(found), wanted)).ok, verdict


def test_a_result_that_keeps_the_reduced_axis_is_not_split() -> None:
    """Its map has a constant: refused at its line, as it is where it would not have been split."""
    text = """
    func.func @main(%a: tensor<?x?x?xf32>, %out: tensor<?x1x?xf32>) -> tensor<?x1x?xf32> {
      %sums = linalg.generic {
          indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, 0, d2)>],
          iterator_types = ["parallel", "reduction", "parallel"]}
          ins(%a : tensor<?x?x?xf32>) outs(%out : tensor<?x1x?xf32>) {
        ^bb0(%x: f32, %sum: f32):
          %next = arith.addf %x, %sum : f32
          linalg.yield %next : f32
      } -> tensor<?x1x?xf32>
      return %sums : tensor<?x1x?xf32>
    }
    """
    with pytest.raises(TreadleError, match="TR301"):
        treadle.compile(text, "sim")
