"""Which of PyTorch's operators are taken apart before regions are looked for, and how.

Most of PyTorch's own decompositions compute narrow floats in f32 and round once. Those of its normalisations compute variances in f64 or
round means to the narrow type: these are ours.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

aten = torch.ops.aten

_POINTWISE: Final = (
    *("gelu", "silu", "elu", "leaky_relu", "hardswish", "hardsigmoid", "hardtanh", "mish", "softplus", "log_sigmoid_forward", "celu"),
    *("gelu_backward", "silu_backward", "elu_backward", "leaky_relu_backward", "hardswish_backward", "hardsigmoid_backward"),
    *("hardtanh_backward", "mish_backward", "softplus_backward", "tanh_backward", "sigmoid_backward", "threshold_backward", "threshold"),
    *("glu", "glu_backward", "masked_fill", "relu6", "square"),
)
_NORMS: Final = (
    *("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm_backward"),
    *("native_group_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward", "logsumexp", "nll_loss_forward", "mse_loss"),
)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def _moments(x: torch.Tensor, dims: Sequence[int], eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """What is left of `x` without its mean, and one over the root of its variance and `eps`, kept dimensions of size 1."""
    mean = x.mean(dims, keepdim=True)
    return mean, torch.rsqrt((x - mean).square().mean(dims, keepdim=True) + eps)


def layer_norm(
    x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`native_layer_norm` in f32: the result, the mean and one over the deviation."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    wide = _wide(x)
    mean, rstd = _moments(wide, dims, eps)
    out = (wide - mean) * rstd
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(x.dtype), mean, rstd


def group_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, batch: int, channels: int, pixels: int, groups: int, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`native_group_norm` in f32: the result, and mean and one over the deviation for each image and group."""
    wide = _wide(x).reshape(batch, groups, channels // groups, pixels)
    mean, rstd = _moments(wide, [2, 3], eps)
    out = ((wide - mean) * rstd).reshape(batch, channels, pixels)
    out = out if weight is None else out * weight.reshape(1, channels, 1)
    out = out if bias is None else out + bias.reshape(1, channels, 1)
    means = [value.reshape(batch, groups).to(x.dtype) for value in (mean, rstd)]
    return out.reshape(x.shape).to(x.dtype), means[0], means[1]


def variance(x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> torch.Tensor:
    """`var.correction`: the mean square of what is left without the mean, in f32 for narrower floats."""
    dims = [d % max(x.dim(), 1) for d in dim] if dim else list(range(x.dim()))
    wide, count = _wide(x), 1
    for d in dims:
        count = count * x.shape[d]
    squares = (wide - wide.mean(dims, keepdim=True)).square().sum(dims, keepdim=keepdim)
    return (squares / (count - (1 if correction is None else correction))).to(x.dtype)


def square(x: torch.Tensor) -> torch.Tensor:
    """`x * x`"""
    return x * x


def nearest(x: Any, size: Sequence[int], *_: Any) -> torch.Tensor:
    """`upsample_nearest2d`: where each pixel becomes a rectangle, pixels are repeated, and nothing is looked up."""
    batch, channels, height, width = x.shape
    if size[0] % height or size[1] % width:
        return get_decompositions([aten.upsample_nearest2d.default])[aten.upsample_nearest2d.default](x, size)
    tall, wide = size[0] // height, size[1] // width
    repeated = x[:, :, :, None, :, None].expand(batch, channels, height, tall, width, wide)
    return repeated.reshape(batch, channels, height * tall, width * wide)


def nearest_by_factors(x: Any, size: Sequence[int] | None, factors: Sequence[float] | None) -> torch.Tensor:
    """`upsample_nearest2d` to a size or by factors."""
    if size is not None:
        return nearest(x, size)
    if factors is not None and all(factor == int(factor) for factor in factors):
        return nearest(x, [extent * int(factor) for extent, factor in zip(x.shape[2:], factors, strict=True)])
    return get_decompositions([aten.upsample_nearest2d.vec])[aten.upsample_nearest2d.vec](x, size, factors)


_OURS: Final[dict[Any, Callable[..., Any]]] = {
    aten.native_layer_norm.default: layer_norm,
    aten.native_group_norm.default: group_norm,
    aten.var.correction: variance,
    aten.square.default: square,
    aten.upsample_nearest2d.default: nearest,
    aten.upsample_nearest2d.vec: nearest_by_factors,
}


def _overloads(names: Sequence[str]) -> dict[Any, Callable[..., Any]]:
    packets = [getattr(aten, name) for name in names if hasattr(aten, name)]
    return get_decompositions(packets)


@lru_cache(maxsize=1)
def composites() -> dict[Any, Callable[..., Any]]:
    """Elementwise operators that PyTorch has as one: taken apart, they can follow a matrix product in its kernel. All else is left as it
    is, so that what stays with PyTorch runs as its own operators, with their strides.
    """
    return _overloads(_POINTWISE)


@lru_cache(maxsize=1)
def everything() -> dict[Any, Callable[..., Any]]:
    """The table for graphs that are to be written whole."""
    return {**core_aten_decompositions(), **_overloads((*_POINTWISE, *_NORMS)), **_OURS}
