"""What a measurement depends on and is recorded with it: device, driver, versions, clocks, power."""

import platform
import subprocess
import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from treadle import __version__

_FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "clocks_event_reasons.active")
_FIXED = ("name", "driver_version", "clocks.max.sm", "power.limit", "memory.total", "ecc.mode.current")
_PACKAGES = ("torch", "triton", "llvmlite", "xdsl", "nvidia-cuda-nvcc", "cuda-bindings")


class DeviceState:
    """A query of clocks, power and temperature that runs beside the measurement."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Start the query now, while the device is busy; nothing where there is no nvidia-smi."""
        self._process = _start(_FIELDS)

    def end(self) -> dict[str, str]:
        """What it found."""
        process, self._process = self._process, None
        return _finish(process, _FIELDS)


def _start(fields: tuple[str, ...]) -> "subprocess.Popen[str] | None":
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return None


def _finish(process: "subprocess.Popen[str] | None", fields: tuple[str, ...]) -> dict[str, str]:
    if process is None:
        return {}
    try:
        text, _ = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return {}
    return parse_row(text, fields)


def parse_row(text: str, fields: tuple[str, ...]) -> dict[str, str]:
    """One line of values separated by commas, by field; empty where it does not have as many."""
    values = [value.strip() for value in text.strip().split(",")]
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else {}


def environment() -> dict[str, Any]:
    """Everything that stays as it is during a run; imports PyTorch."""
    found: dict[str, Any] = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "treadle": __version__}
    found |= {"python": platform.python_version(), "system": platform.platform(), "packages": versions()}
    found["gpu"] = _finish(_start(_FIXED), _FIXED)
    torch: Any = import_module("torch")
    found["cuda_of_torch"] = str(torch.version.cuda or torch.version.hip)
    if torch.cuda.is_available():
        found["device"] = str(torch.cuda.get_device_name())
    return found


def versions() -> dict[str, str]:
    """Versions of the packages that matter, of those that are installed."""
    found: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
