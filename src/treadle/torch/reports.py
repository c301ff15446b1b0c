"""What was taken from the graphs that PyTorch compiled, what was left, and why."""

from collections.abc import Sequence

from treadle.records import Record


class RegionRecord(Record):
    """One anchor of a graph. `where`: the user's line, "" where PyTorch does not tell. `operators`: those of the region, the anchor first.
    `kernels`: of its program, none where it was left. `reason`: why it was left. `program`: a digest; equal ones are one program.
    """

    node: str
    where: str
    operators: tuple[str, ...]
    shapes: str
    taken: bool
    reason: str = ""
    kernels: tuple[str, ...] = ()
    program: str = ""


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

    def __str__(self) -> str:
        lines = [f"{self.taken} of {len(self.regions)} matrix products taken, {self.programs} programs"]
        for region in self.regions:
            fate = f"{len(region.kernels)} kernel(s)" if region.taken else f"left: {region.reason}"
            place = f" at {region.where}" if region.where else ""
            lines.append(f"  {region.node} ({' '.join(region.operators)}) {region.shapes}: {fate}{place}")
        return "\n".join(lines)


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
