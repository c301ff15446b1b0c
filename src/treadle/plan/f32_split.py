"""f32 contractions on matrix instructions of narrower types: operands as sums of parts, a product as the sum of products of parts.

Sources: "3xTF32" of CUTLASS' examples; G. Henry, P. Tang and A. Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for
higher-precision computations" (2019); sums leave the matrix unit in between as in H. Ootomo and R. Yokota (2022).
"""

from typing import Final

from treadle.machine.spec import MatrixInstruction, TargetSpec
from treadle.plan.tile_config import UNKNOWN_EXTENT, ContractionShape
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """`parts` values of the type `element` stand for an operand, large first; `products` are the pairs of parts that are multiplied, small
    ones first so that they do not drown in the sums.
    """

    element: str
    bytes: int
    parts: int
    products: tuple[tuple[int, int], ...]


SPLITS: Final[dict[str, Split]] = {
    "3xtf32": Split("tf32", 4, 2, ((1, 0), (0, 1), (0, 0))),
    "bf16x3": Split("bf16", 2, 2, ((1, 0), (0, 1), (0, 0))),
    "bf16x6": Split("bf16", 2, 3, ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))),
}
"""By the name of `CompileOptions.f32_precision`."""


def macs_per_second(spec: TargetSpec, row: MatrixInstruction | None) -> float:
    """Peak multiply-adds a second of a matrix instruction (None: of the vector units)."""
    return spec.macs_per_clock(row) * spec.compute_units * spec.clock_mhz * 1e6


def contraction_seconds(macs: float, moved: float, spec: TargetSpec, row: MatrixInstruction | None) -> float:
    """Modelled time of a contraction: the larger of arithmetic and memory traffic."""
    rates = spec.rates.general
    return max(macs / macs_per_second(spec, row), moved / (spec.memory_gbps * 1e9)) / rates.efficiency + rates.launch_seconds


def split_refusal(split: Split, shape: ContractionShape, spec: TargetSpec) -> str | None:
    """Why a contraction had better stay as it is, None where the parts are modelled to be faster. Unknown sizes count as 4096."""
    rows = spec.instructions_for(split.element, split.element, "f32")
    if not rows:
        return f"{spec.name} has no matrix instruction for {split.element}"
    batch, m, n, k = (UNKNOWN_EXTENT if size is None else size for size in (shape.batch, shape.m, shape.n, shape.k))
    exact = next(iter(spec.instructions_for("f32", "f32", "f32")), None)
    operands, result, macs = batch * (m + n) * k, batch * m * n * 4, float(batch * m * n * k)
    count = len(split.products)
    written, rates = operands * count * split.bytes, spec.rates.general
    whole = contraction_seconds(macs, operands * 4 + result, spec, exact)
    parts = (operands * 4 + written) / (spec.memory_gbps * 1e9 * rates.efficiency) + 2 * rates.launch_seconds
    parts += contraction_seconds(macs * count, written + result, spec, rows[0])
    if parts >= whole:
        return f"{1e6 * parts:.0f} us are modelled for its parts, {1e6 * whole:.0f} us as it is"
    return None
