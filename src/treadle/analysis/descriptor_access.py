"""Which accesses of a loop nest descriptor copies can make: operands on their way to matrix instructions, results on their way out."""

from treadle.analysis.contraction_axes import is_one_step, main_axis
from treadle.analysis.convolution import Image
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction
from treadle.analysis.kernel_slices import sliced_argument
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.nest_axes import Access
from treadle.dialects.dispatch import ANY_SIZE
from treadle.ir.builtin import element_of
from treadle.machine.spec import BulkTensorCopy, TargetSpec
from treadle.plan.block_bounds import in_whole_steps
from treadle.plan.expr import constant
from treadle.plan.folded_copies import folded_copy
from treadle.plan.role_tiles import ResultShape
from treadle.plan.tile_config import ContractionTypes


def operand_refusal(nest: LoopNest, kind: Contraction, types: ContractionTypes, spec: TargetSpec) -> str | None:
    """Why descriptor copies cannot bring a contraction's operands to where its matrix instruction reads them, None where they can."""
    rules = spec.bulk_tensor
    if rules is None or types.instruction == "fma" or not spec.instruction(types.instruction).reads_shared:
        return "the machine has no bulk copies into buffers that its matrix instructions read"
    if sum(axis.is_reduction for axis in nest.axes) != 1 and not is_one_step(nest, types.operand_bytes, spec):
        return "not exactly one axis is reduced, nor one in steps of a whole slot"
    if any(size.as_int() == 0 for size in nest.dim_sizes):
        return "it is empty"
    k_axis = main_axis(nest, "k")
    if any(axis.reach is not None and number != k_axis for number, axis in enumerate(nest.axes)):
        return "blocks have different sizes of an axis that is not reduced"
    row = spec.instruction(types.instruction)
    operands = ((kind.lhs, types.a, "m"), (kind.rhs, types.b, "n"))
    for which, root, (number, wanted, own) in ((w, r, o) for w, r in enumerate(nest.roots) for o in operands):
        value = root.inputs[number]
        found = [a for a in nest.accesses if (a.root, a.input_number) == (which, number)]
        if len(found) != 1 or (sliced_argument(value) is None and found[0].image is None):
            return f"operand {own} is computed inside the kernel"
        element = element_of(value.type)
        if str(element) != ("f32" if wanted == "tf32" else wanted):
            return f"operand {own} is converted from {element} to {wanted}"
        step = spec.slot_row_bytes // types.operand_bytes
        reason = _part_refusal(nest, found[0], step) or _bulk_refusal(nest, found[0], own, rules, k_major_only=row.k_major_only)
        if reason is not None:
            return f"operand {own}: {reason}"
    return None


def _part_refusal(nest: LoopNest, access: Access, step: int) -> str | None:
    """Why copies that know the ends of the array alone cannot bring a block's part in steps of so many along k; None where they can."""
    for number, axis in enumerate(nest.axes):
        cut = access.cut_along(axis.dims)
        if number != main_axis(nest, "k"):
            if cut is not None:
                return f"blocks read parts of it along an axis of {axis.role}"
        elif axis.reach is not None and (cut is None or not in_whole_steps(axis.size, cut.extent - cut.start, step)):
            return f"parts of {axis.size} are no whole steps of {step}"
    return None


def image_refusal(nest: LoopNest, image: Image, access: Access, own: str, rules: BulkTensorCopy, *, k_major_only: bool) -> str | None:
    """Why copies of tiles cannot bring an image in steps of a swizzle's row, None where they can. `own`: "m" or "n", whichever it has."""
    size, main = element_bytes(access.element), (main_axis(nest, own), main_axis(nest, "k"))
    if own == "n" and main[0] >= 0 and nest.stride_along(access, nest.axes[main[0]]) == constant(1):
        if k_major_only:
            return "its unit-stride axis is not one that the instruction reads along"
        main = main[::-1]
    rows = (64, 128) if main[1] == main_axis(nest, "k") else (rules.swizzle_bytes[0] // size,)
    if access.align % rules.base_align_bytes:
        return f"its base is not aligned to {rules.base_align_bytes} bytes"
    axes = [*(a for a, axis in enumerate(nest.axes) if a not in main and nest.stride_along(access, axis) != constant(0)), *main]
    windows, extents = nest.folding(image, axes), [1 if a < 0 else nest.axes[a].bound.as_int() for a in axes]
    if windows is None:
        return "it is no image along its main axes"
    steps = [nest.stride_along(access, nest.axes[a]) if a >= 0 else constant(0) for a in axes]
    pitches = [step.as_int() or 0 for at, step in enumerate(steps) if not windows.dims[at]] + [axis.pitch for axis in windows.axes]
    if (uneven := next((pitch for pitch in pitches if pitch != 1 and pitch * size % rules.pitch_align_bytes), None)) is not None:
        return f"a pitch of {uneven} elements is no multiple of {rules.pitch_align_bytes} bytes"
    if max(pitches) * size > rules.max_pitch_bytes or any((extent or 0) > rules.max_extent for extent in extents):
        return "it is beyond what descriptors hold"
    width = rules.swizzle_bytes[0] // size
    found = (folded_copy(windows, extents, (len(axes) - 2, len(axes) - 1), count, width, rules) for count in rows)
    return next((copy for copy in found if isinstance(copy, str)), None)


def _bulk_refusal(nest: LoopNest, access: Access, own: str, rules: BulkTensorCopy, *, k_major_only: bool) -> str | None:
    size = element_bytes(access.element)
    if access.image is not None:
        return image_refusal(nest, access.image, access, own, rules, k_major_only=k_major_only)
    if access.align % rules.base_align_bytes or access.offset.divisor() * size % rules.base_align_bytes:
        return f"its base is not aligned to {rules.base_align_bytes} bytes"
    unit: set[str] = set()
    if (reason := beyond_descriptors(nest, access, rules)) is not None:
        return reason
    for corner in access.corners:
        if corner.stride.divisor() * size % rules.pitch_align_bytes:
            return f"a pitch of {corner.stride} elements is not known to be a multiple of {rules.pitch_align_bytes} bytes"
    for number, axis in enumerate(nest.axes):
        if axis.block:
            continue
        stride = nest.stride_along(access, axis)
        if stride == constant(0):
            if axis.role in (own, "k"):
                return "it is broadcast"
        elif stride == constant(1):
            unit.add(axis.role if number in (main_axis(nest, own), main_axis(nest, "k")) else "other")
        elif stride.divisor() * size % rules.pitch_align_bytes:
            return f"a pitch of {stride} elements is not known to be a multiple of {rules.pitch_align_bytes} bytes"
    if unit != {"k"} and (k_major_only or unit != {own}):
        return "its unit-stride axis is not one that the instruction reads along"
    return None


def beyond_descriptors(nest: LoopNest, access: Access, rules: BulkTensorCopy) -> str | None:
    """Which size or pitch of an array no descriptor holds, None where all fit: runtime ones do where they are checked to fit 32 bits."""
    size = element_bytes(access.element)
    for axis in nest.axes:
        cut = access.cut_along(axis.dims)
        stride, extent = nest.stride_along(access, axis), (axis.bound if cut is None else cut.extent).as_int()
        if axis.block or stride == constant(0):
            continue
        if (extent is None and ANY_SIZE in nest.kernel.attributes) or (extent or 0) > rules.max_extent:
            return f"an extent of {axis.size} may be beyond {rules.max_extent}"
        if stride.as_int() is None and ANY_SIZE in nest.kernel.attributes:
            return f"a pitch of {stride} elements may be beyond {rules.max_pitch_bytes} bytes"
        if (stride.as_int() or 0) * size > rules.max_pitch_bytes:
            return f"a pitch of {stride} elements is beyond {rules.max_pitch_bytes} bytes"
    return None


def read_shape(nest: LoopNest, access: Access, spec: TargetSpec) -> ResultShape:
    """How a tile that is read beside the operands comes: in bulk where an epilogue reads it, its unit-stride axis is one of the tile's, and
    every pitch keeps the rules of descriptor copies.
    """
    size, rules = element_bytes(access.element), spec.bulk_tensor
    stays = ResultShape(size, in_bulk=False, is_read=True)
    if (
        access.is_initial
        or rules is None
        or access.align % rules.base_align_bytes
        or access.offset.divisor() * size % rules.base_align_bytes
    ):
        return stays
    strides = [nest.stride_along(access, axis) for axis in nest.axes]
    unit = [number for number, stride in enumerate(strides) if stride == constant(1)]
    if beyond_descriptors(nest, access, rules) is not None or unit not in ([main_axis(nest, "m")], [main_axis(nest, "n")]):
        return stays
    others = (stride for number, stride in enumerate(strides) if number not in unit)
    return ResultShape(size, all(stride.divisor() * size % rules.pitch_align_bytes == 0 for stride in others), is_read=True)


def result_shape(nest: LoopNest, access: Access, spec: TargetSpec) -> ResultShape:
    """How a result can leave: in bulk where its rows lie along n and every row and pitch keeps the rules of descriptor copies."""
    size = element_bytes(access.element)
    rules, row_axis = spec.bulk_tensor, main_axis(nest, "n")
    if rules is None or row_axis < 0 or access.align % rules.base_align_bytes or access.offset.divisor() * size % rules.base_align_bytes:
        return ResultShape(size, False)
    if beyond_descriptors(nest, access, rules) is not None:
        return ResultShape(size, False)
    if any(axis.reach is not None for axis in nest.axes if nest.stride_along(access, axis) != constant(0)) or access.cuts:
        return ResultShape(size, False)
    if any(corner.stride.divisor() * size % rules.pitch_align_bytes for corner in access.corners):
        return ResultShape(size, False)
    for number, axis in enumerate(nest.axes):
        if axis.block:
            continue
        stride = nest.stride_along(access, axis)
        if number == row_axis:
            fits = stride == constant(1) and axis.size.divisor() * size % rules.base_align_bytes == 0
        else:
            fits = stride.divisor() * size % rules.pitch_align_bytes == 0
        if not fits:
            return ResultShape(size, False)
    return ResultShape(size, True)
