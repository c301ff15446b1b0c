"""What was taken from the graphs that PyTorch compiled, what was left, and why."""

from collections.abc import Sequence

from treadle.records import Record


class RegionRecord(Record):
    """One anchor of a graph. `where`: the user's line, "" where PyTorch does not tell. `operators`: those of the region, the anchor first.
    `kernels`: of its program, none where there is none. `reason`: why it was left. `program`: a digest; equal ones are one program.
    `flop`: of the anchor, None where sizes are symbols. `modelled_us`: of the program's kernels, `replaced_us`: of what it replaces; None
    where they are not known. `measured_us`: both, where they were measured.
    """

    node: str
    where: str
    operators: tuple[str, ...]
    shapes: str
    taken: bool
    reason: str = ""
    kernels: tuple[str, ...] = ()
    program: str = ""
    flop: int | None = None
    modelled_us: float | None = None
    replaced_us: float | None = None
    measured_us: tuple[float, float] | None = None

    def __str__(self) -> str:
        fate = f"{len(self.kernels)} kernel(s)" if self.taken else f"left: {self.reason}"
        place = f" at {self.where}" if self.where else ""
        return f"{self.node} ({' '.join(self.operators)}) {self.shapes}: {fate}{self._times()}{place}"

    def _times(self) -> str:
        if self.measured_us is not None:
            return ", {:.1f} us measured, {:.1f} us what it replaces".format(*self.measured_us)
        if self.modelled_us is None or not self.taken:
            return ""
        against = "" if self.replaced_us is None else f", {self.replaced_us:.1f} us what it replaces"
        return f", {self.modelled_us:.1f} us modelled{against}"


class Report(Record):
    """The regions of all graphs since the process began, or since `clear_report`."""

    regions: tuple[RegionRecord, ...]

    @property
    def taken(self) -> int:
        """How many anchors run as our programs."""
        return sum(region.taken for region in self.regions)

    @property
    def programs(self) -> int:
        """How many different programs those are."""
        return len({region.program for region in self.regions if region.taken})

    @property
    def flop_share(self) -> float | None:
        """The part of the anchors' floating point operations that is taken, of those with known sizes; None where there are none."""
        whole = sum(region.flop or 0 for region in self.regions)
        return sum(region.flop or 0 for region in self.regions if region.taken) / whole if whole else None

    def __str__(self) -> str:
        share = "" if self.flop_share is None else f" with {100 * self.flop_share:.1f} % of their FLOP"
        head = f"{self.taken} of {len(self.regions)} matrix products and convolutions taken{share}, {self.programs} programs"
        return "\n".join([head, *(f"  {region}" for region in self.regions)])


_records: list[RegionRecord] = []


def note(records: Sequence[RegionRecord]) -> None:
    """Add what became of a graph's anchors."""
    _records.extend(records)


def report() -> Report:
    """What was taken and what was left since the process began, or since `clear_report`; print it, or read its `regions`."""
    return Report(tuple(_records))


def clear_report() -> None:
    """Forget all regions."""
    _records.clear()
