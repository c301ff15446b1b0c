"""The `--input` grammar: `64x32xf16` (random values), `f32` (a scalar), `2.5` or `file.npy`; and random inputs for whole signatures."""

import math
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.artifact import TensorRecord
from treadle.errors import DYNAMIC_SIZE, INPUT_COUNT, INPUT_SPEC, READ_FILE, SIZE_NEEDED, TreadleError
from treadle.runtime.arrays import dtype_names, is_float, numpy_dtype
from treadle.runtime.host_memory import require

Array = NDArray[Any]

_DRAW_BYTES = 8
"""At most, an element, while it is drawn and not yet in its own type."""

_SHAPE = re.compile(r"((?:\d+x)*)([a-wyz][a-wyzA-Z0-9]*)")


def parse_shape(text: str) -> tuple[tuple[int, ...], str]:
    """`64x32xf16` -> ((64, 32), "f16"). Raises TreadleError TR802 for anything else."""
    if (match := _SHAPE.fullmatch(text)) is None:
        raise TreadleError(INPUT_SPEC, text=text, reason="it has neither the form of a shape nor the ending .npy")
    extents, dtype = match.groups()
    if dtype not in dtype_names():
        raise TreadleError(INPUT_SPEC, text=text, reason=f"'{dtype}' is not an element type ({', '.join(dtype_names())})")
    return tuple(int(extent) for extent in extents.split("x")[:-1]), dtype


def parse_number(text: str, record: TensorRecord) -> Array | None:
    """`2.5`, `-7` or `true` as an input without dimensions; None for other texts. Raises TreadleError TR802 for one that does not fit."""
    try:
        value = {"true": True, "false": False}[text] if text in ("true", "false") else int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return None
    if record.shape:
        raise TreadleError(INPUT_SPEC, text=text, reason=f"input '{record.name}' has {len(record.shape)} dimension(s)")
    dtype = numpy_dtype(record.dtype)
    with np.errstate(all="ignore"):
        made: Array = np.asarray(value).astype(dtype)
    if not is_float(dtype) and made != value:
        raise TreadleError(INPUT_SPEC, text=text, reason=f"input '{record.name}' is of type {record.dtype}")
    return made


def random_array(shape: Sequence[int], dtype: str, generator: np.random.Generator) -> Array:
    """N(0, 1) for floats, uniform in [-4, 4] for integers (small enough that sums of products stay exact), coin flips for i1.

    Raises TreadleError TR609 where this machine's memory does not hold them.
    """
    kind = numpy_dtype(dtype)
    require(math.prod(shape) * (kind.itemsize + _DRAW_BYTES), f"random inputs of {'x'.join([*map(str, shape), dtype])}")
    if dtype == "i1":
        return generator.integers(0, 2, shape).astype(kind)
    if dtype.startswith("ui"):
        return generator.integers(0, 5, shape).astype(kind)
    if kind.kind in "iu":
        return generator.integers(-4, 5, shape).astype(kind)
    if dtype == "f64":
        return generator.standard_normal(shape)
    return generator.standard_normal(shape, dtype=np.float32).astype(kind, copy=False)


def load_array(path: str, expected: TensorRecord) -> Array:
    """An array from a .npy file; types that NumPy stores as raw bytes (bf16, fp8) are read as the input's own type."""
    try:
        array: Array = np.load(Path(path), allow_pickle=False)
    except OSError as error:
        raise TreadleError(READ_FILE, path=path, reason=error.strerror or str(error)) from error
    except (ValueError, EOFError) as error:
        raise TreadleError(INPUT_SPEC, text=path, reason=str(error)) from error
    wanted = numpy_dtype(expected.dtype)
    return array.view(wanted) if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize else array


def static_shape(record: TensorRecord, index: int) -> tuple[int, ...]:
    """The shape of an input without dynamic dimensions; raises TreadleError TR804 for one that has them."""
    known = tuple(extent for extent in record.shape if isinstance(extent, int))
    if len(known) == len(record.shape):
        return known
    shown = "x".join([*(str(extent) if isinstance(extent, int) else "?" for extent in record.shape), record.dtype])
    raise TreadleError(DYNAMIC_SIZE, index=index, name=record.name, shape=shown, example=shown.replace("?", "64"))


def make_inputs(
    function: str, records: Sequence[TensorRecord], given: Sequence[str], seed: int, sizes: Collection[int] = ()
) -> tuple[Array, ...]:
    """One array an input: from `given` (one text an input, or none at all), else random. Equal seeds give equal arrays.

    `sizes`: the inputs that are numbers which give sizes; they are never random.
    Raises TreadleError TR609, TR802, TR803, TR804, TR807, TR901. Whether shapes and types are those of the function is checked when it is called.
    """
    if given and len(given) != len(records):
        raise TreadleError(INPUT_COUNT, function=function, expected=len(records), given=len(given))
    arrays: list[Array] = []
    for index, record in enumerate(records):
        generator = np.random.default_rng([seed, index])
        if index in sizes and (not given or (_SHAPE.fullmatch(given[index]) is not None and given[index] not in ("true", "false"))):
            raise TreadleError(SIZE_NEEDED, index=index, name=record.name)
        if not given:
            arrays.append(random_array(static_shape(record, index), record.dtype, generator))
        elif given[index].endswith(".npy"):
            arrays.append(load_array(given[index], record))
        elif (number := parse_number(given[index], record)) is not None:
            arrays.append(number)
        else:
            arrays.append(random_array(*parse_shape(given[index]), generator))
    return tuple(arrays)
