"""A schedule spelled out: prologue, steady loop and epilogue as lists of steps. Pure records, no IR.

With S stages and N iterations, step t runs stage s on iteration t - s. The prologue is steps 0 to S - 2. A *peeled* loop runs
max(N - S + 1, 0) times without branches, and S - 1 more steps follow it; a *guarded* loop runs N times with all stages but the last under
a condition, and nothing follows. Work on iterations that do not exist is left out: when the compiler runs where N is known, else by guards.
A *versioned* loop is a peeled one for N >= S - 1, which needs no guards, beside the sequential loop for smaller N.
"""

from treadle.plan.stages import Schedule
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A cluster (by its place) on the iteration `offset` after the step's base; `guarded`: only if that is one of the loop's."""

    cluster: int
    stage: int
    offset: int
    guarded: bool


Step = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Expansion:
    """Steps before, in and after the loop.

    Bases: iteration 0 in the prologue, the loop's own iteration in `steady`, in the epilogue the iteration that the last stage would take
    next. `steady` is None where the loop never runs. `shortened`: iterations the loop runs less than the original. `iterations`: N.
    """

    stages: int
    prologue: tuple[Step, ...]
    steady: Step | None
    shortened: int
    epilogue: tuple[Step, ...]
    iterations: int | None

    @property
    def after(self) -> int | None:
        """The epilogue's base, where N is known."""
        return None if self.iterations is None else max(self.iterations - self.stages + 1, 0)


def expand(schedule: Schedule, iterations: int | None, at_least: int = 0) -> Expansion:
    """The steps for N = `iterations`, or for any N >= `at_least` (versioned: and >= S - 1) where that is None."""
    last = schedule.stages - 1
    if schedule.tail == "versioned":
        at_least = max(at_least, last)
    clusters = list(enumerate(schedule.clusters))

    def part(at: int, stage: int, iteration: int, offset: int, guarded: bool) -> Part | None:
        if iterations is not None:
            return Part(at, stage, offset, guarded=False) if iteration < iterations else None
        return Part(at, stage, offset, guarded)

    def step(parts: list[Part | None]) -> Step:
        return tuple(p for p in parts if p is not None)

    prologue = tuple(
        step([part(at, c.stage, t - c.stage, t - c.stage, t - c.stage >= at_least) for at, c in clusters if c.stage <= t])
        for t in range(last)
    )
    if schedule.tail == "guarded":
        steady = tuple(Part(at, c.stage, last - c.stage, c.stage < last) for at, c in clusters)
        return Expansion(schedule.stages, prologue, None if iterations == 0 else steady, 0, (), iterations)
    base = 0 if iterations is None else max(iterations - last, 0)
    steady = tuple(Part(at, c.stage, last - c.stage, guarded=False) for at, c in clusters)
    epilogue = tuple(
        step([part(at, c.stage, base + last + e - c.stage, last + e - c.stage, at_least < last) for at, c in clusters if c.stage > e])
        for e in range(last)
    )
    runs = iterations is None or iterations > last
    return Expansion(schedule.stages, prologue, steady if runs else None, last, epilogue, iterations)
