"""Times of a region's program and of the nodes that it replaces, side by side on the device, and the store that keeps them."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage] - there is no public name

from treadle import __version__
from treadle.bench.records import write
from treadle.driver.tuned import product_of
from treadle.runtime.cache import default_folder
from treadle.torch.pointwise import is_elementwise, name_of
from treadle.torch.regions import Region, is_view, subgraph

if TYPE_CHECKING:
    from pathlib import Path

    from treadle.driver import Program
    from treadle.torch.settings import Settings

Timer = Callable[[Mapping[str, Callable[[], object]]], Mapping[str, float]]
"""Microseconds of each of several calls."""
OURS, THEIRS = "treadle", "replaced"
Part = Literal["all", "library", "product"]
"""What is timed on the other side: all that is replaced, the product by the library, or the product by what is fastest."""


def on_device(calls: Mapping[str, Callable[[], object]]) -> Mapping[str, float]:
    """Medians of interleaved runs with a cold cache on the GPU that PyTorch has as current device."""
    from treadle.bench.machine import TorchMachine
    from treadle.bench.protocol import QUICK, measure

    samples = measure(TorchMachine(QUICK.flush_bytes), calls, QUICK)
    return {name: 1e3 * samples[name].median_ms for name in calls}


timer: Timer = on_device


def times(region: Region, program: "Program", digest: str, settings: "Settings", part: Part = "all") -> tuple[float, float] | None:
    """Microseconds of the program and of what it replaces, or of the product in that: as kept, else measured and kept. None where inputs
    cannot be made, for want of memory too.
    """
    what = "" if part == "all" else f"-{part}{'-without-addend' if _adds_apart(region.anchor) else ''}"
    path = default_folder() / "tuned" / f"region-{digest}{what}.json"
    product = product_of(program.target) if program.target != "sim" else "sim"
    if (kept := _kept(path, product)) is not None:
        return kept
    try:
        taken = _measured(region, program, settings, part)
    except torch.OutOfMemoryError:
        return None
    if taken is not None:
        write(path, {"treadle": __version__, "torch": torch.__version__, "product": product, "program": digest, "us": list(taken)})
    return taken


def _measured(region: Region, program: "Program", settings: "Settings", part: Part) -> tuple[float, float] | None:
    graph, outside = subgraph(region)
    with _disable_current_modes():
        inputs = {node: _example(node) for node in outside}
        if any(value is None for value in inputs.values()):
            return None
        given = [inputs[node] for node, inside in zip(outside, _placeholders(graph), strict=True) if inside.users]
        theirs = _replaced(graph, list(inputs.values()), settings) if part == "all" else _product(region.anchor, inputs, part, settings)
        found = timer({OURS: lambda: program(*given), THEIRS: theirs})
    return found[OURS], found[THEIRS]


def _kept(path: "Path", product: str) -> tuple[float, float] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        ours, theirs = content["us"]
        now = (__version__, torch.__version__, product)
        return (float(ours), float(theirs)) if tuple(content[name] for name in ("treadle", "torch", "product")) == now else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _example(node: fx.Node) -> torch.Tensor | None:
    """A tensor of random numbers like the node's, at the sizes that PyTorch saw first; None where it has none or is no tensor."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    shape, strides = ([_hint(size) for size in sizes] for sizes in (value.shape, value.stride()))
    if None in shape or None in strides:
        return None
    made = torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
    if not value.dtype.is_floating_point:
        return made.zero_()
    own = torch.Generator(value.device).manual_seed(0)  # the user's random numbers stay what they are
    return made.copy_(torch.randn(made.shape, device=value.device, generator=own))


def _hint(size: Any) -> int | None:
    return size if isinstance(size, int) else size.node.hint


def _product(anchor: fx.Node, inputs: Mapping[fx.Node, Any], part: Part, settings: "Settings") -> Callable[[], object]:
    """A region's product alone, as PyTorch runs it (Inductor calls the same library), or as Inductor chooses among all that it knows."""
    graph, outside = subgraph(Region(anchor, (anchor,), (anchor,)))
    if _adds_apart(anchor):
        _leave_addend(graph)
    if part == "product":
        return _replaced(graph, [inputs[node] for node in outside], settings)
    module = fx.GraphModule(torch.nn.Module(), graph)
    return partial(module, *[inputs[node] for node in outside])


def _adds_apart(anchor: fx.Node) -> bool:
    """Whether Inductor takes what is added to a product out of it, into the elementwise kernel behind it: not of 16-bit floats, which that
    would round twice. Of f32 the library may take twice as long with a bias as without.
    """
    value = anchor.meta.get("val")
    is_wide = isinstance(value, torch.Tensor) and value.dtype.is_floating_point and value.dtype.itemsize > 2
    return is_wide and name_of(anchor.target) == "aten::addmm" and bool(anchor.users) and all(map(_is_elementwise_read, anchor.users))


def _is_elementwise_read(node: fx.Node) -> bool:
    """Whether a node, or all that read it where it is a view, work element by element."""
    if node.op != "call_function":
        return False
    return all(map(_is_elementwise_read, node.users)) if is_view(node) else is_elementwise(node.target)


def _leave_addend(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.op == "call_function" and name_of(node.target) == "aten::addmm":
            with graph.inserting_before(node):
                product = graph.call_function(torch.ops.aten.mm.default, node.args[1:3])
            product.meta = dict(node.meta)
            node.replace_all_uses_with(product)
            graph.erase_node(node)


def _replaced(graph: fx.Graph, inputs: list[Any], settings: "Settings") -> Callable[[], object]:
    """The nodes as they would run: compiled by Inductor, or operator by operator where the rest is run so."""
    module = fx.GraphModule(torch.nn.Module(), graph)
    if settings.rest == "eager":
        return partial(module, *inputs)
    from torch._inductor import standalone_compile

    # The compilation around this one bundles its kernels for its cache, which two at a time cannot; and its mode may have graphs.
    patches = {
        "post_grad_custom_pre_pass": None,
        "max_autotune": True,
        "bundle_triton_into_fx_graph_cache": False,
        "triton.cudagraphs": False,
    }
    compiled = standalone_compile(module, inputs, dynamic_shapes="from_example_inputs", options={"config_patches": patches})
    return lambda: compiled(*inputs)
