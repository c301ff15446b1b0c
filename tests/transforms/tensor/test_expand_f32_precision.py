"""Contractions of f32 as contractions of parts: the arrays that are made, what is left alone, and how exact the results are."""

import numpy as np
import pytest

from treadle import driver
from treadle.analysis.operation_marks import F32_PARTS, F32_SPLIT_IN
from treadle.bench.texts import Function
from treadle.dialects import dispatch
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin, linalg
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions, Precision
from treadle.pipelines import tensor_passes
from treadle.plan.expr import as_expr
from treadle.remarks import collect_remarks
from treadle.sim.check import check
from treadle.transforms.tensor.expand_f32_precision import NAME
from treadle.transforms.tensor.set_f32_split import NAME as DECIDED

BIG = (771, 1025, 1201)
"""M, N, K: large enough for parts to pay on sm_90a, and a multiple of nothing."""
SCHEMES: dict[Precision, tuple[float, float]] = {"tf32": (1e-5, 1e-3), "bf16x3": (1e-7, 2e-5), "3xtf32": (0, 1e-6), "bf16x6": (0, 1e-6)}
"""Smallest and largest error, over the largest result, that N(0, 1) operands of that size may give."""


def matmul(m: int, n: int, k: int, *, transposed: bool = True, dtype: str = "f32") -> str:
    f = Function("matmul")
    x, w = f.argument("x", (m, k), dtype), f.argument("w", (n, k) if transposed else (k, n), dtype)
    return f.text(f.contract("mk,nk->mn" if transposed else "mk,kn->mn", x, w))


def lowered(
    text: str, precision: Precision = "3xtf32", target: str = "sm_90a", place: str = "memory"
) -> tuple[builtin.ModuleOp, list[str]]:
    """Tensor level to dispatch level; `place`: where the contraction's operands are split, the compiler's choice where it is empty."""
    asked = f'linalg.generic {{{F32_SPLIT_IN} = "{place}", ' if place and "bf16>" not in text else "linalg.generic {"
    module = parse_module(text.replace("linalg.generic {", asked), "test.mlir")
    with collect_remarks() as log:
        run_passes(module, tensor_passes(target_spec(target), CompileOptions(f32_precision=precision, split_reduction="off")))
    return module, [f"{r.kind}: {r.text}" for r in log.remarks if r.pass_name in (NAME, DECIDED)]


def expanded(module: builtin.ModuleOp) -> list[Operation]:
    return [op for op in module.walk() if isinstance(op, linalg.ops.GenericOp) and F32_PARTS in op.attributes]


def launches(module: builtin.ModuleOp) -> list[dispatch.LaunchOp]:
    return [op for op in module.walk() if isinstance(op, dispatch.LaunchOp)]


def kernel_of(module: builtin.ModuleOp, op: Operation) -> dispatch.KernelOp:
    parent = op.parent_op()
    assert isinstance(parent, dispatch.KernelOp)
    return parent


@pytest.mark.parametrize(("precision", "count", "size"), [("3xtf32", 3, 4), ("bf16x3", 3, 2), ("bf16x6", 6, 2)])
@pytest.mark.parametrize("transposed", [True, False])
def test_parts_lie_side_by_side_along_k(precision: Precision, count: int, size: int, transposed: bool) -> None:
    """Two kernels split, one multiplies; rows start on 16 bytes though K is odd, whatever the order of the operand was."""
    m, n, k = BIG
    module, remarks = lowered(matmul(m, n, k, transposed=transposed), precision)
    (contraction,) = expanded(module)
    kernel = kernel_of(module, contraction)
    pitch = -(-count * k * size // 16) * 16 // size
    assert dispatch.text_lists(kernel.arg_shapes) == ((str(m), str(count * k)), (str(n), str(count * k)))
    assert dispatch.text_lists(kernel.arg_strides) == ((str(pitch), "1"), (str(pitch), "1"))
    assert len(launches(module)) == 3
    assert remarks[0].startswith(f"decision: f32_precision={precision}: {count} products")


def test_sizes_of_the_run_time() -> None:
    text = matmul(*BIG).replace("771x", "?x").replace("1201x", "?x").replace("x1201", "x?")
    text = text.replace("tensor.empty() : tensor<?x1025xf32>", "tensor.empty(%m) : tensor<?x1025xf32>").replace(
        "{\n", "{\n  %c0 = arith.constant 0 : index\n  %m = tensor.dim %x, %c0 : tensor<?x?xf32>\n", 1
    )
    module, _ = lowered(text)
    (contraction,) = expanded(module)
    strides = dispatch.text_lists(kernel_of(module, contraction).arg_strides)
    assert [row[1] for row in strides] == ["1", "1"] and all(as_expr(row[0]).divisor() == 4 for row in strides)
    assert len(launches(module)) == 3


def test_a_shared_operand_is_split_once() -> None:
    m, n, k = BIG
    f = Function("two")
    x, w, v = f.argument("x", (m, k), "f32"), f.argument("w", (n, k), "f32"), f.argument("v", (n, k), "f32")
    module, _ = lowered(f.text(f.contract("mk,nk->mn", x, w), f.contract("mk,nk->mn", x, v)))
    origins = [str(kernel_named(module, op).attributes.get("origin")) for op in launches(module)]
    assert sum("f32_parts" in origin for origin in origins) == 3  # x, w and v


def kernel_named(module: builtin.ModuleOp, launch: dispatch.LaunchOp) -> dispatch.KernelOp:
    name = launch.kernel.string_value()
    return next(op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp) and op.sym_name.data == name)


@pytest.mark.parametrize(
    ("text", "target", "reason"),
    [
        (matmul(33, 17, 45), "sm_90a", "are modelled"),
        (matmul(1, 4096, 4096), "sm_90a", "are modelled"),
        (matmul(*BIG), "gfx942", "gfx942 has no matrix instruction for tf32"),
        (matmul(1024, 1024, 512, dtype="bf16"), "sm_90a", ""),
    ],
)
def test_leaves_alone(text: str, target: str, reason: str) -> None:
    module, remarks = lowered(text, target=target)
    assert expanded(module) == [] and len(launches(module)) == 1
    assert [reason in remark and remark.startswith("refusal") for remark in remarks] == ([True] if reason else [])


def test_nothing_is_expanded_unless_asked_for() -> None:
    assert expanded(lowered(matmul(*BIG), "tf32")[0]) == expanded(lowered(matmul(*BIG), "ieee")[0]) == []


@pytest.mark.parametrize("precision", SCHEMES)
def test_errors(precision: Precision) -> None:
    """Against float64, as the simulator computes it: f32 sums, parts as the machine takes them."""
    m, n, k = BIG
    random = np.random.default_rng(1)
    x, w = random.standard_normal((m, k), dtype=np.float32), random.standard_normal((k, n), dtype=np.float32)
    program = driver.compile(matmul(m, n, k, transposed=False), target="sim", options=CompileOptions(f32_precision=precision))
    (got,) = program(x, w)
    want = x.astype(np.float64) @ w.astype(np.float64)
    least, most = SCHEMES[precision]
    assert least <= np.abs(got - want).max() / np.abs(want).max() <= most
    assert check(got, program.reference(x, w)[0]).ok


def test_values_of_every_size() -> None:
    """Rows scaled from 2^-60 to 2^60: errors stay relative to each row; NaN stays NaN."""
    m, n, k = BIG
    random = np.random.default_rng(2)
    scale = np.exp2(np.linspace(-60, 60, m)).astype(np.float32)[:, None]
    x, w = random.standard_normal((m, k), dtype=np.float32) * scale, random.standard_normal((n, k), dtype=np.float32)
    x[5, 7] = np.nan
    program = driver.compile(matmul(m, n, k), target="sim", options=CompileOptions(f32_precision="3xtf32"))
    (got,) = program(x, w)
    want = x.astype(np.float64) @ w.astype(np.float64).T
    assert np.isnan(got[5]).all() and not np.isnan(np.delete(got, 5, 0)).any()
    finite = np.delete(np.arange(m), 5)
    relative = np.abs(got - want)[finite].max(axis=1) / np.abs(want[finite]).max(axis=1)
    assert relative.max() < 1e-6
