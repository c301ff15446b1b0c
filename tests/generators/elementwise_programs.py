"""Elementwise functions as text, their tile-level kernels, and what these compute."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import treadle
from treadle import machine, pipelines
from treadle.ir.core import Operation
from treadle.ir.text import parse_module
from treadle.options import CompileOptions


def program(lines: Sequence[str], result: str = "bf16", count: int = 37) -> str:
    """`lines` compute %y from %x (both f32) on each of `count` numbers; the result is stored as `result`."""
    last = [] if result == "f32" else [f"%z = arith.truncf %y : f32 to {result}"]
    value = "%y" if result == "f32" else "%z"
    body = "\n".join(f"    {line}" for line in (*lines, *last))
    return f"""
func.func @f(%a: tensor<{count}xf32>) -> tensor<{count}x{result}> {{
  %empty = tensor.empty() : tensor<{count}x{result}>
  %r = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
      ins(%a : tensor<{count}xf32>) outs(%empty : tensor<{count}x{result}>) {{
  ^bb0(%x: f32, %u: {result}):
{body}
    linalg.yield {value} : {result}
  }} -> tensor<{count}x{result}>
  return %r : tensor<{count}x{result}>
}}
"""


def tile_operations(text: str) -> list[Operation]:
    """The float operations of the kernel at tile level, in order."""
    module = parse_module(text, "test.mlir")
    pipelines.lower(module, machine.target_spec("sm_90a"), CompileOptions(), until="tile")
    names = ("arith.", "math.")
    return [op for op in module.walk() if op.name.startswith(names) and op.results and "f" in str(op.results[0].type).rsplit("x", 1)[-1]]


def names(operations: Sequence[Operation]) -> list[str]:
    """Their names, constants left out."""
    return [op.name for op in operations if op.name != "arith.constant"]


def simulated(text: str, x: NDArray[np.float32]) -> NDArray[np.float64]:
    """What the tile-level kernel gives for `x`."""
    return np.asarray(treadle.compile(text, target="sim")(x)[0]).astype(np.float64)
