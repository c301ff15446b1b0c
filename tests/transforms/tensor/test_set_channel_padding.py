"""Which convolutions are to read copies with more channels, and what a user may say of it."""

import pytest

from treadle.bench.suite import choose
from treadle.dialects import dispatch
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.remarks import collect_remarks
from treadle.transforms.tensor.set_channel_padding import NAME

LARGE = "conv-bf16-2x94x443x641-146-k5-s2"


def text_of(name: str) -> str:
    return choose([name])[0].text


def kernels(text: str, target: str = "sm_90a") -> tuple[list[dispatch.KernelOp], list[str]]:
    """The kernels at dispatch level, and what the pass says."""
    module = parse_module(text, "test.mlir")
    with collect_remarks() as log:
        run_passes(module, tensor_passes(target_spec(target), CompileOptions()))
    said = [f"{r.kind}: {r.text}" for r in log.remarks if r.pass_name == NAME]
    return [op for op in module.walk() if isinstance(op, dispatch.KernelOp)], said


@pytest.mark.parametrize("name", ["conv-bf16-2x94x443x640-146-k5-s2", "conv-bf16-1x20x20x45-40-k3"])
def test_others_are_left_alone(name: str) -> None:
    """Channels that descriptors can reach, and convolutions that take less time than copies."""
    found, said = kernels(text_of(name))
    assert len(found) == 1
    assert not any(text.startswith("decision") for text in said)


def test_a_user_may_ask_for_none() -> None:
    """By the attribute, on the named operation."""
    text = text_of(LARGE).replace("fhwc {", "fhwc {treadle.padded_channels = 0, ")
    assert [len(kernels(text)[0]), kernels(text)[1]] == [1, []]


def test_machines_without_descriptors_are_left_alone() -> None:
    """What threads load they load at any pitch."""
    assert kernels(text_of(LARGE), "gfx942")[1] == []
