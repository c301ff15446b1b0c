"""`treadle verify`: prove the schedules of a file: of kernels as they stand at schedule level, of other programs as they are compiled."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from treadle.dialects import tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.errors import USAGE, TreadleError
from treadle.frontends.levels import Level, level_of
from treadle.ir.builtin import ModuleOp
from treadle.ir.locations import location_of
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import Door, lower
from treadle.tools.compile_options import LevelOption
from treadle.tools.diagnostics import EXIT_WRONG_RESULT, render
from treadle.verify.lint import superfluous_sync
from treadle.verify.verify_schedule import explained_verdict, schedule_kernels


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE.mlir", help="A module of kernels, or a program on tensors.")],
    target: Annotated[str, typer.Option("--target", help="What to schedule for, where the file holds no schedule.")] = "sm_90a",
    lint: Annotated[bool, typer.Option("--lint", help="Also name synchronisation that nothing needs.")] = False,
    allow_unproven: Annotated[
        bool, typer.Option("--allow-unproven", help="Status 0 also for kernels in which no fault was found but not everything is proven.")
    ] = False,
    stores: Annotated[
        bool, typer.Option("--stores", help="Also hold stores to one array that is only written against one another, as far as known.")
    ] = False,
    level: LevelOption = None,
) -> int:
    """Prove the kernels of FILE.mlir free of races and deadlocks; status 1 where one is refuted or not proven."""
    kernels = schedule_kernels(_module(file, target, level))
    if not kernels:
        raise TreadleError(USAGE, message=f"{file} holds no kernels")
    return max([_verify_one(kernel, lint, allow_unproven, stores) for kernel in kernels])


def _module(file: Path, target: str, level: Level | None) -> ModuleOp:
    """The file's kernels at schedule level. Kernels with synchronisation are taken as they stand; other programs are lowered.

    Nothing is launched, so that kernels need no signature.
    """
    source = read_source(file, level)
    module = parse_module(source.text, source.file)
    kernels = schedule_kernels(module)
    level = level or level_of(module)
    if level == "schedule" or any(op.name.startswith("sync.") for kernel in kernels for op in kernel.body.walk()):
        return module
    if level != "tile":
        return scheduled(source, target, CompileOptions(verify=False), None)
    lower(module, target_spec(target), CompileOptions(verify=False), door=Door("tile"))
    return module


def _verify_one(kernel: tile.KernelOp, lint: bool, allow_unproven: bool, stores: bool) -> int:
    name = kernel.sym_name.data
    verdict = explained_verdict(kernel, stores=stores)
    for found in (*verdict.findings, *verdict.undecided):
        sys.stdout.write(render(found.error(name)))
    if not verdict.is_proven:
        sys.stdout.write(f"{name}: {verdict.status}\n")
        return 0 if allow_unproven and not verdict.findings else EXIT_WRONG_RESULT
    sys.stdout.write(f"{name}: proven: every access is ordered, for every interleaving, size, workgroup and trip count\n")
    for assumed in verdict.assumptions:
        sys.stdout.write(f"  assuming: {assumed}\n")
    if lint:
        for note in superfluous_sync(kernel):
            place = location_of(note.op)
            sys.stdout.write(f"  {f'{place}: ' if place else ''}{note.text}\n")
    return 0
