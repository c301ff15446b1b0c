"""Results of regions as the graph returns them: in the shape of the last view.

A linear layer's region computes a matrix, and the graph returns three dimensions of it; that of a convolution lies with channels last, and
the graph returns its dimensions in PyTorch's order. Inductor makes such views of what a CUDA graph leaves at each call, while
tensors that a CUDA graph returns itself are made once. So the region's operator returns the view.
"""

from collections.abc import Sequence

import torch
from torch import fx

from treadle.torch.pointwise import name_of
from treadle.torch.regions import PERMUTATIONS, VIEWS
from treadle.torch.shown_results import Shown


def returned(node: fx.Node, stored: torch.Tensor) -> fx.Node | None:
    """What the graph returns of a node alone: the last of its views, each read by the next one alone, or the node. None where it is read
    otherwise, and where the operator may return the array itself.

    `stored`: the node's elements as a dense array. A view is of known sizes, and shows the array's elements without copying them.
    """
    if not _has_known_sizes(node.meta["val"]):
        return None
    last, has_moved = node, node.meta["val"].stride() != stored.stride()
    while len(last.users) == 1:
        (user,) = last.users
        if user.op == "output":
            return last if (last is not node or has_moved) and _shows_all(last.meta["val"], stored) else None
        name = name_of(user.target) if user.op == "call_function" else ""
        if name not in (*PERMUTATIONS, *VIEWS) or (name == "aten::reshape" and has_moved):  # which may copy
            return None
        has_moved = has_moved or name in PERMUTATIONS
        last = user
    return None


def _has_known_sizes(value: torch.Tensor) -> bool:
    return value.dim() > 0 and all(isinstance(size, int) and size > 0 for size in (*value.shape, *value.stride()))


def erase_views(graph: fx.Graph, last: fx.Node, node: fx.Node) -> None:
    """Take the views of a node up to the last one out of the graph, which nothing reads any more."""
    while last is not node:
        view, last = last, last.args[0]
        graph.erase_node(view)


def _shows_all(value: torch.Tensor, stored: torch.Tensor) -> bool:
    """Whether sizes are known, and all elements of a dense array are shown, each once."""
    if not _has_known_sizes(value) or value.numel() != stored.numel():
        return False
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(value.stride(), value.shape, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


def shown_as(views: Sequence[fx.Node | None]) -> Shown:
    """As what those results are shown that have a view."""
    values = {number: view.meta["val"] for number, view in enumerate(views) if view is not None}
    return {number: (tuple(value.shape), tuple(value.stride())) for number, value in values.items()}
