"""Regions in the shape of their anchor: views between a product and what follows it move behind the region.

A linear layer of three dimensions is a product of two, a view, and elementwise operators on three. Each of these computes the same on two,
where the other operands can be seen so too; sizes that only the view knows have no part in the program then.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from treadle.torch.memory import shape_of
from treadle.torch.pointwise import name_of
from treadle.torch.regions import VIEWS, Region, outside_of, seen_as
from treadle.torch.sizes import Size, equal


def flatten(graph: fx.Graph, region: Region) -> Region:
    """The region without views inside, its graph changed to match."""
    if not any(name_of(node.target) in VIEWS for node in region.nodes):
        return region
    shape = shape_of(_tensor(region.anchor))
    inside = set(region.nodes)
    flat: dict[fx.Node, fx.Node] = {region.anchor: region.anchor}
    views: dict[fx.Node, fx.Node | None] = {region.anchor: None}
    behind = region.nodes[-1].next
    made: list[fx.Node] = [region.anchor]
    others = [node for node in region.nodes if node is not region.anchor]
    for node in others:
        sources = [given for given in node.all_input_nodes if given in views]
        if name_of(node.target) in VIEWS:
            views[node], flat[node] = node, flat[sources[0]]
            continue
        if sources:  # else its elements hang on the product's by the nodes behind it alone, and it is no result
            views[node] = views[sources[0]]
        with graph.inserting_before(behind):
            fitted = {g: flat[g] if g in inside else _fitted(graph, g, node, shape) for g in node.all_input_nodes}
            flat[node] = graph.node_copy(node, fitted.__getitem__)
        flat[node].meta = {**node.meta, "val": torch.empty_like(_tensor(region.anchor), dtype=_tensor(node).dtype)}
        made.append(flat[node])
    for node in region.results:
        _show(graph, behind, node, flat[node], views[node], inside)
    for node in reversed(others):
        graph.erase_node(node)
    outside = [node for node in made if any(user not in made for user in node.users)]
    return Region(region.anchor, tuple(made), tuple(outside))


def _fitted(graph: fx.Graph, given: fx.Node, node: fx.Node, shape: Sequence[Size]) -> fx.Node:
    """An operand from outside, seen in the shape that belongs to the anchor's."""
    if not isinstance(given.meta.get("val"), torch.Tensor):
        return given
    target, own = seen_as(given, node, shape), _tensor(given)
    if target is None or equal(shape_of(_tensor(node)), shape) or list(shape_of(own)) == target:
        return given
    made = graph.call_function(torch.ops.aten.reshape.default, (given, target))
    made.meta = {**given.meta, "val": own.reshape(target)}
    return made


def _show(graph: fx.Graph, behind: fx.Node, node: fx.Node, flat: fx.Node, view: fx.Node | None, inside: set[fx.Node]) -> None:
    """Let those who read a result of the region read it in its own shape."""
    shown = flat
    if view is not None and flat is not node:
        with graph.inserting_before(behind):
            shown = graph.call_function(torch.ops.aten.reshape.default, (flat, view.args[1]))
        shown.meta = dict(node.meta)
    if shown is not node:
        node.replace_all_uses_with(shown, delete_user_cb=outside_of(inside))


def _tensor(node: fx.Node) -> Any:
    return node.meta["val"]
