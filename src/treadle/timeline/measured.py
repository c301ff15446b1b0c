"""Timelines measured in a kernel: an instrumented build is run on a GPU, and what its agents recorded is read back."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from treadle.analysis.recorded_agents import record_layout
from treadle.dialects import dispatch, stamp
from treadle.driver.lowering import lower, tile_kernels
from treadle.driver.program import Program
from treadle.driver.sources import read_source
from treadle.errors import NO_TIMELINE, TreadleError
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.argument_layout import ArgumentLayout, Layouts
from treadle.runtime.device import default_device, open_device
from treadle.timeline.kernels import Timeline
from treadle.timeline.records import Recording, read_records
from treadle.transforms.kernel.insert_stamps import InsertStampsPass

WARM_UP_RUNS = 3


def recordings(module: builtin.ModuleOp) -> list[Recording]:
    """How the records of every launch of an instrumented module are to be read, in the order of the program's additional results."""
    kernels = {kernel.sym_name.data: kernel for kernel in tile_kernels(module)}
    found: list[Recording] = []
    for launch in module.walk():
        if not isinstance(launch, dispatch.LaunchOp):
            continue
        kernel = kernels[launch.kernel.string_value()]
        ops = list(kernel.body.walk())
        begin = next(op for op in ops if isinstance(op, stamp.BeginOp))
        events = {
            op.number.value.data: (op.ends.data if op.ends else None, op.begins.data if op.begins else None)
            for op in ops
            if isinstance(op, stamp.EventOp)
        }
        layout = record_layout(kernel, begin.workgroups.value.data, begin.capacity.value.data)
        target = kernel.target.data
        mhz = target_spec(target).clock_mhz
        found.append(Recording(kernel.sym_name.data, target, layout.lanes, layout.workgroups, layout.capacity, mhz, events))
    return found


def instrumented(
    source: str | os.PathLike[str], target: str, options: CompileOptions, function: str | None, stamps: InsertStampsPass
) -> tuple[Program, list[Recording]]:
    """A program that returns, behind its results, one array of records for each launch; and how to read them. Proven like any other.

    It runs on arrays laid out as the function declares (row-major by default), and relies on no more. Raises what compiling raises.
    """
    found: list[Recording] = []

    def instrument(module: builtin.ModuleOp) -> None:
        run_passes(module, [stamps], verify="last")
        found.extend(recordings(module))

    given = read_source(source)
    make = partial(lower, given, target, options, function, instrument=instrument)
    files = make().files
    read = list(found)

    def specialise(layouts: Layouts | None, *, wide: bool) -> Program:
        if not wide and not any(isinstance(layout, ArgumentLayout) for layout in layouts or ()):
            return program  # rows that happen to be aligned need nothing that it does not do
        reason = "an instrumented program takes arrays as the function declares them"
        raise TreadleError(NO_TIMELINE, kernel=read[0].kernel, reason=reason, hint="make the arguments contiguous")

    texts = partial(make, texts=True, until="asm")
    program = Program(target, files, texts=texts, reference=_no_reference, device=partial(default_device, target), specialise=specialise)
    return program, read


def _no_reference(_: Sequence[Any]) -> NoReturn:
    raise NotImplementedError("the records of a run have no reference")


def measured(program: Program, found: Sequence[Recording], arrays: Sequence[Any]) -> list[Timeline]:
    """One timeline a launch, of the last of a few runs on the program's device (the first ones warm clocks and caches up)."""
    results: tuple[Any, ...] = ()
    for _ in range(WARM_UP_RUNS + 1):
        results = program(*arrays)
    return [read_records(_on_host(words), one) for words, one in zip(results[-len(found) :], found, strict=True)]


def _on_host(array: Any) -> Any:
    """A result as NumPy has it; PyTorch's tensors of a GPU do not copy themselves."""
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)


def measured_timelines(
    source: str | os.PathLike[str],
    options: CompileOptions,
    function: str | None,
    stamps: InsertStampsPass,
    device: str,
    inputs: Callable[[Program], Sequence[Any]],
) -> list[Timeline]:
    """Compile for the GPU of a kind ("cuda", "hip"), run on `inputs(program)`, read. Raises TR601 without one."""
    target = open_device(device).machine
    program, found = instrumented(source, target, options, function, stamps)
    return measured(program, found, inputs(program))
