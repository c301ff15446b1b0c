"""Executes schedule-level kernels with real values, and reports what their synchronisation leaves unordered. See docs/schedule.md."""

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from treadle.dialects import tile
from treadle.dialects.agents import split_of
from treadle.dialects.global_arrays import accessed_pointers
from treadle.machine import target_spec
from treadle.plan import expr
from treadle.sim.element_types import Array
from treadle.sim.faults import SimulationFault
from treadle.sim.index_values import check_symbols
from treadle.sim.memory import Pointer
from treadle.sim.schedule.agents import Agent, Frame, Team, Workgroup, World
from treadle.sim.schedule.arrivals import check_counters
from treadle.sim.schedule.barriers import Meeting
from treadle.sim.schedule.clocks import Clock, join
from treadle.sim.schedule.code import Compiler, execute
from treadle.sim.schedule.global_memory import watch
from treadle.sim.schedule.operations import memory_steps
from treadle.sim.schedule.report import Findings, Party, Report
from treadle.sim.schedule.roles import run_roles
from treadle.sim.schedule.scheduler import Mode, Scheduler
from treadle.sim.schedule.shared import SharedPlan

RESIDENT = 4
"""Clusters that run at the same time in random order, where workgroups meet at counters; of others one after the other will do."""


class ScheduledKernel:
    """A schedule-level `tile.kernel` ready to run; `symbols` and `grid` as in the tile interpreter."""

    def __init__(self, kernel: tile.KernelOp) -> None:
        self._kernel = kernel
        self.name = kernel.sym_name.data
        self.symbols = kernel.symbol_names()
        self.output_count = int(kernel.output_count.value.data)
        self._spec = target_spec(kernel.target.data)
        self._warps = int(kernel.num_warps.value.data)
        self._cluster = kernel.cluster_size()
        self._splits = split_of(kernel)
        self._arrivals = [op for op in kernel.body.walk() if isinstance(op, tile.OrderedCounterOp)]
        self._takes_turns = any(isinstance(op, tile.AwaitTurnOp) for op in self._arrivals)
        self._plan = SharedPlan(kernel)
        compiler = Compiler(memory_steps(self._plan, self._spec), run_roles)
        arguments = kernel.body.block.args
        self._arguments = compiler.slots.each(arguments)
        self._code = compiler.block(kernel.body.block)
        self._frame_size = compiler.slots.count
        _, written = accessed_pointers(kernel)
        self._written = [a in written for a in arguments[: len(arguments) - len(self.symbols)]]
        self._grid = expr.compile_tuple([expr.parse(text) for text in kernel.grid_text()], self.symbols)

    def grid(self, symbols: Sequence[int]) -> tuple[int, int, int]:
        """Workgroups along x, y and z for values of the symbols."""
        x, y, z = self._grid(*symbols)
        return x, y, z

    def launch(
        self,
        pointers: Sequence[Pointer],
        symbols: Sequence[int],
        findings: Findings,
        *,
        grid: Sequence[int] | None = None,
        workgroups: int | None = None,
        mode: Mode = "late",
        seed: int = 0,
        resident: int | None = None,
    ) -> None:
        """Run the workgroups of the grid, at most `workgroups` of them, those of a cluster together; outputs are written through pointers.
        Clusters that meet at counters run `resident` at a time: others begin when all of these have ended.

        Stops at the first deadlock. Raises SimulationFault where the program breaks a promise that is not about order.
        """
        if len(pointers) != len(self._written) or len(symbols) != len(self.symbols):
            raise SimulationFault(f"kernel {self.name} takes {len(self._written)} pointers and symbols {list(self.symbols)}")
        check_symbols(self._kernel, symbols)
        known, watched = watch(pointers, self._written)
        world = World(self._spec, self._warps, watched, findings, interleave=mode == "random")
        template: Frame = [None] * self._frame_size
        for slot, value in zip(self._arguments, (*known, *(int(s) for s in symbols)), strict=True):
            template[slot] = value
        scheduler = Scheduler(mode, np.random.default_rng(seed), shuffle=seed != 0)
        x, y, z = grid if grid is not None else self.grid(symbols)
        cluster = self._cluster
        if x % cluster:
            raise SimulationFault(f"kernel {self.name} has clusters of {cluster} in a grid of {x} along its first axis")
        places = [(p[2], p[1], p[0]) for p in islice(np.ndindex(z, y, x), workgroups)]
        clusters = [places[first : first + cluster] for first in range(0, len(places), cluster)]
        at_once = 1
        if self._arrivals and seed:
            at_once = RESIDENT if mode == "random" or self._takes_turns else 1
            if not self._takes_turns:  # the order of workgroups says who is the last; who waits for others relies on it
                order: list[int] = np.random.default_rng(seed).permutation(len(clusters)).tolist()
                clusters = [clusters[i] for i in order]
        at_once = resident or at_once
        with np.errstate(all="ignore"):
            for first in range(0, len(clusters), at_once):
                present = [w for group in clusters[first : first + at_once] for w in self._together(world, template, group)]
                if not scheduler.run(present, findings):
                    return
                for workgroup in present:
                    _end(workgroup, findings)
        if workgroups is None:
            check_counters(world, self._arrivals, findings)

    def _together(self, world: World, template: Frame, places: Sequence[tuple[int, int, int]]) -> list[Workgroup]:
        """The workgroups of a cluster."""
        meeting = Meeting("sync.cluster_barrier", self._warps * len(places), world.number())
        together = [self._workgroup(world, template, place, meeting, rank) for rank, place in enumerate(places)]
        for workgroup in together:
            workgroup.peers = together
        return together

    def _workgroup(self, world: World, template: Frame, place: tuple[int, int, int], cluster: Meeting, rank: int) -> Workgroup:
        workgroup = Workgroup(world, place, self._plan, cluster, rank)
        team = Team(self._warps, 0, is_group=False)
        for warp in range(self._warps):
            frame = template.copy()
            frame[0:3] = place
            agent = Agent(workgroup, f"warp {warp}", frame, team, warp, warp * self._splits // self._warps)
            agent.coroutine = execute(self._code, agent)
            workgroup.agents.append(agent)
        return workgroup


def _end(workgroup: Workgroup, findings: Findings) -> None:
    """What a kernel's end asks for: its memory is gone, so nothing may still touch it. Then everything takes effect."""
    known: Clock = {}
    for agent in workgroup.agents:
        join(known, agent.clock)
        for queue in agent.queues.values():
            for operation in queue.left():
                party = Party(operation.op, agent.name, "read" if isinstance(operation.op, tile.CopyOutOp | tile.ContractOp) else "write")
                findings.race("end", party, party, f"an operation of the queue {queue.name}")
    for barrier, access in workgroup.copies:
        if known.get(access.component, 0) < access.time:
            findings.race("end", access.party, access.party, f"signals {barrier.name}")
    for party, component, time in workgroup.touches:
        if known.get(component, 0) < time:
            findings.race("end", party, party, f"barriers or memory of {workgroup.name}")
    for operation in tuple(workgroup.in_flight):
        operation.land()


def simulate(
    kernel: tile.KernelOp,
    arrays: Sequence[Array],
    symbols: Mapping[str, int] | Sequence[int] = (),
    grid: Sequence[int] | None = None,
    *,
    mode: Mode = "late",
    seed: int = 0,
    workgroups: int | None = None,
    resident: int | None = None,
) -> Report:
    """Run a schedule-level kernel on copies of `arrays`, one for each pointer, in row-major order.

    `symbols`: values of the kernel's symbols, by name or in order. `grid`: workgroups along x, y, z (default: the kernel's own);
    `workgroups`: run only the first so many; `resident`: how many at a time where they meet at counters. `mode`, `seed`: see scheduler.py.
    Outputs of the report are copies of the last `output_count` arrays. Raises SimulationFault.
    """
    ready = ScheduledKernel(kernel)
    copies = [np.array(a, order="C") for a in arrays]
    values = [symbols[name] for name in ready.symbols] if isinstance(symbols, Mapping) else list(symbols)
    findings = Findings()
    pointers = [Pointer(a.reshape(-1)) for a in copies]
    ready.launch(pointers, values, findings, grid=grid, workgroups=workgroups, mode=mode, seed=seed, resident=resident)
    return findings.report(tuple(copies[len(copies) - ready.output_count :]))
