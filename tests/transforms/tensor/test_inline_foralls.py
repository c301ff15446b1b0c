"""inline-foralls: loops over blocks, nested ones too, give what they say; what cannot be a kernel is refused at its line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treadle
from treadle import pipelines
from treadle.dialects import dispatch
from treadle.errors import TreadleError
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.sim.check import check
from treadle.sim.dispatch_level import evaluate_dispatches

RNG = np.random.default_rng(11)


def rows_in_tiles(rows: int, columns: int, step: int, mapping: str = "#gpu.block<x>") -> str:
    """Twice x, in tiles of `step` rows, the last one ragged."""
    count, t = -(-rows // step), f"tensor<{rows}x{columns}xf32>"
    return f"""func.func @f(%x: {t}) -> {t} {{
      %e = tensor.empty() : {t}
      %r = scf.forall (%p) in ({count}) shared_outs(%o = %e) -> ({t}) {{
        %s = affine.apply affine_map<(d0) -> (d0 * {step})>(%p)
        %n = affine.min affine_map<(d0) -> (d0 * -{step} + {rows}, {step})>(%p)
        %a = tensor.extract_slice %x[%s, 0] [%n, {columns}] [1, 1] : {t} to tensor<?x{columns}xf32>
        %d = tensor.extract_slice %o[%s, 0] [%n, {columns}] [1, 1] : {t} to tensor<?x{columns}xf32>
        %b = linalg.add ins(%a, %a : tensor<?x{columns}xf32>, tensor<?x{columns}xf32>)
          outs(%d : tensor<?x{columns}xf32>) -> tensor<?x{columns}xf32>
        scf.forall.in_parallel {{
          tensor.parallel_insert_slice %b into %o[%s, 0] [%n, {columns}] [1, 1] : tensor<?x{columns}xf32> into {t}
        }}
      }} {{mapping = [{mapping}]}}
      return %r : {t}
    }}"""


def split_and_tiled(m: int, n: int, k: int, step_m: int, step_k: int) -> str:
    """Partial products: an outer loop over parts of k on z, an inner one over tiles of m on y."""
    parts = -(-k // step_k)
    a, b, whole, part = f"tensor<{m}x{k}xf32>", f"tensor<{k}x{n}xf32>", f"tensor<{parts}x{m}x{n}xf32>", f"tensor<{m}x{n}xf32>"
    return f"""func.func @f(%a: {a}, %b: {b}) -> {whole} {{
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : {whole}
      %r = scf.forall (%p) in ({parts}) shared_outs(%o = %e) -> ({whole}) {{
        %s = affine.apply affine_map<(d0) -> (d0 * {step_k})>(%p)
        %l = affine.min affine_map<(d0) -> (d0 * -{step_k} + {k}, {step_k})>(%p)
        %w = tensor.extract_slice %o[%p, 0, 0] [1, {m}, {n}] [1, 1, 1] : {whole} to {part}
        %i = scf.forall (%q) = (0) to ({m}) step ({step_m}) shared_outs(%u = %w) -> ({part}) {{
          %h = affine.min affine_map<(d0) -> (-d0 + {m}, {step_m})>(%q)
          %x = tensor.extract_slice %a[%q, %s] [%h, %l] [1, 1] : {a} to tensor<?x?xf32>
          %y = tensor.extract_slice %b[%s, 0] [%l, {n}] [1, 1] : {b} to tensor<?x{n}xf32>
          %d = tensor.extract_slice %u[%q, 0] [%h, {n}] [1, 1] : {part} to tensor<?x{n}xf32>
          %f = linalg.fill ins(%zero : f32) outs(%d : tensor<?x{n}xf32>) -> tensor<?x{n}xf32>
          %c = linalg.matmul ins(%x, %y : tensor<?x?xf32>, tensor<?x{n}xf32>) outs(%f : tensor<?x{n}xf32>) -> tensor<?x{n}xf32>
          scf.forall.in_parallel {{
            tensor.parallel_insert_slice %c into %u[%q, 0] [%h, {n}] [1, 1] : tensor<?x{n}xf32> into {part}
          }}
        }} {{mapping = [#gpu.block<y>]}}
        scf.forall.in_parallel {{
          tensor.parallel_insert_slice %i into %o[%p, 0, 0] [1, {m}, {n}] [1, 1, 1] : {part} into {whole}
        }}
      }} {{mapping = [#gpu.block<z>]}}
      return %r : {whole}
    }}"""


def run(text: str, *arrays: np.ndarray) -> None:
    """At dispatch level and on the simulator: what the reference says, within its bounds."""
    program = treadle.compile(text, target="sim")
    wanted = program.reference(*arrays)
    for found, want in zip(program(*arrays), wanted, strict=True):
        assert (verdict := check(np.asarray(found), want)).ok, verdict
    module = parse_module(text, "text")
    run_passes(module, pipelines.tensor_passes())
    for found, want in zip(evaluate_dispatches(module, arrays), wanted, strict=True):
        np.testing.assert_allclose(found, want.value, rtol=1e-9, atol=1e-9)


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 40))
def test_tiles_of_rows(rows: int, columns: int, step: int) -> None:
    run(rows_in_tiles(rows, columns, step), RNG.standard_normal((rows, columns)).astype(np.float32))


@settings(max_examples=4, deadline=None)
@given(st.integers(1, 50), st.integers(1, 40), st.integers(1, 90), st.integers(1, 50), st.integers(1, 90))
def test_nested_loops(m: int, n: int, k: int, step_m: int, step_k: int) -> None:
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    run(split_and_tiled(m, n, k, step_m, step_k), a, b)


def test_nested_loops_are_one_kernel_over_both_indices() -> None:
    module = parse_module(split_and_tiled(13, 7, 33, 5, 10), "text")
    run_passes(module, pipelines.tensor_passes())
    (kernel,) = [op for op in module.walk() if isinstance(op, dispatch.KernelOp)]
    assert list(kernel.blocks.items()) == [("p0", "4"), ("p1", "3")]


def test_grid_from_runtime_sizes() -> None:
    text = (
        rows_in_tiles(37, 20, 8)
        .replace("37x20", "?x?")
        .replace("x20x", "x?x")
        .replace("in (5)", "in (%count)")
        .replace(
            "%e = tensor.empty() : tensor<?x?xf32>",
            """%c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %m = tensor.dim %x, %c0 : tensor<?x?xf32>
      %k = tensor.dim %x, %c1 : tensor<?x?xf32>
      %count = affine.apply affine_map<(d0) -> (d0 ceildiv 8)>(%m)
      %e = tensor.empty(%m, %k) : tensor<?x?xf32>""",
        )
        .replace("affine_map<(d0) -> (d0 * -8 + 37, 8)>(%p)", "affine_map<(d0)[s0] -> (d0 * -8 + s0, 8)>(%p)[%m]")
        .replace("[%n, 20]", "[%n, %k]")
    )
    program = treadle.compile(text, target="sim")
    for rows, columns in ((37, 20), (1, 1), (8, 33), (9, 2), (64, 5)):
        x = RNG.standard_normal((rows, columns)).astype(np.float32)
        np.testing.assert_array_equal(program(x)[0], 2 * x)


def test_what_no_block_writes_keeps_its_value() -> None:
    text = rows_in_tiles(37, 20, 8).replace("in (5)", "in (3)").replace("shared_outs(%o = %e)", "shared_outs(%o = %x)")
    x = RNG.standard_normal((37, 20)).astype(np.float32)
    wanted = x.copy()
    wanted[:24] *= 2
    np.testing.assert_array_equal(treadle.compile(text, target="sim")(x)[0], wanted)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (rows_in_tiles(37, 20, 8, "#gpu.thread<x>"), 3, "mapped to #gpu.thread<x>"),
        (rows_in_tiles(37, 20, 8).replace("in (5)", "in (6)"), 6, "negative"),
        (rows_in_tiles(37, 20, 8).replace("(d0 * -8 + 37, 8)", "(d0 * -8 + 38, 8)"), 6, "leaves axis 0"),
    ],
)
def test_refusals_at_their_line(text: str, line: int, words: str) -> None:
    with pytest.raises(TreadleError, match=words) as caught:
        treadle.compile(text, target="sm_90a")
    assert caught.value.location is not None
    assert caught.value.location.line == line
