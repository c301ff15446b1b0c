"""PyTorch in front of the compiler: `torch.compile(model, backend="treadle")`. docs/pytorch.md says what is taken and what is left."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.torch.exported import ExportedModel, compile_exported
    from treadle.torch.programs import program
    from treadle.torch.reports import clear_report, report
    from treadle.torch.versions import backend

__all__ = ["ExportedModel", "backend", "clear_report", "compile_exported", "program", "report"]

_HOMES = {
    "ExportedModel": "treadle.torch.exported",
    "backend": "treadle.torch.versions",
    "clear_report": "treadle.torch.reports",
    "compile_exported": "treadle.torch.exported",
    "program": "treadle.torch.programs",
    "report": "treadle.torch.reports",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it: PyTorch's compiler is imported where it is used."""
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module 'treadle.torch' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
