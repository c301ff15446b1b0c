"""What a proof costs, counted: its time is that of the nodes that its runs look at, which no other load of the machine makes more."""

from dataclasses import replace

import pytest

from treadle import pipelines
from treadle.bench.suite import find
from treadle.frontends import mlir
from treadle.machine import target_spec
from treadle.verify.check import Proof
from treadle.verify.program import Program
from treadle.verify.verify_schedule import COMPILED, schedule_kernels

LIMITS = {
    "square-4096-nk": 3000,
    "square-8192-nk": 3000,
    "llama3-8b-prefill-2048-qkv": 2800,
    "fp8-8192-blocks": 4700,
    "sdxl-geglu640": 6300,
    "sdxl-geglu1280": 5400,
    "int8-2048x10240x1280": 5400,
}
"""Nodes of all runs together; one takes some six microseconds, with its part of the states that are compared."""


@pytest.mark.parametrize("name", LIMITS)
def test_runs_of_warp_specialised_kernels_are_short(name: str) -> None:
    """Each state comes back as soon as its rounds are the same: what all agents know of the past is no part of it."""
    workload = find(name)
    assert workload is not None
    module = mlir.load(workload.text, f"{name}.mlir")
    pipelines.lower(module, target_spec("sm_90a"), replace(workload.options, tuned=False), until="schedule")
    kernels = schedule_kernels(module)
    assert kernels
    for kernel in kernels:
        proof = Proof(Program(kernel), 1, COMPILED)
        assert proof.verdict().is_proven
        assert 0 < proof.cost <= LIMITS[name]
