"""What tuning tries for contractions with one small side: the model's best few of each form, as compile options."""

from dataclasses import replace

from treadle.machine import MatrixInstruction, TargetSpec
from treadle.options import CompileOptions
from treadle.plan.small_m import SmallShape, stream_refusal, stream_tiles, swapped_tiles

TRIED = 6
"""Of each form."""


def streaming_options(shape: SmallShape, few_is_m: bool, spec: TargetSpec, base: CompileOptions) -> list[CompileOptions]:
    """The best streaming tiles by the model."""
    if stream_refusal(shape) is not None:
        return []
    plain = replace(base, form="streaming")
    return [
        replace(plain, tile=(t.few, t.many, t.k) if few_is_m else (t.many, t.few, t.k), warps=(t.warps, 1), num_stages=t.ahead)
        for t in stream_tiles(shape, spec)[:TRIED]
    ]


def swapped_options(
    shape: SmallShape, few_is_m: bool, row: MatrixInstruction, spec: TargetSpec, base: CompileOptions
) -> list[CompileOptions]:
    """The best tiles by the model, alone and with clusters of two."""
    found: list[CompileOptions] = []
    for tile in swapped_tiles(row, shape, spec)[:TRIED]:
        sides = (tile.few, tile.step) if few_is_m else (tile.step, tile.few)
        options = replace(base, form="swapped", tile=(*sides, tile.k), warps=(tile.warps, 1), num_stages=tile.slots)
        found += [options, replace(options, cluster=2)]
    return found
