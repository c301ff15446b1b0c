"""A part of a campaign as a test: some seeds of a kind in one worker, whose defects are the failure's message."""

from fuzz.kinds import load
from fuzz.outcomes import Outcome, Settings
from fuzz.pool import run_cases

AGAIN = 4
"""How many times the limit a case has that is run again: a loaded machine is slow, and what hangs still hangs."""


def without_defects(kind: str, first: int, count: int, settings: Settings | None = None) -> list[Outcome]:
    """The outcomes of `count` seeds from `first`, none of which is a defect. What was slow beside other cases, which share
    a core's units, or did not answer, is run again alone.
    """
    settings, seconds = settings or Settings(), load(kind).seconds
    outcomes = run_cases(kind, range(first, first + count), settings, seconds=seconds)
    late = [outcome.seed for outcome in outcomes if outcome.status in ("slow", "hang")]
    outcomes = [outcome for outcome in outcomes if outcome.seed not in late]
    outcomes += run_cases(kind, late, settings, seconds=AGAIN * seconds, jobs=1) if late else []
    defects = [
        f"{o.status}: python tests/fuzz {kind} --seed {o.seed} --count 1\n  {o.label}\n  {o.detail}" for o in outcomes if o.is_defect
    ]
    assert not defects, "\n".join(defects)
    assert len(outcomes) == count
    return outcomes
