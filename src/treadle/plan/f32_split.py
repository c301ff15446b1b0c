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

ROUNDED: Final = "tf32"
IN_KERNEL: Final[dict[str, Split]] = {**SPLITS, ROUNDED: Split("tf32", 4, 1, ((0, 0),))}
"""What kernels may make of f32 operands themselves: such parts, or one of as many bytes, the operand rounded."""


KERNEL_SLOWER: Final = 1.3
"""Times as long as a kernel of large tiles one takes that splits operands itself, on smaller tiles: an estimate."""


def macs_per_second(spec: TargetSpec, row: MatrixInstruction | None) -> float:
    """Peak multiply-adds a second of a matrix instruction (None: of the vector units)."""
    return spec.macs_per_clock(row) * spec.compute_units * spec.clock_mhz * 1e6


def contraction_seconds(macs: float, moved: float, spec: TargetSpec, row: MatrixInstruction | None) -> float:
    """Modelled time of a contraction: the larger of arithmetic and memory traffic."""
    rates = spec.rates.general
    return max(macs / macs_per_second(spec, row), moved / (spec.memory_gbps * 1e9)) / rates.efficiency + rates.launch_seconds


def may_split_in_kernel(split: Split, spec: TargetSpec) -> bool:
    """Whether a kernel can split f32 operands itself: roles, and an instruction that reads bf16 parts from registers and shared memory."""
    rows = spec.instructions_for(split.element, split.element, "f32")
    reads = any(row.reads_shared and row.may_read(0, "registers") and not row.k_major_only for row in rows)
    return reads and spec.bulk_tensor is not None and spec.register_moves is not None and split.element == "bf16"


def whole_seconds(shape: ContractionShape, spec: TargetSpec) -> float:
    """Modelled time of a contraction of f32 as it is. Unknown sizes count as 4096 here and below."""
    macs, operands, result = _work(shape)
    exact = next(iter(spec.instructions_for("f32", "f32", "f32")), None)
    return contraction_seconds(macs, operands * 4 + result, spec, exact)


def seconds_in_memory(split: Split, shape: ContractionShape, spec: TargetSpec) -> float:
    """Modelled time of a contraction whose operands are split by kernels ahead of it, where the machine has the instruction."""
    macs, operands, result = _work(shape)
    count, rates, row = len(split.products), spec.rates.general, spec.instructions_for(split.element, split.element, "f32")[0]
    written = operands * count * split.bytes
    splitting = (operands * 4 + written) / (spec.memory_gbps * 1e9 * rates.efficiency) + 2 * rates.launch_seconds
    return splitting + contraction_seconds(macs * count, written + result, spec, row)


def seconds_in_kernel(split: Split, shape: ContractionShape, spec: TargetSpec) -> float:
    """Modelled time of a contraction whose kernel splits its operands."""
    macs, operands, result = _work(shape)
    row = spec.instructions_for(split.element, split.element, "f32")[0]
    return contraction_seconds(macs * len(split.products) * KERNEL_SLOWER, operands * 4 + result, spec, row)


def _work(shape: ContractionShape) -> tuple[float, int, int]:
    """Multiply-adds, elements of the operands, bytes of the result."""
    batch, m, n, k = (UNKNOWN_EXTENT if size is None else size for size in (shape.batch, shape.m, shape.n, shape.k))
    return float(batch * m * n * k), batch * (m + n) * k, batch * m * n * 4


def split_refusal(split: Split, shape: ContractionShape, spec: TargetSpec, *, in_kernel: bool = False) -> str | None:
    """Why a contraction had better stay as it is, None where parts are modelled to be faster, split in memory or where it may be in the
    kernel.
    """
    if not spec.instructions_for(split.element, split.element, "f32"):
        return f"{spec.name} has no matrix instruction for {split.element}"
    whole, parts = whole_seconds(shape, spec), seconds_in_memory(split, shape, spec)
    parts = min(parts, seconds_in_kernel(split, shape, spec)) if in_kernel else parts
    if parts >= whole:
        return f"{1e6 * parts:.0f} us are modelled for its parts, {1e6 * whole:.0f} us as it is"
    return None
