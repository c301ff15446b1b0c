"""Hardware copies to and from shared memory: by one thread, or each thread its part."""

from collections.abc import Callable

from treadle.dialects import tile
from treadle.sim.element_types import Array, storage_dtype
from treadle.sim.memory import Window
from treadle.sim.schedule.accesses import Access
from treadle.sim.schedule.agents import Agent, Workgroup
from treadle.sim.schedule.barriers import Mbarrier
from treadle.sim.schedule.code import Slots, Step
from treadle.sim.schedule.global_memory import GlobalView, window_of
from treadle.sim.schedule.report import Party
from treadle.sim.schedule.shared import Buffer, PerMask, Region, whole_region


def copy_step(op: tile.CopyOp, slots: Slots) -> Step:
    """A hardware copy into shared memory."""
    return _bulk_copy(op, slots) if op.is_bulk else _threads_copy(op, slots)


def _source(op: tile.CopyOp, slots: Slots) -> Callable[[Agent, Array | None], tuple[GlobalView, Callable[[], Array], Callable[[], Array]]]:
    """The view, what reads the tile, and what gives the places read."""
    view_at, offsets_at = slots.of(op.view), slots.each(op.offsets)
    window = Window(tile.ints(op.dims), tile.memref_type(op.destination).get_shape(), len(op.offsets), 1, repeats=op.repeated)

    def get(agent: Agent, mask: Array | None) -> tuple[GlobalView, Callable[[], Array], Callable[[], Array]]:
        view: GlobalView = agent.frame[view_at]
        offsets = [agent.frame[i] for i in offsets_at]
        return view, lambda: window.read(view.view, offsets, 0), lambda: view.places(window, offsets, mask)

    return get


def _bulk_copy(op: tile.CopyOp, slots: Slots) -> Step:
    """By one thread; completes on a barrier, or at once where it signals none."""
    source, destination = _source(op, slots), slots.of(op.destination)
    signals = slots.of(op.barrier) if op.barrier is not None else None
    region = whole_region(op.destination)

    def run(agent: Agent) -> None:
        if not agent.leader:
            return
        buffer: Buffer = agent.frame[destination]
        view, read, places = source(agent, None)
        own: Mbarrier | None = agent.frame[signals] if signals is not None else None
        component = own.component if own is not None else None
        reading = agent.access(op, write=False, is_async=True, component=component)
        if view.watched is not None:
            agent.enter(view.watched.shadow, places(), reading, lambda: f"global array {view.name}")
        if own is None:
            agent.enter_shared(buffer, region, agent.access(op, write=True, is_async=True))
            agent.workgroup.memory.write(buffer, region, read())
            return
        for workgroup, barrier in agent.reached(op, own, op.multicast_ranks(agent.workgroup.rank)):
            accesses = [agent.access(op, write=True, is_async=True, component=barrier.component)]
            _send(agent, op, workgroup, barrier, buffer, region, read, [*accesses, reading] if barrier is own else accesses)

    return Step(op, act=run)


def _send(
    agent: Agent,
    op: tile.CopyOp,
    workgroup: Workgroup,
    barrier: Mbarrier,
    buffer: Buffer,
    region: Region,
    read: Callable[[], Array],
    accesses: list[Access],
) -> None:
    """What a copy does to one workgroup: fills the buffer there and reports its bytes to the barrier there. `accesses`: the write first."""
    memory = workgroup.memory
    agent.enter_shared(buffer, region, accesses[0], workgroup)
    memory.empty_out(buffer, region)

    def land(value: Array) -> None:
        memory.write(buffer, region, value)
        barrier.signalling.remove(operation)
        for access in accesses:
            access.time = barrier.completed + 1
        problem = barrier.landed(region.buffer_bytes)
        if problem:
            agent.world.findings.misuse(op, agent.name, f"{barrier.name}: {problem}")

    operation = agent.issue(op, None, read, land)
    barrier.signalling.append(operation)
    workgroup.copies.append((barrier, accesses[0]))


def _threads_copy(op: tile.CopyOp, slots: Slots) -> Step:
    """Each thread its part; completes in a queue."""
    source, destination = _source(op, slots), slots.of(op.destination)
    layout = tile.shared_layout_of(op.destination)
    itemsize = storage_dtype(tile.memref_type(op.destination).element_type).itemsize
    shape = tuple(tile.memref_type(op.destination).get_shape())
    regions = PerMask(op.destination, (0,) * len(shape), shape)

    def run(agent: Agent) -> None:
        buffer: Buffer = agent.frame[destination]
        mask = agent.copies(layout, itemsize)
        region = regions.of(mask)
        if not region.elements.size:
            return
        view, read, places = source(agent, mask)
        queue = agent.queue(agent.world.queue_for("copy_in"))
        if view.watched is not None:
            agent.enter(view.watched.shadow, places(), agent.access(op, write=False, queue=queue), lambda: f"global array {view.name}")
        agent.enter_shared(buffer, region, agent.access(op, write=True, queue=queue))
        memory = agent.workgroup.memory
        memory.empty_out(buffer, region)
        agent.issue(op, queue, read, lambda value: memory.write(buffer, region, value))

    return Step(op, act=run)


def copy_out_step(op: tile.CopyOutOp, slots: Slots) -> Step:
    """A bulk store by one thread."""
    source, view_at, offsets_at = slots.of(op.source), slots.of(op.view), slots.each(op.offsets)
    region = whole_region(op.source)
    window = window_of(tile.ints(op.dims), tuple(tile.memref_type(op.source).get_shape()), op.offsets)

    def run(agent: Agent) -> None:
        if not agent.leader:
            return
        buffer: Buffer = agent.frame[source]
        view: GlobalView = agent.frame[view_at]
        offsets = [agent.frame[i] for i in offsets_at]
        queue = agent.queue(agent.world.queue_for("copy_out"))
        read = agent.access(op, write=False, queue=queue, read_queue=True, is_async=True)
        unfenced = agent.enter_shared(buffer, region, read)
        if view.watched is not None:
            write = agent.access(op, write=True, queue=queue, is_async=True)
            write.repeats = op.repeats is not None
            agent.enter(view.watched.shadow, view.places(window, offsets, None), write, lambda: f"global array {view.name}")

        def land(value: Array) -> None:
            if op.repeats is not None and not view.agrees(window, offsets, value):
                party = Party(op, agent.name, "write")
                agent.world.accesses.findings.race("order", party, party, f"global array {view.name}, written twice with different values")
            window.write(view.view, offsets, value)

        agent.issue(op, queue, lambda: agent.read_shared(op, buffer, region, unfenced), land)

    return Step(op, act=run)
