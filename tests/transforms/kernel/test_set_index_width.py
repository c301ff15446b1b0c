"""set-index-width and set-size-bounds: which kernels have 64-bit indices, what is checked of runtime sizes, and that 32 bits are enough."""

import random

import pytest
from targets.addresses import kernels_of, lowered
from targets.simt.test_wide_indices_on_host import MATMUL, elementwise, reduction

from treadle.analysis.index_bounds import Bound, IndexBounds, exactly, up_to
from treadle.dialects import dispatch, pipe, tile
from treadle.errors import TreadleError
from treadle.frontends import mlir
from treadle.ir.core import BlockArgument, OpResult, SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.plan import expr
from treadle.plan.expr import constant, maximum, symbol
from treadle.plan.index_range import INDEX_LIMIT, SIZE_LIMIT
from treadle.remarks import collect_remarks


def decided(text: str, target: str = "sm_90a", bits: int = 32, split: str = "off") -> tuple[list[int], list[str], list[str]]:
    """Widths of the kernels, the checks, and what the pass says. `split`: of reductions, as in `CompileOptions`."""
    module = mlir.load(text + "\n")
    with collect_remarks() as log:
        lower(module, target_spec(target), CompileOptions(index_bits=bits, split_reduction=split), until="tile")
    checks = [f"{op.left.data} <= {op.right.data}" for op in module.walk() if isinstance(op, dispatch.CheckOp) and op.index_range]
    widths = [kernel.index_width() for kernel in kernels_of(module)]
    return widths, checks, [r.text for r in log.remarks if r.pass_name == "set-index-width"]


@pytest.mark.parametrize(
    ("text", "width"),
    [
        (elementwise((1000, 1001), "f32", [(0, 1)], [None]), 32),
        (elementwise((SIZE_LIMIT,), "i8", [(0,)], [None]), 32),
        (elementwise((SIZE_LIMIT + 1,), "i8", [(0,)], [None]), 64),
        (elementwise((1 << 16, 1 << 15), "i8", [(0, 1)], [None]), 64),  # walked as one axis
        (elementwise((1 << 16, 1 << 15), "i8", [(0, 1), (1, 0)], [None, None]), 32),  # walked as two
        (reduction(4, 3 * 10**9, "i8"), 64),
        (reduction(1 << 20, 1 << 14, "i8"), 32),
        (MATMUL.format(m=70000, n=40000, k=8), 32),
        (MATMUL.format(m=16, n=24, k=1 << 31), 64),
        (MATMUL.format(m=1 << 32, n=24, k=16), 64),
    ],
)
@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_static_sizes(text: str, width: int, target: str) -> None:
    widths, checks, said = decided(text, target)
    assert widths == [width]
    assert not checks
    assert len(said) == (width == 64)


def test_static_sizes_are_left_alone_whatever_the_option() -> None:
    assert decided(elementwise((1000, 1001), "f32", [(0, 1)], [None]), bits=64) == ([32], [], [])


@pytest.mark.parametrize("parts", [2, 7, 264])
@pytest.mark.parametrize("columns", [1 << 20, SIZE_LIMIT // 4, SIZE_LIMIT, SIZE_LIMIT + 1, 3 * 10**9])
def test_parts_of_a_split_reduction(columns: int, parts: int) -> None:
    """Which elements a part has takes no wider indices than walking over all of them does; the merge walks over few."""
    text = reduction(1, columns, "i8")
    (whole,) = decided(text)[0]
    assert decided(text, split=str(parts))[0] == [whole, 32]


def test_runtime_sizes() -> None:
    text = elementwise((5, 7), "f32", [(0, 1)], [None], dynamic=True)
    widths, checks, said = decided(text)
    assert widths == [32]
    assert checks == [f"{e} <= {SIZE_LIMIT}" for e in ("s0", "s0 * s1", "s1")]
    assert len(said) == 1
    widths, checks, said = decided(text, bits=64)
    assert (widths, checks) == ([64], [])
    assert said == ["64-bit indices: sizes that the runtime gives may be of any value"]


def test_strides_of_three_dimensions_are_checked() -> None:
    """The stride of the first dimension is a product of sizes, and a larger number than any of them."""
    _, checks, _ = decided(elementwise((5, 7, 9), "f32", [(0, 1, 2), (2, 1, 0)], [None, None], dynamic=True))
    assert any("s1 * s2" in check for check in checks)


INDEXED = """func.func @f(%a: tensor<{m}x{n}xi64>) -> tensor<{m}x{n}xi64> {{
  %e = tensor.empty({sizes}) : tensor<{m}x{n}xi64>
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%a : tensor<{m}x{n}xi64>) outs(%e : tensor<{m}x{n}xi64>) {{
  ^bb0(%x: i64, %o: i64):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    {body}
    %s = arith.index_cast %q : index to i64
    %t = arith.addi %s, %x : i64
    linalg.yield %t : i64 }} -> tensor<{m}x{n}xi64>
  return %r : tensor<{m}x{n}xi64>
}}"""
PLUS = "%c = arith.constant {c} : index\n %p = arith.muli %i, %c : index\n %q = arith.addi %p, %j : index"


@pytest.mark.parametrize(
    ("body", "width"),
    [
        (PLUS.format(c=1000), 32),
        (PLUS.format(c=3 * 10**6), 64),  # 1000 * 3 000 000
        (PLUS.format(c=2146000), 32),
        ("%q = arith.subi %i, %j : index", 32),
        ("%q = arith.index_cast %x : i64 to index", 64),
        ("%y = arith.trunci %x : i64 to i32\n %q = arith.index_cast %y : i32 to index", 32),
        (PLUS.format(c=1 << 62), 64),  # wraps as it does in 64 bits
        ("%y = arith.trunci %x : i64 to i32\n %z = arith.index_cast %y : i32 to index\n %q = arith.addi %z, %i : index", 64),
    ],
)
def test_index_arithmetic_of_bodies(body: str, width: int) -> None:
    widths, checks, _ = decided(INDEXED.format(m=1000, n=77, sizes="", body=body))
    assert widths == [width]
    assert not checks


def test_index_arithmetic_of_runtime_sizes() -> None:
    sizes = "%m, %n"
    text = INDEXED.format(m="?", n="?", sizes=sizes, body=PLUS.format(c=1000)).replace(
        "  %e =",
        "  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n  %m = tensor.dim %a, %c0 : tensor<?x?xi64>\n"
        "  %n = tensor.dim %a, %c1 : tensor<?x?xi64>\n  %e =",
        1,
    )
    _, checks, _ = decided(text)
    assert f"1000 * s0 + s1 <= {INDEX_LIMIT}" in checks


def test_sizes_beyond_64_bits() -> None:
    broadcast = elementwise((1 << 40, 1 << 40), "i8", [(0,)], [None])
    with pytest.raises(TreadleError) as caught:
        decided(broadcast)
    assert caught.value.code == "TR204"
    with pytest.raises(TreadleError) as caught:
        decided(MATMUL.format(m=1 << 44, n=1 << 20, k=4))
    assert caught.value.code == "TR204"
    summed = f"""func.func @f(%a: tensor<{1 << 60}xi8>, %b: tensor<{1 << 60}xi8>) -> tensor<i8> {{
      %z = arith.constant 0 : i8
      %e = tensor.empty() : tensor<i8>
      %i = linalg.fill ins(%z : i8) outs(%e : tensor<i8>) -> tensor<i8>
      %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> ()>],
        iterator_types = ["reduction", "reduction"]}} ins(%a, %b : tensor<{1 << 60}xi8>, tensor<{1 << 60}xi8>) outs(%i : tensor<i8>) {{
      ^bb0(%x: i8, %y: i8, %s: i8):
        %p = arith.muli %x, %y : i8
        %t = arith.addi %s, %p : i8
        linalg.yield %t : i8 }} -> tensor<i8>
      return %r : tensor<i8>
    }}"""
    assert decided(summed)[0] == [64]  # two loops, each within 64 bits
    assert decided(summed, split="264")[0] == [64, 32]  # where a part begins is computed within 64 bits too
    with pytest.raises(TreadleError) as caught:  # nothing steps along either: they are one
        decided(
            summed.replace(f"tensor<{1 << 60}xi8>,", f"tensor<{1 << 60}xi8> {{treadle.strides = array<i64: 0>}},", 1).replace(
                f"%b: tensor<{1 << 60}xi8>", f"%b: tensor<{1 << 60}xi8> {{treadle.strides = array<i64: 0>}}"
            )
        )
    assert caught.value.code == "TR303"


def test_descriptors_hold_what_they_are_given() -> None:
    """Bulk copies reach 2^31 elements along a dimension: beyond it, and where only the runtime knows, the threads copy."""

    def copies(text: str, bits: int = 32) -> set[int]:
        """Numbers of the kernel's pointers that descriptor copies go to or from."""
        (kernel,) = kernels_of(lowered(text, "sm_90a", CompileOptions(index_bits=bits, split_reduction="off")))
        bulk = [op for op in kernel.body.walk() if isinstance(op, tile.CopyOp | tile.CopyOutOp) and op.path.data == "bulk_tensor"]
        views = [op.view.owner for op in bulk]
        return {view.pointer.index for view in views if isinstance(view, tile.ViewOp) and isinstance(view.pointer, BlockArgument)}

    plain = MATMUL.format(m=4096, n=4096, k=4096)
    assert copies(plain) == {0, 1, 2}
    assert copies(MATMUL.format(m=70000, n=40000, k=64)) == {0, 1, 2}
    assert copies(MATMUL.format(m=1 << 32, n=4096, k=64)) == {1}
    assert copies(MATMUL.format(m=128, n=4096, k=1 << 32)) == {2}
    far = plain.replace("%a: tensor<4096x4096xf16>", "%a: tensor<4096x4096xf16> {treadle.strides = array<i64: 549755813888, 1>}")
    assert copies(far.replace("549755813888", "274877906944")) == {0, 1, 2}  # 2^38 elements: 2^39 bytes
    assert copies(far) == {1, 2}  # threads copy A into the ring
    sizes = "{treadle.strides = array<i64: -9223372036854775808, 1>, treadle.stride_divisor = 8 : i64}"
    runtime = RUNTIME_MATMUL.replace("xf16>,", f"xf16> {sizes},", 1).replace("xf16>)", f"xf16> {sizes})", 1)
    assert copies(runtime) == {0, 1}
    assert copies(runtime, 64) == set()


RUNTIME_MATMUL = MATMUL.format(m="?", n="?", k="?").replace(
    "  %e = tensor.empty()",
    "  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n  %m = tensor.dim %a, %c0 : tensor<?x?xf16>\n"
    "  %n = tensor.dim %b, %c1 : tensor<?x?xf16>\n  %e = tensor.empty(%m, %n)",
    1,
)


def fits(bound: Bound | None, env: dict[str, int], limit: int) -> bool:
    return bound is None or max(bound.negative.evaluate(env), bound.positive.evaluate(env)) <= limit


def bounds_in(kernel: tile.KernelOp) -> IndexBounds:
    """Bounds of the index values of a final tile program; what loops carry is known where each step makes it anew."""
    symbols = kernel.symbol_names()
    first = len(kernel.body.block.args) - len(symbols)
    grid = [expr.parse(text) for text in kernel.grid_text()]

    def leaf(value: SSAValue) -> Bound | None:
        op = value.owner
        if isinstance(op, tile.ProgramIdOp):
            return up_to(grid[op.axis.value.data])
        if isinstance(op, pipe.GroupIdOp | pipe.ClusterRankOp):
            return up_to(constant(16))
        if isinstance(op, scf.ForOp) and isinstance(value, OpResult) and (end := op.body.block.last_op) is not None:
            before, after = bounds.of(op.iter_args[value.index]), bounds.of(end.operands[value.index])
            if before is not None and after is not None:
                return Bound(maximum(before.negative, after.negative), maximum(before.positive, after.positive))
        if not isinstance(value, BlockArgument):
            return None
        loop = value.block.parent_op()
        if loop is kernel:
            return exactly(symbol(symbols[value.index - first]))
        if isinstance(loop, scf.ForOp) and value.index == 0:
            lower, upper, step = (bounds.of(v) for v in (loop.lb, loop.ub, loop.step))
            if lower is not None and upper is not None and step is not None:
                return Bound(lower.negative, lower.positive + upper.positive + step.positive)
        return None

    bounds = IndexBounds(leaf)
    return bounds


def programs(rng: random.Random) -> tuple[str, str, list[tuple[int, ...]]]:
    """A program of runtime sizes, its target, and shapes at the edge of what its checks may allow."""
    target = rng.choice(["sm_90a", "gfx942", "gfx1100"])
    big = SIZE_LIMIT - rng.choice([0, 1, 127, 4096])
    if rng.random() < 0.5:
        rank = rng.randint(1, 3)
        shape = [1] * rank
        shape[rng.randrange(rank)] = big
        text = elementwise((2,) * rank, rng.choice(["i8", "f32"]), [tuple(range(rank)), tuple(reversed(range(rank)))], [None] * 2, True)
        return text, target, [tuple(shape), tuple(reversed(shape))]
    m, n, k = (rng.choice([1, 16, 1000]) for _ in range(3))
    m, n, k = rng.choice([(big, n, k), (m, big, k), (m, n, big), (46000, 46000, k)])
    return RUNTIME_MATMUL, target, [(m, k), (k, n)]


@pytest.mark.parametrize("seed", range(16))
def test_no_index_of_the_final_program_leaves_its_width(seed: int) -> None:
    """Whatever the passes behind the decision add (steps ahead, rings, boxes) stays within the headroom that it leaves."""
    text, target, shapes = programs(random.Random(seed))
    module = lowered(text, target, CompileOptions(split_reduction="off"))
    (program,) = [op for op in module.body.block.ops if isinstance(op, dispatch.ProgramOp)]
    env = {name: shapes[number][axis] for name, (number, axis) in program.dim_sources().items()}
    assert all(
        expr.parse(op.left.data).evaluate(env) <= int(op.right.data)
        for op in program.body.block.ops
        if isinstance(op, dispatch.CheckOp) and op.index_range is not None
    )
    (kernel,) = kernels_of(module)
    (launch,) = [op for op in program.body.block.ops if isinstance(op, dispatch.LaunchOp)]
    sizes = {name: expr.parse(value).evaluate(env) for name, value in launch.symbol_values().items()}
    bounds = bounds_in(kernel)
    assert kernel.index_width() == 32
    values = [result for op in kernel.body.walk() for result in op.results if isinstance(result.type, builtin.IndexType)]
    known = [bounds.of(value) for value in values]
    assert all(fits(bound, sizes, INDEX_LIMIT) for bound in known)
    assert sum(bound is not None for bound in known) > len(known) * 2 // 3
