"""The set of dialects a text may use.

The upstream dialects are loaded here; dialects of our own, and our replacements of upstream ones, are handed in by the packages above.
A dialect given in `extra` takes the place of the upstream dialect of the same name (so `scf` with `scf.forall` replaces plain `scf`).
"""

from collections.abc import Callable, Iterable

from xdsl.context import Context

from treadle.ir.core import Dialect
from treadle.ir.dialects import affine, arith, builtin, func, linalg, math, memref, scf, tensor

__all__ = ["Context", "default_context", "make_context", "set_default_dialects"]

UPSTREAM: tuple[Dialect, ...] = (
    builtin.Builtin,
    func.Func,
    arith.ARITH,
    math.Math,
    scf.Scf,
    affine.Affine,
    tensor.Tensor,
    linalg.Linalg,
    memref.MemRef,
)

_default_dialects: Callable[[], Iterable[Dialect]] | None = None


def make_context(extra: Iterable[Dialect] = ()) -> Context:
    """A context with the upstream dialects, each replaced by the one of the same name in `extra` where there is one."""
    replacements = {dialect.name: dialect for dialect in extra}
    context = Context()
    for dialect in UPSTREAM:
        context.load_dialect(replacements.pop(dialect.name, dialect))
    for dialect in replacements.values():
        context.load_dialect(dialect)
    return context


def set_default_dialects(dialects: Callable[[], Iterable[Dialect]]) -> None:
    """Name the dialects of `default_context`; called once by the `treadle.dialects` package when it is imported."""
    global _default_dialects
    _default_dialects = dialects


def default_context() -> Context:
    """A context with every dialect of the compiler (plain upstream where `treadle.dialects` has not been imported)."""
    return make_context(_default_dialects() if _default_dialects is not None else ())
