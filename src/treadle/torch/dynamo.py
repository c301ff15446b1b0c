"""The backend of `torch.compile`: Inductor for everything, with a pass over its graphs that takes regions; or eager execution for the rest.

Graphs are looked at behind AOTAutograd, forward and backward apart, so that training needs nothing of its own.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._prims_common import suggest_memory_format

from treadle.driver import own_state
from treadle.torch.decompositions import composites
from treadle.torch.pointwise import name_of
from treadle.torch.settings import Settings
from treadle.torch.taking import take


class TakeRegions(CustomGraphPass):
    """Inductor's hook: takes regions out of a graph before Inductor fuses the rest."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, graph: fx.Graph) -> None:
        """Take what can be taken."""
        take(graph, self._settings)

    def uuid(self) -> str:
        """What the result depends on besides the graph: Inductor's cache asks."""
        return f"treadle {own_state()} {self._settings!r} {self._settings.compile_options().key()}"


def compiled(
    gm: fx.GraphModule, example_inputs: list[Any], settings: Settings, mode: str | None, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """A graph with its regions taken; `mode` and `options` are Inductor's. Raises TR121."""
    if settings.rest == "eager":
        return _with_eager(gm, example_inputs, settings)
    from treadle.torch.inductor import inductor

    return inductor(gm, example_inputs, mode, {**options, "post_grad_custom_pre_pass": TakeRegions(settings)})


_DENSE_ONLY: Final = frozenset({"aten::native_group_norm", "aten::native_group_norm_backward"})
"""Operators whose kernels take dense images alone; tracing loses the copies that PyTorch makes in front of them."""


def _lay_out(graph: fx.Graph) -> None:
    """See to it that such operators read dense images."""
    for node in [node for node in graph.nodes if name_of(node.target) in _DENSE_ONLY]:
        for given in node.all_input_nodes:
            if isinstance(value := given.meta.get("val"), torch.Tensor):
                with graph.inserting_before(node):
                    dense = graph.call_function(_dense, (given, suggest_memory_format(value)))
                dense.meta = dict(given.meta)
                node.replace_input_with(given, dense)


def _dense(value: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    """The tensor, or a copy where it is not dense: strides of dimensions of size 1, which PyTorch looks at, differ from the traced ones."""
    return value if value.is_contiguous(memory_format=suggest_memory_format(value)) else value.clone(memory_format=layout)


def _with_eager(gm: fx.GraphModule, example_inputs: list[Any], settings: Settings) -> Callable[..., Any]:
    def compiler(graph: fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        _lay_out(graph.graph)
        take(graph.graph, settings)
        graph.recompile()
        return make_boxed_func(graph.forward)

    compiled = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        decompositions=composites(),
        partition_fn=min_cut_rematerialization_partition,
    )
    return compiled(gm, example_inputs)
