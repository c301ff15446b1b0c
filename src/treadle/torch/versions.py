"""What `torch.compile(model, backend="treadle")` calls, and which versions of PyTorch it works with.

What it uses of PyTorch's compiler is loaded behind the check: older versions, and perhaps later ones, lack some of it. With those the model
runs without our kernels, and a warning says so; so it does where a later one fails while a graph is looked at.
"""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import torch

from treadle.errors import TORCH_VERSION, TreadleError
from treadle.torch.settings import Rest, Settings, settings_of

OLDEST: Final = (2, 9)
"""Of PyTorch's versions, the first with all that is used here."""
NEWEST: Final = (2, 15)
"""The latest that is tested. What goes wrong with later ones is taken to be theirs (`later_versions.py`)."""
_HOME: Final = "treadle.torch.dynamo"
_EAGER: Final = "treadle.torch.eager"


def backend(gm: Any, example_inputs: list[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """What `torch.compile(model, backend="treadle")` calls with each graph.

    `mode` and `options` are Inductor's (`mode="reduce-overhead"`, ..), but for options that begin with `treadle.` (`Settings`). Raises
    TR120 for one of those that does not exist, TR121 where "treadle.strict" is set and a matrix product is left. With a PyTorch that is not
    supported the graph is Inductor's alone: a warning, or TR124 where "treadle.strict" is set.
    """
    settings, theirs = settings_of(options, mode)
    if not (reason := lacking(settings.rest)):
        return import_module(_HOME).compiled(gm, example_inputs, settings, mode, theirs)
    refuse(reason, settings)
    if settings.rest == "eager":
        return gm.forward
    from treadle.torch.inductor import inductor

    return inductor(gm, example_inputs, mode, theirs)


def refuse(reason: str, settings: Settings) -> None:
    """Say why this PyTorch is not supported: a warning, or TR124 where the settings are strict."""
    refusal = TreadleError(TORCH_VERSION, found=torch.__version__, reason=reason, oldest=".".join(map(str, OLDEST)))
    if settings.strict:
        raise refusal
    warnings.warn(f"{refusal.code}: {refusal.message}; {refusal.fix}", stacklevel=2)


def lacking(rest: Rest = "inductor") -> str:
    """Why this PyTorch is not supported; "" where it is, as far as is known before a graph is looked at."""
    if _version() < OLDEST:
        return "it is too old"
    for name in (_HOME, *([_EAGER] if rest == "eager" else [])):
        if isinstance(found := load(name), str):
            return found
    return ""


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def is_later() -> bool:
    """Whether this PyTorch is later than all that are tested."""
    return _version() > NEWEST


def load(name: str) -> Any:
    """A module that uses what not all versions of PyTorch have; where this one lacks some of it, what to say about it."""
    try:
        return import_module(name)
    except (ImportError, AttributeError) as missing:
        return f"it lacks what is used of its compiler: {missing}"
