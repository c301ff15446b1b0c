"""What a measurement leaves: records as plain values, their JSON, files of results, and means over them."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from treadle.errors import READ_FILE, WRITE_FILE, TreadleError

Status = Literal["ok", "wrong", "failed", "crashed", "timeout"]
OURS = "treadle"
COPY = "copy"
"""The contender of memory-bound workloads that is no peer: it moves as many bytes, and computes nothing."""
FORMAT = 1


@dataclass(slots=True)
class CaseRecord:
    """One workload's result.

    `ms`, `spread`, `host_us`: by contender ("treadle", "torch", "torch.compile", "copy"): median on the device, half the quartile distance
    over it, median of the enqueuing call on the host. `ratio`: by peer, the median over the rounds of its time over ours. `of_copy`: the
    same for a copy within the device's memory that moves as many bytes as the workload's inputs and outputs, which is no peer; None where
    none was measured. `error`: largest difference to float64 over the largest value, on the sample; `worst`: the largest quotient of a
    difference and its bound.
    `peer_difference`: by peer, the largest difference of whole results over the largest value; `peer_problems`: why a peer has none.
    `kernels`: facts of the code.
    `repeatable`: a call at the end gave the first one's result bit for bit.
    `host_bound`: contenders whose call the host may have enqueued later than the device could have begun it.
    """

    name: str
    group: str = ""
    title: str = ""
    status: Status = "ok"
    message: str = ""
    options: str = ""
    ms: dict[str, float] = field(default_factory=dict[str, float])
    spread: dict[str, float] = field(default_factory=dict[str, float])
    host_us: dict[str, float] = field(default_factory=dict[str, float])
    ratio: dict[str, float] = field(default_factory=dict[str, float])
    of_copy: float | None = None
    tflops: float = 0.0
    gbps: float = 0.0
    error: float = 0.0
    worst: float = 0.0
    peer_difference: dict[str, float] = field(default_factory=dict[str, float])
    peer_problems: dict[str, str] = field(default_factory=dict[str, str])
    compile_seconds: float = 0.0
    rounds: int = 0
    kernels: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    host_bound: list[str] = field(default_factory=list[str])
    state: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    repeatable: bool = True

    @property
    def best_peer(self) -> str:
        """The faster peer; "" where there is none."""
        peers = {name: value for name, value in self.ms.items() if name not in (OURS, COPY)}
        return min(peers, key=lambda name: peers[name]) if peers and self.ratio else ""

    @property
    def best_ratio(self) -> float | None:
        """Ratio to the faster peer; None where there is none, or where the result is not right."""
        return self.ratio.get(self.best_peer) if self.status == "ok" else None

    def plain(self) -> dict[str, Any]:
        """As a JSON value."""
        return asdict(self) | {"best_peer": self.best_peer, "best_ratio": self.best_ratio}

    @staticmethod
    def from_plain(value: Mapping[str, Any]) -> "CaseRecord":
        """What `plain` wrote."""
        return CaseRecord(**{name: value[name] for name in CaseRecord.__dataclass_fields__ if name in value})


def geometric_mean(values: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def group_means(records: Sequence[CaseRecord]) -> dict[str, float]:
    """Geometric mean of the ratios to the faster peer, by group and for all, in order; groups without a ratio are left out."""
    groups = dict.fromkeys(record.group for record in records)
    by_group = {group: [r.best_ratio for r in records if r.group == group and r.best_ratio] for group in groups}
    by_group["all"] = [r.best_ratio for r in records if r.best_ratio]
    return {group: mean for group, ratios in by_group.items() if (mean := geometric_mean(ratios)) is not None}


def document(environment: Mapping[str, Any], records: Sequence[CaseRecord]) -> dict[str, Any]:
    """The whole result as a JSON value."""
    return {
        "format": FORMAT,
        "environment": dict(environment),
        "geometric_means": group_means(records),
        "cases": [record.plain() for record in records],
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a result at once. Raises TR902."""
    made = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        made.replace(path)
    except OSError as problem:
        raise TreadleError(WRITE_FILE, path=path, reason=problem.strerror or problem) from problem


def read(path: Path) -> list[CaseRecord]:
    """The cases of a result. Raises TR901."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [CaseRecord.from_plain(case) for case in content["cases"]]
    except OSError as problem:
        raise TreadleError(READ_FILE, path=path, reason=problem.strerror or problem) from problem
    except (ValueError, KeyError, TypeError) as problem:
        raise TreadleError(READ_FILE, path=path, reason=f"it is no result of treadle bench ({problem})") from problem
