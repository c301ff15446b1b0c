"""Random contractions: each compiles for its target, proven and audited, or is refused with a code, a line and advice."""

from fuzz.kinds import Kind
from fuzz.outcomes import Outcome, Settings, of_refusal
from generators.contractions import TARGETS, random_contraction

from treadle.driver.lowering import lower
from treadle.driver.sources import Source
from treadle.errors import TreadleError
from treadle.options import CompileOptions


def run(seed: int, settings: Settings) -> Outcome:
    """The contraction of a seed, to the files of its artifact."""
    case = random_contraction(seed, targets=settings.targets or TARGETS)
    try:
        lower(Source(case.text, "case.mlir"), case.target, CompileOptions(tuned=False, **case.options), None)  # pyright: ignore[reportArgumentType]
    except TreadleError as error:
        status, detail = of_refusal(error)
        return Outcome(seed, status, case.label, detail, case.text)
    except Exception as error:  # noqa: BLE001 - a defect, of whatever kind
        return Outcome(seed, "internal", case.label, f"{type(error).__name__}: {error}", case.text)
    return Outcome(seed, "right", case.label)


KIND = Kind(run, seconds=60.0)
