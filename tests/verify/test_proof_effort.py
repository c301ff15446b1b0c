"""What a proof costs, counted: its time is that of the nodes that its runs look at, which no other load of the machine makes more."""

from dataclasses import replace

import pytest

from treadle import pipelines
from treadle.bench.suite import find
from treadle.frontends import mlir
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.verify.check import Proof
from treadle.verify.classes import NEARLY, UncoveredSet
from treadle.verify.program import Program
from treadle.verify.verify_schedule import COMPILED, schedule_kernels

RUNTIME_ROWS = """
func.func @f(%x: tensor<?x501xf16>, %w: tensor<501x77xf16>) -> tensor<?x77xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x501xf16>
  %e = tensor.empty(%m) : tensor<?x77xf32>
  %z = arith.constant 0.0 : f32
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x77xf32>) -> tensor<?x77xf32>
  %r = linalg.matmul ins(%x, %w : tensor<?x501xf16>, tensor<501x77xf16>) outs(%f : tensor<?x77xf32>) -> tensor<?x77xf32>
  return %r : tensor<?x77xf32>
}
"""
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


def test_large_sizes_are_tried_from_below() -> None:
    """A length of a loop stands for longer ones: a class each for those below it, as long as the first that is tried is any large one."""
    turns = "floor((3 * floor((n + 127) / 128) - p + 131) / 132)"
    left = UncoveredSet(("n", "p"), f"9000 <= n < {2**31} and {turns} mod 8 = 3 and 0 <= p < 132 and 128 * p < n", 10**6)
    n, p = next(iter(left))
    assert 0 <= p < 132
    assert n <= (1 + 1 / NEARLY) * 132 * 2 * 128  # three turns are made from 2 * 132 thirds of a tile's rows on


def test_runtime_rows_in_turns_are_few_classes() -> None:
    """Three tiles of one workgroup are more rows than classes are looked for among one by one."""
    module = mlir.load(RUNTIME_ROWS, "rows.mlir")
    options = CompileOptions(tuned=False)
    pipelines.lower(module, target_spec("sm_90a"), options, until="schedule")
    (kernel,) = schedule_kernels(module)
    proof = Proof(Program(kernel), 1, COMPILED)
    assert proof.verdict().is_proven
    assert proof.classes <= 6
