"""Functions of PyTorch's operators as graphs: without gradients, or forward and backward together (AOTAutograd's joint graph), taken apart.

What backward reads is chosen by PyTorch's min-cut partition where the forward graph is compiled too. Where something else computes the
results, backward may read the arguments, the results and their gradients alone, and computes again what it needs besides.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Final, Literal

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from treadle.records import Record
from treadle.torch.decompositions import everything
from treadle.torch.regions import is_view
from treadle.torch.unsupported import Unsupported

Origin = tuple[Literal["argument", "result", "kept", "gradient", "size"], int]
"""What a graph reads: by its number an argument, a result, the gradient of one, or what forward keeps; or a size, which tensors tell."""
_NO_SIZE: Final[Origin] = ("size", -1)


class Stand(Record):
    """Tensors without contents in place of arguments, with symbols in place of sizes that may differ."""

    tensors: tuple[Any, ...]
    sizes: Any

    def fits(self, given: Sequence[Any]) -> bool:
        """Whether what was traced with these holds for other tensors of the same ranks, element types and devices."""
        return bool(self.sizes.evaluate_guards_for_args(self.tensors, given, ignore_static=False))


class Traced(Record):
    """`module`: a graph of some tensors; it gives `results` results and, of a joint graph, a gradient for each tensor, None where none is
    wanted. `structure`: how the function puts its results together. `graded`: the numbers of the results that have gradients.
    """

    module: fx.GraphModule
    stand: Stand
    structure: Any
    results: int
    graded: tuple[int, ...]
    wanted: tuple[int, ...]

    @property
    def values(self) -> list[Any]:
        """The results, without contents."""
        return [node.meta["val"] for node in outputs(self.module.graph)[: self.results]]


class Backward(Record):
    """A graph of gradients, `origins` of its placeholders, and which tensors have them."""

    graph: fx.Graph
    origins: tuple[Origin, ...]
    tensors: tuple[int, ...]


def stand_for(tensors: Sequence[Any], symbols: Sequence[Sequence[bool]], wanted: Sequence[int]) -> Stand:
    """Stand-ins. `symbols`: for each tensor's dimensions, whether its size may differ. `wanted`: the tensors that are to have gradients."""
    sizes: Any = ShapeEnv()
    mode: Any = FakeTensorMode(shape_env=sizes)
    made: list[Any] = []
    for number, (tensor, free) in enumerate(zip(tensors, symbols, strict=True)):
        kinds = [DimDynamic.DYNAMIC if is_free else DimDynamic.STATIC for is_free in free]
        context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)
        plain = tensor.detach().requires_grad_(number in wanted)
        made.append(mode.from_tensor(plain, symbolic_context=context, source=ConstantSource(f"x{number}")))
    return Stand(tuple(made), sizes)


def trace(function: Callable[..., Any], stand: Stand, wanted: Sequence[int]) -> Traced:
    """The graph of a function of tensors; joint with that of the gradients of the `wanted` ones, if there are any. Raises Unsupported.

    PyTorch traces in a thread of its own, so that nothing takes part of what is switched on around a call: modes, autocast, or that
    gradients are off in backward.
    """
    told: dict[str, Any] = {}

    def flat(*tensors: Any) -> list[Any]:
        results, told["structure"] = pytree.tree_flatten(function(*tensors))
        told["graded"] = tuple(number for number, result in enumerate(results) if result.requires_grad)
        told["results"] = len(results)
        return results

    def run() -> Any:
        with torch.enable_grad():
            return aot_export_joint_simple(flat, stand.tensors, trace_joint=bool(wanted), decompositions=everything())

    try:
        module: Any = _thread(os.getpid()).submit(run).result()
    except (RuntimeError, NotImplementedError, AssertionError) as refused:
        raise Unsupported(str(refused).partition("\n")[0].partition(". ")[0]) from refused
    return Traced(module, stand, told["structure"], told["results"], told["graded"], tuple(wanted))


@lru_cache(maxsize=1)
def _thread(process: int) -> ThreadPoolExecutor:
    """The thread in which a process traces. It stays: builds of PyTorch 2.11 for GPUs keep in the first thread that makes tensors without
    contents what all threads use to make them, on a machine without a GPU.
    """
    return ThreadPoolExecutor(1, "treadle-trace")


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    """What a graph reads."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def outputs(graph: fx.Graph) -> list[Any]:
    """What a graph gives."""
    return list(next(node for node in reversed(graph.nodes) if node.op == "output").args[0])


def partition(traced: Traced) -> tuple[fx.Graph, Backward]:
    """A joint graph as forward, which gives the results and then what it keeps, and backward, which takes views itself: kept is what they
    are views of.
    """
    forward, backward = min_cut_rematerialization_partition(traced.module, None, num_fwd_outputs=traced.results)
    results, kept = outputs(forward.graph)[: traced.results], outputs(forward.graph)[traced.results :]
    views = [_behind_views(node) for node in dict.fromkeys(kept) if isinstance(node.meta.get("val"), torch.Tensor)]
    origins = _origins(placeholders(forward.graph), results, traced)
    computed = [node for node in dict.fromkeys(view[-1] for view in views) if node.name not in origins]
    origins.update({node.name: ("kept", number) for number, node in enumerate(computed)})
    for view in views:
        if len(view) > 1:
            source = _taken_in(backward.graph, view)
            origins[source.name] = origins[view[-1].name]
    _give(forward.graph, [*results, *computed])
    return forward.graph, _backward(backward.graph, origins, outputs(backward.graph), traced)


def _behind_views(node: fx.Node) -> list[fx.Node]:
    """A node and what it is a view of, back to the first that is none."""
    found = [node]
    while found[-1].op == "call_function" and is_view(found[-1]) and len(found[-1].all_input_nodes) == 1:
        found.append(found[-1].all_input_nodes[0])
    return found


def _taken_in(graph: fx.Graph, view: Sequence[fx.Node]) -> fx.Node:
    """Let a graph read what a view of another graph is taken of, instead of the view; what it reads."""
    read = placeholders(graph)
    instead = next(node for node in read if node.name == view[0].name)
    source = next((node for node in read if node.name == view[-1].name), None)
    if source is None:
        with graph.inserting_before(instead):
            source = graph.placeholder(view[-1].name)
        source.meta = dict(view[-1].meta)
    copies = {view[-1]: source}
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        for node in reversed(view[:-1]):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    instead.replace_all_uses_with(copies[view[0]])
    graph.erase_node(instead)
    return source


def recomputed(traced: Traced) -> Backward:
    """The backward of a joint graph whose results something else computes."""
    graph = traced.module.graph
    read, given = placeholders(graph), outputs(graph)
    results, gradients = given[: traced.results], given[traced.results :]
    origins = _origins(read, results, traced)
    part, copies = _between(graph, [*read, *(node for node in results if node is not None)], gradients)
    return _backward(part, origins, copies, traced)


def _origins(read: Sequence[fx.Node], results: Sequence[fx.Node], traced: Traced) -> dict[str, Origin]:
    """By the names of nodes: the arguments, the gradients of the results, and the results."""
    count = len(traced.stand.tensors)
    found: dict[str, Origin] = {node.name: ("result", number) for number, node in reversed(list(enumerate(results)))}
    found.update({node.name: ("argument", number) for number, node in enumerate(read[:count])})
    tangents = placeholders(traced.module.graph)[count:]
    found.update({node.name: ("gradient", number) for number, node in zip(traced.graded, tangents, strict=False)})
    return found


def _backward(graph: fx.Graph, origins: dict[str, Origin], gradients: Sequence[Any], traced: Traced) -> Backward:
    """What is made of a graph of gradients, one for each tensor, None where there is none."""
    tensors = tuple(number for number in traced.wanted if gradients[number] is not None)
    _give(graph, [gradients[number] for number in tensors])
    return Backward(graph, tuple(origins.get(node.name, _NO_SIZE) for node in placeholders(graph)), tensors)


def _give(graph: fx.Graph, results: Sequence[fx.Node]) -> None:
    """Let a graph give these values of it, and compute nothing else."""
    next(node for node in reversed(graph.nodes) if node.op == "output").args = (tuple(results),)
    graph.eliminate_dead_code()


def _between(graph: fx.Graph, given: Sequence[fx.Node], wanted: Sequence[Any]) -> tuple[fx.Graph, list[Any]]:
    """A graph that computes nodes of another one from others of it, and its nodes for the wanted ones."""
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in dict.fromkeys(given):
        copies[node] = part.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in graph.nodes:
        if node not in copies and node.op not in ("placeholder", "output"):
            copies[node] = part.node_copy(node, copies.__getitem__)
    found = [None if node is None else copies[node] for node in wanted]
    part.output(tuple(node for node in found if node is not None))
    return part, found
