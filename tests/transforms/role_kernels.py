"""Kernels of roles as the pipeline makes them, for so many workgroups as a test likes."""

from typing import Any

from transforms.kernel_configs import reconfigure

from treadle import machine, pipelines
from treadle.dialects import dispatch, tile
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.plan.mixed_widths import mixed_widths

SPEC = machine.target_spec("sm_90a")
MATMUL = """
func.func @f(%a: tensor<{m}x{k}xbf16>, %b: tensor<{n}x{k}xbf16>) -> tensor<{m}x{n}xbf16> {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{m}x{n}xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %r = linalg.matmul_transpose_b ins(%a, %b : tensor<{m}x{k}xbf16>, tensor<{n}x{k}xbf16>)
      outs(%f : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %o = tensor.empty() : tensor<{m}x{n}xbf16>
  %g = linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}} ins(%r : tensor<{m}x{n}xf32>) outs(%o : tensor<{m}x{n}xbf16>) {{
  ^bb0(%x: f32, %u: bf16):
    %h = arith.truncf %x : f32 to bf16
    linalg.yield %h : bf16
  }} -> tensor<{m}x{n}xbf16>
  return %g : tensor<{m}x{n}xbf16>
}}
"""
DEFERRED = CompileOptions(tile=(64, 128, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=3, deferred_store=True)


def kernel_of(m: int, n: int, k: int, options: CompileOptions, workgroups: int = 2, **config: Any) -> tile.KernelOp:
    """The schedule of a product, its tiles taken in turn by so many workgroups; `config`: further choices."""
    return scheduled(MATMUL.format(m=m, n=n, k=k), options, workgroups, **config)


def scheduled(text: str, options: CompileOptions, workgroups: int = 2, **config: Any) -> tile.KernelOp:
    """The schedule of the one kernel of a program (see `kernel_of`)."""
    module = parse_module(text, "test.mlir")
    run_passes(module, [*pipelines.tensor_passes(SPEC, options), *pipelines.tile_passes(SPEC, options)])
    kernel = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    reconfigure(kernel, workgroups=workgroups, **config)
    run_passes(module, pipelines.unproven_schedule_passes(options))
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def mixed_kernel(
    m: int, n: int, k: int, narrow: int, workgroups: int, options: CompileOptions = DEFERRED, text: str = MATMUL
) -> tile.KernelOp:
    """As `kernel_of`, with deferred stores and tiles of two widths that fill the rounds of so many workgroups."""
    module = parse_module(text.format(m=m, n=n, k=k), "test.mlir")
    passes = pipelines.tile_passes(SPEC, options)
    at = next(i for i, one in enumerate(passes) if one.name == "convert-dispatch-to-tile")
    run_passes(module, [*pipelines.tensor_passes(SPEC, options), *passes[:at]])
    kernel = next(op for op in module.walk() if isinstance(op, dispatch.KernelOp))
    mixed = mixed_widths(-(-m // (64 * options.consumer_warpgroups)), n, options.tile[1], narrow, workgroups, SPEC.rates.roles)
    assert mixed is not None
    reconfigure(kernel, workgroups=workgroups, blocks=tuple(mixed.numbers()))
    run_passes(module, [*passes[at:], *pipelines.unproven_schedule_passes(options)])
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))
