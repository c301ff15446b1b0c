"""One process of a campaign: reads seeds from stdin, writes one line for each outcome. Started by `pool`.

Whatever else the cases print goes nowhere, and what they leave in the cache goes with the worker.
"""

import os
import shutil
import sys
import tempfile
import time

from fuzz.kinds import load
from fuzz.outcomes import Outcome, Settings

from treadle.errors import InternalError


def main(kind: str, settings: Settings) -> None:
    """Answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    run = load(kind).run
    answers.write("ready\n")
    for line in sys.stdin:
        seed, start = int(line), time.perf_counter()
        try:
            outcome = run(seed, settings)
        except InternalError as error:
            outcome = Outcome(seed, "internal", detail=str(error))
        except Exception as error:  # noqa: BLE001 - a defect, of whatever kind
            outcome = Outcome(seed, "internal", detail=f"{type(error).__name__}: {error}")
        answers.write(Outcome(seed, outcome.status, outcome.label, outcome.detail, outcome.text, time.perf_counter() - start).line() + "\n")


if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="treadle-fuzz-")
    os.environ |= {"TREADLE_CACHE_DIR": folder, "TREADLE_WORKERS": "1"}
    try:
        main(sys.argv[1], Settings.read(sys.argv[2]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
