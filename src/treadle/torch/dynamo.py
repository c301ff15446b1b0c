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
from treadle.errors import TORCH_VERSION, TreadleError
from treadle.torch.decompositions import composites
from treadle.torch.pointwise import name_of
from treadle.torch.settings import Settings, settings_of
from treadle.torch.taking import take

OLDEST: Final = (2, 9)
"""Of PyTorch's versions, the first with all that is used here."""


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


def backend(
    gm: fx.GraphModule, example_inputs: list[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """What `torch.compile(model, backend="treadle")` calls with each graph.

    `mode` and `options` are Inductor's (`mode="reduce-overhead"`, ..), but for options that begin with `treadle.` (`Settings`). Raises
    TR120 for one of those that does not exist, TR121 where "treadle.strict" is set and a matrix product is left, TR124 for a PyTorch that
    is too old.
    """
    _check_version()
    settings, theirs = settings_of(options, mode)
    if settings.rest == "eager":
        return _with_eager(gm, example_inputs, settings)
    return _with_inductor(gm, example_inputs, settings, mode, theirs)


def _check_version() -> None:
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST:
        raise TreadleError(TORCH_VERSION, found=torch.__version__, oldest=".".join(map(str, OLDEST)))


def _with_inductor(
    gm: fx.GraphModule, example_inputs: list[Any], settings: Settings, mode: str | None, options: Mapping[str, Any]
) -> Callable[..., Any]:
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    patches: dict[str, Any] = {**(list_mode_options(mode) if mode else {}), **options, "post_grad_custom_pre_pass": TakeRegions(settings)}
    return compile_fx(gm, example_inputs, config_patches=patches)


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
