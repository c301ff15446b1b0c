"""AMD assembly of a matrix product as Triton makes it, without a GPU: for benchmarks/loop_costs.py, by a Python that has Triton.

    python benchmarks/triton_assembly.py gfx942 f16 2048 4096 1024 nk FOLDER

The kernel is that of Triton's tutorial, without masks: sizes are constants, and multiples of the tile. B is (n, k) for "nk", (k, n) for
"kn". One file a tile; those that do not divide the sizes are left out.
"""

import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TILES = ((128, 128, 32, 4), (128, 128, 64, 4), (256, 128, 64, 8), (256, 256, 64, 8))
"""Rows, columns, the extent along k, and warps."""
ELEMENTS = {"f16": "fp16", "bf16": "bf16"}


@triton.jit
def product(
    a,
    b,
    c,
    m: tl.constexpr,
    n: tl.constexpr,
    k: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    row_step: tl.constexpr,
    column_step: tl.constexpr,
):
    """A tile of the product of `a` and `b`."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    along = tl.arange(0, depth)
    left = a + row[:, None] * k + along[None, :]
    right = b + along[:, None] * row_step + column[None, :] * column_step
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    for _ in range(0, k, depth):
        sums = tl.dot(tl.load(left), tl.load(right), sums)
        left += depth
        right += depth * row_step
    tl.store(c + row[:, None] * n + column[None, :], sums.to(c.dtype.element_ty))


def main() -> None:
    """Write the assembly of each tile into the folder."""
    target, element, m, n, k, order, folder = sys.argv[1:]
    wave = 64 if target.startswith("gfx9") else 32
    sizes = {"m": int(m), "n": int(n), "k": int(k)}
    steps = {"row_step": 1, "column_step": sizes["k"]} if order == "nk" else {"row_step": sizes["n"], "column_step": 1}
    for rows, columns, depth, warps in TILES:
        if sizes["m"] % rows or sizes["n"] % columns or sizes["k"] % depth:
            continue
        constants = {**sizes, "rows": rows, "columns": columns, "depth": depth, **steps}
        signature = {**dict.fromkeys("abc", f"*{ELEMENTS[element]}"), **dict.fromkeys(constants, "constexpr")}
        aligned = {(number,): [["tt.divisibility", 16]] for number in range(3)}
        source = ASTSource(product, signature, constexprs=constants, attrs=aligned)
        made = triton.compile(source, target=GPUTarget("hip", target, wave), options={"num_warps": warps, "num_stages": 2})
        Path(folder, f"{rows}x{columns}x{depth}.s").write_text(made.asm["amdgcn"])


if __name__ == "__main__":
    main()
