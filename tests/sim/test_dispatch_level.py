"""Chains of roots in one `dispatch.kernel`: stated, verified, evaluated, built where they are attention, and else refused by name."""

import numpy as np
import pytest

from treadle.dialects import dispatch
from treadle.errors import TreadleError
from treadle.ir.core import VerifyException
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tile_passes
from treadle.sim.dispatch_level import evaluate_dispatches, evaluate_kernel
from treadle.sim.program import SimProgram

RANDOM = np.random.default_rng(11)
QUERIES, KEYS, DEPTH = 5, 7, 3


def generic(name: str, maps: str, ins: str, out: str, body: str, *, root: bool) -> str:
    """`name` = a generic over letters: "mk,nk->mn"; letters that the result lacks are reduced. `ins`, `out`: "%a, %b : types"."""
    read, written = maps.split("->")
    letters = written + "".join(sorted(set(read) - set(written) - {","}))
    attributes = ", ".join(f"affine_map<({', '.join(letters)}) -> ({', '.join(one)})>" for one in (*read.split(","), written))
    kinds = ", ".join('"parallel"' if letter in written else '"reduction"' for letter in letters)
    mark = ", dispatch.root" if root else ""
    result = out.split(" : ")[1]
    return f"""
    {name} = linalg.generic {{indexing_maps = [{attributes}], iterator_types = [{kinds}]{mark}}} ins({ins}) outs({out}) {{
    {body} }} -> {result}"""


PRODUCT = "^bb0(%x: f32, %y: f32, %o: f32):\n %prod = arith.mulf %x, %y : f32\n %w = arith.addf %o, %prod : f32\n linalg.yield %w : f32"
MAXIMUM = "^bb0(%x: f32, %o: f32):\n %t = arith.maximumf %x, %o : f32\n linalg.yield %t : f32"
SUM = "^bb0(%x: f32, %o: f32):\n %t = arith.addf %x, %o : f32\n linalg.yield %t : f32"
SHIFTED = "^bb0(%x: f32, %top: f32, %o: f32):\n %d = arith.subf %x, %top : f32\n %t = math.exp %d : f32\n linalg.yield %t : f32"
DIVIDED = "^bb0(%x: f32, %y: f32, %o: f32):\n %t = arith.divf %x, %y : f32\n linalg.yield %t : f32"


def attention(*, marked: bool = True) -> str:
    """softmax(Q K^T) V as one kernel around four roots."""
    q, kv, s, row, o = (
        f"tensor<{shape}xf32>"
        for shape in (f"{QUERIES}x{DEPTH}", f"{KEYS}x{DEPTH}", f"{QUERIES}x{KEYS}", f"{QUERIES}", f"{QUERIES}x{DEPTH}")
    )
    lines = [
        "%zero = arith.constant 0.0 : f32\n %low = arith.constant 0xFF800000 : f32",
        f"%es = tensor.empty() : {s}\n %er = tensor.empty() : {row}\n %eo = tensor.empty() : {o}",
        f"%fs = linalg.fill ins(%zero : f32) outs(%es : {s}) -> {s}",
        f"%fm = linalg.fill ins(%low : f32) outs(%er : {row}) -> {row}",
        f"%fl = linalg.fill ins(%zero : f32) outs(%er : {row}) -> {row}",
        f"%fo = linalg.fill ins(%zero : f32) outs(%eo : {o}) -> {o}",
        generic("%s", "md,nd->mn", f"%q, %k : {q}, {kv}", f"%fs : {s}", PRODUCT, root=True),
        generic("%m", "mn->m", f"%s : {s}", f"%fm : {row}", MAXIMUM, root=marked),
        generic("%p", "mn,m->mn", f"%s, %m : {s}, {row}", f"%es : {s}", SHIFTED, root=False),
        generic("%l", "mn->m", f"%p : {s}", f"%fl : {row}", SUM, root=marked),
        generic("%u", "mn,nd->md", f"%p, %v : {s}, {kv}", f"%fo : {o}", PRODUCT, root=marked),
        generic("%r", "md,m->md", f"%u, %l : {o}, {row}", f"%eo : {o}", DIVIDED, root=False),
    ]
    body = "\n ".join(lines)
    query, key, steps = f'["{QUERIES}", "{DEPTH}"]', f'["{KEYS}", "{DEPTH}"]', f'["{DEPTH}", "1"]'
    memory = "!dispatch.buffer<f32>"
    views = f"shape {query} strides {steps}", f"shape {key} strides {steps}"
    return f"""
dispatch.kernel @attention(%q: {q}, %k: {kv}, %v: {kv}) -> ({o}) attributes {{symbols = [],
    arg_shapes = [{query}, {key}, {key}], arg_strides = [{steps}, {steps}, {steps}], arg_align = array<i64: 16, 16, 16>,
    result_shapes = [{query}], result_strides = [{steps}], result_align = array<i64: 256>}} {{
 {body}
 dispatch.yield %r : {o}
}}
dispatch.program @f attributes {{dims = {{}}}} {{
  %a = dispatch.input 0 "q" {views[0]} align 16 : !dispatch.buffer<f32>
  %b = dispatch.input 1 "k" {views[1]} align 16 : !dispatch.buffer<f32>
  %c = dispatch.input 2 "v" {views[1]} align 16 : !dispatch.buffer<f32>
  %o = dispatch.alloc {query} : !dispatch.buffer<f32>
  dispatch.launch @attention(%a, %b, %c : {memory}, {memory}, {memory}) -> (%o : {memory}) symbols {{}}
  dispatch.return %o : !dispatch.buffer<f32>
}}"""


def arrays() -> list[np.ndarray]:
    return [RANDOM.standard_normal(shape).astype(np.float32) for shape in ((QUERIES, DEPTH), (KEYS, DEPTH), (KEYS, DEPTH))]


def test_a_chain_is_stated_and_evaluated() -> None:
    module = parse_module(attention(), "test.mlir")
    assert print_module(parse_module(print_module(module), "again.mlir")) == print_module(module)
    q, k, v = arrays()
    scores = q.astype(np.float64) @ k.T.astype(np.float64)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights @ v / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(evaluate_dispatches(module, [q, k, v])[0], expected, rtol=1e-12)
    kernel = next(op for op in module.walk() if isinstance(op, dispatch.KernelOp))
    np.testing.assert_allclose(evaluate_kernel(kernel, [q, k, v])[0].value, expected, rtol=1e-12)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
def test_no_kernel_is_built_where_operations_are_no_roots(target: str) -> None:
    module = parse_module(attention(marked=False), "test.mlir")
    message = r"TR304: dispatch.kernel 'attention' cannot be one kernel: 'reduction': it is a reduction or contraction itself"
    with pytest.raises(TreadleError, match=message) as caught:
        run_passes(module, tile_passes(target_spec(target), CompileOptions()))
    assert caught.value.location is not None
    line = attention(marked=False).splitlines()[caught.value.location.line - 1]
    assert "%m = linalg.generic" in line


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
def test_a_kernel_of_f32_is_built(target: str) -> None:
    """What no pass would form of f32, a kernel that is stated so may be: the vector units compute it."""
    module = parse_module(attention(), "test.mlir")
    run_passes(module, tile_passes(target_spec(target), CompileOptions()))
    q, k, v = arrays()
    weights = np.exp(q.astype(np.float64) @ k.T.astype(np.float64))
    np.testing.assert_allclose(SimProgram(module)(q, k, v)[0], weights @ v / weights.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_kernels_without_roots_do_not_verify() -> None:
    text = attention(marked=False).replace(", dispatch.root", "")
    with pytest.raises(TreadleError, match=r"has no operation with dispatch.root"):
        parse_module(text, "test.mlir")
    module = parse_module(attention(), "test.mlir")
    fill = next(op for op in module.walk() if op.name == "linalg.fill")
    fill.attributes[dispatch.ROOT] = next(op for op in module.walk() if dispatch.ROOT in op.attributes).attributes[dispatch.ROOT]
    with pytest.raises(VerifyException, match=r"found on linalg.fill"):
        module.verify()


def test_arrays_of_other_shapes_are_refused() -> None:
    q, k, v = arrays()
    with pytest.raises(TreadleError, match="TR723"):
        evaluate_dispatches(parse_module(attention(), "test.mlir"), [q, k[1:], v])
