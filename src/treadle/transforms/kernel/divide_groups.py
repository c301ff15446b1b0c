"""divide-groups: warps that compute rows of their own become groups, which can take turns.

Level: tile. Reads: the layouts of all tiles, what copies and contractions do with buffers. Writes: the kernel's `groups`, `num_warps` and
`issue_turns`, shapes and layouts of tiles and buffers, places of copies, loads and stores, by `pipe.group_id`. Leaves
alone: kernels of forms without roles, of one contraction or of contractions that do not read each other's results, of as many warps as one
matrix instruction has; those whose warps share rows, or exchange them, which a remark says.

Chained contractions (attention) leave the matrix units idle during what is computed between them. Two groups, each with its rows, fill
these gaps for each other: where one's matrix instructions are issued behind the other's, its arithmetic comes under them (form-roles marks
the loop, insert-sync orders the turns). Among warps of one group nothing could say so: they are one agent.

*Why it is the same.* The highest bit of the warp's number leads either half of a tile on, along one dimension, or nowhere. So each
group has a half of the tile, or all of it, and no operation that is let pass reads one half to compute the other.
"""

from collections.abc import Sequence

from treadle import remarks
from treadle.dialects import pipe, tile
from treadle.dialects.tile_types import is_tile
from treadle.ir.builtin import IntegerAttr, i64
from treadle.ir.core import Builder, InsertPoint, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.ir.retype import retype
from treadle.layout.shared_layout import SharedLayout
from treadle.layout.tile_layout import TileLayout
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.forms import roles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import KernelPass, num_warps
from treadle.transforms.kernel.roles.copy_rings import is_chain
from treadle.transforms.kernel.tiling.index_math import IndexBuilder

NAME = "divide-groups"
GROUPS = 2
_ALIKE = (
    tile.BroadcastOp,
    tile.PermuteOp,
    tile.SplatOp,
    tile.ReduceOp,
    tile.ContractOp,
    tile.ReturnOp,
    tile.YieldOp,
    scf.ForOp,
    scf.IfOp,
    scf.YieldOp,
)
"""What does the same for half a tile."""


class _Refused(Exception):
    """Why a kernel's warps do not divide."""


def half_axis(value: SSAValue) -> int | None:
    """The dimension along which the two halves of the warps have the two halves of a tile; None where both have all of it."""
    layout, shape = tile.layout_of(value), tile.tile_type(value).get_shape()
    if layout is None:
        raise _Refused("a tile has no layout")
    axes = [axis for axis, step in enumerate(layout.warp[-1]) if step]
    if not axes:
        return None
    if len(axes) > 1 or 2 * layout.warp[-1][axes[0]] != shape[axes[0]]:
        raise _Refused("rows of both halves of the warps lie among each other")
    return axes[0]


def _halved(value: SSAValue) -> SSAValue:
    """Retype a tile: what a group has of it."""
    layout, axis = tile.layout_of(value), half_axis(value)
    if layout is None:
        raise _Refused("a tile has no layout")
    old = tile.tile_type(value)
    shape = [n // GROUPS if at == axis else n for at, n in enumerate(old.get_shape())]
    new = tile.tile_of(shape, old.element_type, TileLayout(layout.register, layout.lane, layout.warp[:-1], layout.repeat))
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, builtin.DenseIntOrFPElementsAttr):
        owner.value = builtin.DenseIntOrFPElementsAttr.from_list(new, [next(iter(owner.value.iter_values()))])  # pyright: ignore
    return retype(value, new)


@dataclass(slots=True)
class _Division:
    """Divides one kernel. `buffers`: of each allocation the dimension of which a group has half, None where it is whole."""

    kernel: tile.KernelOp
    buffers: dict[tile.AllocOp, int | None]
    index: IndexBuilder

    def check(self) -> None:
        """Refuse what one half of the warps reads of the other, or what both would write."""
        for op in self.kernel.body.walk():
            tiles = [v for v in (*op.operands, *op.results) if is_tile(v)]
            halves = [half_axis(value) for value in tiles]
            match op:
                case tile.ReduceOp() if op.axis.value.data in halves:
                    raise _Refused("a reduction goes over rows of both halves of the warps")
                case tile.StoreOp() if None in halves:
                    raise _Refused("both halves of the warps would store the same")
                case tile.SliceOp() if any(halves) or 0 in halves:
                    _check_slice(op, halves)
                case arith.ConstantOp() if any(axis is not None for axis in halves) and not _is_splat(op):
                    raise _Refused("a constant has rows of both halves of the warps")
                case tile.AllocOp():
                    self.buffers[op] = _buffer_axis(op)
                case _:
                    if not _is_alike(op) and any(axis is not None for axis in halves):
                        raise _Refused(f"{op.name} has rows of both halves of the warps")
        for op in self.kernel.body.walk():
            if isinstance(op, tile.CopyOutOp) and self.axis_of(op.source) is None:
                raise _Refused("both halves of the warps would store the same")

    def axis_of(self, buffer: SSAValue) -> int | None:
        """The dimension of a buffer, or of a slot of it, of which a group has half."""
        owner = buffer.owner
        if isinstance(owner, pipe.SlotOp):
            axis = self.axis_of(owner.source)
            return None if axis is None else axis - len(owner.indices)
        return self.buffers[owner] if isinstance(owner, tile.AllocOp) else None

    def divide(self) -> None:
        """Halve tiles, buffers and places."""
        for op in list(self.kernel.body.walk()):
            match op:
                case tile.LoadOp():
                    self._move(op, half_axis(op.results[0]), tile.tile_type(op.results[0]).get_shape())
                case tile.StoreOp():
                    self._move(op, half_axis(op.value), tile.tile_type(op.value).get_shape())
                case tile.CopyOp():
                    self._move(op, self.axis_of(op.destination), tile.memref_type(op.destination).get_shape())
                case tile.CopyOutOp():
                    self._move(op, self.axis_of(op.source), tile.memref_type(op.source).get_shape())
                case tile.IotaOp():
                    self._count_on(op)
                case _:
                    pass
        for alloc, axis in self.buffers.items():
            if axis is not None:
                _halve_buffer(alloc.result, axis)
        values = [v for op in self.kernel.body.walk() for v in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args))]
        for value in values:
            if is_tile(value):
                _halved(value)
        self.kernel.properties["groups"] = IntegerAttr(GROUPS, i64)
        self.kernel.properties["num_warps"] = IntegerAttr(num_warps(self.kernel) // GROUPS, self.kernel.num_warps.type)

    def _move(self, op: tile.LoadOp | tile.StoreOp | tile.CopyOp | tile.CopyOutOp, axis: int | None, shape: Sequence[int]) -> None:
        """Let an access to an array begin where its group's half does."""
        if axis is None:
            return
        dim, index = tile.ints(op.dims)[axis], IndexBuilder(Builder(InsertPoint.before(op)), {})
        moved = index.add(op.offsets[dim], self._first(shape[axis] // GROUPS))
        ahead = list(op.operands).index(op.view) + 1  # the offsets follow the view
        op.operands[ahead + dim] = moved

    def _first(self, extent: int) -> SSAValue:
        """Where the executing group's half begins."""
        return self.index.multiply(self.index.insert(pipe.GroupIdOp()), extent)

    def _count_on(self, op: tile.IotaOp) -> None:
        """Numbers along a halved dimension go on in the second half."""
        axis = half_axis(op.result)
        if axis is None or axis != op.axis.value.data:
            return
        kind, users = tile.tile_type(op.result), list(op.result.uses)
        index = IndexBuilder(Builder(InsertPoint.after(op)), {})
        more = index.insert(tile.SplatOp(self._first(kind.get_shape()[axis] // GROUPS), kind))
        total = index.insert(arith.AddiOp(op.result, more))
        for use in users:
            use.operation.operands[use.index] = total


def _is_alike(op: Operation) -> bool:
    """Whether an operation on half a tile computes half of the result."""
    known = (tile.LoadOp, tile.StoreOp, tile.IotaOp, tile.LocalLoadOp, tile.LocalStoreOp, tile.SliceOp)
    return isinstance(op, _ALIKE + known) or op.name.startswith(("arith.", "math."))


def _is_splat(op: arith.ConstantOp) -> bool:
    return isinstance(op.value, builtin.DenseIntOrFPElementsAttr) and op.value.is_splat()


def _check_slice(op: tile.SliceOp, halves: list[int | None]) -> None:
    axis = halves[0]
    whole = axis is not None and tile.ints(op.offsets)[axis] == 0
    same = axis is not None and tile.tile_type(op.source).get_shape()[axis] == tile.tile_type(op.result).get_shape()[axis]
    if halves[1] != axis or not whole or not same:
        raise _Refused("a part of a tile has rows of one half of the warps")


def _buffer_axis(alloc: tile.AllocOp) -> int | None:
    """The dimension of a buffer along which each half of the warps has its own half; None where all is everyone's."""
    found = set(_axes(alloc.result, 0))
    if len(found) > 1:
        raise _Refused("one half of the warps reads what the other left in a buffer")
    return next(iter(found), None)


def _axes(buffer: SSAValue, slots: int) -> list[int | None]:
    """What each access by warps says of a buffer behind so many dimensions of slots."""
    found: list[int | None] = []
    for use in buffer.uses:
        op, shape = use.operation, tile.memref_type(buffer).get_shape()
        if isinstance(op, pipe.SlotOp):
            found += _axes(op.result, slots + len(op.indices))
            continue
        if isinstance(op, tile.LocalStoreOp | tile.LocalLoadOp):
            moved = op.value if isinstance(op, tile.LocalStoreOp) else op.result
            axis = half_axis(moved)
            if axis is not None and tile.tile_type(moved).get_shape()[axis] != shape[axis]:
                raise _Refused("part of a buffer has rows of one half of the warps")
        elif isinstance(op, tile.ContractOp):
            side = 0 if buffer is op.a else 1
            axis = half_axis(op.result)
            axis = axis if axis == side else None
        elif isinstance(op, tile.CopyOp | tile.CopyOutOp):
            continue
        else:
            raise _Refused(f"{op.name} uses a buffer")
        found.append(None if axis is None else axis + slots)
    return found


def _half_layout(layout: SharedLayout, axis: int) -> SharedLayout:
    """The layout of a buffer of half as many rows: a group's own, which need not be part of the other."""
    if layout.repeat[axis] > 1:
        if layout.repeat[axis] % GROUPS:
            raise _Refused("a buffer has an odd number of blocks of rows")
        return SharedLayout(layout.offset, tuple(n // GROUPS if at == axis else n for at, n in enumerate(layout.repeat)))
    top = tuple(n // GROUPS if at == axis else 0 for at, n in enumerate(layout.shape))
    if top not in layout.offset:
        raise _Refused("the rows of a buffer's second half lie among others")
    return SharedLayout(tuple(basis for basis in layout.offset if basis != top), layout.repeat)


def _halve_buffer(buffer: SSAValue, axis: int) -> None:
    """Retype a buffer, and its slots."""
    layout, old = _half_layout(tile.shared_layout_of(buffer), axis), tile.memref_type(buffer)
    new = retype(buffer, tile.shared_buffer_type(layout.shape, old.element_type, layout))
    for use in list(new.uses):
        if isinstance(use.operation, pipe.SlotOp):
            _halve_buffer(use.operation.result, axis - len(use.operation.indices))


def divide(kernel: tile.KernelOp) -> None:
    """Make two groups of a kernel's warps. Raises `_Refused` with the kernel as it was."""
    first = kernel.body.block.first_op
    if first is None:
        raise _Refused("it is empty")
    division = _Division(kernel, {}, IndexBuilder(Builder(InsertPoint.before(first)), {}))
    division.check()
    for alloc, axis in division.buffers.items():
        if axis is not None:
            _half_layout(tile.shared_layout_of(alloc.result), axis)  # where it cannot be had, nothing is changed yet
    division.divide()


@register_pass
@dataclass(frozen=True)
class DivideGroupsPass(KernelPass):
    """Works on kernels of chained contractions whose form has roles."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Divide one kernel, or say why not."""
        config = config_of(kernel)
        if not isinstance(config, roles.Config) or kernel.group_count() > 1 or not is_chain(kernel):
            return
        names = {op.instruction.data for op in kernel.walk() if isinstance(op, tile.ContractOp) and op.instruction.data}
        team = max((spec.instruction(name).warps for name in names), default=1)
        if team == 1 or num_warps(kernel) != GROUPS * team:
            return
        subject, place = kernel.sym_name.data, location_of(kernel)
        try:
            divide(kernel)
            kernel.attributes[pipe.ISSUE_TURNS] = IntegerAttr(1, i64)
        except _Refused as reason:
            remarks.emit("refusal", NAME, subject, f"the warps are one group: {reason}", place)
