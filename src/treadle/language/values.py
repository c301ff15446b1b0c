"""What expressions of a kernel stand for while it is compiled: indices, register tiles, global arrays, and blocks of them.

Anything else that an expression gives is a Python value, known when the kernel is compiled (`tl.constexpr` arguments, sizes of tiles).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from treadle.ir.core import SSAValue
from treadle.language.dtypes import DType


@dataclass(frozen=True, slots=True)
class Index:
    """An integer that is known when the kernel runs and the same for the whole workgroup: sizes, program ids, loop variables.

    It is `base` + `shift`, which is how `x[m : m + 64]` is seen to have 64 rows. `value` is the sum.
    """

    value: SSAValue
    base: SSAValue
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Condition:
    """A truth value that is known when the kernel runs and the same for the whole workgroup."""

    value: SSAValue


@dataclass(frozen=True, slots=True)
class Tile:
    """Values in the registers of a workgroup. A tile without dimensions is one element, in a register tile of one."""

    value: SSAValue
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Array:
    """A global array: the view of its memory, its sizes and its element type. `number`: of the kernel's argument."""

    name: str
    number: int
    view: SSAValue
    sizes: tuple[Index, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Block:
    """Part of a global array, as a subscript names it: one start an axis; the tile's axes lie along `axes`, with these extents.

    `tiles`: index tiles instead, one an axis, for elements anywhere in the array.
    """

    array: Array
    starts: tuple[Index, ...] = ()
    axes: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    tiles: tuple[Tile, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Shared:
    """A buffer in shared memory of `slots` slots, each of `shape`."""

    buffer: SSAValue
    slots: int
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a buffer in shared memory."""

    shared: Shared
    number: Index

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the tile it holds."""
        return self.shared.shape

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.shared.dtype


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a warp pipeline, as a `with` statement opens it."""

    label: str | None
    priority: int | None


Value = Index | Condition | Tile | Array | Block | Shared | Slot
VALUES = (Index, Condition, Tile, Array, Block, Shared, Slot)


def text_of(value: object) -> str:
    """What a value is, for an error."""
    match value:
        case Tile():
            return f"a tile of {value.dtype}{list(value.shape)}"
        case Index():
            return "an index"
        case Condition():
            return "a condition"
        case Array():
            return f"the array '{value.name}'"
        case Block():
            return f"a block {list(value.shape)} of '{value.array.name}'"
        case Shared():
            return f"{value.slots} slots of {value.dtype}{list(value.shape)} in shared memory"
        case Slot():
            return f"a slot of {value.dtype}{list(value.shape)} in shared memory"
        case Stage():
            return "a stage"
        case _:
            return f"{value!r}"


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """The shape that tiles of these shapes have together, by NumPy's rule; None where they do not fit."""
    rank = max(map(len, shapes))
    result: list[int] = []
    for axis in range(rank):
        extents = {shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0} - {1}
        if len(extents) > 1:
            return None
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def parts_of(value: object) -> tuple[object, ...]:
    """The members of a tuple or list; anything else as the only one."""
    return tuple(cast("Sequence[object]", value)) if isinstance(value, tuple | list) else (value,)
