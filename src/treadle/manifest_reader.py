"""Strict reading of JSON values: every error names the place, as in `manifest.kernels[0].args[1].kind`."""

from collections.abc import Collection, Iterator
from typing import Any, cast

from treadle import errors
from treadle.errors import TreadleError
from treadle.plan.expr import Expr, parse

_MISSING: Any = object()


class Reader:
    """A JSON value at a place; the methods take a field's name and check its type. `symbols` are those that sizes may use."""

    __slots__ = ("_symbols", "place", "value")

    def __init__(self, value: Any, place: str, symbols: Collection[str] = ()) -> None:
        self.value = value
        self.place = place
        self._symbols = symbols

    def error(self, reason: str) -> TreadleError:
        """The exception for a fault at this place."""
        return TreadleError(errors.MANIFEST, place=self.place, reason=reason)

    def with_symbols(self, symbols: Collection[str]) -> "Reader":
        """The same place; sizes may use `symbols`."""
        return Reader(self.value, self.place, symbols)

    def at(self, key: str | int, default: Any = _MISSING) -> "Reader":
        """The value of a field or list entry."""
        place = f"{self.place}[{key}]" if isinstance(key, int) else f"{self.place}.{key}"
        if isinstance(key, int):
            return Reader(cast("list[Any]", self.value)[key], place, self._symbols)
        if not isinstance(self.value, dict):
            raise self.error("is no object")
        record = cast("dict[str, Any]", self.value)
        if key not in record and default is _MISSING:
            raise self.error(f"has no '{key}'")
        return Reader(record.get(key, default), place, self._symbols)

    def has(self, key: str) -> bool:
        """Whether the object has a field."""
        return isinstance(self.value, dict) and key in cast("dict[str, Any]", self.value)

    def only(self, *names: str) -> None:
        """Refuse fields that are not listed."""
        unknown = sorted(set(cast("dict[str, Any]", self.value)) - set(names))
        if unknown:
            raise self.error(f"has an unknown field '{unknown[0]}'")

    def text(self, key: str, default: Any = _MISSING) -> str:
        """A string."""
        r = self.at(key, default)
        if not isinstance(r.value, str):
            raise r.error("is no string")
        return r.value

    def file_name(self, key: str) -> str:
        """The name of a file in the folder: no path."""
        name = self.text(key)
        if not name or "/" in name or "\\" in name or name in (".", "..", "manifest.json"):
            raise self.at(key).error(f"'{name}' is no name of a file in the folder")
        return name

    def flag(self, key: str, default: bool) -> bool:
        """A truth value."""
        r = self.at(key, default)
        if not isinstance(r.value, bool):
            raise r.error("is neither true nor false")
        return r.value

    def choice(self, key: str, allowed: Collection[str]) -> Any:
        """One of a few strings."""
        name = self.text(key)
        if name not in allowed:
            raise self.at(key).error(f"'{name}' is none of {', '.join(allowed)}")
        return name

    def integer(self, key: str, low: int | None = None) -> int:
        """A whole number, at least `low`."""
        return self.at(key)._integer(low)

    def _integer(self, low: int | None = None) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.error("is no integer")
        if low is not None and self.value < low:
            raise self.error(f"is below {low}")
        return self.value

    def integers(self, key: str, count: int, low: int | None = 1) -> tuple[int, ...]:
        """`count` integers, positive ones or from `low` on."""
        entries = list(self.items(key))
        if len(entries) != count:
            raise self.at(key).error(f"has {len(entries)} entries, not {count}")
        return tuple(entry._integer(low) for entry in entries)

    def triple(self, key: str) -> tuple[int, int, int]:
        """Three positive integers."""
        x, y, z = self.integers(key, 3)
        return x, y, z

    def size(self, key: str, default: Any = _MISSING) -> int | Expr:
        """A number or an expression."""
        return self.at(key, default)._size()

    def _size(self) -> int | Expr:
        if not isinstance(self.value, str):
            return self._integer()
        try:
            e = parse(self.value)
        except TreadleError as problem:
            raise self.error(problem.message) from None
        unknown = e.symbols() - set(self._symbols)
        if unknown:
            raise self.error(f"uses '{min(unknown)}', which is not in dims")
        known = e.as_int()
        return e if known is None else known

    def size_or_float(self, key: str) -> int | Expr | float:
        """A size, or a number with a fraction."""
        r = self.at(key)
        return r.value if isinstance(r.value, float) else r._size()

    def sizes(self, key: str, count: int | None = None) -> tuple[int | Expr, ...]:
        """A list of sizes."""
        made = tuple(entry._size() for entry in self.items(key))
        if count is not None and len(made) != count:
            raise self.at(key).error(f"has {len(made)} entries, not {count}")
        return made

    def items(self, key: str, optional: bool = False) -> Iterator["Reader"]:
        """The entries of a list."""
        r = self.at(key, []) if optional else self.at(key)
        if not isinstance(r.value, list):
            raise r.error("is no list")
        return (r.at(i) for i in range(len(cast("list[Any]", r.value))))

    def mapping(self, key: str) -> Iterator[tuple[str, "Reader"]]:
        """The fields of an object."""
        r = self.at(key)
        if not isinstance(r.value, dict):
            raise r.error("is no object")
        return ((name, r.at(name)) for name in cast("dict[str, Any]", r.value))

    def mapping_values(self, key: str) -> dict[str, Any]:
        """An object as it is; empty if absent."""
        r = self.at(key, {})
        if not isinstance(r.value, dict):
            raise r.error("is no object")
        return cast("dict[str, Any]", r.value)
