"""Graphs of a PyTorch that is later than all that are tested: where looking at one fails, it stays as it was, and a warning says so."""

from collections.abc import Callable
from typing import Any

import torch.utils._pytree as pytree
from torch import fx

from treadle.errors import TreadleError
from treadle.torch.reports import clear_report, note, report
from treadle.torch.settings import Settings
from treadle.torch.versions import is_later, refuse


def take_or_leave(take: Callable[[fx.Graph, Settings], Any], graph: fx.Graph, settings: Settings) -> None:
    """Take a graph's regions. Raises TR121, and what goes wrong with a tested PyTorch; with a later one TR124 where settings are strict."""
    if not is_later():
        take(graph, settings)
        return
    before = fx.Graph()
    results = before.graph_copy(graph, {})
    meta, noted = dict(_output(graph).meta), report().regions
    try:
        take(graph, settings)
    except TreadleError:
        raise
    except Exception as error:  # noqa: BLE001 - what a version that nobody has tried does instead is not known
        _restore(graph, before, results, meta)
        clear_report()
        note(noted)
        refuse(f"it is later than those that are tested, and {type(error).__name__} came of a graph: {error}", settings)


def _restore(graph: fx.Graph, before: fx.Graph, results: Any, meta: dict[str, Any]) -> None:
    """Give a graph the nodes of a copy back."""
    for node in reversed(list(graph.nodes)):
        graph.erase_node(node)
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(before, copies)
    graph.output(pytree.tree_map_only(fx.Node, copies.__getitem__, results)).meta = meta


def _output(graph: fx.Graph) -> fx.Node:
    return next(node for node in reversed(graph.nodes) if node.op == "output")
