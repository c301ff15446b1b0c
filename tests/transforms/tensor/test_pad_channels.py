"""Convolutions of odd channels: what is copied, what the kernels read then, what is left alone, and whether results are right."""

import re

import numpy as np
import pytest
from generators.convolutions import DTYPES, LAYOUTS, Convolution, random_convolution

from treadle import pipelines
from treadle.bench.suite import choose
from treadle.dialects import dispatch
from treadle.dialects.tile import KernelOp
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.plan import channel_padding
from treadle.remarks import collect_remarks
from treadle.sim.schedule.program import run_program_scheduled
from treadle.transforms.tensor.set_channel_padding import NAME

LARGE = "conv-bf16-2x94x443x641-146-k5-s2"
SMALL = {
    "filters first, zeros around": Convolution("conv_2d_nhwc_fhwc", 2, (9, 7), 13, 19, (3, 3), low=(1, 1)),
    "filters last, every second pixel": Convolution("conv_2d_nhwc_hwcf", 2, (11, 8), 35, 24, (3, 2), (2, 2)),
    "bias": Convolution("conv_2d_nhwc_fhwc", 1, (6, 7), 70, 9, (2, 3), low=(1, 0), tail="bias"),
}


def is_padded(convolution: Convolution) -> bool:
    """Whether descriptors reach its operands once they have whole lines of channels: these come last, and so do whole lines of filters."""
    image, filter_, _ = LAYOUTS[convolution.name]
    odd = convolution.channels * np.dtype(DTYPES[convolution.element]).itemsize % 16
    return bool(odd) and max(convolution.kernel) > 1 and image[-1] == "c" and filter_[-1] == "c" and not convolution.tail


PADDED_AT_RANDOM = [c for seed in range(2000, 2400) if is_padded(c := random_convolution(seed))][:6]


def text_of(name: str) -> str:
    return choose([name])[0].text


def kernels(text: str, target: str = "sm_90a") -> tuple[list[dispatch.KernelOp], list[str]]:
    """The kernels at dispatch level, and what the pass says."""
    module = parse_module(text, "test.mlir")
    with collect_remarks() as log:
        run_passes(module, tensor_passes(target_spec(target), CompileOptions()))
    said = [f"{r.kind}: {r.text}" for r in log.remarks if r.pass_name == NAME]
    return [op for op in module.walk() if isinstance(op, dispatch.KernelOp)], said


def test_both_operands_are_copied_to_whole_lines() -> None:
    """Two kernels copy, one multiplies; it reads channels that are a multiple of 16 bytes, and the zeros around the image itself."""
    found, said = kernels(text_of(LARGE))
    assert [re.sub(r"\d+", "#", text) for text in said] == [
        "decision: copies of both operands with zeros behind the channels: # us are modelled with # channels, # us with #"
    ]
    assert len(found) == 3
    assert dispatch.text_lists(found[-1].arg_shapes)[:2] == (("2", "94", "443", "648"), ("146", "5", "5", "648"))


@pytest.mark.parametrize("convolution", [*SMALL.values(), *PADDED_AT_RANDOM], ids=str)
def test_results_are_right(convolution: Convolution, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies that are made though they do not pay: exact sums of small whole numbers, by the schedules of the kernels."""
    monkeypatch.setattr(channel_padding, "ELEMENTS_PER_CLOCK", 1e-6)
    module = parse_module(convolution.text(), "test.mlir")
    pipelines.lower(module, target_spec("sm_90a"), CompileOptions())
    assert sum(isinstance(op, KernelOp) for op in module.walk()) == 3
    arrays = convolution.arrays()
    report = run_program_scheduled(module, arrays, "late")
    assert report.ok, str(report)
    assert np.array_equal(report.outputs[0], convolution.expected(arrays).astype(DTYPES[convolution.result]))
