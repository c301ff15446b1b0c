"""Contractions whose sizes only the runtime knows, to machine code: no matrix instruction in flight across branches, nothing spilled."""

import pytest

from treadle import machine, pipelines
from treadle.dialects import tile
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.targets import registry

PLAIN = """
func.func @f(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
"""
KNOWN_K = """
func.func @f(%a: tensor<?x72xbf16>, %b: tensor<?x72xbf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = linalg.matmul_transpose_b ins(%a, %b : tensor<?x72xbf16>, tensor<?x72xbf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
"""


@pytest.mark.parametrize("text", [PLAIN, KNOWN_K], ids=["plain", "known_k"])
@pytest.mark.parametrize("roles", [True, False])
def test_dynamic_contractions_keep_their_registers(text: str, roles: bool) -> None:
    module = parse_module(text, "test.mlir")
    pipelines.lower(module, machine.target_spec("sm_90a"), CompileOptions(form="roles" if roles else "tiles"))
    kernels = [op for op in module.walk() if isinstance(op, tile.KernelOp) and any(isinstance(each, tile.ContractOp) for each in op.walk())]
    assert kernels
    for kernel in kernels:
        assert any(op.name == "pipe.roles" for op in kernel.walk()) == roles
        backend = registry.backend("sm_90a")
        facts = backend.assemble(backend.emit(kernel)).facts
        assert facts.spill_bytes == 0 and facts.stack_bytes == 0
        assert facts.instructions["HGMMA"] >= 4
