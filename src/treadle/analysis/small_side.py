"""Contractions with one side of at most 64: which side that is, and the problem as `plan/small_m.py` sees it."""

from collections.abc import Sequence
from math import prod
from typing import Literal

from treadle.analysis.descriptor_access import operand_rows
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.nest_axes import Access
from treadle.machine.spec import TargetSpec
from treadle.options import ContractionOverrides
from treadle.plan.block_bounds import least
from treadle.plan.expr import constant
from treadle.plan.small_m import MOST_ROWS, SmallShape
from treadle.plan.tile_config import ContractionTypes
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class SmallSide:
    """A contraction's small and large side: roles of their axes, input numbers of their operands, and the sizes."""

    few_role: Literal["m", "n"]
    few_axis: int
    many_axis: int
    k_axis: int
    small: int
    large: int
    shape: SmallShape

    def refusal(self, overrides: ContractionOverrides) -> str | None:
        """Why the forms for small sides are out of the question where nobody asks for them, None where they are not."""
        return "a tile is asked for" if overrides.tile else None


def small_side(
    nest: LoopNest, kind: Contraction, axes: Sequence[int], sizes: Sequence[int | None], types: ContractionTypes, spec: TargetSpec
) -> SmallSide | str:
    """The sides of a contraction, or why none counts as small. `axes`, `sizes`: the main ones along m, n and k."""
    if any(access.image is not None for access in nest.accesses):
        return "an operand is read at windows"
    if nest.share is not None:
        return "a block sums a share of the terms"
    known = {role: size for role, size in zip("mn", sizes, strict=False) if size is not None and size <= MOST_ROWS}
    if not known or axes[2] < 0:
        return f"neither side is known to have at most {MOST_ROWS}"
    if min(known, key=lambda role: known[role]) == "m":
        few_role, few, many, small, large = "m", 0, 1, kind.lhs, kind.rhs
    else:
        few_role, few, many, small, large = "n", 1, 0, kind.rhs, kind.lhs
    if (reason := _block_refusal(nest, axes[2])) is not None:
        return reason
    of_large, of_small = _read(nest, large), _read(nest, small)
    if of_large is None or of_small is None or len({root.inputs[small] for root in nest.roots}) > 1:
        return "an operand is not one array, read by all contractions alike"
    unit = next((a for a in (axes[many], axes[2]) if a >= 0 and nest.stride_along(of_large, nest.axes[a]) == constant(1)), None)
    others = [a.usual for i, a in enumerate(nest.axes) if not a.is_reduction and i not in (axes[few], axes[many])]
    large_rows, small_rows = (operand_rows(nest, a, role, spec.line_bytes) for a, role in ((of_large, "mn"[many]), (of_small, few_role)))
    shape = SmallShape(
        sizes[few] or 1,
        sizes[many],
        sizes[2],
        element_bytes(of_large.element),
        element_bytes(of_small.element),
        8 if types.accumulator in ("f64", "i64") else 4,
        axes[many] < 0 or unit != axes[many],
        1 if unit is None else _vector(nest, of_large, unit, spec),
        prod(size or 1 for size in others),
        len(nest.roots),
        axes[few] < 0 or small_rows.along_k,
        (large_rows.pitch_bytes, small_rows.pitch_bytes),
        sum(element_bytes(access.element) for access in nest.accesses if access.is_result),
    )
    return SmallSide(few_role, axes[few], axes[many], axes[2], small, large, shape)


def _block_refusal(nest: LoopNest, k_axis: int) -> str | None:
    """Why parts that differ from block to block are not for these forms; None where they are."""
    walked = {dim for number, axis in enumerate(nest.axes) if number != k_axis for dim in axis.dims}
    if any(cut.dim in walked for access in nest.accesses for cut in access.cuts):
        return "blocks have parts of an axis that is not reduced"
    shortest = least(nest.axes[k_axis].size, nest.kernel.ranges)
    if nest.axes[k_axis].reach is not None and (shortest is None or any((size.as_int() or 0) < 1 for size in shortest)):
        return "a block may have nothing to reduce"
    return None


def _read(nest: LoopNest, number: int) -> Access | None:
    """How the first root reads an input; None where that is computed from several arrays, or roots read it in other ways."""
    found = [[a for a in nest.accesses if a.input_number == number and a.root == root] for root in range(len(nest.roots))]
    first = found[0][0] if found[0] else None
    alike = all(len(f) == 1 and (f[0].strides, f[0].element) == (found[0][0].strides, found[0][0].element) for f in found)
    return first if alike else None


def _vector(nest: LoopNest, access: Access, along: int, spec: TargetSpec) -> int:
    """Elements of an operand that may be loaded at once along an axis: no address leaves their alignment."""
    size = element_bytes(access.element)
    limit = min(spec.max_vector_bytes, access.align) // size
    limit = min(limit, access.offset.divisor())
    for number, axis in enumerate(nest.axes):
        stride = nest.stride_along(access, axis)
        if number != along and stride != constant(0):
            limit = min(limit, stride.divisor())
    cut = access.cut_along(nest.axes[along].dims)
    ends = nest.axes[along].size.divisor() if cut is None else min(nest.axes[along].size.divisor(), cut.start.divisor())
    return max(1, min(limit, ends))
