"""Workloads that their name says whole, so that any shape can be measured: `gemm-bf16-nt-3072x200x880`, `rowsums-f32-16x10000019`.

`gemm-TYPE-LAYOUTS-[BATCHx]MxNxK[-EPILOGUE]`: of the two letters of LAYOUTS the first is "n" where A is stored (M, K) and "t" where it is
(K, M), the second "n" where B is stored (K, N) and "t" where it is (N, K). EPILOGUE is one of `EPILOGUES`. `rowsums-TYPE-MxN`, `colsums`,
`softmax`, `layernorm`, `argmax` likewise: `reductions.py`. Names of convolutions: `convolutions.py`.
"""

import re
from collections.abc import Sequence

from treadle.bench.convolutions import named_convolution
from treadle.bench.families import OUTPUT_TYPES
from treadle.bench.reductions import FAMILIES
from treadle.bench.texts import Body, Function, element_bytes
from treadle.bench.workload import TensorSpec, Workload

GROUP = "named"
LAYOUTS = ("nn", "nt", "tn", "tt")
DTYPES = ("f16", "bf16", "f32", "f8E4M3FN", "i8")
_NAME = re.compile(rf"(gemm|{'|'.join(FAMILIES)})-([A-Za-z0-9]+)(?:-(nn|nt|tn|tt))?-(\d+(?:x\d+)+)(?:-([a-z]+))?")


def _bias(body: Body, taken: list[str]) -> Sequence[str]:
    return [body.binary("arith.addf", taken[0], taken[1])]


def _gelu(body: Body, taken: list[str]) -> Sequence[str]:
    return [body.gelu_tanh(taken[0])]


def _silu(body: Body, taken: list[str]) -> Sequence[str]:
    return [body.silu(taken[0])]


EPILOGUES = {"bias": _bias, "gelu": _gelu, "silu": _silu}
"""What follows the product, of f32 sums, in the same program; `bias` adds a row of N elements."""


def named_workload(name: str) -> Workload | None:
    """The workload of a name; None where the name says none."""
    found = _NAME.fullmatch(name)
    if found is None:
        return named_convolution(name)
    kind, dtype, layouts, sizes, epilogue = found.groups()
    extents = tuple(int(size) for size in sizes.split("x"))
    if dtype not in DTYPES or min(extents) < 1:
        return None
    if kind == "gemm":
        if layouts is None or len(extents) not in (3, 4) or (epilogue is not None and (epilogue not in EPILOGUES or dtype == "i8")):
            return None
        return _gemm(name, dtype, layouts, extents, epilogue or "")
    if layouts is not None or epilogue is not None or len(extents) != 2 or dtype not in ("f16", "bf16", "f32"):
        return None
    return FAMILIES[kind](name, "reduction", *extents, dtype)


def gemm_name(dtype: str, layouts: str, extents: Sequence[int], epilogue: str = "") -> str:
    """The name of a contraction; `extents`: M, N, K, with the batch before them where there is one."""
    return "-".join(["gemm", dtype, layouts, "x".join(map(str, extents)), *([epilogue] if epilogue else [])])


def _gemm(name: str, dtype: str, layouts: str, extents: tuple[int, ...], epilogue: str) -> Workload:
    *batch, m, n, k = extents
    result = OUTPUT_TYPES.get(dtype, dtype)
    lead = "b" if batch else ""
    letters = {"x": lead + ("mk" if layouts[0] == "n" else "km"), "w": lead + ("kn" if layouts[1] == "n" else "nk"), "y": f"{lead}mn"}

    def write(rows: int, columns: int) -> str:
        sizes = {"b": batch[0] if batch else 1, "m": rows, "n": columns, "k": k}
        f = Function("gemm")
        x, w = (f.argument(operand, [sizes[d] for d in letters[operand]], dtype) for operand in "xw")
        bias = [f.argument("bias", (columns,), dtype)] if epilogue == "bias" else []
        y = f.contract(f"{letters['x']},{letters['w']}->{letters['y']}", x, w)
        if not epilogue:
            return f.text(f.cast(y, result))
        maps = f"{letters['y']}{',n' if bias else ''}->{letters['y']}"
        return f.text(*f.elementwise(maps, [y, *bias], [result], EPILOGUES[epilogue]))

    def spec(operand: str, kind: str) -> TensorSpec:
        sizes = {"b": batch[0] if batch else 1, "m": m, "n": n, "k": k}
        dims = letters[operand]
        rows, columns = (dims.index(d) if d in dims else None for d in "mn")
        return TensorSpec(operand, tuple(sizes[d] for d in dims), kind, rows=rows, columns=columns)

    bias = (TensorSpec("bias", (n,), dtype, columns=0),) if epilogue == "bias" else ()
    count = batch[0] if batch else 1
    title = f"{'x'.join(map(str, extents))} {dtype} {layouts}{' ' + epilogue if epilogue else ''}"
    inputs = (spec("x", dtype), spec("w", dtype), *bias)
    return Workload(name, GROUP, title, inputs, (spec("y", result),), m, n, 2 * count * m * n * k, _peer(dtype, layouts, epilogue), write)


def _peer(dtype: str, layouts: str, epilogue: str) -> str:
    quantised = {"f8E4M3FN": "scaled_mm", "i8": "int_mm"}
    if dtype in quantised and not epilogue and layouts == "nt":
        return quantised[dtype]
    return f"product_{layouts}_{epilogue}" if epilogue else f"product_{layouts}"


def pitch_bytes(workload: Workload) -> int:
    """The largest power of two, at most 128, that divides the bytes of a row of every operand of two dimensions or more."""
    pitches = [spec.shape[-1] * element_bytes(spec.dtype) for spec in workload.inputs if len(spec.shape) > 1]
    return min((min(pitch & -pitch, 128) for pitch in pitches), default=128)
