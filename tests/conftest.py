"""What every test gets: a disk cache of its own session, so that nothing is read from or left in the user's."""

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def session_cache() -> Iterator[None]:
    """Point TREADLE_CACHE_DIR to a temporary folder for the session, in this process and its children."""
    folder = tempfile.mkdtemp(prefix="treadle-tests-")
    before = os.environ.get("TREADLE_CACHE_DIR")
    os.environ["TREADLE_CACHE_DIR"] = folder
    yield
    shutil.rmtree(folder, ignore_errors=True)
    if before is None:
        del os.environ["TREADLE_CACHE_DIR"]
    else:
        os.environ["TREADLE_CACHE_DIR"] = before
