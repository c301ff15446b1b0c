"""Treadle: tensor programs to GPU kernels.

The public names are here and load on first use, so that importing the package stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

__version__ = "0.1.0"

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from treadle.driver import Program
    from treadle.driver.sources import SourceLike
    from treadle.errors import InternalError, TreadleError
    from treadle.frontends.levels import Level
    from treadle.language.autotune import Config, autotune
    from treadle.language.kernel import kernel
    from treadle.options import CompileOptions
    from treadle.torch.custom_operator import op
    from treadle.torch.exported import ExportedModel

__all__ = ["CompileOptions", "Config", "InternalError", "Program", "TreadleError", "__version__", "autotune", "compile", "kernel", "op"]

_HOMES = {
    "CompileOptions": "treadle.options",
    "Config": "treadle.language.autotune",
    "InternalError": "treadle.errors",
    "Program": "treadle.driver",
    "TreadleError": "treadle.errors",
    "autotune": "treadle.language.autotune",
    "kernel": "treadle.language.kernel",
    "op": "treadle.torch.custom_operator",
}


@overload
def compile(
    source: "SourceLike",
    target: str = "auto",
    options: "CompileOptions | None" = None,
    function: str | None = None,
    level: "Level | None" = None,
) -> "Program": ...
@overload
def compile(source: "ExportedProgram", target: str = "auto", options: "CompileOptions | None" = None) -> "ExportedModel": ...
def compile(
    source: Any, target: str = "auto", options: "CompileOptions | None" = None, function: str | None = None, level: "Level | None" = None
) -> Any:
    """Compile a program for a target: `treadle.driver.compile` says how. A `torch.export.ExportedProgram` becomes an `ExportedModel`,
    which is called like the model (docs/pytorch.md).
    """
    if type(source).__module__.startswith("torch."):
        from treadle.torch.exported import compile_exported

        return compile_exported(source, target, options)
    from treadle import driver

    return driver.compile(source, target, options, function, level)


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
