"""What operations on memory, and those that order them, do when an agent executes them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from treadle.dialects import pipe, tile
from treadle.dialects.tile_attributes import is_shared
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin, scf
from treadle.machine import TargetSpec
from treadle.sim.element_types import Array, poison, storage_dtype
from treadle.sim.faults import SimulationFault
from treadle.sim.memory import Pointer, Window
from treadle.sim.schedule.agents import Agent, Frame
from treadle.sim.schedule.arrivals import await_turn_step, count_in_step, local_flag_step, pass_turn_step
from treadle.sim.schedule.code import Slots, Step, resolver
from treadle.sim.schedule.copies import copy_out_step, copy_step
from treadle.sim.schedule.global_memory import GlobalView, window_of
from treadle.sim.schedule.queues import PendingTile, Queue, Registers
from treadle.sim.schedule.report import Party
from treadle.sim.schedule.shared import Buffer, PerMask, SharedPlan, slot_offset, value_name, whole_region
from treadle.sim.schedule.synchronisation import sync_step
from treadle.sim.updates import update, within
from treadle.sim.values import operation_function


def view_step(op: tile.ViewOp, slots: Slots) -> Step:
    """A view; of a watched allocation also the view of its indices."""
    make = operation_function(op)
    ins, out = slots.each(op.operands), slots.of(op.result)
    name = value_name(op.pointer)

    def run(agent: Agent, frame: Frame) -> None:
        pointer: Pointer = frame[ins[0]]
        rest = [frame[i] for i in ins[1:]]
        watched = agent.world.watched.get(id(pointer.data))
        indices = make(Pointer(watched.indices, pointer.offset, constant=True, outside=-1), *rest) if watched is not None else None
        frame[out] = GlobalView(make(pointer, *rest), watched, indices, name)

    return Step(op, pure=run)


def load_step(op: tile.LoadOp, slots: Slots) -> Step:
    """A global load: each agent its part."""
    view_at, offsets_at, out = slots.of(op.view), slots.each(op.offsets), slots.of(op.result)
    load = operation_function(op)
    layout = tile.layout_of(op.result)
    kind = tile.tile_type(op.result)
    window = window_of(tile.ints(op.dims), tuple(kind.get_shape()), op.offsets)
    nothing = poison((1,), storage_dtype(kind.element_type))[0]

    def run(agent: Agent) -> None:
        frame = agent.frame
        view: GlobalView = frame[view_at]
        offsets = [frame[i] for i in offsets_at]
        mask = agent.part(layout)
        value: Array = load(view.view, *offsets)
        if mask is not None:
            value = np.where(mask, value, nothing)
        if view.watched is not None:
            places = view.places(window, offsets, mask)
            agent.enter(view.watched.shadow, places, agent.access(op, write=False), lambda: f"global array {view.name}")
        frame[out] = value

    return Step(op, act=run)


def gather_step(op: tile.GatherOp, slots: Slots) -> Step:
    """A load at computed places: each agent its part."""
    view_at, indices_at, out = slots.of(op.view), slots.each(op.indices), slots.of(op.result)
    gather = operation_function(op)
    layout = tile.layout_of(op.result)
    nothing = poison((1,), storage_dtype(tile.tile_type(op.result).element_type))[0]
    resolvers = [resolver(value, op) for value in op.indices]

    def run(agent: Agent) -> None:
        frame = agent.frame
        view: GlobalView = frame[view_at]
        indices = [resolve(agent, frame[at]) for at, resolve in zip(indices_at, resolvers, strict=True)]
        mask = agent.part(layout)
        value: Array = gather(view.view, *indices)
        if view.watched is not None:
            places = view.gathered_places(indices, mask)
            agent.enter(view.watched.shadow, places, agent.access(op, write=False), lambda: f"global array {view.name}")
        frame[out] = value if mask is None else np.where(mask, value, nothing)

    return Step(op, act=run)


def atomic_step(op: tile.AtomicOp, slots: Slots) -> Step:
    """An update of elements at computed places: each agent its part, of several holders the first."""
    value_at, view_at, indices_at = slots.of(op.value), slots.of(op.view), slots.each(op.indices)
    layout, kind = tile.layout_of(op.value), op.kind.data
    resolvers = [resolver(value, op) for value in (op.value, *op.indices)]

    def run(agent: Agent) -> None:
        frame = agent.frame
        value, *indices = (resolve(agent, frame[at]) for at, resolve in zip((value_at, *indices_at), resolvers, strict=True))
        if not agent.stores(layout):
            return
        view: GlobalView = frame[view_at]
        mask = agent.part(layout, storing=True)
        inside = within(view.view, indices) if mask is None else within(view.view, indices) & mask
        if view.watched is not None:
            places = view.gathered_places(indices, inside)
            access = replace(agent.access(op, write=True), update=kind)
            agent.enter(view.watched.shadow, places, access, lambda: f"global array {view.name}")
        update(view.view, kind, value[inside], [index[inside] for index in indices])

    return Step(op, act=run)


def store_step(op: tile.StoreOp, slots: Slots) -> Step:
    """A global store: each agent its part, of several holders the first."""
    value_at, view_at, offsets_at = slots.of(op.value), slots.of(op.view), slots.each(op.offsets)
    layout = tile.layout_of(op.value)
    resolve = resolver(op.value, op)
    shape = tuple(tile.tile_type(op.value).get_shape())
    window = Window(tile.ints(op.dims), shape, len(op.offsets), op.vector.value.data, edges=op.edges is not None)
    plain = window_of(tile.ints(op.dims), shape, op.offsets)

    def run(agent: Agent) -> None:
        frame = agent.frame
        value = resolve(agent, frame[value_at])
        if not agent.stores(layout):
            return
        view: GlobalView = frame[view_at]
        offsets = [frame[i] for i in offsets_at]
        mask = agent.part(layout, storing=True)
        if view.watched is not None:
            places = view.places(plain, offsets, mask)
            agent.enter(view.watched.shadow, places, agent.access(op, write=True), lambda: f"global array {view.name}")
        if mask is not None:
            value = np.where(mask, value, plain.read(view.view, offsets, 0))
        window.write(view.view, offsets, value)

    return Step(op, act=run)


def alloc_step(op: tile.AllocOp, slots: Slots, plan: SharedPlan) -> Step:
    """A shared buffer; all agents see the same."""
    out, buffer = slots.of(op.result), plan.buffers[op]

    def run(_: Agent, frame: Frame) -> None:
        frame[out] = buffer

    return Step(op, pure=run)


def slot_step(op: pipe.SlotOp, slots: Slots) -> Step:
    """One slot of a buffer. Raises SimulationFault where its layout is not where the slot is."""
    source, indices, out = slots.of(op.source), slots.each(op.indices), slots.of(op.result)
    layout, inner = tile.shared_layout_of(op.source), tile.shared_layout_of(op.result)
    itemsize = storage_dtype(tile.memref_type(op.source).element_type).itemsize
    if layout.slot(len(op.indices)) != inner:
        raise SimulationFault(f"{op.name}: the slot's layout is not that of a slot of its source")

    def run(_: Agent, frame: Frame) -> None:
        buffer: Buffer = frame[source]
        at = tuple(int(frame[i]) for i in indices)
        frame[out] = Buffer(buffer.base + slot_offset(layout, at) * itemsize, buffer.name, (*buffer.slots, *at))

    return Step(op, pure=run)


def part_step(op: pipe.PartOp, slots: Slots) -> Step:
    """One of the equal parts of a buffer, which follow one another in memory. Raises SimulationFault where there is none."""
    source, index, out = slots.of(op.source), slots.of(op.index), slots.of(op.result)
    count, layout = int(op.count.value.data), tile.shared_layout_of(op.result)
    part_bytes = layout.size * storage_dtype(tile.memref_type(op.result).element_type).itemsize

    def run(_: Agent, frame: Frame) -> None:
        buffer: Buffer = frame[source]
        at = int(frame[index])
        if not 0 <= at < count:
            raise SimulationFault(f"{op.name} {at} of {count}")
        frame[out] = Buffer(buffer.base + at * part_bytes, buffer.name, buffer.slots)

    return Step(op, pure=run)


def local_load_step(op: tile.LocalLoadOp, slots: Slots) -> Step:
    """A load from shared memory: late, where the machine has a queue for it."""
    source, out = slots.of(op.source), slots.of(op.result)
    layout = tile.layout_of(op.result)
    regions = PerMask(op.source, tile.ints(op.offsets), tuple(tile.tile_type(op.result).get_shape()))
    ranks = op.peer_ranks()

    def run(agent: Agent) -> None:
        buffer: Buffer = agent.frame[source]
        region = regions.of(agent.part(layout))
        if ranks:
            agent.frame[out] = agent.read_peer(op, buffer, region, ranks[0])
            return
        if agent.world.local_queue is None:
            agent.enter_shared(buffer, region, agent.access(op, write=False))
            agent.frame[out] = agent.read_shared(op, buffer, region)
            return
        queue = agent.queue(agent.world.local_queue)
        agent.enter_shared(buffer, region, agent.access(op, write=False, queue=queue))
        result = PendingTile(queue)

        def land(value: Array) -> None:
            result.value = value

        result.operation = agent.issue(op, queue, lambda: agent.read_shared(op, buffer, region), land)
        agent.frame[out] = result

    return Step(op, act=run)


def local_store_step(op: tile.LocalStoreOp, slots: Slots) -> Step:
    """A store to shared memory: late, where the machine has a queue for it."""
    value_at, destination = slots.of(op.value), slots.of(op.destination)
    layout = tile.layout_of(op.value)
    resolve = resolver(op.value, op)
    regions = PerMask(op.destination, tile.ints(op.offsets), tuple(tile.tile_type(op.value).get_shape()))

    def run(agent: Agent) -> None:
        value = resolve(agent, agent.frame[value_at])
        if not agent.stores(layout):
            return
        buffer: Buffer = agent.frame[destination]
        region = regions.of(agent.part(layout, storing=True))
        memory = agent.workgroup.memory
        if agent.world.local_queue is None:
            agent.enter_shared(buffer, region, agent.access(op, write=True))
            memory.write(buffer, region, value)
            return
        queue = agent.queue(agent.world.local_queue)
        agent.enter_shared(buffer, region, agent.access(op, write=True, queue=queue))
        agent.issue(op, queue, lambda: value, lambda v: memory.write(buffer, region, v))

    return Step(op, act=run)


def contract_step(op: tile.ContractOp, slots: Slots, spec: TargetSpec) -> Step:
    """A contraction of shared operands: in the queue of matrix instructions on machines that have one."""
    at = slots.each((op.a, op.b, op.accumulator))
    out = slots.of(op.result)
    multiply, facts = operation_function(op), spec.queue_for("matrix")
    resolvers = [resolver(v, op) if isinstance(v.type, builtin.TensorType) else None for v in (op.a, op.b, op.accumulator)]
    regions = [whole_region(v) if is_shared(v.type) else None for v in (op.a, op.b)]

    held = op.holds_registers() and facts is not None

    def operand(agent: Agent, number: int) -> Callable[[], Array]:
        stored = agent.frame[at[number]]
        region, resolve = regions[number], resolvers[number]
        if region is None:
            registers = Registers(resolve(agent, stored) if resolve is not None else stored)
            if held:
                agent.held[op] = registers
            return lambda: registers.value
        queue = agent.queue(facts) if facts is not None else None
        access = agent.access(op, write=False, queue=queue, is_async=facts is not None)
        unfenced = agent.enter_shared(stored, region, access)
        return lambda: agent.read_shared(op, stored, region, unfenced)

    def run(agent: Agent) -> None:
        a, b = operand(agent, 0), operand(agent, 1)
        stored, resolve = agent.frame[at[2]], resolvers[2]
        if facts is None:
            agent.frame[out] = multiply(a(), b(), stored if resolve is None else resolve(agent, stored))
            return
        queue = agent.queue(facts)
        accumulator = stored if resolve is None else _accumulator(agent, op, stored, queue, resolve)
        result = PendingTile(queue)

        def land(operands: Sequence[Array]) -> None:
            result.value = multiply(*operands, accumulator.value if isinstance(accumulator, PendingTile) else accumulator)

        result.operation = agent.issue(op, queue, lambda: (a(), b()), land)
        if held:
            agent.held[op].reader = result
        agent.frame[out] = result

    return Step(op, act=run)


def release_step(op: Operation) -> Step | None:
    """The end of a block: registers that its contractions read are given to other tiles. None where none reads any."""
    holding = [c for c in op.parent.ops if isinstance(c, tile.ContractOp) and c.holds_registers()] if op.parent is not None else []

    def run(agent: Agent) -> None:
        for contract in holding:
            registers = agent.held.pop(contract, None)
            reader = registers.reader if registers is not None else None
            if registers is None or reader is None or reader.is_retired:
                continue
            parties = Party(contract, agent.name, "read"), Party(op, agent.name, "write")
            agent.world.findings.race("result", *parties, f"the registers that {contract.name} reads, which its block gives up")
            registers.value = poison(registers.value.shape, registers.value.dtype)

    return Step(op, act=run) if holding else None


def _accumulator(agent: Agent, op: Operation, stored: Any, queue: Queue, resolve: Callable[[Agent, Any], Array]) -> Any:
    """What a matrix instruction adds to: a tile that one before it in the queue is still writing it takes over, nobody else has it then."""
    is_pending = isinstance(stored, PendingTile) and stored.queue is queue and not stored.is_retired
    if not is_pending or stored.taken is not None:
        return resolve(agent, stored)
    stored.taken = op
    return stored


def memory_steps(plan: SharedPlan, spec: TargetSpec) -> Callable[[Operation, Slots], Step | None]:
    """The operations that this package executes itself; None for those that only compute."""

    def step(op: Operation, slots: Slots) -> Step | None:
        simple: dict[type[Any], Callable[[Any, Slots], Step]] = {
            tile.ViewOp: view_step,
            tile.LoadOp: load_step,
            tile.GatherOp: gather_step,
            tile.AtomicOp: atomic_step,
            tile.StoreOp: store_step,
            pipe.SlotOp: slot_step,
            pipe.PartOp: part_step,
            tile.LocalLoadOp: local_load_step,
            tile.LocalStoreOp: local_store_step,
            tile.CountInOp: count_in_step,
            tile.LocalFlagOp: local_flag_step,
            tile.AwaitTurnOp: await_turn_step,
            tile.PassTurnOp: pass_turn_step,
            tile.CopyOp: copy_step,
            tile.CopyOutOp: copy_out_step,
        }
        if type(op) in simple:
            return simple[type(op)](op, slots)
        match op:
            case tile.ReturnOp() | scf.YieldOp() | pipe.EndRoleOp():
                return release_step(op)
            case tile.AllocOp():
                return alloc_step(op, slots, plan)
            case tile.ContractOp() if is_shared(op.a.type) or is_shared(op.b.type):
                return contract_step(op, slots, spec)
            case pipe.GroupIdOp():
                out = slots.of(op.result)

                def group(agent: Agent, frame: Frame) -> None:
                    frame[out] = agent.team.group

                return Step(op, pure=group)
            case pipe.ClusterRankOp():
                place = slots.of(op.result)

                def rank(agent: Agent, frame: Frame) -> None:
                    frame[place] = agent.workgroup.rank

                return Step(op, pure=rank)
            case _:
                return sync_step(op, slots)

    return step
