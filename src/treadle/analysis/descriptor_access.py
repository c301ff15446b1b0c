"""Which accesses of a loop nest hardware copies can make: operands on their way to matrix instructions, results on their way out.

Descriptor copies want rows that begin at multiples of 16 bytes. What breaks that alone may come by the threads' copies, in pieces as wide
as its rows are aligned.
"""

from collections.abc import Sequence
from math import gcd

from treadle.analysis.contraction_axes import is_one_step, main_axis
from treadle.analysis.convolution import Image
from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.indexing import Contraction
from treadle.analysis.kernel_slices import sliced_argument
from treadle.analysis.loop_nest import LoopNest
from treadle.analysis.nest_axes import Access
from treadle.analysis.shares import unshared
from treadle.dialects.dispatch import ANY_SIZE
from treadle.ir.builtin import element_of, type_name
from treadle.ir.core import SSAValue
from treadle.machine.spec import BulkTensorCopy, TargetSpec
from treadle.plan.block_bounds import in_whole_steps
from treadle.plan.expr import Expr, constant
from treadle.plan.folded_copies import folded_copy
from treadle.plan.role_tiles import OperandRows, ResultShape
from treadle.plan.tile_config import ContractionTypes
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class OperandCopies:
    """How hardware copies bring a contraction's operands to where its matrix instruction reads them.

    `refusal`: why no copies can, None where they can. `unaligned`: why descriptor copies cannot bring all of them, None where they can.
    `piece_bytes`: of A and of B, the pieces that threads copy, of one element where they shift rows on the way; 0 where descriptor copies
    bring it.
    """

    refusal: str | None = None
    unaligned: str | None = None
    piece_bytes: tuple[int, int] = (0, 0)


def operand_copies(
    nest: LoopNest, kind: Contraction, types: ContractionTypes, spec: TargetSpec, *, any_major: bool = False
) -> OperandCopies:
    """Which hardware copies bring a contraction's operands, one by one. `any_major`: they may lie along k or across it, whatever the
    instruction reads.
    """
    rules = spec.bulk_tensor
    if (reason := _kernel_refusal(nest, types, spec)) is not None or rules is None:
        return OperandCopies(reason, reason)
    row, unaligned = spec.instruction(types.instruction), None
    pieces = [0, 0]
    operands = ((kind.lhs, types.a, "m"), (kind.rhs, types.b, "n"))
    for which, root, side, (number, wanted, own) in ((w, r, s, o) for w, r in enumerate(nest.roots) for s, o in enumerate(operands)):
        value = unshared(root.inputs[number])
        found = [a for a in nest.accesses if (a.root, a.input_number) == (which, number)]
        if (reason := _operand_refusal(value, found, wanted, own)) is not None:
            return OperandCopies(reason, reason)
        step = spec.slot_row_bytes // types.operand_bytes
        if (image := found[0].image) is not None:
            reason = image_refusal(nest, image, found[0], own, rules, k_major_only=row.k_major_only)
        else:
            reason = _axes_refusal(nest, found[0], own)
        if (reason := _part_refusal(nest, found[0], step) or reason) is not None:
            return OperandCopies(f"operand {own}: {reason}", f"operand {own}: {reason}")
        if image is not None:
            continue
        lies_across = row.k_major_only and not any_major and _lies_along(nest, found[0], own)
        reason = f"{row.name} reads operands that are contiguous along k only" if lies_across else None
        if (reason := reason or beyond_descriptors(nest, found[0], rules) or _alignment_refusal(nest, found[0], rules)) is None:
            continue
        unaligned = unaligned or f"operand {own}: {reason}"
        if not (width := _piece_bytes(nest, found[0], spec, turned=lies_across)):
            return OperandCopies(f"operand {own}: {reason}", unaligned)
        pieces[side] = min(width, pieces[side] or width)
    return OperandCopies(None, unaligned, (pieces[0], pieces[1]))


def _kernel_refusal(nest: LoopNest, types: ContractionTypes, spec: TargetSpec) -> str | None:
    """Why no hardware copies can bring a contraction's operands, whatever they are."""
    if spec.bulk_tensor is None or types.instruction == "fma" or not spec.instruction(types.instruction).reads_shared:
        return "the machine has no bulk copies into buffers that its matrix instructions read"
    if sum(axis.is_reduction for axis in nest.axes) != 1 and not is_one_step(nest, types.operand_bytes, spec):
        return "not exactly one axis is reduced, nor one in steps of a whole slot"
    if any(size.as_int() == 0 for size in nest.dim_sizes):
        return "it is empty"
    main = {main_axis(nest, role) for role in ("m", "n", "k")}
    if any(axis.reach is not None and number not in main for number, axis in enumerate(nest.axes)):
        return "blocks have different sizes of an axis besides the main ones"
    return None


def _operand_refusal(value: SSAValue, found: Sequence[Access], wanted: str, own: str) -> str | None:
    """Why an operand is not copied as it stands in memory, None where it is."""
    if len(found) != 1 or (sliced_argument(value) is None and found[0].image is None):
        return f"operand {own} is computed inside the kernel"
    element = element_of(value.type)
    if type_name(element) != ("f32" if wanted == "tf32" else wanted):
        return f"operand {own} is converted from {element} to {wanted}"
    return None


def _part_refusal(nest: LoopNest, access: Access, step: int) -> str | None:
    """Why copies that know the ends of the array alone cannot bring a block's part in steps of so many along k; None where they can.
    Rows and columns beyond a part's end are nobody's, whatever they are: what is computed from them is not stored.
    """
    main = {main_axis(nest, role) for role in ("m", "n")}
    for number, axis in enumerate(nest.axes):
        cut = access.cut_along(axis.dims)
        if number != main_axis(nest, "k"):
            if cut is not None and number not in main:
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


def _lies_along(nest: LoopNest, access: Access, own: str) -> bool:
    """Whether an operand is contiguous along its own axis, not along k."""
    axis = main_axis(nest, own)
    return axis >= 0 and nest.stride_along(access, nest.axes[axis]) == constant(1)


def _axes_refusal(nest: LoopNest, access: Access, own: str) -> str | None:
    """Why an operand does not lie in memory as an instruction could read it, None where it does."""
    unit: set[str] = set()
    for number, axis in enumerate(nest.axes):
        if axis.block:
            continue
        stride = nest.stride_along(access, axis)
        if stride == constant(0):
            if axis.role in (own, "k"):
                return "it is broadcast"
        elif stride == constant(1):
            unit.add(axis.role if number in (main_axis(nest, own), main_axis(nest, "k")) else "other")
    if unit not in ({"k"}, {own}):
        return "its unit-stride axis is not one that the instruction reads along"
    return None


def _alignment_refusal(nest: LoopNest, access: Access, rules: BulkTensorCopy) -> str | None:
    """Which pitch, or the base, breaks the rules of descriptor copies; None where all keep them."""
    size = element_bytes(access.element)
    if access.align % rules.base_align_bytes or access.offset.divisor() * size % rules.base_align_bytes:
        return f"its base is not aligned to {rules.base_align_bytes} bytes"
    for pitch in _pitches(nest, access):
        if pitch.divisor() * size % rules.pitch_align_bytes:
            return f"a pitch of {pitch} elements is not known to be a multiple of {rules.pitch_align_bytes} bytes"
    return None


def _pitches(nest: LoopNest, access: Access) -> list[Expr]:
    """The distances of neighbours along all axes but that of unit stride, in elements."""
    strides = [nest.stride_along(access, axis) for axis in nest.axes if not axis.block]
    return [*(corner.stride for corner in access.corners), *(s for s in strides if s not in (constant(0), constant(1)))]


def _piece_bytes(nest: LoopNest, access: Access, spec: TargetSpec, *, turned: bool) -> int:
    """The widest pieces that threads copy of an operand whose rows begin anywhere, an element where no piece is aligned; 0 where threads
    copy none of it. `turned`: its elements are copied one by one, each to its place.
    """
    queue, size = spec.queue_for("copy_in"), element_bytes(access.element)
    if queue is None:
        return 0
    if turned:
        return size if size in queue.piece_bytes and access.align % size == 0 else 0
    moved = [access.align, access.offset.divisor() * size, *(pitch.divisor() * size for pitch in _pitches(nest, access))]
    aligned = next((width for width in queue.piece_bytes if width >= size and not any(each % width for each in moved)), 0)
    return aligned or (size if queue.shifts else 0)


def operand_rows(nest: LoopNest, access: Access, own: str, line_bytes: int) -> OperandRows:
    """How an operand's rows lie in memory. `own`: "m" or "n", whichever it has."""
    size = element_bytes(access.element)
    apart = gcd(line_bytes, *(pitch.divisor() * size for pitch in _pitches(nest, access)))
    return OperandRows(not _lies_along(nest, access, own), apart)


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
    size, row_axis = element_bytes(access.element), main_axis(nest, "n")
    strides = [nest.stride_along(access, axis) for number, axis in enumerate(nest.axes) if not axis.block and number != row_axis]
    has_rows = row_axis >= 0 and nest.stride_along(access, nest.axes[row_axis]) == constant(1)
    pitch = gcd(spec.line_bytes, *(stride.divisor() * size for stride in strides)) if has_rows else spec.line_bytes
    return ResultShape(size, has_rows and _leaves_in_bulk(nest, access, pitch, spec), pitch_bytes=pitch)


def _leaves_in_bulk(nest: LoopNest, access: Access, pitch_bytes: int, spec: TargetSpec) -> bool:
    """Whether a result whose rows lie along n, so many bytes apart, keeps the rules of descriptor copies."""
    size, rules, row_axis = element_bytes(access.element), spec.bulk_tensor, nest.axes[main_axis(nest, "n")]
    if rules is None or access.align % rules.base_align_bytes or access.offset.divisor() * size % rules.base_align_bytes:
        return False
    if beyond_descriptors(nest, access, rules) is not None or access.cuts:
        return False
    if any(axis.reach is not None for axis in nest.axes if nest.stride_along(access, axis) != constant(0)):
        return False
    if any(corner.stride.divisor() * size % rules.pitch_align_bytes for corner in access.corners) or pitch_bytes % rules.pitch_align_bytes:
        return False
    return bool(row_axis.block) or row_axis.size.divisor() * size % rules.base_align_bytes == 0
