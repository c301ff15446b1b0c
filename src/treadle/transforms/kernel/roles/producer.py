"""The producing role: copies of one tile into the ring."""

from collections.abc import Mapping

from treadle.dialects import pipe, tile
from treadle.ir.builtin import IndexType
from treadle.ir.core import Block, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.locations import give_location
from treadle.transforms.kernel.roles.frame import RoleFrame, clone
from treadle.transforms.kernel.roles.parts import is_index_math, part_axis
from treadle.transforms.kernel.tiling.index_math import IndexBuilder, builder_at_end


def produce(frame: RoleFrame, index: IndexBuilder, known: Mapping[SSAValue, SSAValue], place: SSAValue, slot: SSAValue) -> SSAValue:
    """Copies of one tile, those of all groups. Returns the ring's next slot."""
    parts = frame.parts
    maps: list[dict[SSAValue, SSAValue]] = []
    groups = [index.constant(group) for group in range(frame.groups)]
    for group in groups:
        mapping: dict[SSAValue, SSAValue] = dict(known)
        for op in parts.body:
            if op is parts.loop:
                break
            if isinstance(op, tile.ProgramIdOp | pipe.GroupIdOp) or is_index_math(op):
                clone(op, mapping, index, group, place)
        maps.append(mapping)
    loop = parts.loop
    body = Block(arg_types=[IndexType(), IndexType()])
    _fill(frame, body, groups, maps, place)
    bounds = [maps[0].get(v, v) for v in (loop.lb, loop.ub, loop.step)]
    new = scf.ForOp(bounds[0], bounds[1], bounds[2], [slot], body)
    index.builder.insert(new)
    return new.results[0]


def _fill(frame: RoleFrame, body: Block, groups: list[SSAValue], maps: list[dict[SSAValue, SSAValue]], place: SSAValue) -> None:
    """One step of the loop: one slot."""
    loop = frame.parts.loop
    inside = builder_at_end(body, frame.symbols)
    at, slot = body.args
    for group, mapping in zip(groups, maps, strict=True):
        mapping[loop.body.block.args[0]] = at
        for op in loop.body.block.ops:
            if isinstance(op, tile.CopyOp):
                if group is not groups[0] and op not in frame.own:
                    continue
                destination = frame.slot_of(inside, op.destination, slot, group, op in frame.own)
                offsets = [mapping.get(o, o) for o in op.offsets]
                peers = frame.peers if op in frame.shared else None
                if peers is not None:
                    destination, offsets = _own_part(frame, inside, op, destination, offsets)
                copy = tile.CopyOp(op.view, offsets, tile.ints(op.dims), destination, path=op.path.data, multicast=peers)
                give_location(copy, op.location)
                inside.builder.insert(copy)
            elif is_index_math(op):
                clone(op, mapping, inside, group, place)
    body.add_op(scf.YieldOp(frame.ring.advance(inside, slot)))


def _own_part(
    frame: RoleFrame, index: IndexBuilder, copy: tile.CopyOp, destination: SSAValue, offsets: list[SSAValue]
) -> tuple[SSAValue, list[SSAValue]]:
    """This workgroup's part of a buffer that the cluster fills together, and where it comes from."""
    axis, count = part_axis(copy), frame.plan.cluster
    rank = index.insert(pipe.ClusterRankOp())
    along = tile.ints(copy.dims)[axis]
    step = tile.memref_type(copy.destination).get_shape()[axis] // count
    moved = index.add(offsets[along], index.multiply(rank, step))
    return index.insert(pipe.PartOp(destination, rank, axis, count)), [moved if d == along else o for d, o in enumerate(offsets)]
