"""AMD's tool: the linker ld.lld.

Search order: the knob's environment variable, `PATH`, ROCm, the `ziglang` wheel.
"""

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

from treadle import errors, knobs
from treadle.codegen.tools import configured, run_tool
from treadle.errors import TreadleError


def find_lld() -> tuple[str, ...]:
    """The command that is ld.lld."""
    if (path := configured(knobs.LLD, "ld.lld")) is not None:
        return (str(path),)
    if found := shutil.which("ld.lld"):
        return (found,)
    for candidate in sorted(Path("/opt").glob("rocm*/*llvm/bin/ld.lld"), reverse=True):
        return (str(candidate),)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "ld.lld")
    raise TreadleError(
        errors.TOOL_MISSING,
        tool="ld.lld",
        reason="neither LLVM, ROCm nor ziglang is installed",
        install="`pip install ziglang` or LLVM's lld",
    )


def link_amdgpu(object_file: bytes) -> bytes:
    """A relocatable AMDGPU object to the code object that the loader takes. Raises TR551, TR552, TR553."""
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        source, linked = Path(folder, "kernel.o"), Path(folder, "kernel.hsaco")
        source.write_bytes(object_file)
        run_tool([*find_lld(), "-shared", source, "-o", linked])
        return linked.read_bytes()
