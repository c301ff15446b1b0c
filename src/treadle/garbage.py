"""Work that makes no cycles worth a search for them."""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """No search for cyclic garbage: a tenth of a first compilation, and of a proof, goes into walks over modules that stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
