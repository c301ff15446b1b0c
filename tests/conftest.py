"""What every test gets: a disk cache of its own session (nothing is read from or left in the user's), and all checks of the compiler on."""

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long a draw takes says how busy the machine is: on a loaded one the first draw of a session takes seconds.
settings.register_profile("treadle", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("treadle")


@pytest.fixture(scope="session", autouse=True)
def verify_each_pass() -> Iterator[None]:
    """Verify modules after every pass, here and in children, so that a test names the pass that is wrong."""
    before = os.environ.get("TREADLE_VERIFY_EACH_PASS")
    os.environ["TREADLE_VERIFY_EACH_PASS"] = before or "1"
    yield
    if before is None:
        del os.environ["TREADLE_VERIFY_EACH_PASS"]


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


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes the texts of tests/golden anew."""
    parser.addoption("--update-golden", action="store_true", help="write the texts of tests/golden anew")
