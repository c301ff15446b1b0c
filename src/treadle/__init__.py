"""Treadle: tensor programs to GPU kernels.

The public names are here and load on first use, so that importing the package stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from treadle.driver import Program, compile
    from treadle.errors import InternalError, TreadleError
    from treadle.language.autotune import Config, autotune
    from treadle.language.kernel import kernel
    from treadle.options import CompileOptions
    from treadle.torch.custom_operator import op

__all__ = ["CompileOptions", "Config", "InternalError", "Program", "TreadleError", "__version__", "autotune", "compile", "kernel", "op"]

_HOMES = {
    "CompileOptions": "treadle.options",
    "Config": "treadle.language.autotune",
    "InternalError": "treadle.errors",
    "Program": "treadle.driver",
    "TreadleError": "treadle.errors",
    "autotune": "treadle.language.autotune",
    "compile": "treadle.driver",
    "kernel": "treadle.language.kernel",
    "op": "treadle.torch.custom_operator",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module 'treadle' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
