"""Arrivals, at barriers of the workgroup and of others of a cluster, and the form of copies that fill several of them."""

from collections.abc import Sequence

from treadle.codegen.llvm_text import I16, I32, I64, Builder, Value, bit_width, i32, integer, structure, vector_shape
from treadle.dialects.agents import role_of
from treadle.dialects.sync import ArriveOp
from treadle.dialects.tile import CopyOp, KernelOp, LocalLoadOp, LocalStoreOp
from treadle.errors import InternalError
from treadle.ir.core import Operation
from treadle.targets.nvidia.elected import Elected
from treadle.targets.nvidia.refills import ahead_of_arrival
from treadle.targets.nvidia.tf32 import allocation
from treadle.targets.simt.context import KernelContext

CLUSTER_BARRIER = "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;"


def arrive(ctx: KernelContext, op: ArriveOp, address: Value, count: int, *, every_lane: bool) -> None:
    """One lane arrives for its warp, as often as `count` says, or each does: what others did through the generic proxy is done then."""
    chosen = "" if every_lane else "setp.eq.u32 p, $1, 0;\n@p "
    number = f", {count}" if count > 1 else ""
    text = f"{{ .reg .pred p;\n{ahead_of_arrival(ctx, op)}{chosen}mbarrier.arrive.shared::cta.b64 _, [$0]{number}; }}"
    ctx.b.asm(text, "r,r,~{memory}", [ctx.b.ptrtoint(address, I32), ctx.lane])


def arrive_at_peers(ctx: KernelContext, op: ArriveOp, address: Value, count: int) -> None:
    """One lane arrives at each peer, as often as `count` says.

    A release to the cluster would drain all memory in every step. It is there only where the agent has accesses of its own to the slots:
    matrix instructions that read one are over when their group is retired (docs/schedule.md, Clusters).
    """
    peers, number = op.peer_ranks(), f", {count}" if count > 1 else ""
    if max(peers) >= ctx.lanes:
        raise InternalError(f"sync.arrive at the workgroups {list(peers)}")
    is_reader = _accesses_filled_slots(ctx.kernel, op)
    together, order = (ahead_of_arrival(ctx, op), ".release.cluster") if is_reader else ("", "")
    chosen = f"setp.lt.u32 p, $1, {len(peers)};"
    if peers != tuple(range(len(peers))):
        chosen = f"shr.u32 there, {_mask(peers)}, $1;\nand.b32 there, there, 1;\nsetp.ne.u32 p, there, 0;"
    peer = ctx.lane if op.relative is None else ctx.b.xor(ctx.lane, ctx.hooks.cluster_rank(ctx.b))
    text = (
        f"{{ .reg .pred p;\n.reg .b32 there;\n{together}{chosen}\n"
        f"@p mapa.shared::cluster.u32 there, $0, $2;\n@p mbarrier.arrive{order}.shared::cluster.b64 _, [there]{number}; }}"
    )
    ctx.b.asm(text, "r,r,r,~{memory}", [ctx.b.ptrtoint(address, I32), ctx.lane, peer])


def load_from_peer(b: Builder, type: str, address: Value, peer: int) -> Value:
    """One to four words that lie at an address of shared memory in workgroup `peer`."""
    length, element = vector_shape(type) or (1, type)
    places = [f"${at}" for at in range(length)]
    target, form = (places[0], "") if length == 1 else (f"{{{', '.join(places)}}}", f".v{length}")
    text = f"{{ .reg .b32 there;\nmapa.shared::cluster.u32 there, ${length}, {peer};\nld.shared::cluster{form}.b32 {target}, [there]; }}"
    constraints = ",".join([*["=r"] * length, "r", "~{memory}"])
    words = b.asm(text, constraints, [b.ptrtoint(address, I32)], I32 if length == 1 else structure([I32] * length))
    if length == 1:
        return b.bitcast(words, type)
    return b.build_vector([b.bitcast(b.extract_value(words, at), element) for at in range(length)])


def multicast_form(ctx: KernelContext, op: CopyOp, todo: Elected) -> tuple[str, str]:
    """What a copy's instruction ends in, and its last operand: a mask of the workgroups that it fills."""
    ranks, size = op.multicast_ranks(), ctx.kernel.cluster_size()
    if not ranks:
        return "", ""
    if op.relative is None or len(ranks) == size:
        return ".multicast::cluster", f", {_mask(ranks)}"
    # The masks of all workgroups in one word.
    b, masks = ctx.b, sum(_mask(op.multicast_ranks(rank)) << size * rank for rank in range(size))
    word = I32 if size * size <= bit_width(I32) else I64
    place = b.resize(b.mul(ctx.hooks.cluster_rank(b), i32(size)), word, signed=False)
    mask = b.and_(b.lshr(integer(word, masks), place), integer(word, (1 << size) - 1))
    return ".multicast::cluster", f", {todo.operand(b.trunc(mask, I16))}"


def _mask(ranks: Sequence[int]) -> int:
    return sum(1 << rank for rank in ranks)


def _accesses_filled_slots(kernel: KernelOp, op: ArriveOp) -> bool:
    """Whether the role that executes `op` accesses, by instructions of its own lanes, a buffer that other workgroups fill, or read."""
    filled = [allocation(copy.destination) for copy in kernel.walk() if isinstance(copy, CopyOp) and copy.multicast_ranks()]
    filled += [allocation(load.source) for load in kernel.walk() if isinstance(load, LocalLoadOp) and load.peer is not None]
    role = role_of(op)

    def is_access(other: Operation) -> bool:
        if isinstance(other, LocalStoreOp):
            return allocation(other.destination) in filled
        return isinstance(other, LocalLoadOp) and allocation(other.source) in filled

    return any(is_access(other) for other in (kernel.walk() if role is None else role.operations()))
