"""Records that cost an import next to nothing: `Record` for what every start imports, and `dataclass` for the compiler.

The standard decorator generates and compiles six methods a class, a third of a millisecond, and importing `dataclasses` takes ten. A
compilation imports hundreds of records, uses half, and prints or compares few.
"""

from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable

_Made = TypeVar("_Made")

__all__ = ["Record", "dataclass", "replace"]

_ABSENT: Any = object()
_INTERPRETED = 16
"""Instances of a dataclass that are made before its `__init__` is compiled, which takes as long as making them."""


class _Fields:
    """`__dataclass_fields__`, made when first asked for: what `dataclasses.replace`, `fields` and `asdict` want of a class."""

    def __get__(self, instance: object, kind: "type[Record]") -> Any:
        import dataclasses

        made: Any = dataclasses.make_dataclass(kind.__name__, kind.record_names, init=False, repr=False, eq=False)
        fields: dict[str, dataclasses.Field[Any]] = made.__dataclass_fields__
        for name, value in kind.record_defaults.items():
            fields[name].default = value
        kind.__dataclass_fields__ = fields
        return fields


@dataclass_transform(frozen_default=True)
class Record:
    """Base of frozen records: annotated names are the fields, in order; values given to them in the class are defaults.

    Equality, hash, `repr`, positional patterns, `__post_init__` and the functions of `dataclasses` work as for a frozen dataclass.
    Names that begin with an underscore are no fields. Defaults are shared, so they must be immutable.
    """

    record_names: ClassVar[tuple[str, ...]] = ()
    record_defaults: ClassVar[dict[str, Any]] = {}
    __dataclass_fields__: ClassVar[Any] = _Fields()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = tuple(name for name in cls.__annotations__ if name[0] != "_")
        cls.record_names = (*cls.record_names, *own)
        cls.record_defaults = {**cls.record_defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}
        cls.__match_args__ = cls.record_names
        cls.__dataclass_fields__ = _Fields()  # not those of a record that this one extends

    def __init__(self, *args: Any, **given: Any) -> None:
        names, values = self.record_names, self.__dict__
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} has {len(names)} fields, {len(args)} values are given")
        for name, value in zip(names, args, strict=False):
            values[name] = value
        for name in names[len(args) :]:
            value = given.pop(name, _ABSENT)
            if value is _ABSENT:
                value = self.record_defaults.get(name, _ABSENT)
            if value is _ABSENT:
                raise TypeError(f"{type(self).__name__} needs a value for '{name}'")
            values[name] = value
        if given:
            raise TypeError(f"{type(self).__name__} takes no '{next(iter(given))}', or has it already")
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the fields; for subclasses."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field '{name}' of a frozen record")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field '{name}' of a frozen record")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple([self.__dict__[name] for name in self.record_names]))

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in self.record_names)})"


class _Entry:
    """A field of a dataclass: what `dataclasses.field` says of it."""

    __slots__ = ("compare", "default", "factory", "hashed", "hint", "init", "kw_only", "name", "shown")

    def __init__(self, name: str, hint: Any, given: Any, kw_only: bool) -> None:
        self.name, self.hint, self.kw_only, self.factory, self.default = name, hint, kw_only, _ABSENT, given
        self.init = self.compare = self.hashed = self.shown = True
        if type(given).__module__ == "dataclasses" and type(given).__name__ == "Field":
            self.init, self.compare, self.shown = given.init, given.compare, given.repr
            self.hashed = given.compare if given.hash is None else given.hash
            self.factory, self.default = _given(given.default_factory), _given(given.default)
            self.kw_only = given.kw_only if isinstance(given.kw_only, bool) else kw_only


def _given(value: Any) -> Any:
    from dataclasses import MISSING

    return _ABSENT if value is MISSING else value


def _is_class_variable(hint: Any) -> bool:
    return hint.startswith("ClassVar") if isinstance(hint, str) else hint is ClassVar or getattr(hint, "__origin__", None) is ClassVar


def _own_hints(kind: Any) -> "dict[str, Any]":
    return kind.__dict__.get("__annotations__", {})  # noqa: RUF063 - `inspect` takes milliseconds to import


def _standard_entries(kind: Any) -> "dict[str, _Entry]":
    from dataclasses import fields

    return {one.name: _Entry(one.name, one.type, one, False) for one in fields(kind)}


def _entries(kind: Any, kw_only: bool) -> "dict[str, _Entry]":
    """All fields of a class that is being decorated, those of its bases first."""
    found: dict[str, _Entry] = {}
    for base in reversed(kind.__mro__[1:]):
        if "__record_entries__" in base.__dict__:
            found |= base.__dict__["__record_entries__"]
        elif "__dataclass_fields__" in base.__dict__:
            found |= _standard_entries(base)
    for name, hint in _own_hints(kind).items():
        given = getattr(kind, name, _ABSENT)
        one = _Entry(name, hint, given, kw_only)
        if one.default is not given:
            if one.default is _ABSENT:
                delattr(kind, name)
            else:
                setattr(kind, name, one.default)
        if not _is_class_variable(hint):
            found[name] = one
    return found


def _made_init(kind: Any, entries: "dict[str, _Entry]", frozen: bool) -> Any:
    """`__init__` of a class, compiled. What it needs besides its arguments has names that no field has."""
    space: dict[str, Any] = {"records_set": object.__setattr__, "records_absent": _ABSENT}
    plain, named, lines = ["self"], list[str](), list[str]()
    for name, one in entries.items():
        value = name
        if one.factory is not _ABSENT:
            space[f"records_make_{name}"] = one.factory
            value = f"records_make_{name}() if {name} is records_absent else {name}" if one.init else f"records_make_{name}()"
        elif not one.init:
            continue
        default = one.default if one.factory is _ABSENT else _ABSENT
        space[f"records_default_{name}"] = default
        if one.init:
            optional = default is not _ABSENT or one.factory is not _ABSENT
            (named if one.kw_only else plain).append(f"{name}=records_default_{name}" if optional else name)
        lines.append(f"records_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join([*plain, *(["*", *named] if named else [])])
    exec(f"def __init__({head}):\n " + "\n ".join(lines or ["pass"]), space)
    made = space["__init__"]
    made.__qualname__, made.__module__ = f"{kind.__qualname__}.__init__", kind.__module__
    return made


def _arguments(entries: "dict[str, _Entry]", args: tuple[Any, ...], given: "dict[str, Any]") -> "dict[str, Any] | None":
    """The fields' values that the arguments of `__init__` mean; None where they are wrong."""
    plain = [one.name for one in entries.values() if one.init and not one.kw_only]
    values = dict(zip(plain, args, strict=False))
    if len(args) > len(plain) or any(name in values or name not in entries or not entries[name].init for name in given):
        return None
    values |= given
    for name, one in entries.items():
        if name not in values:
            if one.factory is not _ABSENT:
                values[name] = one.factory()
            elif one.init and one.default is _ABSENT:
                return None
            elif one.init:
                values[name] = one.default
    return values


def _first_init(kind: Any, entries: "dict[str, _Entry]", frozen: bool) -> Any:
    """`__init__` of a class until it has had some instances: of most there are one or two, for which compiling takes too long."""
    left = _INTERPRETED
    store = object.__setattr__ if frozen else setattr

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        nonlocal left
        left -= 1
        values = _arguments(entries, args, given) if left >= 0 else None
        if values is None:
            kind.__init__ = made = _made_init(kind, entries, frozen)
            made(self, *args, **given)
            return
        for name in entries:
            if name in values:
                store(self, name, values[name])
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    __init__.__qualname__ = f"{kind.__qualname__}.__init__"
    return __init__


def replace(record: _Made, **changes: Any) -> _Made:
    """`dataclasses.replace` of a dataclass of this module all of whose fields `__init__` takes, in 0.6 to 0.75 of the time.

    An instance's `__dict__` is left alone: once it is made, each attribute takes twice as long to read.
    """
    kind: Any = record.__class__
    names, places, values = kind.__record_places__
    if places is None:
        return kind(**{**dict(zip(names, values(record), strict=True)), **changes})  # type: ignore[no-any-return]
    made = list(values(record))
    for name, value in changes.items():
        if name not in places:
            raise TypeError(f"{kind.__name__} takes no '{name}'")
        made[places[name]] = value
    return kind(*made)  # type: ignore[no-any-return]


class _Places:
    """`__record_places__` of a class, made when first asked for: names of its fields, their places among the arguments of `__init__` (None
    where some are no positional ones), and what gives the values of an instance.
    """

    def __get__(self, instance: object, kind: Any) -> Any:
        entries: dict[str, _Entry] = kind.__record_entries__
        is_positional = all(one.init and not one.kw_only for one in entries.values())
        places = {name: place for place, name in enumerate(entries)} if is_positional else None
        found = kind.__record_places__ = tuple(entries), places, _values(list(entries))
        return found


class _Standard:
    """`__dataclass_fields__` and `__dataclass_params__` of a class, made when first asked for: what the functions of `dataclasses` want."""

    def __init__(self, attribute: str, kind: Any, entries: "dict[str, _Entry]", frozen: bool) -> None:
        self.attribute, self.kind, self.entries, self.frozen = attribute, kind, entries, frozen

    def __get__(self, instance: object, kind: Any) -> Any:
        import dataclasses

        rows = [
            (one.name, one.hint, dataclasses.field(init=one.init, compare=one.compare, hash=one.hashed, repr=one.shown, kw_only=True))
            for one in self.entries.values()
        ]
        twin: Any = dataclasses.make_dataclass(self.kind.__name__, rows, init=False, repr=False, eq=False, frozen=self.frozen)
        for name, one in self.entries.items():
            twin.__dataclass_fields__[name].kw_only = one.kw_only
            if one.default is not _ABSENT:
                twin.__dataclass_fields__[name].default = one.default
            if one.factory is not _ABSENT:
                twin.__dataclass_fields__[name].default_factory = one.factory
        self.kind.__dataclass_fields__, self.kind.__dataclass_params__ = twin.__dataclass_fields__, twin.__dataclass_params__
        return getattr(twin, self.attribute)


def _values(names: list[str]) -> "Callable[[Any], tuple[Any, ...]]":
    """What gives these attributes of an object."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda record: ()
    only: Callable[[Any], Any] = attrgetter(names[0])
    return lambda record: (only(record),)


def _comparisons(kind: Any, entries: "dict[str, _Entry]", frozen: bool) -> "dict[str, Any]":
    """`__eq__` and `__hash__`, those of a dataclass."""
    values = _values([one.name for one in entries.values() if one.compare])
    hashed = _values([one.name for one in entries.values() if one.hashed])

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def digest(self: Any) -> int:
        return hash(hashed(self))

    methods: dict[str, Any] = {"__eq__": equal}
    own = kind.__dict__
    if "__hash__" not in own or (own["__hash__"] is None and "__eq__" in own):
        methods["__hash__"] = digest if frozen else None
        if own.get("__hash__", _ABSENT) is None:
            del kind.__hash__
    return methods


def _guards(kind: Any, entries: "dict[str, _Entry]") -> "dict[str, Any]":
    """What keeps the fields of an instance as they are."""

    def refuse(verb: str, name: str) -> Any:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {verb} field '{name}'")

    def assign(self: Any, name: str, value: object) -> None:
        if type(self) is kind or name in entries:
            refuse("assign to", name)
        object.__setattr__(self, name, value)

    def remove(self: Any, name: str) -> None:
        if type(self) is kind or name in entries:
            refuse("delete", name)
        object.__delattr__(self, name)

    return {"__setattr__": assign, "__delattr__": remove}


def _shown(self: Any) -> str:
    entries: dict[str, _Entry] = self.__record_entries__
    parts = [f"{one.name}={getattr(self, one.name)!r}" for one in entries.values() if one.shown]
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _decorated(kind: Any, frozen: bool, kw_only: bool, eq: bool, init: bool, repr: bool) -> Any:
    entries = kind.__record_entries__ = _entries(kind, kw_only)
    methods: dict[str, Any] = {
        **({"__init__": _first_init(kind, entries, frozen)} if init else {}),
        **({"__repr__": _shown} if repr else {}),
        "__match_args__": tuple([one.name for one in entries.values() if one.init and not one.kw_only]),
        **(_comparisons(kind, entries, frozen) if eq else {}),
        **(_guards(kind, entries) if frozen else {}),
    }
    for name, method in methods.items():
        if name not in kind.__dict__:
            setattr(kind, name, method)
    kind.__record_places__ = _Places()
    kind.__dataclass_fields__ = _Standard("__dataclass_fields__", kind, entries, frozen)
    kind.__dataclass_params__ = _Standard("__dataclass_params__", kind, entries, frozen)
    return kind


def _dataclass(
    kind: Any = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    eq: bool = True,
    init: bool = True,
    repr: bool = True,
) -> Any:
    """`dataclasses.dataclass`, whose `__init__` is compiled when some instances have been made, and whose other methods are shared.

    Instances, errors and the functions of `dataclasses` are the same. `slots` is a promise to set nothing but fields, which the type
    checker keeps: attributes of plain instances are as fast, and a class with slots has to be made twice.
    """

    def decorated(kind: Any) -> Any:
        return _decorated(kind, frozen, kw_only, eq, init, repr)

    return decorated if kind is None else decorated(kind)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass
