"""Source locations of operations.

xDSL keeps a location attribute on every operation and copies it on `clone`, but operations made by builders have none. `location_of`
therefore falls back to the closest enclosing operation that has one, and the rewriter (`ir/rewriting.py`) fills locations in as it inserts.
"""

from xdsl.dialects.builtin import CallSiteLoc, FileLineColLoc, FusedLoc, IntAttr, LocationAttr, NameLoc, StringAttr, UnknownLoc

from treadle.errors import SourceLocation
from treadle.ir.core import Attribute, Operation


def make_location(location: SourceLocation) -> FileLineColLoc:
    """The location attribute of a place in the user's text."""
    return FileLineColLoc(StringAttr(location.file), IntAttr(location.line), IntAttr(location.column))


def resolve_location(location: Attribute) -> SourceLocation | None:
    """The place that a location attribute names, the first one where it names several; None where it names none."""
    match location:
        case FileLineColLoc():
            return SourceLocation(location.filename.data, location.line.data, location.column.data)
        case NameLoc():
            return resolve_location(location.location)
        case CallSiteLoc():
            return resolve_location(location.callee) or resolve_location(location.caller)
        case FusedLoc():
            parts = location.locations
            return next((found for part in getattr(parts, "data", ()) if (found := resolve_location(part)) is not None), None)
        case _:
            return None


def location_of(op: Operation) -> SourceLocation | None:
    """Where the operation came from: its own location, or else that of the closest enclosing operation that has one."""
    current: Operation | None = op
    while current is not None:
        if (found := resolve_location(current.location)) is not None:
            return found
        current = current.parent_op()
    return None


def has_location(op: Operation) -> bool:
    """Whether the operation itself carries a location."""
    return not isinstance(op.location, UnknownLoc)


def give_location(op: Operation, location: LocationAttr) -> None:
    """Set `location` on the operation and on everything nested in it, wherever none is known yet."""
    if isinstance(location, UnknownLoc):
        return
    for inner in op.walk():
        if not has_location(inner):
            inner.location = location


def set_location(new: Operation, old: Operation) -> None:
    """Give `new` and everything nested in it the location of `old`, wherever none is known yet."""
    current: Operation | None = old
    while current is not None and not has_location(current):
        current = current.parent_op()
    if current is not None:
        give_location(new, current.location)
