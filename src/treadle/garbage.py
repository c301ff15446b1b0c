"""Work that makes no cycles worth a search for them."""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache


@contextmanager
def uncollected() -> Generator[None]:
    """No search for cyclic garbage: a tenth of a first compilation, and of a proof, goes into walks over modules that stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            _age()
            gc.enable()


@cache
def _age() -> None:
    """Let everything count as old, once a process: the next search, right behind the work, would walk over all that was imported and find
    hardly anything, which took 30 ms. Later work imports little, and what it leaves in cycles is to be found soon. Who has frozen objects
    keeps them so.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()  # into the oldest generation, without a walk
