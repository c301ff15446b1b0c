"""What was taken from the graphs that PyTorch compiled, what was left, and why. Needs no PyTorch: `treadle explain` shows saved reports."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from treadle.errors import READ_FILE, TreadleError
from treadle.records import Record

FORMAT: Final = 1


class RegionRecord(Record):
    """One anchor of a graph. `where`: the user's line, "" where PyTorch does not tell. `operators`: those of the region, the anchor first.
    `kernels`: of its program, none where there is none. `reason`: why it was left. `program`: a digest, for `treadle.torch.program`; equal
    ones are one program. `flop`: of the anchor, None where sizes are symbols. `modelled_us`: of the program's kernels, `replaced_us`: of
    what it replaces; None where they are not known. `measured_us`: both, where they were measured.
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
        place = f" at {self.where}" if self.where else ""
        return f"{self.node} ({' '.join(self.operators)}) {self.shapes}: {self.fate}{self._times()}{place}"

    @property
    def fate(self) -> str:
        """What became of it."""
        return f"{len(self.kernels)} kernel(s)" if self.taken else f"left: {self.reason}"

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: getattr(self, name) for name in self.record_names}

    def _times(self) -> str:
        if not self.taken:
            return ""  # the reason has them
        if self.measured_us is not None:
            return ", {:.1f} us measured, {:.1f} us what it replaces".format(*self.measured_us)
        if self.modelled_us is None:
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

    @property
    def head(self) -> str:
        """How much is taken, in one line."""
        share = "" if self.flop_share is None else f" with {100 * self.flop_share:.1f} % of their FLOP"
        return f"{self.taken} of {len(self.regions)} matrix products and convolutions taken{share}, {self.programs} programs"

    def __str__(self) -> str:
        return "\n".join([self.head, *(f"  {region}" for region in self.regions)])

    def save(self, path: str | Path) -> None:
        """Write a file that `treadle explain` shows. Raises OSError."""
        content = {"treadle-report": FORMAT, "regions": [region.plain() for region in self.regions]}
        Path(path).write_text(json.dumps(content, indent=1), encoding="utf-8")


def load(path: Path) -> Report:
    """A report that was saved. Raises TR901 where the file is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["treadle-report"] != FORMAT:
            raise ValueError(f"its form is {content['treadle-report']}, this version's is {FORMAT}")
        return Report(tuple(map(record_of, content["regions"])))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        reason = problem if isinstance(problem, OSError) else f"it is no saved report ({problem})"
        raise TreadleError(READ_FILE, path=path, reason=reason) from None


def record_of(plain: Mapping[str, Any]) -> RegionRecord:
    """What `plain` wrote."""
    lists = ("operators", "kernels", "measured_us")
    values: dict[str, Any] = {name: tuple(value) if name in lists and value is not None else value for name, value in plain.items()}
    return RegionRecord(**values)


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
