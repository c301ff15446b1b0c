"""Values while a graph is written: tensors with the map from their dimensions to what is stored, and numbers that fill a shape."""

from collections.abc import Sequence
from typing import TypeAlias

import sympy
import torch

from treadle.ir.core import SSAValue
from treadle.records import dataclass
from treadle.torch.sizes import Size


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of shape `shape` whose stored axis i is dimension `axes[i]`; the other dimensions have size 1 or repeat what is stored.

    Axes of size 1 are never stored. `dtype`: the elements as PyTorch sees them; `stored`: as they are, f32 where rounding to a narrower
    float is still to come, which it does once, where the value leaves or is multiplied by a contraction.
    """

    tensor: SSAValue
    axes: tuple[int, ...]
    shape: tuple[Size, ...]
    dtype: torch.dtype
    stored: torch.dtype

    def moved(self, axes: Sequence[int], shape: Sequence[Size]) -> "Value":
        """The same stored tensor seen through other dimensions."""
        return Value(self.tensor, tuple(axes), tuple(shape), self.dtype, self.stored)

    @property
    def loops(self) -> tuple[int, ...]:
        """The dimensions that are not known to have size 1."""
        return loops_of(self.shape)

    @property
    def is_row_major(self) -> bool:
        """Whether what is stored is the whole value in its order."""
        return self.axes == self.loops


@dataclass(frozen=True, slots=True)
class Uniform:
    """A number in every element of a shape; a symbolic one is a size."""

    number: "float | sympy.Expr"
    shape: tuple[Size, ...]
    dtype: torch.dtype


Operand: TypeAlias = Value | Uniform


def loops_of(shape: Sequence[Size]) -> tuple[int, ...]:
    """The dimensions that are not known to have size 1."""
    return tuple(dim for dim, size in enumerate(shape) if size != 1)
