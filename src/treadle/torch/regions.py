"""Which nodes of a graph go to the compiler together: a matrix product or a convolution, and what follows it alone, element by element.

A region begins at its anchor: casts and norms of the operands stay in the kernels before it. It grows forward, from one value to the next
that everything in between leads to, so that it never lies on both sides of a node that stays outside. What is computed element by element
for such nodes alone joins them (the slope of an activation behind the gradient of its layer), where the arrays that are then read are at
most twice as long as those that need not be stored. Views at its borders stay outside, but for permutations of operands, which cost a
matrix product nothing.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import fx

from treadle.records import dataclass
from treadle.torch.elements import ELEMENTS
from treadle.torch.memory import memory_order, shape_of
from treadle.torch.pointwise import is_elementwise, name_of
from treadle.torch.sizes import Size, equal, product, same

GRADIENTS: Final = "aten::convolution_backward"
"""The one anchor with several results."""
ANCHORS: Final = frozenset(
    {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm", "aten::_int_mm", "aten::convolution", GRADIENTS}
)
VIEWS: Final = frozenset({"aten::view", "aten::_unsafe_view", "aten::reshape"})
"""Views of another shape, which is their second argument."""
PERMUTATIONS: Final = frozenset({"aten::permute", "aten::t", "aten::transpose"})
_LARGEST: Final = 32
"""Nodes between one value and the next that everything leads to."""


@dataclass(frozen=True, slots=True)
class Region:
    """`nodes` in the graph's order; `results`: those of them that others read."""

    anchor: fx.Node
    nodes: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]


def is_anchor(node: fx.Node) -> bool:
    """Whether a node is a matrix product or a convolution."""
    return node.op == "call_function" and name_of(node.target) in ANCHORS and any(map(_is_known, values_of(node)))


def values_of(node: fx.Node) -> list[Any]:
    """The tensors that a node is."""
    value: Any = node.meta.get("val")
    return [item for item in ([value] if isinstance(value, torch.Tensor) else value or []) if isinstance(item, torch.Tensor)]


def is_view(node: fx.Node) -> bool:
    """Whether a node is the memory of its operand."""
    schema = getattr(node.target, "_schema", None)
    return name_of(node.target) in VIEWS or (schema is not None and any(result.alias_info is not None for result in schema.returns))


def _is_known(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in ELEMENTS


def find(graph: fx.Graph) -> list[Region]:
    """The regions of a graph, one for each anchor, in order; no node is in two."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    taken: set[fx.Node] = set()
    regions: list[Region] = []
    for node in graph.nodes:
        if is_anchor(node):
            region = _region(node, order, taken)
            taken.update(region.nodes)
            regions.append(region)
    for number, region in enumerate(regions):
        regions[number] = _with_producers(region, order, taken)
        taken.update(regions[number].nodes)
    return regions


def _region(anchor: fx.Node, order: Mapping[fx.Node, int], taken: set[fx.Node]) -> Region:
    """The largest region of an anchor whose result is worth storing."""
    if name_of(anchor.target) == GRADIENTS:
        results = tuple(sorted(anchor.users, key=lambda node: order[node]))
        return Region(anchor, (anchor, *results), results)
    grown = [(anchor, [anchor])]
    while (step := _next(*grown[-1], anchor, order, taken)) is not None:
        grown.append((step[-1], [*grown[-1][1], *step]))
    while len(grown) > 1 and not _may_leave(grown[-1][0], anchor):
        grown.pop()
    nodes = sorted(grown[-1][1], key=lambda node: order[node])
    inside = set(nodes)
    return Region(anchor, tuple(nodes), tuple(node for node in nodes if any(user not in inside for user in node.users)))


def _next(
    last: fx.Node, nodes: Sequence[fx.Node], anchor: fx.Node, order: Mapping[fx.Node, int], taken: set[fx.Node]
) -> list[fx.Node] | None:
    """The nodes behind `last` up to the first that all its users lead to; None where one of them cannot join."""
    pending = [(order[user], user) for user in last.users if user.op != "output"]
    heapq.heapify(pending)
    met = {node for _, node in pending}
    inside = {*nodes}
    step: list[fx.Node] = []
    while pending:
        _, node = heapq.heappop(pending)
        if node in taken or not _may_join(node, anchor, inside) or len(step) == _LARGEST:
            return None
        step.append(node)
        inside.add(node)
        if not pending:
            return step
        for user in node.users:
            if user.op != "output" and user not in met:
                met.add(user)
                heapq.heappush(pending, (order[user], user))
    return None


def _with_producers(region: Region, order: Mapping[fx.Node, int], taken: Collection[fx.Node]) -> Region:
    """A region with what is computed for its nodes alone. It reads no node that depends on its results, with or without these."""
    if name_of(region.anchor.target) == GRADIENTS:
        return region
    inside = set(region.nodes)
    pending = [given for node in region.nodes if node is not region.anchor for given in node.all_input_nodes]
    while pending:
        node = pending.pop()
        if node in inside or node in taken or not all(user in inside and user is not region.anchor for user in node.users):
            continue
        if node.op == "call_function" and name_of(node.target) not in VIEWS and _may_join(node, region.anchor, inside):
            inside.add(node)
            pending.extend(node.all_input_nodes)
    grown = Region(region.anchor, tuple(sorted(inside, key=lambda node: order[node])), region.results)
    before, after = set(operands(region)), set(operands(grown))
    return grown if _width(after - before, region.anchor) <= 2 * _width(before - after, region.anchor) else region


def _width(nodes: Iterable[fx.Node], anchor: fx.Node) -> int:
    """Bytes that these nodes have for an element of the anchor's; what repeats along it counts as nothing."""
    count = product(list(shape_of(_value(anchor))))
    values = [value for node in nodes for value in values_of(node)]
    return sum(value.dtype.itemsize for value in values if same(product(list(shape_of(value))), count))


def _value(node: fx.Node) -> Any:
    """The tensor that a node is, None where it is none, or of elements that the compiler lacks."""
    value = node.meta.get("val")
    return value if _is_known(value) else None


def _may_join(node: fx.Node, anchor: fx.Node, inside: Collection[fx.Node]) -> bool:
    """Whether a node computes an element from each of the anchor's, from operands that can be seen in its shape, or is a view of all."""
    value, shape = _value(node), shape_of(_value(anchor))
    if value is None or value.device != _value(anchor).device or not same(product(list(shape)), product(list(shape_of(value)))):
        return False
    if name_of(node.target) in VIEWS:
        return sum(not isinstance(size, int) for size in shape) < 2
    return is_elementwise(node.target) and all(
        _value(given) is not None and _value(given).device == value.device and seen_as(given, node, shape) is not None
        for given in node.all_input_nodes
        if given not in inside and isinstance(given.meta.get("val"), torch.Tensor)
    )


def seen_as(given: fx.Node, node: fx.Node, shape: Sequence[Size]) -> list[Any] | None:
    """The shape in which an operand of `node` has its part in a computation on `shape`; None where it has none: it repeats along a part
    of a dimension. -1 is the size that follows from the others.
    """
    own, whole = shape_of(given.meta["val"]), shape_of(node.meta["val"])
    if equal(whole, shape):
        return [size if isinstance(size, int) else -1 for size in own]
    if equal(own, whole):
        return [size if isinstance(size, int) else -1 for size in shape]
    kept = [size for size in own if size != 1]
    if not kept or (len(kept) == 1 and own[-1] == shape[-1] == whole[-1] and isinstance(shape[-1], int)):
        return kept
    return None


def _may_leave(node: fx.Node, anchor: fx.Node) -> bool:
    """Whether a region may end here: behind a computation, with no wider elements than the product has, in a dense array."""
    value = _value(node)
    return name_of(node.target) not in VIEWS and value.dtype.itemsize <= _value(anchor).dtype.itemsize and memory_order(value) is not None


def operands(region: Region) -> Iterator[fx.Node]:
    """The nodes outside of a region that it reads, permutations of operands looked through; once each, in the order of their use."""
    inside = set(region.nodes)
    met: set[fx.Node] = set()
    for node in region.nodes:
        for given in node.all_input_nodes:
            source = behind_permutations(given)[-1] if given not in inside else given
            if source not in inside and source not in met:
                met.add(source)
                yield source


def outside_of(nodes: Iterable[fx.Node]) -> Callable[[fx.Node], bool]:
    """Whether a node is none of these."""
    inside = set(nodes)

    def is_outside(node: fx.Node) -> bool:
        return node not in inside

    return is_outside


def behind_permutations(node: fx.Node) -> list[fx.Node]:
    """A node and what it is a permutation of, back to the first that is none."""
    found = [node]
    while name_of(found[-1].target) in PERMUTATIONS and found[-1].op == "call_function":
        found.append(found[-1].args[0])
    return found


def subgraph(region: Region) -> tuple[fx.Graph, list[fx.Node]]:
    """A region as a graph of its own, and the nodes of the whole graph that its placeholders stand for. Its results are in the order in
    which their elements lie in memory.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    outside = list(operands(region))
    for number, node in enumerate(outside):
        copies[node] = graph.placeholder(f"x{number}")
        copies[node].meta["val"] = node.meta.get("val")

    def copied(node: fx.Node) -> fx.Node:
        for moved in reversed(behind_permutations(node)):
            if moved not in copies:
                copies[moved] = graph.node_copy(moved, copies.__getitem__)
        return copies[node]

    for node in region.nodes:
        copies[node] = graph.node_copy(node, copied)
    graph.output(tuple(_in_order(graph, copies[node]) for node in region.results))
    return graph, outside


def _in_order(graph: fx.Graph, node: fx.Node) -> fx.Node:
    value = _value(node)
    order = None if value is None else memory_order(value)
    if order is None or order == tuple(range(len(order))):
        return node
    return permuted(graph, node, order)


def permuted(graph: fx.Graph, node: fx.Node, order: Sequence[int]) -> fx.Node:
    """A node with its dimensions in another order."""
    made = graph.call_function(torch.ops.aten.permute.default, (node, list(order)))
    made.meta = {**node.meta, "val": node.meta["val"].permute(order)}
    return made
