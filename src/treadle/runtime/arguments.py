"""The arguments of a call: views of the arrays, checks against the manifest, and the classes of layouts that need a variant."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from treadle import errors
from treadle.artifact import Manifest, TensorRecord
from treadle.errors import TreadleError
from treadle.plan.argument_layout import WIDEST_BYTES, AlignedRows, ArgumentLayout, Layouts, aligned_rows, classify
from treadle.runtime.arrays import (
    ArrayForm,
    ArrayView,
    HostArray,
    element,
    is_float,
    numpy_dtype,
    row_major,
    same_bits,
    view,
    view_of_numpy,
)
from treadle.runtime.invocation import Invocation, InvocationPlan
from treadle.runtime.torch_tensors import is_tensor


def views_of(manifest: Manifest, arrays: Sequence[Any]) -> list[ArrayView]:
    """One view an argument. Raises TR721 for a wrong number of arrays, TR729 for what is no array."""
    inputs = manifest.inputs
    if len(arrays) != len(inputs):
        raise TreadleError(errors.ARGUMENT_COUNT, function=manifest.function, expected=len(inputs), given=len(arrays))
    views = [
        view(_number(array, index, record) if type(array) in _NUMBERS and not record.shape else array, record.name, index)
        for index, (array, record) in enumerate(zip(arrays, inputs, strict=True))
    ]
    for index, record in enumerate(inputs):
        if record.in_place:
            _check_in_place(arrays[index], index, record, views)
    return views


def _check_in_place(array: Any, index: int, record: TensorRecord, views: Sequence[ArrayView]) -> None:
    """Raises TR737 for an array that a program cannot change, or that is not all of its memory's use in the call."""
    own = views[index]
    if own.host is not None and type(array) in (bool, int, float, list, tuple):
        raise TreadleError(errors.IN_PLACE, index=index, name=record.name, what=f"is a {type(array).__name__}, which is copied")
    if _is_read_only(array, own):
        raise TreadleError(errors.IN_PLACE, index=index, name=record.name, what="is read-only")
    if _meets_itself(own):
        strides = list(own.strides)
        raise TreadleError(errors.IN_PLACE, index=index, name=record.name, what=f"its elements share memory (strides {strides})")
    for other, given in enumerate(views):
        if other != index and _overlap(own, given):
            raise TreadleError(errors.IN_PLACE, index=index, name=record.name, what=f"shares memory with argument {other}")


def _meets_itself(array: ArrayView) -> bool:
    """Whether two elements may have one address: some stride is within the reach of the smaller ones."""
    reach = 0
    for stride, extent in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False


def _overlap(one: ArrayView, other: ArrayView) -> bool:
    """Whether the spans of two arrays in memory meet."""
    if (one.kind, one.device) != (other.kind, other.device):
        return False
    (start, end), (first, last) = _span(one), _span(other)
    return start < last and first < end


def _span(array: ArrayView) -> tuple[int, int]:
    """Addresses of the first byte and of the one behind the last."""
    if 0 in array.shape or not array.dtype:
        return array.address, array.address
    reach = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    size = element(array.dtype).bytes
    return array.address + size * sum(min(r, 0) for r in reach), array.address + size * (1 + sum(max(r, 0) for r in reach))


_NUMBERS: Final[frozenset[type]] = frozenset((bool, int, float))


def _number(value: float, index: int, record: TensorRecord) -> HostArray:
    """A Python number as the input's element. Raises TR725 for one that the type does not hold (floats are rounded)."""
    dtype = numpy_dtype(record.dtype)
    with np.errstate(all="ignore"):
        made: HostArray = np.asarray(value).astype(dtype)
    if not is_float(dtype) and made != value:
        raise TreadleError(
            errors.ARGUMENT_DTYPE, index=index, name=record.name, given=f"{type(value).__name__} ({value!r})", expected=record.dtype
        )
    return made


def _values(plan: InvocationPlan, views: Sequence[ArrayView]) -> dict[int, int]:
    """What the inputs hold whose numbers are sizes of the program. Raises TR735 for one that does not lie on the host."""
    found: dict[int, int] = {}
    for index in plan.manifest.number_inputs:
        host, record = views[index].host, plan.manifest.inputs[index]
        if host is None:
            raise TreadleError(errors.ARGUMENT_NUMBER, index=index, name=record.name, given=views[index].place)
        if host.ndim == 0:
            found[index] = int(host)
        else:
            given = len(views[index].shape)
            shape = "x".join(map(str, views[index].shape))
            raise TreadleError(errors.ARGUMENT_RANK, index=index, name=record.name, expected=0, given=given, shape=shape)
    return found


def resolve(plan: InvocationPlan, views: Sequence[ArrayView], kind: str) -> Invocation:
    """A call's numbers. Arrays that do not lie where the program runs (`kind`) are copied, so their strides are those of a dense copy."""
    strides = [v.strides if v.kind == kind else row_major(v.shape) for v in views]
    shapes = tuple([v.shape for v in views])
    return plan.resolve(shapes, strides, _values(plan, views) if plan.manifest.number_inputs else None)


def check_index_range(function: str, invocation: Invocation) -> None:
    """Raises TR732 where the kernels' 32-bit indices are too few for a call."""
    if (beyond := invocation.beyond) is not None:
        what, left, right = beyond
        raise TreadleError(errors.INDEX_RANGE, function=function, what=what, left=left, right=right)


def check_dtype(array: ArrayView, index: int, record: TensorRecord) -> None:
    """Raises TR725 for a wrong element type."""
    if array.dtype != record.dtype and not same_bits(array.dtype, record.dtype):
        given = array.dtype or "unknown"
        raise TreadleError(errors.ARGUMENT_DTYPE, index=index, name=record.name, given=given, expected=record.dtype)


def check_place(array: ArrayView, index: int, record: TensorRecord, place: tuple[str, int]) -> None:
    """Raises TR726 for an array on another device; arrays of the host go everywhere."""
    if array.host is None and (array.kind, array.device) != place:
        expected = place[0] if place[0] == "cpu" else f"{place[0]}:{place[1]}"
        raise TreadleError(errors.ARGUMENT_DEVICE, index=index, name=record.name, given=array.place, expected=expected)


def _has_strides(array: ArrayView, strides: tuple[int, ...]) -> bool:
    """Whether the strides are these, as far as they are used: those of an extent of 1 and of an empty array are not."""
    if array.strides == strides or 0 in array.shape:
        return True
    return all(have == want for have, want, extent in zip(array.strides, strides, array.shape, strict=True) if extent > 1)


def _has_align(array: ArrayView, align: int) -> bool:
    return not array.address % align or 0 in array.shape


def check_layout(array: ArrayView, index: int, record: TensorRecord, strides: tuple[int, ...], align: int) -> None:
    """Raises TR727 for strides and TR728 for an address that the kernels were not compiled for."""
    if not _has_strides(array, strides):
        raise _wrong_strides(array, index, record, list(strides))
    if not _has_align(array, align):
        raise TreadleError(errors.ARGUMENT_ALIGNMENT, index=index, name=record.name, align=align)


def _wrong_strides(array: ArrayView, index: int, record: TensorRecord, expected: object) -> TreadleError:
    return TreadleError(errors.ARGUMENT_STRIDES, index=index, name=record.name, given=list(array.strides), expected=expected)


def layouts_of(plan: InvocationPlan, views: Sequence[ArrayView], place: tuple[str, int]) -> Layouts | None:
    """The classes of the arguments' layouts, None where all are as the program declares.

    `views` of a class have their unused strides replaced, so that a variant for the class can take them. Raises TR722..TR728.
    """
    kind, inputs = place[0], plan.manifest.inputs
    invocation = resolve(plan, views, kind)
    found: list[ArgumentLayout | AlignedRows | None] = [None] * len(views)
    for index, (array, record, strides) in enumerate(zip(views, inputs, invocation.input_strides, strict=True)):
        if array.kind != kind or (_has_strides(array, strides) and _has_align(array, plan.input_align[index])):
            if index in plan.open_rows and kind != "cpu":
                found[index] = aligned_rows(array.shape, element(record.dtype).bytes)
            continue
        check_dtype(array, index, record)
        check_place(array, index, record, place)
        layout = _class_of(array, index, record)
        if _has_strides(array, strides) and _has_align(array, plan.input_align[index]):  # a copy that is as declared
            continue
        found[index] = layout
    return tuple(found) if any(found) else None


def _needs_copy(host: HostArray) -> bool:
    """Whether strides run backwards, or neighbours are no whole elements apart (fields of records)."""
    steps = [step for step, extent in zip(host.strides, host.shape, strict=True) if extent > 1]
    return any(step < 0 or step % host.itemsize for step in steps) or bool(host.ctypes.data % host.itemsize)


def _class_of(array: ArrayView, index: int, record: TensorRecord) -> ArgumentLayout:
    size = element(record.dtype).bytes
    if array.host is not None and _needs_copy(array.host):
        if record.in_place:
            raise _wrong_strides(array, index, record, "whole elements apart, forwards")
        dense = view_of_numpy(array.host.copy(order="C"))
        array.address, array.strides, array.host, array.owner = dense.address, dense.strides, dense.host, dense.owner
    layout, array.strides = classify(array.shape, array.strides, array.address % WIDEST_BYTES, size)
    if min(array.strides, default=0) < 0:
        raise _wrong_strides(array, index, record, "none that is negative")
    if array.address % size:
        raise TreadleError(errors.ARGUMENT_ALIGNMENT, index=index, name=record.name, align=size)
    return layout


def _is_read_only(array: Any, given: ArrayView) -> bool:
    if given.host is not None:
        return not given.host.flags.writeable
    if is_tensor(array) or hasattr(array, "form"):  # PyTorch has none that are, and Treadle makes none
        return False
    interface = getattr(array, "__cuda_array_interface__", None)
    return interface is not None and bool(interface["data"][1])


def given_outputs(manifest: Manifest, out: Sequence[Any], forms: Sequence[ArrayForm]) -> list[ArrayView]:
    """Views of the arrays that a caller gives for the results, which must be of these forms. Raises TR730, TR731, TR729."""
    if len(out) != len(forms):
        raise TreadleError(errors.OUTPUT_COUNT, function=manifest.function, expected=len(forms), given=len(out))
    buffers = {buffer.name: buffer for buffer in manifest.buffers}
    views: list[ArrayView] = []
    for index, (array, record, form) in enumerate(zip(out, manifest.outputs, forms, strict=True)):
        given, align = view(array, record.name, index), buffers[record.buffer].align
        place = f"{form.kind}:{form.ordinal}"
        if (given.kind, given.device) != (form.kind, form.ordinal):
            what = f"is on {given.place}, the program runs on {place}"
        elif given.dtype != form.element_type and not same_bits(given.dtype, form.element_type):
            what = f"has element type {given.dtype or 'unknown'}, the result has {form.element_type}"
        elif given.shape != form.shape:
            what = f"has shape {list(given.shape)}, the result has {list(form.shape)}"
        elif not _has_strides(given, form.strides):
            what = f"has strides {list(given.strides)} (elements), the result has {list(form.strides)}"
        elif _is_read_only(array, given):
            what = "is read-only"
        elif form.kind != "cpu" and not _has_align(given, align):  # the simulator copies
            what = f"starts at an address that is not a multiple of {align}"
        else:
            views.append(given)
            continue
        raise TreadleError(errors.OUTPUT_ARRAY, index=index, name=record.name, what=what)
    return views
