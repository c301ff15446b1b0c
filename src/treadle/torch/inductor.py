"""A graph compiled by Inductor, in a mode of `torch.compile`."""

from collections.abc import Callable, Mapping
from typing import Any

from torch._inductor import list_mode_options
from torch._inductor.compile_fx import compile_fx

from treadle.torch import region_lowering

region_lowering.register()


def inductor(gm: Any, example_inputs: list[Any], mode: str | None, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Inductor's code for a graph behind Dynamo. `options` are settings of Inductor's, which win over the mode's."""
    return compile_fx(gm, example_inputs, config_patches={**(list_mode_options(mode) if mode else {}), **options})
