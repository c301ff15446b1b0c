"""The GPU of the device tests, opened once; they are skipped where there is none."""

import pytest

from treadle.errors import TreadleError
from treadle.runtime.cuda import CudaDevice, open_device


@pytest.fixture(scope="session")
def device() -> CudaDevice:
    """The first NVIDIA GPU."""
    try:
        return open_device()
    except TreadleError as absent:
        pytest.skip(f"no NVIDIA GPU: {absent.message}")


@pytest.fixture(scope="session")
def target(device: CudaDevice) -> str:
    """What it is for the compiler."""
    return device.target


@pytest.fixture(scope="session")
def hopper(device: CudaDevice) -> CudaDevice:
    """The GPU, an sm_90a."""
    if device.target != "sm_90a":
        pytest.skip(f"{device.name} is no sm_90a")
    return device
