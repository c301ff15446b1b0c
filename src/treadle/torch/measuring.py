"""Times of a region's program and of the nodes that it replaces, side by side on the device, and the store that keeps them."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage] - there is no public name

from treadle import __version__
from treadle.bench.records import write
from treadle.driver.tuned import product_of
from treadle.runtime.cache import default_folder
from treadle.torch.regions import Region, subgraph

if TYPE_CHECKING:
    from pathlib import Path

    from treadle.driver import Program
    from treadle.torch.settings import Settings

Timer = Callable[[Mapping[str, Callable[[], object]]], Mapping[str, float]]
"""Microseconds of each of several calls."""
OURS, THEIRS = "treadle", "replaced"


def on_device(calls: Mapping[str, Callable[[], object]]) -> Mapping[str, float]:
    """Medians of interleaved runs with a cold cache on the GPU that PyTorch has as current device."""
    from treadle.bench.machine import TorchMachine
    from treadle.bench.protocol import QUICK, measure

    samples = measure(TorchMachine(QUICK.flush_bytes), calls, QUICK)
    return {name: 1e3 * samples[name].median_ms for name in calls}


timer: Timer = on_device


def times(region: Region, program: "Program", digest: str, settings: "Settings") -> tuple[float, float] | None:
    """Microseconds of the program and of what it replaces: as kept, else measured and kept. None where inputs cannot be made."""
    path = default_folder() / "tuned" / f"region-{digest}.json"
    product = product_of(program.target) if program.target != "sim" else "sim"
    if (kept := _kept(path, product)) is not None:
        return kept
    graph, outside = subgraph(region)
    with _disable_current_modes():
        inputs = [_example(node) for node in outside]
        if any(value is None for value in inputs):
            return None
        theirs = _replaced(graph, inputs, settings)
        given = [value for node, value in zip(_placeholders(graph), inputs, strict=True) if node.users]
        found = timer({OURS: lambda: program(*given), THEIRS: lambda: theirs(*inputs)})
    taken = (found[OURS], found[THEIRS])
    write(path, {"treadle": __version__, "product": product, "program": digest, "us": list(taken)})
    return taken


def _kept(path: "Path", product: str) -> tuple[float, float] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        ours, theirs = content["us"]
        return (float(ours), float(theirs)) if (content["treadle"], content["product"]) == (__version__, product) else None
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
    return made.copy_(torch.randn(made.shape, device=value.device)) if value.dtype.is_floating_point else made.zero_()


def _hint(size: Any) -> int | None:
    return size if isinstance(size, int) else size.node.hint


def _replaced(graph: fx.Graph, inputs: list[Any], settings: "Settings") -> Callable[..., object]:
    """The nodes as they would run: compiled by Inductor, or operator by operator where the rest is run so."""
    module = fx.GraphModule(torch.nn.Module(), graph)
    if settings.rest == "eager":
        return module
    from torch._inductor import standalone_compile

    # The compilation around this one bundles its kernels for its cache, which two at a time cannot; and its mode may have graphs.
    patches = {
        "post_grad_custom_pre_pass": None,
        "max_autotune": True,
        "bundle_triton_into_fx_graph_cache": False,
        "triton.cudagraphs": False,
    }
    return standalone_compile(module, inputs, dynamic_shapes="from_example_inputs", options={"config_patches": patches})
