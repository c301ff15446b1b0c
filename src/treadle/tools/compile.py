"""`treadle compile`: a file to the text of one level, to a binary, or to an artifact that runs without Treadle."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from treadle import driver
from treadle.errors import OUTPUT_NEEDED, TARGET_HAS_NO_STAGE, WRITE_FILE, TreadleError
from treadle.tools.compile_options import (
    ChoicesOption,
    Fp8Option,
    LevelOption,
    PrecisionOption,
    TargetOption,
    TunedOption,
    UnprovenOption,
    compile_options,
)

SIMULATOR = "sim"
Stage = Literal["tensor", "dispatch", "tile", "schedule", "llvm", "asm", "binary", "artifact"]


def compile_file(
    file: Annotated[Path, typer.Argument(metavar="FILE.mlir", help="The program: functions on tensors, or kernels.")],
    target: TargetOption,
    emit: Annotated[Stage, typer.Option(help="What to write.")] = "asm",
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="OUT", help="Where to write; stdout for texts.")] = None,
    function: Annotated[str | None, typer.Option(help="The function to compile, where the file has several.")] = None,
    option: ChoicesOption = None,
    f32_precision: PrecisionOption = None,
    fp8_accumulation: Fp8Option = None,
    tuned: TunedOption = True,
    level: LevelOption = None,
    allow_unproven: UnprovenOption = False,
) -> int:
    """Compile FILE.mlir for a target and write one stage of it."""
    options = compile_options(option, f32_precision, fp8_accumulation, tuned=tuned, allow_unproven=allow_unproven)
    if emit not in ("binary", "artifact"):
        text = driver.trace(file, target=target, options=options, function=function, until=emit, level=level).stages[emit]
        if output is None:
            sys.stdout.write(text)
        else:
            write(output, text.encode())
        return 0
    if target == SIMULATOR:
        raise TreadleError(TARGET_HAS_NO_STAGE, target=target, stage=emit, stages="tensor, dispatch, tile")
    if output is None:
        raise TreadleError(OUTPUT_NEEDED, stage=emit)
    program = driver.compile(file, target=target, options=options, function=function, level=level)
    if emit == "artifact":
        program.save(output)
    else:
        write_binaries(program, output)
    return 0


def write_binaries(program: driver.Program, output: Path) -> None:
    """One kernel's binary as the file `output`; several as files in the folder `output`."""
    binaries = {kernel.binary: program.binaries[kernel.binary] for kernel in program.manifest.kernels}
    if len(binaries) == 1:
        write(output, next(iter(binaries.values())))
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TreadleError(WRITE_FILE, path=output, reason=error.strerror or str(error)) from error
    for name, data in binaries.items():
        write(output / name, data)


def write(path: Path, data: bytes) -> None:
    """Write a file; raises TreadleError TR902."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise TreadleError(WRITE_FILE, path=path, reason=error.strerror or str(error)) from error
