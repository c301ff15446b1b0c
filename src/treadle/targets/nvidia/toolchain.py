"""NVIDIA's tools: ptxas and nvdisasm, and what they say.

Search order: the knob's environment variable, the wheel in this Python environment, `PATH`.
"""

import importlib.util
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from treadle import errors, knobs
from treadle.codegen.tools import configured, run_tool
from treadle.errors import TreadleError
from treadle.records import dataclass


def _nvidia_tool(tool: str, knob: knobs.Knob[Path | None], wheel: str) -> Path:
    if (path := configured(knob, tool)) is not None:
        return path
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for candidate in sorted(Path(root).glob(f"*/bin/{tool}"), reverse=True):
            if candidate.is_file():
                return candidate
    if found := shutil.which(tool):
        return Path(found)
    raise TreadleError(
        errors.TOOL_MISSING, tool=tool, reason="it is neither in this Python environment nor on PATH", install=f"`pip install {wheel}`"
    )


def find_ptxas() -> Path:
    """ptxas: PTX to cubin."""
    return _nvidia_tool("ptxas", knobs.PTXAS, "nvidia-cuda-nvcc")


def find_nvdisasm() -> Path:
    """nvdisasm: cubin to SASS text."""
    return _nvidia_tool("nvdisasm", knobs.NVDISASM, "nvidia-cuda-nvdisasm")


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What ptxas reports for one entry; sizes in bytes, per thread except `static_shared_bytes`."""

    name: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_shared_bytes: int


@dataclass(frozen=True, slots=True)
class PtxasResult:
    """A cubin, ptxas' log, and what the log says. `warnings` holds every warning and C75xx remark (text without prefix)."""

    cubin: bytes
    log: str
    kernels: tuple[KernelResources, ...]
    warnings: tuple[str, ...]


_ENTRY: Final = re.compile(r"Compiling entry function '([^']+)'")
_USED: Final = re.compile(r"Used (\d+) registers")
_STATIC_SHARED: Final = re.compile(r"(\d+) bytes smem")
_FRAME: Final = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_PERFORMANCE: Final = re.compile(r"\(C75\d\d\)|Potential Performance Loss")


def parse_ptxas_log(log: str) -> tuple[tuple[KernelResources, ...], tuple[str, ...]]:
    """Resources of each entry and the warnings in a `ptxas -v` log. C75xx lines are "info" there and leave the exit status 0."""
    kernels: list[KernelResources] = []
    warnings: list[str] = []
    name, stack, stores, loads = "", 0, 0, 0
    for line in log.splitlines():
        if "warning" in line.lower() or _PERFORMANCE.search(line):
            warnings.append(re.sub(r"^ptxas\s+(info|warning)\s*:\s*", "", line).strip())
        elif entry := _ENTRY.search(line):
            name, stack, stores, loads = entry.group(1), 0, 0, 0
        elif frame := _FRAME.search(line):
            stack, stores, loads = (int(g) for g in frame.groups())
        elif (used := _USED.search(line)) and name:
            shared = _STATIC_SHARED.search(line)
            kernels.append(KernelResources(name, int(used.group(1)), stores, loads, stack, int(shared.group(1)) if shared else 0))
            name = ""
    return tuple(kernels), tuple(warnings)


def assemble_ptx(ptx: str, arch: str, *, options: Sequence[str] = ()) -> PtxasResult:
    """PTX to cubin for `arch` such as `sm_90a`. Raises `TreadleError` TR551, TR552 (with ptxas' words) or TR553."""
    ptxas = find_ptxas()
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        done = run_tool([ptxas, "-v", f"-arch={arch}", "-O3", *options, source, "-o", cubin])
        log = done.errors + done.output.decode(errors="replace")
        kernels, warnings = parse_ptxas_log(log)
        return PtxasResult(cubin.read_bytes(), log, kernels, warnings)


def disassemble_cubin(cubin: bytes, *, lines: bool = False) -> str:
    """SASS text of a cubin: one instruction a line, labels and addresses, no encodings; with `lines` also comments with source lines.

    Raises TR551, TR552, TR553.
    """
    with tempfile.NamedTemporaryFile(prefix="treadle-", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return run_tool([find_nvdisasm(), "-c", *(["-g"] if lines else []), file.name]).output.decode(errors="replace")
