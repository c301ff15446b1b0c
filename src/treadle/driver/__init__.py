"""From text to a program that runs: `compile`, and `trace` for the stages' texts.

A program that the cache holds is loaded without the IR framework and the passes: those imports are inside the functions that need them.
"""

import hashlib
import math
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle import __version__, knobs
from treadle.driver.program import Program
from treadle.driver.sources import Source, read_source
from treadle.driver.tuned import with_tuned_options
from treadle.machine.registrations import registered_facts
from treadle.options import CompileOptions
from treadle.records import Record
from treadle.runtime.cache import Cache
from treadle.runtime.device import default_device, open_device
from treadle.targets import registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from treadle.driver.lowering import Stage
    from treadle.driver.sources import SourceLike
    from treadle.frontends.levels import Level
    from treadle.plan.argument_layout import Layouts
    from treadle.remarks import Remark
    from treadle.runtime.device import Device
    from treadle.sim.reference import ReferenceResult

__all__ = ["Program", "Trace", "compile", "is_kept", "target_of_device", "trace"]

_REFERENCE_BYTES = 16
"""A float64 value and the bound of its error, an element."""

_TOOLS = ("xdsl-", "llvmlite-", "numpy-", "ml_dtypes-")


class Trace(Record):
    """The texts of the stages that a compilation passed, and its remarks."""

    stages: "Mapping[str, str]"
    remarks: "tuple[Remark, ...]"


def compile(
    source: "SourceLike",
    target: str = "auto",
    options: CompileOptions | None = None,
    function: str | None = None,
    level: "Level | None" = None,
) -> Program:
    """Compile a program for a target: "auto" (the GPU that is there, else the simulator), "sim", an architecture ("sm_90a": its default
    product), or a product of one ("sm_90a:h100-pcie").

    `source`: MLIR text, the path of a file, or a module built in memory: functions on tensors, or kernels (docs/kernels.md). `function`
    names the function, program or kernel where the module has several. `level`: where the program enters the compiler, told from its
    operations where it is not given. Raises `TreadleError` with the user's line.
    """
    target = target_of_device("auto") if target == "auto" else target
    read = read_source(source, level)
    chosen, told = with_tuned_options(read.text, target, options or CompileOptions())
    return _program(read, target, chosen, function, None, told)


def is_kept(source: "SourceLike", target: str, options: CompileOptions) -> bool:
    """Whether `compile` finds this program in the disk cache."""
    read = read_source(source)
    chosen, _ = with_tuned_options(read.text, target, options)
    return registry.code_version(target) is not None and Cache().find(cache_key(read, target, chosen, None)) is not None


def _program(
    source: Source, target: str, options: CompileOptions, function: str | None, layouts: "Layouts | None", told: str = ""
) -> Program:
    """The program for arguments of certain layouts (None: as declared), from the cache or compiled; `told`: where the choices are from."""
    key = cache_key(source, target, options, function, layouts)
    cache, is_cached = Cache(), registry.code_version(target) is not None
    files = cache.get(key) if is_cached else None
    if files is None:
        from treadle.garbage import uncollected

        with uncollected():
            if target != "sim":
                registry.start_tools(target)  # they get ready while this process imports the passes and lowers
            from treadle.driver.lowering import lower

            files = lower(source, target, options, function, layouts=layouts, told=told).files
        if is_cached:
            cache.put(key, files)
    return Program(
        target,
        files,
        texts=partial(_texts, source, target, options, function, layouts),
        reference=partial(_reference, source, options, function),
        device=partial(_device_of, target),
        specialise=partial(_variant, source, target, options, function),
    )


def _variant(
    source: Source, target: str, options: CompileOptions, function: str | None, layouts: "Layouts | None", *, wide: bool
) -> Program:
    """The program for other layouts of its arguments, and, where `wide`, for sizes beyond 32-bit indices."""
    from dataclasses import replace

    return _program(source, target, replace(options, index_bits=64) if wide else options, function, layouts)


def trace(
    source: "SourceLike",
    target: str = "auto",
    options: CompileOptions | None = None,
    function: str | None = None,
    until: "Stage" = "asm",
    level: "Level | None" = None,
) -> Trace:
    """The text of every stage up to `until`, from the program's own level on, and the remarks.

    Needs no device, and only the tools that the stages need. The rest as for `compile`.
    """
    from treadle.driver.lowering import lower

    target = target_of_device("auto") if target == "auto" else target
    read = read_source(source, level)
    chosen, told = with_tuned_options(read.text, target, options or CompileOptions())
    lowered = lower(read, target, chosen, function, texts=True, until=until, told=told)
    return Trace(lowered.stages, lowered.remarks)


def target_of_device(device: str) -> str:
    """What to compile for: "auto" and "cuda"/"hip" ask the device that is there (TreadleError where there is none), "sim" is itself."""
    return default_device().machine if device == "auto" else open_device(device).machine


def cache_key(source: Source, target: str, options: CompileOptions, function: str | None, layouts: "Layouts | None" = None) -> str:
    """A digest of everything that the artifact depends on."""
    variant = " ".join(str(layout) for layout in layouts or ())
    machine = (target, registered_facts(target), registry.code_version(target) or "")
    read = (source.text, source.file, source.level or "")
    shown = str(knobs.EVERY_LANE.get())
    parts = (*read, *machine, options.key(), function or "", variant, shown, *tool_versions(), own_state())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def tool_versions() -> tuple[str, ...]:
    """Name and version of everything installed that shapes the code."""
    return (f"treadle-{__version__}", *_installed((*_TOOLS, *registry.packages())))


@lru_cache(maxsize=8)
def _installed(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names and versions of the installed packages whose names begin so.

    Read off the names of the packages' folders: `importlib.metadata` takes longer to import than the rest of a start from the cache.
    """
    found: set[str] = set()
    for folder in sys.path:
        with suppress(OSError), os.scandir(folder or ".") as entries:
            found.update(entry.name for entry in entries if entry.name.startswith(names) and entry.name.endswith(".dist-info"))
    return tuple(sorted(found))


@lru_cache(maxsize=1)
def own_state() -> str:
    """Names, sizes and times of Treadle's own files, so that a change of the compiler misses the cache."""
    facts = sorted(_file_facts(str(Path(__file__).parents[1])))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _file_facts(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield f"{entry.path} {status.st_size} {status.st_mtime_ns}"
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _file_facts(entry.path)


def _texts(source: Source, target: str, options: CompileOptions, function: str | None, layouts: "Layouts | None") -> Any:
    from treadle.driver.lowering import lower

    return lower(source, target, options, function, layouts=layouts, texts=True, until=None if target == "sim" else "asm")


def _reference(source: Source, options: CompileOptions, function: str | None, arrays: "Sequence[Any]") -> "Sequence[ReferenceResult]":
    from treadle.errors import NO_REFERENCE, TreadleError
    from treadle.runtime.host_memory import require
    from treadle.sim.reference import evaluate_module

    loaded = source.load(function)
    if loaded.level != "tensor":
        raise TreadleError(NO_REFERENCE, file=source.file, level=loaded.level)
    require(sum(math.prod(getattr(array, "shape", ())) for array in arrays) * _REFERENCE_BYTES, "the reference's arrays in float64")
    return evaluate_module(loaded.module, arrays, function, f32_precision=options.f32_precision)


def _device_of(target: str) -> "Device":
    return open_device("sim") if target == "sim" else default_device(target)
