"""The set of dialects a text may use.

The upstream dialects are loaded here; dialects of our own, and our replacements of upstream ones, are handed in by the packages above.
A dialect given in `extra` takes the place of the upstream dialect of the same name (so `scf` with `scf.forall` replaces plain `scf`).
"""

from collections.abc import Callable, Iterable, Mapping

from xdsl.context import Context

from treadle.ir.core import Dialect
from treadle.ir.dialects import affine, arith, builtin, func, linalg, math, memref, scf, tensor

__all__ = ["Context", "default_context", "make_context", "set_default_context"]

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

_default: Callable[[], Context] | None = None


def make_context(extra: Iterable[Dialect] = (), lazy: Mapping[str, Callable[[], Dialect]] | None = None) -> Context:
    """A context with the upstream dialects, each replaced by the one of the same name in `extra` where there is one.

    `lazy` names further dialects that are made when a text first uses them.
    """
    replacements = {dialect.name: dialect for dialect in extra}
    context = Context()
    for dialect in UPSTREAM:
        context.load_dialect(replacements.pop(dialect.name, dialect))
    for dialect in replacements.values():
        context.load_dialect(dialect)
    for name, make in (lazy or {}).items():
        context.register_dialect(name, make)
    return context


def set_default_context(make: Callable[[], Context]) -> None:
    """Say what `default_context` makes; called once by the `treadle.dialects` package when it is imported."""
    global _default
    _default = make


def default_context() -> Context:
    """A context with every dialect of the compiler (plain upstream where `treadle.dialects` has not been imported)."""
    return _default() if _default is not None else make_context()
