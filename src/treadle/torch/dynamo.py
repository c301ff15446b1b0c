"""The backend of `torch.compile`: Inductor for everything, with a pass over its graphs that takes regions; or eager execution for the rest.

Graphs are looked at behind AOTAutograd, forward and backward apart, so that training needs nothing of its own. What looks at them is loaded
with the first of them: a start from PyTorch's cache has none.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

from treadle.driver import own_state
from treadle.torch import programs
from treadle.torch.later_versions import take_or_leave
from treadle.torch.settings import Settings
from treadle.torch.versions import load, refuse


class TakeRegions(CustomGraphPass):
    """Inductor's hook: takes regions out of a graph before Inductor fuses the rest."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, graph: fx.Graph) -> None:
        """Take what can be taken."""
        taking = load("treadle.torch.taking")
        if isinstance(taking, str):
            refuse(taking, self._settings)
        else:
            take_or_leave(taking.take, graph, self._settings)

    def uuid(self) -> str:
        """What the result depends on besides the graph: Inductor's cache asks."""
        return f"treadle {own_state()} {self._settings!r} {self._settings.compile_options().key()}"


def compiled(
    gm: fx.GraphModule, example_inputs: list[Any], settings: Settings, mode: str | None, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """A graph with its regions taken; `mode` and `options` are Inductor's. Raises TR121."""
    if settings.rest == "eager":
        from treadle.torch.eager import with_eager

        return with_eager(gm, example_inputs, settings)
    from treadle.torch.inductor import inductor

    with nullcontext() if settings.target == "sim" else programs.expected(settings.target):
        return inductor(gm, example_inputs, mode, {**options, "post_grad_custom_pre_pass": TakeRegions(settings)})
