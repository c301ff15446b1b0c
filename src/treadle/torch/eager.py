"""Graphs whose regions are taken and whose rest runs operator by operator: without Triton, a C++ compiler or a GPU."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._prims_common import suggest_memory_format

from treadle.torch.decompositions import composites
from treadle.torch.later_versions import take_or_leave
from treadle.torch.pointwise import name_of
from treadle.torch.settings import Settings
from treadle.torch.taking import take

_DENSE_ONLY: Final = frozenset({"aten::native_group_norm", "aten::native_group_norm_backward"})
"""Operators whose kernels take dense images alone; tracing loses the copies that PyTorch makes in front of them."""


def with_eager(gm: fx.GraphModule, example_inputs: list[Any], settings: Settings) -> Callable[..., Any]:
    """A graph behind Dynamo, forward and backward."""

    def compiler(graph: fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        _lay_out(graph.graph)
        take_or_leave(take, graph.graph, settings)
        graph.recompile()
        return make_boxed_func(graph.forward)

    compiled = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        decompositions=composites(),
        partition_fn=min_cut_rematerialization_partition,
    )
    return compiled(gm, example_inputs)


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
