"""The axes of a loop nest, and the accesses along them.

Axes of extent one are dropped and axes that every access walks as one are merged, so that decisions see the shape of the memory traffic and
not the rank of the user's tensors.
"""

from collections.abc import Sequence
from typing import Literal

from treadle.analysis.attention_structure import Attention
from treadle.analysis.convolution import Image
from treadle.analysis.indexing import Computation, Contraction, StructuredOp
from treadle.analysis.placed_arrays import Corner, Cut
from treadle.dialects import dispatch
from treadle.errors import UNSUPPORTED, TreadleError
from treadle.ir.core import Attribute
from treadle.ir.locations import location_of
from treadle.plan.block_bounds import greatest
from treadle.plan.expr import Expr, as_expr, constant, maximum
from treadle.records import dataclass, replace

Role = Literal["batch", "m", "n", "k", "parallel", "reduction"]

LARGE = 1 << 20
"""A runtime size for which a machine is full."""
INITIAL = -2
"""Instead of the number of an input: what a root starts from."""


@dataclass(frozen=True, slots=True)
class Access:
    """A kernel argument or result along the root's dimensions: strides and offset in elements, and where a block's part of it lies.

    `number` counts arguments and results apart. `align`: bytes the base is aligned to. `input_number`: which of its inputs the root
    number `root` reads here, -1 for all other accesses (initial values, which `is_initial` tells; what consumers read; results). `image`:
    it is read at windows; the strides are those of neighbours, while no edge of a window or of the image comes between.
    """

    number: int
    is_result: bool
    element: Attribute
    strides: tuple[Expr, ...]
    offset: Expr
    align: int
    input_number: int = -1
    root: int = 0
    is_initial: bool = False
    cuts: tuple[Cut, ...] = ()
    corners: tuple[Corner, ...] = ()
    image: Image | None = None

    def walks_as_one(self, outer: int, inner: int, size: Expr) -> bool:
        """Whether two neighbouring dimensions, the inner one of this size, may be one axis."""
        folds = self.image is not None and size.is_constant and self.image.axis_of(outer) >= 0
        return folds or self.strides[outer] == self.strides[inner] * size

    def cut_along(self, dims: Sequence[int]) -> Cut | None:
        """Where along one of the dimensions the array is cut."""
        return next((cut for cut in self.cuts if cut.dim in dims), None)

    def step_of(self, block: str) -> Expr:
        """Elements that every distance between two blocks' parts is a multiple of, at least; 0 where all see the same part."""
        places = [cut.start * self.strides[cut.dim] for cut in self.cuts] + [corner.place * corner.stride for corner in self.corners]
        found = [place.divisor() for place in places if block in place.symbols()]
        return constant(min(found, default=0))


@dataclass(frozen=True, slots=True)
class Axis:
    """One merged axis: the root dimensions it stands for (outer to inner), its extent, its role.

    `factor`: steps of the innermost dimension from one of its indices to the next (see `split_axis`). `block`: the block symbol that walks
    it, for an axis that is none of the root's. `reach`: an extent that no block's exceeds, where blocks have different ones.
    """

    dims: tuple[int, ...]
    size: Expr
    role: Role
    factor: int = 1
    block: str = ""
    reach: Expr | None = None

    @property
    def bound(self) -> Expr:
        """An extent that the host knows and no block exceeds."""
        return self.size if self.reach is None else self.reach

    @property
    def usual(self) -> int | None:
        """The extent that models go by: of blocks whose number the runtime knows, as many as there are for very large sizes."""
        if self.block and not self.bound.is_constant:
            return self.bound.evaluate(dict.fromkeys(self.bound.symbols(), LARGE))
        return self.bound.as_int()

    @property
    def is_reduction(self) -> bool:
        """Whether the axis is reduced over."""
        return self.role in ("k", "reduction")


def roles_of(root: StructuredOp, computation: Computation) -> tuple[Role, ...]:
    """What each dimension of a root is to its computation."""
    if isinstance(computation, Contraction):
        groups: tuple[tuple[Role, tuple[int, ...]], ...] = (
            ("batch", computation.batch),
            ("m", computation.m),
            ("n", computation.n),
            ("k", computation.k),
        )
        role: dict[int, Role] = {d: name for name, dims in groups for d in dims}
        return tuple(role[d] for d in range(root.rank))
    names: dict[str, Role] = {"parallel": "parallel", "reduction": "reduction"}
    return tuple(names[kind] for kind in root.iterators)


def attention_roles(found: Attention) -> tuple[Role, ...]:
    """What each loop of attention is to it: the keys and the width are both reduced over."""
    groups: tuple[tuple[Role, tuple[int, ...]], ...] = (("m", found.rows), ("n", (found.columns,)), ("k", (found.keys, found.width)))
    role: dict[int, Role] = {d: name for name, dims in groups for d in dims}
    return tuple(role.get(d, "batch") for d in range(found.rank))


def merge_axes(sizes: Sequence[Expr], roles: Sequence[Role], accesses: Sequence[Access], keep_apart: bool) -> tuple[Axis, ...]:
    """Drop axes of extent one, join neighbours of one role that every access walks as one (unless `keep_apart`)."""
    axes: list[Axis] = []
    cut = {place.dim for access in accesses for place in access.cuts}
    for d, (size, role) in enumerate(zip(sizes, roles, strict=True)):
        if size == constant(1):
            continue
        previous = axes[-1] if axes else None
        if previous is not None and previous.role == role and not keep_apart:
            outer = previous.dims[-1]
            if cut.isdisjoint((outer, d)) and all(a.walks_as_one(outer, d, size) for a in accesses):
                axes[-1] = Axis((*previous.dims, d), previous.size * size, role)
                continue
        axes.append(Axis((d,), size, role))
    return tuple(axes)


def with_blocks(kernel: dispatch.KernelOp, axes: Sequence[Axis], computation: Computation) -> tuple[Axis, ...]:
    """The axes behind those of the blocks, each with an extent that no block exceeds."""
    extents = {name: as_expr(text) for name, text in kernel.blocks.items()}
    role: Role = "batch" if isinstance(computation, Contraction) else "parallel"
    ranges = kernel.ranges
    return (*(Axis((), extent, role, block=name) for name, extent in extents.items()), *(_reaching(axis, ranges, kernel) for axis in axes))


def _reaching(axis: Axis, extents: dict[str, Expr], kernel: dispatch.KernelOp) -> Axis:
    if extents.keys().isdisjoint(axis.size.symbols()):
        return axis
    if (found := greatest(axis.size, extents)) is None:
        what = f"a loop of '{kernel.sym_name.data}' whose length {axis.size} in each block has no bound that the sizes tell"
        hint = "compute the sizes in scf.forall with sums, products with sizes, min and max of its indices"
        raise TreadleError(UNSUPPORTED, location_of(kernel), what=what, hint=hint)
    return replace(axis, reach=maximum(0, *found))
