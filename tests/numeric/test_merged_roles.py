"""Kernels of roles whose last workgroup, or cluster, merges the parts of a sum, or each workgroup in its turn: proven for every tiling,
types that results are cast to included.
"""

import pytest

import treadle
from treadle.options import CompileOptions

SHAPES = [(200, 136, 640), (96, 264, 1000)]


def text(m: int, n: int, k: int, element: str, merge: str, parts: int) -> str:
    """A product in parts, cast to a type of 16 bits."""
    a, b, f, c = f"tensor<{m}x{k}x{element}>", f"tensor<{k}x{n}x{element}>", f"tensor<{m}x{n}xf32>", f"tensor<{m}x{n}x{element}>"
    return f"""func.func @f(%a: {a}, %b: {b}) -> {c} {{
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : {f}
      %o = tensor.empty() : {c}
      %s = linalg.fill ins(%zero : f32) outs(%e : {f}) -> {f}
      %p = linalg.matmul {{treadle.split_reduction = #dispatch.split<r0 = "{parts}" step 64, merge = {merge}>}} ins(%a, %b : {a}, {b})
        outs(%s : {f}) -> {f}
      %q = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
          iterator_types = ["parallel", "parallel"]}} ins(%p : {f}) outs(%o : {c}) {{
      ^bb0(%x: f32, %y: {element}):
        %1 = arith.truncf %x : f32 to {element}
        linalg.yield %1 : {element}
      }} -> {c}
      return %q : {c}
    }}"""


@pytest.mark.parametrize(
    ("n", "warpgroups", "merge", "parts"),
    [
        (32, 2, "last", 4),
        (64, 2, "last", 4),
        (64, 1, "last", 3),
        (128, 2, "cluster", 4),
        (112, 2, "cluster", 8),
        (48, 2, "turnstile", 5),
        (128, 1, "turnstile", 3),
    ],
)
def test_tilings_are_proven(n: int, warpgroups: int, merge: str, parts: int) -> None:
    options = CompileOptions(form="roles", tile=(64, n, 64), warps=(4, 1), consumer_warpgroups=warpgroups, num_stages=3)
    m, columns, k = SHAPES[warpgroups - 1]
    program = treadle.compile(text(m, columns, k, ("f16", "bf16")[n % 64 == 0], merge, parts), "sm_90a", options)
    assert "pipe.roles" in program.stages["schedule"]
