"""Frozen records for what every start imports: making a dataclass takes a third of a millisecond, importing `dataclasses` ten.

Elsewhere `@dataclass(frozen=True, slots=True)` is the way: its instances are made and compared faster.
"""

from typing import Any, ClassVar, dataclass_transform

_ABSENT: Any = object()


class _Fields:
    """`__dataclass_fields__`, made when first asked for: what `dataclasses.replace`, `fields` and `asdict` want of a class."""

    def __get__(self, instance: object, kind: "type[Record]") -> Any:
        import dataclasses

        made: Any = dataclasses.make_dataclass(kind.__name__, kind.record_names)
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
