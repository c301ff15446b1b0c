"""Operations, types, verifiers and effects; no passes.

Importing this package makes all of these dialects known to `treadle.ir.text.parse_module`.
"""

from importlib import import_module
from importlib.util import find_spec

from treadle.ir.context import Context, make_context, set_default_dialects
from treadle.ir.core import Dialect

_OWN = {"tile": "TILE", "dispatch": "DISPATCH", "sync": "SYNC"}


def all_dialects() -> tuple[Dialect, ...]:
    """Our extended MLIR dialects and the dialects of every lower level."""
    from treadle.dialects.mlir_ext import MLIR_EXT

    modules = [import_module(f"{__name__}.{module}") for module in _OWN if find_spec(f"{__name__}.{module}")]
    own = [dialect for module in modules for name in _OWN.values() if isinstance(dialect := getattr(module, name, None), Dialect)]
    return (*MLIR_EXT, *own)


def all_dialects_context() -> Context:
    """A context in which the text of every level parses."""
    return make_context(all_dialects())


set_default_dialects(all_dialects)
