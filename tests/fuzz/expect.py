"""A part of a campaign as a test: some seeds of a kind in one worker, whose defects are the failure's message."""

from fuzz.kinds import load
from fuzz.outcomes import Outcome, Settings
from fuzz.pool import run_cases


def without_defects(kind: str, first: int, count: int, settings: Settings | None = None) -> list[Outcome]:
    """The outcomes of `count` seeds from `first`, none of which is a defect."""
    outcomes = run_cases(kind, range(first, first + count), settings or Settings(), seconds=load(kind).seconds)
    defects = [
        f"{o.status}: python tests/fuzz {kind} --seed {o.seed} --count 1\n  {o.label}\n  {o.detail}" for o in outcomes if o.is_defect
    ]
    assert not defects, "\n".join(defects)
    assert len(outcomes) == count
    return outcomes
