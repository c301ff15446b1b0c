"""Operations, types, verifiers and effects; no passes.

Importing this package makes all of these dialects known to `treadle.ir.text.parse_module`. The dialects below tensor level are
imported when a text first uses them.
"""

from treadle.ir.context import Context, make_context, set_default_context
from treadle.ir.core import Dialect


def _dispatch() -> Dialect:
    from treadle.dialects.dispatch import DISPATCH

    return DISPATCH


def _tile() -> Dialect:
    from treadle.dialects.tile import TILE

    return TILE


def _sync() -> Dialect:
    from treadle.dialects.sync import SYNC

    return SYNC


def _pipe() -> Dialect:
    from treadle.dialects.pipe import PIPE

    return PIPE


def _stamp() -> Dialect:
    from treadle.dialects.stamp import STAMP

    return STAMP


def all_dialects_context() -> Context:
    """A context in which the text of every level parses."""
    from treadle.dialects.mlir_ext import MLIR_EXT

    return make_context(MLIR_EXT, {"dispatch": _dispatch, "tile": _tile, "sync": _sync, "pipe": _pipe, "stamp": _stamp})


set_default_context(all_dialects_context)
