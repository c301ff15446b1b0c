"""bound-slice-reads: blocks read where their slices lie within what is sliced; what cannot be read so is refused at its line."""

from collections.abc import Sequence

import numpy as np
import pytest
from generators.grouped_contractions import grouped_text, routed_text

import treadle
from treadle.dialects import dispatch
from treadle.errors import TreadleError
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.pipelines import tensor_passes
from treadle.sim.dispatch_level import evaluate_dispatches
from treadle.sim.reference import evaluate_module
from treadle.transforms.tensor.bound_slice_reads import BoundSliceReadsPass
from treadle.transforms.tensor.inline_foralls import InlineForallsPass

ROWS, N, K = 34, 5, 6
TEXT = routed_text(ROWS, 3, N, K, "f32")


def at_dispatch(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "text")
    run_passes(module, tensor_passes())
    return module


def arrays(table: Sequence[object], index: type = np.int32) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    x, w, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((ROWS, K), (3, K, N), (ROWS, N)))
    return [x, w, np.array(table, index), y]


def reading(text: str) -> dispatch.KernelOp:
    (found,) = (op for op in at_dispatch(text).body.block.ops if isinstance(op, dispatch.KernelOp) and op.reads)
    return found


@pytest.mark.parametrize("table", [(0, 1, 20, 34), (3, 3, 3, 20), (0, 34, 34, 34), (7, 7, 7, 7)])
@pytest.mark.parametrize("index", ["i32", "i64"])
def test_groups_are_those_of_the_table(table: Sequence[int], index: str) -> None:
    text, given = routed_text(ROWS, 3, N, K, "f32", index=index), arrays(table, np.int32 if index == "i32" else np.int64)
    (want,) = evaluate_module(parse_module(text, "text"), given)
    (found,) = evaluate_dispatches(at_dispatch(text), given)
    np.testing.assert_allclose(found, want.value, rtol=1e-9, atol=1e-9)


def test_long_lists_of_groups_are_followed_without_recursion() -> None:
    """Where the slices of 1,200 groups begin is one sum over all of them."""
    module = parse_module(grouped_text(tuple(1 + 37 * number % 50 for number in range(1200)), 64, 64, "bf16"), "text")
    run_passes(module, [InlineForallsPass()])
    before = print_module(module)
    run_passes(module, [BoundSliceReadsPass()])
    assert print_module(module) == before, "nothing is read from a tensor"


def test_counts_and_an_epilogue() -> None:
    text = routed_text(ROWS, 3, N, K, "f32", form="counts", epilogue=True)
    given = [*arrays([[20, 0, 3], [10, 3, 17]]), np.array([[1.0], [-2.0], [0.5]], np.float32).repeat(N, 1)]
    (want,) = evaluate_module(parse_module(text, "text"), given)
    (found,) = evaluate_dispatches(at_dispatch(text), given)
    np.testing.assert_allclose(found, want.value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("table", [(-5, 10, 900, 34), (30, 10, 34, 2), (2**31 - 1, -(2**31), 40, 0)])
def test_numbers_that_leave_the_arrays_are_brought_into_them(table: Sequence[int]) -> None:
    given = arrays(table)
    (found,) = evaluate_dispatches(at_dispatch(TEXT), given)
    assert found.shape == (ROWS, N) and np.isfinite(found).all()


def test_the_kernel_says_what_its_blocks_read() -> None:
    kernel = reading(TEXT)
    table = kernel.tensor_count - 1
    bound = str(ROWS)
    assert kernel.reads == {"r0": dispatch.Read(table, ("p0",), bound), "r1": dispatch.Read(table, ("p0 + 1",), bound)}
    assert {name: str(count) for name, count in kernel.ranges.items()} == {"p0": "3", "r0": str(ROWS + 1), "r1": str(ROWS + 1)}
    module = at_dispatch(TEXT)
    assert print_module(parse_module(print_module(module), "again")) == print_module(module)


def test_runtime_sizes() -> None:
    text = TEXT.replace(f"tensor<{ROWS}x", "tensor<?x")
    program = treadle.compile(text, target="sim")
    for rows, table in ((9, (0, 2, 2, 9)), (20, (1, 1, 17, 20))):
        x, w, ends, y = arrays(table)
        x, y = x[:rows], y[:rows]
        (want,) = program.reference(x, w, ends, y)
        np.testing.assert_allclose(program(x, w, ends, y)[0], want.value, rtol=1e-5, atol=1e-5)


def test_what_no_slice_depends_on_is_left_alone() -> None:
    text = """func.func @f(%x: tensor<4x8xf32>, %t: tensor<4xi32>) -> tensor<4x8xf32> {
      %e = tensor.empty() : tensor<4x8xf32>
      %r = scf.forall (%g) in (4) shared_outs(%o = %e) -> (tensor<4x8xf32>) {
        %s = tensor.extract %t[%g] : tensor<4xi32>
        %a = tensor.extract_slice %x[%g, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<8xf32>
        %n = tensor.empty() : tensor<8xf32>
        %b = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
            ins(%a : tensor<8xf32>) outs(%n : tensor<8xf32>) {
        ^bb0(%p: f32, %u: f32):
          %f = arith.sitofp %s : i32 to f32
          %q = arith.addf %p, %f : f32
          linalg.yield %q : f32
        } -> tensor<8xf32>
        scf.forall.in_parallel {
          tensor.parallel_insert_slice %b into %o[%g, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<4x8xf32>
        }
      }
      return %r : tensor<4x8xf32>
    }"""
    module = parse_module(text, "text")
    run_passes(module, (InlineForallsPass(),))
    before = print_module(module)
    run_passes(module, (BoundSliceReadsPass(),))
    assert print_module(module) == before
    x, t = np.ones((4, 8), np.float32), np.array([1, -2, 3, 0], np.int32)
    np.testing.assert_array_equal(treadle.compile(text, target="sim")(x, t)[0], x + t[:, None])


SCALED = "%first = arith.index_cast %s : i32 to index\n    %start = arith.addi %first, %one : index"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("%start = arith.index_cast %s : i32 to index", SCALED, "%a = tensor.extract_slice", "at an offset that is computed from numbers"),
        ("[%count, 6] [1, 1]", "[%count, 6] [%start, 1]", "%a = tensor.extract_slice", "with a step that a tensor gives"),
        ("%table[%next]", "%table[%start]", "%t = tensor.extract", "at a place that a tensor gives"),
        ("x4xi32", "", "", ""),
    ],
)
def test_refusals(old: str, new: str, line: str, message: str) -> None:
    text = TEXT
    if not message:  # a table that is too short
        text, line, message = text.replace("tensor<4xi32>", "tensor<3xi32>"), "%second = arith.index_cast", "is read beyond axis 0"
    elif "%start" in new and "table" in new:
        lines = text.splitlines()
        cast = next(at for at, each in enumerate(lines) if "%start = arith.index_cast" in each)
        lines.insert(cast - 1, lines.pop(cast))
        text = "\n".join(lines).replace(old, new, 1)
    else:
        assert old in text
        text = text.replace(old, new, 1)
    with pytest.raises(TreadleError) as caught:
        treadle.compile(text, target="sim")
    assert message in str(caught.value)
    location = caught.value.location
    assert location is not None and line in text.splitlines()[location.line - 1]


@pytest.mark.parametrize("kind", ["i8", "i16"])
def test_numbers_of_other_types_are_refused(kind: str) -> None:
    with pytest.raises(TreadleError, match=r"TR301: 'tensor\.extract'") as caught:
        treadle.compile(TEXT.replace("4xi32", f"4x{kind}").replace(": i32", f": {kind}"), target="sim")
    assert "i32 or i64" in str(caught.value)


def test_the_result_of_another_kernel_may_be_the_table() -> None:
    """Where groups begin, counted by a reduction ahead of the loop."""
    text = TEXT.replace("%table: tensor<4xi32>", "%raw: tensor<4x8xi32>").replace(
        "  %zero = arith.constant 0 : index\n",
        """  %zero = arith.constant 0 : index
  %nil = arith.constant 0 : i32
  %te = tensor.empty() : tensor<4xi32>
  %tf = linalg.fill ins(%nil : i32) outs(%te : tensor<4xi32>) -> tensor<4xi32>
  %table = linalg.reduce { arith.addi } ins(%raw : tensor<4x8xi32>) outs(%tf : tensor<4xi32>) dimensions = [1]
""",
    )
    raw = np.zeros((4, 8), np.int32)
    raw[:, 1], raw[:, 6] = (0, 4, 4, 9), (1, 1, 10, 20)
    x, w, ends, y = arrays(raw.sum(1))
    program = treadle.compile(text, target="sim")
    (want,) = treadle.compile(TEXT, target="sim").reference(x, w, ends, y)
    np.testing.assert_allclose(program(x, w, raw, y)[0], want.value, rtol=1e-5, atol=1e-5)
