"""Products that PyTorch's compilers have written as sums of elementwise products.

With `mode="max-autotune"` Inductor takes products with one row or one column apart: `(a[:, :, None] * b[None]).sum(1)`, in f32 where they
are narrower. Regions begin at products, so these are products again while regions are taken; those that no region took are put back.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

import torch
from torch import fx

from treadle.records import dataclass
from treadle.torch.memory import shape_of
from treadle.torch.pointwise import name_of
from treadle.torch.sizes import equal

_NARROW: Final = (torch.float16, torch.bfloat16)
_PRODUCTS: Final = {2: torch.ops.aten.mm.default, 3: torch.ops.aten.bmm.default}
"""By the rank of their operands."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A product, and as what it was written: a graph of its operands."""

    product: fx.Node
    written: fx.Graph


def recover(graph: fx.Graph) -> list[Recovered]:
    """Make products of such sums."""
    found = [made for node in graph.nodes if (made := _recovered(graph, node)) is not None]
    if found:
        graph.eliminate_dead_code()
    return found


def put_back(graph: fx.Graph, recovered: Sequence[Recovered], taken: Collection[fx.Node]) -> None:
    """Write those products that are not among `taken` as they were."""
    for each in recovered:
        if each.product in taken:
            continue
        operands = [node for node in each.written.nodes if node.op == "placeholder"]
        with graph.inserting_before(each.product):
            copied: Any = graph.graph_copy(each.written, dict(zip(operands, each.product.all_input_nodes, strict=True)))
        each.product.replace_all_uses_with(copied)
        graph.erase_node(each.product)


def _recovered(graph: fx.Graph, node: fx.Node) -> Recovered | None:
    """The product that a sum is, in its place; None where it is none."""
    if (factors := _factors(node)) is None:
        return None
    operands: list[Any] = [factor.args[0] for factor in factors]
    multiplied: Any = node.args[0]
    nodes, last = [*factors, multiplied, node], node
    readers = list(node.users)
    kinds = {_widened_from(operand) for operand in operands}
    if kinds == {_cast_to(readers[0]) if len(readers) == 1 else None} and None not in kinds:
        nodes, last = [*operands, *nodes, readers[0]], readers[0]
        operands = [operand.args[0] for operand in operands]
    elif {operand.meta["val"].dtype for operand in operands} != {node.meta["val"].dtype}:
        return None
    if operands[0] is operands[1]:
        return None
    written = _as_graph(operands, nodes)
    with graph.inserting_after(last):
        product = graph.call_function(_PRODUCTS[operands[0].meta["val"].dim()], tuple(operands))
    product.meta = dict(last.meta)
    last.replace_all_uses_with(product)
    return Recovered(product, written)


def _factors(node: fx.Node) -> list[fx.Node] | None:
    """The two factors of what a sum adds up: `a[..., m, k, 1]` and `b[..., 1, k, n]`, where m or n is 1; None where it is no such sum."""
    if node.target is not torch.ops.aten.sum.dim_IntList or len(node.args) != 2 or node.kwargs:
        return None
    multiplied: Any = node.args[0]
    factors: list[fx.Node] = list(multiplied.all_input_nodes)
    if name_of(multiplied.target) != "aten::mul" or any(factor.target is not torch.ops.aten.unsqueeze.default for factor in factors):
        return None
    shapes = [shape_of(factor.all_input_nodes[0].meta["val"]) for factor in factors]
    if len(shapes) != 2 or len(shapes[0]) != len(shapes[1]) or len(shapes[0]) not in _PRODUCTS or node.args[1] != [len(shapes[0]) - 1]:
        return None
    (*batch, rows, depth), (*other_batch, other_depth, columns) = shapes
    found = [shape_of(factor.meta["val"]) for factor in factors]
    is_product = equal(found[0], (*batch, rows, depth, 1)) and equal(found[1], (*other_batch, 1, other_depth, columns))
    return factors if is_product and equal((*batch, depth), (*other_batch, other_depth)) and 1 in (rows, columns) else None


def _as_graph(operands: Sequence[fx.Node], nodes: Sequence[fx.Node]) -> fx.Graph:
    """Nodes as a graph of their operands; the last one is its result."""
    graph = fx.Graph()
    copies = {operand: graph.placeholder(f"x{number}") for number, operand in enumerate(operands)}
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(copies[nodes[-1]])
    return graph


def _cast_to(node: fx.Node) -> Any:
    return node.args[1] if name_of(node.target) == "prims::convert_element_type" else None


def _widened_from(node: fx.Node) -> Any:
    """The narrow type that a value in f32 had before; None where it had none."""
    if _cast_to(node) != torch.float32:
        return None
    kind = node.all_input_nodes[0].meta["val"].dtype
    return kind if kind in _NARROW else None
