"""How wide a thread may access a global array: pure functions over records of what is known about a view and a tile of it."""

from collections.abc import Sequence

from treadle.errors import InternalError
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class DimFacts:
    """One dimension of a view, as an access of a tile sees it.

    `stride` (elements) and `size` are None where dynamic; the divisors are the largest powers of two known to divide stride, size
    and offset. `extent` is the tile's extent along it, 1 where the tile does not extend along it.
    """

    stride: int | None
    size: int | None
    stride_divisor: int
    size_divisor: int
    offset_divisor: int
    extent: int = 1


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """A tile access: the view's dimensions, bytes of an element, and the bytes that the address of element zero is aligned to.

    `index_bits`: how wide the kernel's indices are, which bounds sizes and strides that only the runtime knows. `varies`: some size or
    stride is not the same in all workgroups.
    """

    dims: tuple[DimFacts, ...]
    element_bytes: int
    base_align: int
    index_bits: int = 32
    varies: bool = False


def contiguous_dim(strides: Sequence[int | None], dims: Sequence[int], shape: Sequence[int]) -> int | None:
    """The tile dimension along which vectors lie: unit stride, the widest extent, None where every dimension is strided.

    `strides` of the view, `dims` the view dimension of each tile dimension, `shape` of the tile.
    """
    best: int | None = None
    for position, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
        if strides[dim] == 1 and extent > 1 and (best is None or extent > shape[best]):
            best = position
    return best


def vector_limit(facts: AccessFacts, contiguous: int | None, max_bytes: int) -> tuple[int, str]:
    """Elements that may be accessed at once along view dimension `contiguous`, and the rule that set the limit.

    A vector never crosses the end of the array (the size is a multiple of it) and is aligned wherever the other dimensions go.
    Dimensions of size 1 are never stepped along, so their strides do not matter.
    """
    if contiguous is None:
        return 1, "no dimension of the tile has unit stride"
    along = facts.dims[contiguous]
    if along.stride != 1:
        raise InternalError(f"vectors along a dimension of stride {along.stride}")
    limits = [
        (max(1, max_bytes // facts.element_bytes), "the widest access of the machine"),
        (along.extent & -along.extent, f"extent {along.extent} of the tile"),
        (max(1, facts.base_align // facts.element_bytes), f"base alignment of {facts.base_align} bytes"),
        (along.size_divisor, f"size {'dynamic' if along.size is None else along.size}"),
        (along.offset_divisor, "offset of the tile"),
    ]
    for index, dim in enumerate(facts.dims):
        if index != contiguous and dim.size != 1:
            limits.append((dim.stride_divisor, f"stride {'dynamic' if dim.stride is None else dim.stride} of dimension {index}"))
    return min(limits, key=lambda limit: limit[0])
