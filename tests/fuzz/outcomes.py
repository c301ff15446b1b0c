"""What became of one case, and what of that is a defect."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from treadle.errors import TreadleError

Status = Literal["right", "refused", "rejected", "wrong", "internal", "unhelpful", "slow", "hang", "crash"]
MEANINGS: dict[Status, str] = {
    "right": "compiled, and every result right",
    "refused": "an error with a code, a line and advice",
    "rejected": "tools or audits reject all the code that was made (TR55x, TR56x)",
    "wrong": "a result, or the exit status, is wrong",
    "internal": "an internal error (TR000)",
    "unhelpful": "an error without a line or without advice",
    "slow": "longer than the case may take",
    "hang": "no answer within the time limit; the process was ended",
    "crash": "the process died",
}
IN_TURN = ("turn",)
"""Instead of targets: one a module, by its seed."""
DEFECTS: tuple[Status, ...] = ("wrong", "internal", "unhelpful", "slow", "hang", "crash")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`seed` makes the case again; `label` says what it was, `detail` what happened, `text` is the program where it matters."""

    seed: int
    status: Status
    label: str = ""
    detail: str = ""
    text: str = ""
    seconds: float = 0.0

    @property
    def is_defect(self) -> bool:
        """Whether something must be fixed."""
        return self.status in DEFECTS

    def line(self) -> str:
        """The outcome as JSON on one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(line: str) -> "Outcome":
        """From `line()`."""
        return Outcome(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Settings:
    """What a campaign may choose: the targets that cases are compiled for, a GPU to run on ("" for none), and whether IREE is asked."""

    targets: tuple[str, ...] = ()
    device: str = ""
    iree: bool = True

    def line(self) -> str:
        """The settings as JSON on one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(line: str) -> "Settings":
        """From `line()`."""
        found = json.loads(line)
        return Settings(**(found | {"targets": tuple(found["targets"])}))


def of_refusal(error: TreadleError, *, line_needed: bool = True) -> tuple[Status, str]:
    """Status and detail of a user error: it has a line (where the text is at fault) and says what to do."""
    if error.code[:4] in ("TR55", "TR56"):
        return "rejected", str(error)
    helpful = bool(error.fix.strip()) and (error.location is not None or not line_needed)
    return "refused" if helpful else "unhelpful", str(error)


def worst(found: Sequence[tuple[Status, str]]) -> tuple[Status, str]:
    """The status that counts for a case of several parts: the first defect, else the first refusal, else right."""
    for statuses in (DEFECTS, ("rejected",), ("refused",)):
        for status, detail in found:
            if status in statuses:
                return status, detail
    return "right", ""
