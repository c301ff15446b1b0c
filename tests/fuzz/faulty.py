"""Cases that misbehave as their seed says, for the tests of the pool."""

import ctypes
import os
import subprocess
import sys
import time

from fuzz.kinds import Kind
from fuzz.outcomes import Outcome, Settings

from treadle.errors import InternalError


def run(seed: int, settings: Settings) -> Outcome:
    """Every third is right."""
    match seed % 6:
        case 1:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            time.sleep(600)
        case 2:
            os._exit(3)
        case 4:
            raise InternalError("a state that must not be")
        case 5:
            ctypes.string_at(0)
        case _:
            print("this is no answer")
    return Outcome(seed, "right", label=settings.device)


KIND = Kind(run, seconds=3.0)
