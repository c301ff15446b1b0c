"""The vendors' tools outside LLVM: finding them, their versions, and running them.

Search order: the knob's environment variable, the wheel in this Python environment, `PATH`, and for ld.lld also ROCm and `ziglang`.
"""

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treadle import errors, knobs
from treadle.errors import TreadleError

_LOOK_SECONDS: Final = 0.1  # how often a thread with tools that can be stopped looks
_thread: Final = threading.local()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered."""

    status: int
    output: bytes
    errors: str


def run_tool(args: Sequence[str | Path], input: bytes | None = None, *, seconds: float | None = None, check: bool = True) -> ToolResult:
    """Run a tool to its end. Raises TR552 if it fails (and `check`), TR553 when it takes longer than `seconds`, TR551 if it is absent."""
    limit = knobs.TOOL_SECONDS.get() if seconds is None else seconds
    name = Path(args[0]).name
    try:
        done = _run([str(a) for a in args], input, limit)
    except subprocess.TimeoutExpired:
        raise TreadleError(errors.TOOL_TIMEOUT, tool=name, seconds=limit) from None
    except OSError as problem:
        raise TreadleError(
            errors.TOOL_MISSING, tool=name, reason=f"{args[0]}: {problem.strerror}", install=f"an executable {name}"
        ) from None
    text = done.stderr.decode(errors="replace")
    if check and done.returncode:
        words = (text + done.stdout.decode(errors="replace")).strip()
        raise TreadleError(errors.TOOL_FAILED, tool=name, status=done.returncode, output=words[:4000])
    return ToolResult(done.returncode, done.stdout, text)


def stop_with(event: threading.Event) -> None:
    """From now on, tools that this thread runs are ended once `event` is set; `run_tool` then raises `CancelledError`."""
    _thread.stop = event


def _run(args: list[str], input: bytes | None, limit: float) -> subprocess.CompletedProcess[bytes]:
    stop: threading.Event | None = getattr(_thread, "stop", None)
    if stop is None:
        return subprocess.run(args, input=input, capture_output=True, timeout=limit, check=False)
    deadline = time.monotonic() + limit
    stdin = None if input is None else subprocess.PIPE
    process = subprocess.Popen(args, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while not stop.is_set():
            try:
                output, complaints = process.communicate(input, max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic())))
                return subprocess.CompletedProcess(args, process.returncode, output, complaints)
            except subprocess.TimeoutExpired:
                if time.monotonic() >= deadline:
                    raise
                input = None  # it is being sent
        raise CancelledError
    except BaseException:
        process.kill()  # its pipes are left alone: a child of its own may hold them
        process.wait()
        raise


def _configured(knob: knobs.Knob[Path | None], tool: str) -> Path | None:
    path = knob.get()
    if path is not None and not path.is_file():
        raise TreadleError(
            errors.TOOL_MISSING, tool=tool, reason=f"{knob.name}={path} is no file", install=f"the right path in {knob.name}"
        )
    return path


def _nvidia_tool(tool: str, knob: knobs.Knob[Path | None], wheel: str) -> Path:
    if (path := _configured(knob, tool)) is not None:
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


def find_cuobjdump() -> Path:
    """cuobjdump: resource usage of a cubin."""
    return _nvidia_tool("cuobjdump", knobs.CUOBJDUMP, "nvidia-cuda-cuobjdump")


def find_lld() -> tuple[str, ...]:
    """The command that is ld.lld."""
    if (path := _configured(knobs.LLD, "ld.lld")) is not None:
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


@functools.cache
def _version(command: tuple[str, ...], modified: int) -> str:
    text = run_tool([*command, "--version"]).output.decode(errors="replace")
    found = re.search(r"V(\d+\.\d+\.\d+)|LLD (\d+\.\d+\.\d+)", text)
    return next(filter(None, found.groups())) if found else text.strip()


def tool_version(command: Path | Sequence[str]) -> str:
    """The version a tool reports (asked once for a file and its modification time)."""
    words = (str(command),) if isinstance(command, Path) else tuple(command)
    return _version(words, Path(words[0]).stat().st_mtime_ns)


def toolchain_versions(vendor: str) -> tuple[str, ...]:
    """What decides the bits of a binary, for cache keys. `vendor` is `nvidia` or `amd`."""
    import importlib.metadata  # a compilation does not wait for its import

    llvm = f"llvmlite {importlib.metadata.version('llvmlite')}"
    if vendor == "nvidia":
        return (llvm, f"ptxas {tool_version(find_ptxas())}")
    return (llvm, f"lld {tool_version(find_lld())}")


# NVIDIA


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


# AMD


def link_amdgpu(object_file: bytes) -> bytes:
    """A relocatable AMDGPU object to the code object that the loader takes. Raises TR551, TR552, TR553."""
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        source, linked = Path(folder, "kernel.o"), Path(folder, "kernel.hsaco")
        source.write_bytes(object_file)
        run_tool([*find_lld(), "-shared", source, "-o", linked])
        return linked.read_bytes()
