"""The compile options that several verbs share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import typer

from treadle.options import CompileOptions, Fp8Accumulation, Precision

Level = Literal["tensor", "dispatch", "tile", "schedule"]
"""The levels of `frontends.levels`, which a start from the cache does not load; a test holds them against each other."""

TargetOption = Annotated[
    str,
    typer.Option(
        "--target", help="sm_90a, gfx942, gfx950, gfx1100, gfx1201, a product such as sm_90a:h100-pcie (`treadle targets`), or sim."
    ),
]
PrecisionOption = Annotated[
    Precision | None, typer.Option("--f32-precision", help="How contractions of f32 operands multiply (default: ieee, as written).")
]
Fp8Option = Annotated[
    Fp8Accumulation | None,
    typer.Option("--fp8-accumulation", help="Where 8-bit floats are summed (default: fast, in the matrix unit)."),
]
ChoicesOption = Annotated[list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="A compile option, such as num_stages=4.")]
UnprovenOption = Annotated[
    bool, typer.Option("--allow-unproven", help="Accept kernels in which no fault is found but not everything is proven.")
]
LevelOption = Annotated[
    Level | None, typer.Option("--level", help="The level that the program is at, where its operations do not say what is meant.")
]
TunedOption = Annotated[bool, typer.Option("--tuned/--no-tuned", help="Use what `treadle tune` kept for this program and device.")]


def compile_options(
    choices: Sequence[str] | None = None,
    f32_precision: Precision | None = None,
    fp8_accumulation: Fp8Accumulation | None = None,
    *,
    tuned: bool = True,
    allow_unproven: bool = False,
) -> CompileOptions:
    """The options that a command line asks for. Raises TR822 for a choice that is none."""
    options = CompileOptions(tuned=tuned, allow_unproven=allow_unproven)
    if choices:
        from treadle.bench.option_text import options_from_plain, parse_options

        options = options_from_plain(options, parse_options(choices))
    if f32_precision is not None:
        options = replace(options, f32_precision=f32_precision)
    if fp8_accumulation is not None:
        options = replace(options, fp8_accumulation=fp8_accumulation)
    return options
