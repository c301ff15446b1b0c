"""Shapes of PyTorch's tensors, and how these lie in memory."""

from collections.abc import Sequence
from typing import Any

import torch

from treadle.torch.sizes import Size, product, same, size_of


def shape_of(value: Any) -> tuple[Size, ...]:
    """The shape of one of PyTorch's tensors, symbolic sizes as expressions."""
    return tuple(size_of(size) for size in value.shape)


def memory_order(value: object) -> tuple[int, ...] | None:
    """The order of dimensions in which a tensor is a dense array whatever its symbols are: its own one, or that of channels last; None
    where it is neither, or no tensor.
    """
    if not isinstance(value, torch.Tensor):
        return None
    rank = value.dim()
    orders = [tuple(range(rank)), channels_last_order(rank)] if rank > 2 else [tuple(range(rank))]
    return next((order for order in orders if _is_dense(value, order)), None)


def has_channels_last(value: torch.Tensor) -> bool:
    """Whether a tensor of three or more dimensions is dense with channels last, whatever its symbols are."""
    return _is_dense(value, channels_last_order(value.dim()))


def channels_last_order(rank: int) -> tuple[int, ...]:
    """The order in which the dimensions of a tensor with channels last lie."""
    return (0, *range(2, rank), 1)


def _is_dense(value: torch.Tensor, order: Sequence[int]) -> bool:
    step: Any = 1
    shape, strides = shape_of(value), value.stride()
    for dim in reversed(order):
        if shape[dim] != 1 and not same(size_of(strides[dim]), step):
            return False
        step = product([step, shape[dim]])
    return True
