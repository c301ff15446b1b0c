"""Execution of schedule-level kernels: agents, asynchronous effects that land late, races, deadlocks. See docs/schedule.md."""

from treadle.sim.schedule.kernel import ScheduledKernel, simulate
from treadle.sim.schedule.program import ScheduledProgram, run_program_scheduled
from treadle.sim.schedule.report import Blocked, Deadlock, Misuse, Party, PoisonRead, Race, Report

__all__ = [
    "Blocked",
    "Deadlock",
    "Misuse",
    "Party",
    "PoisonRead",
    "Race",
    "Report",
    "ScheduledKernel",
    "ScheduledProgram",
    "run_program_scheduled",
    "simulate",
]
