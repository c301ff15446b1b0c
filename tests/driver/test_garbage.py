"""When cyclic garbage is searched for: not during a compilation, and not over all that a first one has imported right behind it."""

import subprocess
import sys

SHOWN = """
import gc
from treadle.garbage import uncollected

class Kept: pass

def generation_of(made):
    return next((g for g in range(3) if any(one is made for one in gc.get_objects(generation=g))), None)

{before}
for _ in range(2):
    with uncollected():
        assert not gc.isenabled()
        made = Kept()
        with uncollected():
            pass
        assert not gc.isenabled()
    print(gc.isenabled(), generation_of(made), gc.get_freeze_count() > 0)
"""


def shown(before: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", SHOWN.format(before=before)], capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_what_a_first_compilation_makes_counts_as_old() -> None:
    first, second = shown("")
    assert first == "True 2 False"
    assert second.startswith("True 0"), "later garbage is found soon"


def test_what_a_user_has_frozen_stays_frozen() -> None:
    first, second = shown("gc.freeze()")
    assert first == second == "True 0 True"


def test_what_is_off_stays_off() -> None:
    assert shown("gc.disable()") == ["False 0 False"] * 2
