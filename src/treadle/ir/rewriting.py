"""Rewriting that keeps source locations and always ends.

Upstream's rewriter leaves new operations without a location and its greedy driver has no cap. Here every operation that a pattern
inserts inherits the location of the operation it replaces (of the matched one where it replaces none), and a set of patterns that never
settles is an `InternalError` naming the pattern that was still at work.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from treadle.errors import InternalError, TreadleError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.locations import give_location, has_location, location_of, set_location

__all__ = ["InsertPoint", "LocatingRewriter", "Pattern", "PatternRewriter", "op_type_rewrite_pattern", "rewrite_greedily", "set_location"]

DEFAULT_MAX_ITERATIONS = 64


class Pattern(RewritePattern):
    """A rewrite of one operation; subclasses define `match_and_rewrite(self, op, rewriter)` and change the IR through `rewriter` only."""

    @property
    def label(self) -> str:
        """The name that errors and traces give the pattern."""
        return type(self).__name__

    @property
    def root(self) -> str | None:
        """The name of the only operations it may rewrite; None where it looks at others, too."""
        return None

    def may_rewrite(self, name: str) -> bool:
        """Whether it looks at operations of a name."""
        return self.root in (None, name)


class LocatingRewriter(PatternRewriter):
    """Inserts with the location of what is replaced."""

    def __init__(self, op: Operation) -> None:
        super().__init__(op)
        self._location = op.location
        scope: Operation | None = op
        while scope is not None and not has_location(scope):
            scope = scope.parent_op()
        if scope is not None:
            self._location = scope.location
        self.operation_insertion_handler.append(self._locate)

    def _locate(self, op: Operation) -> None:
        give_location(op, self._location)

    def replace(
        self,
        op: Operation,
        new_ops: Operation | Sequence[Operation],
        new_results: Sequence[SSAValue | None] | None = None,
        safe_erase: bool = True,
    ) -> None:
        """Put `new_ops` in place of `op`, at the location of `op`."""
        new_ops = (new_ops,) if isinstance(new_ops, Operation) else tuple(new_ops)
        for new in new_ops:
            set_location(new, op)
        super().replace(op, new_ops, new_results, safe_erase)


def _apply(op: Operation, patterns: Sequence[RewritePattern]) -> RewritePattern | None:
    """Try the patterns on `op` in order; the first that changed something, or None."""
    rewriter = LocatingRewriter(op)  # one for all of them: it is as new until a pattern does something
    for pattern in patterns:
        try:
            pattern.match_and_rewrite(op, rewriter)
        except (TreadleError, InternalError):
            raise
        except Exception as error:
            where = location_of(op)
            raise InternalError(f"pattern {_label(pattern)} failed on '{op.name}' at {where}: {error}") from error
        if rewriter.has_done_action:
            return pattern
    return None


def _by_root(patterns: Sequence[RewritePattern]) -> Callable[[str], tuple[RewritePattern, ...]]:
    """Which of the patterns may rewrite an operation of a name, in their order."""

    @cache
    def of(name: str) -> tuple[RewritePattern, ...]:
        return tuple(p for p in patterns if not isinstance(p, Pattern) or p.may_rewrite(name))

    return of


def _label(pattern: RewritePattern) -> str:
    return pattern.label if isinstance(pattern, Pattern) else type(pattern).__name__


def rewrite_greedily(root: Operation, patterns: Iterable[RewritePattern], max_iterations: int = DEFAULT_MAX_ITERATIONS) -> bool:
    """Sweep over the operations inside `root` in program order, applying the first pattern that fires, until a sweep changes nothing.

    Returns whether anything changed. Raises `InternalError` naming the last pattern that fired after `max_iterations` sweeps that all
    changed something.
    """
    patterns_of = _by_root(tuple(patterns))
    changed = False
    last: RewritePattern | None = None
    for _ in range(max_iterations):
        fired: RewritePattern | None = None
        for op in list(root.walk()):
            if op is root or op.parent is None:  # erased meanwhile, alone or with what encloses it
                continue
            if found := patterns_of(op.name):
                fired = _apply(op, found) or fired
        if fired is None:
            return changed
        changed, last = True, fired
    if last is None:
        return False
    raise InternalError(f"pattern {_label(last)} did not settle within {max_iterations} iterations in '{root.name}' at {location_of(root)}")
