"""The timelines of a program's kernels: compiled to the schedule level, then modelled."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from treadle.dialects.tile import KernelOp
from treadle.driver.lowering import scheduled, tile_kernels
from treadle.driver.sources import read_source
from treadle.errors import NO_TIMELINE, TreadleError
from treadle.ir.locations import location_of
from treadle.machine import TargetSpec, target_spec
from treadle.options import CompileOptions
from treadle.timeline.extract import Extractor
from treadle.timeline.model import Model, Outcome

if TYPE_CHECKING:
    from treadle.driver.sources import SourceLike
    from treadle.frontends.levels import Level


@dataclass(frozen=True, slots=True)
class Timeline:
    """A kernel's run: `agents` in order, `workgroups` of its grid, `clock_mhz` to turn clocks into time.

    Modelled: one workgroup. Measured (`is_measured`): `workgroups` counts those that were recorded, all of them in the outcome.
    """

    kernel: str
    target: str
    agents: tuple[str, ...]
    workgroups: int
    clock_mhz: int
    outcome: Outcome
    is_measured: bool = False

    @property
    def source(self) -> str:
        """Where it is from, in words."""
        return f"{self.workgroups} workgroups, measured" if self.is_measured else f"one of {self.workgroups} workgroups, modelled"

    @property
    def lanes(self) -> tuple[str, ...]:
        """Agents, then what they share, as far as it is used."""
        used = {span.lane for span in self.outcome.spans}
        return (*self.agents, *sorted(used - set(self.agents)))


def timelines(
    source: "SourceLike",
    target: str,
    options: CompileOptions | None = None,
    function: str | None = None,
    sizes: Mapping[str, int] | None = None,
    until: float = float("inf"),
    level: "Level | None" = None,
) -> list[Timeline]:
    """One timeline a kernel, up to `until` clocks; `level`: that of a source that does not say it.

    Raises what compiling raises, and TR824 where control or sizes are not known.
    """
    spec = target_spec(target)
    module = scheduled(read_source(source, level), target, options or CompileOptions(), function)
    return [timeline_of(kernel, spec, sizes or {}, until) for kernel in tile_kernels(module)]


def timeline_of(kernel: KernelOp, spec: TargetSpec, sizes: Mapping[str, int], until: float) -> Timeline:
    """The timeline of a kernel at schedule level. Raises TR824."""
    extracted = Extractor(kernel, spec, sizes).extract()
    names = tuple(agent.name for agent in extracted.agents)
    outcome = Model(extracted.agents, extracted.mbarriers, until).run()
    name = kernel.sym_name.data
    if outcome.stuck:
        reason = f"{', '.join(outcome.stuck)} would wait forever"
        raise TreadleError(NO_TIMELINE, location_of(kernel), kernel=name, reason=reason, hint="`treadle verify` says what is missing")
    return Timeline(name, spec.name, names, extracted.workgroups, spec.clock_mhz, outcome)
