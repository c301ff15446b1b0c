"""Records and our dataclasses behave as standard ones do, and cost a start neither `dataclasses` nor `inspect`."""

import copy
import dataclasses
import pickle
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from treadle.records import Record, dataclass, replace

T = TypeVar("T")


class Point(Record):
    """A record."""

    x: int
    y: int = 2


class Solid(Point):
    """One more field."""

    z: "tuple[int, ...]" = ()


class Box(Record, Generic[T]):
    """A generic record with a default that has no hash."""

    content: T
    facts: Mapping[str, int] = MappingProxyType({})


class Checked(Record):
    """A record that checks itself."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("negative")


@dataclasses.dataclass(frozen=True)
class Twin:
    """The dataclass that `Point` stands for."""

    x: int
    y: int = 2


def test_values_and_defaults() -> None:
    assert (Point(1).x, Point(1).y, Point(y=3, x=1).y) == (1, 2, 3)
    assert Solid(1, z=(4,)) == Solid(1, 2, (4,))
    assert repr(Solid(1)) == "Solid(x=1, y=2, z=())"
    assert Box[int](5).facts == {}


@pytest.mark.parametrize(("args", "given"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"w": 1})])
def test_wrong_arguments(args: tuple[int, ...], given: dict[str, int]) -> None:
    kind: Any = Point
    with pytest.raises(TypeError):
        Twin(*args, **given)
    with pytest.raises(TypeError, match="Point"):
        kind(*args, **given)


def test_equality_and_hash() -> None:
    assert Point(1) == Point(1, 2) != Point(2)
    assert Point(1) != Solid(1)
    assert Point(1) != (1, 2)
    assert len({Point(1), Point(1, 2), Point(1, 3)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Box([1]))


def test_records_are_frozen() -> None:
    point: Any = Point(1)
    with pytest.raises(AttributeError, match="'x'"):
        point.x = 3
    with pytest.raises(AttributeError, match="'x'"):
        del point.x
    assert point == Point(1)


def test_checks_run() -> None:
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_functions_of_dataclasses() -> None:
    assert dataclasses.replace(Solid(1), y=5) == Solid(1, 5)
    assert dataclasses.asdict(Solid(1, z=(3,))) == {"x": 1, "y": 2, "z": (3,)}
    assert [(f.name, f.default) for f in dataclasses.fields(Point)] == [(f.name, f.default) for f in dataclasses.fields(Twin)]
    assert dataclasses.replace(Box("a"), content="b").content == "b"
    with pytest.raises(ValueError, match="negative"):
        dataclasses.replace(Checked(1), size=-1)


def test_copies_and_patterns() -> None:
    solid = Solid(1, z=(2, 3))
    assert pickle.loads(pickle.dumps(solid)) == copy.copy(solid) == copy.deepcopy(solid) == solid
    match solid:
        case Solid(x, 2, (first, *_)):
            assert (x, first) == (1, 2)
        case _:
            pytest.fail("positional pattern")


def test_making_one_imports_nothing() -> None:
    script = """
import sys
from treadle.records import dataclass

@dataclass(frozen=True)
class Point:
    x: int

Point(1), Point(1) == Point(2)
import treadle.options
print([n for n in ("dataclasses", "inspect", "ast") if n in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def classes(decorate: Any) -> dict[str, Any]:
    """The same classes made by either decorator."""

    @decorate
    class Plain:
        a: int
        b: "str" = "x"
        shared: ClassVar[int] = 3

    @decorate(frozen=True, slots=True)
    class Frozen:
        a: int
        b: tuple[int, ...] = ()
        c: list[int] = dataclasses.field(default_factory=list[int])

    @decorate(frozen=True)
    class Hidden:
        a: int
        b: int = dataclasses.field(default=2, compare=False)
        c: int = dataclasses.field(default=3, repr=False)
        e: dict[str, int] = dataclasses.field(default_factory=dict[str, int], hash=False)
        d: tuple[int, ...] = dataclasses.field(init=False, default_factory=tuple[int, ...])

        @cached_property
        def twice(self) -> int:
            return 2 * self.a

    @decorate(frozen=True, kw_only=True)
    class Keyed:
        a: int
        b: int = 2

    @decorate(kw_only=True)
    class Mixed:
        b: int = 2
        a: int = dataclasses.field(kw_only=False)

    @decorate(eq=False)
    class Itself:
        a: int

    @decorate(frozen=True, init=False)
    class Inited:
        name: ClassVar[str] = dataclasses.field(init=False)
        a: int
        b: int = 1

        def __init__(self, a: int, b: int = 1) -> None:
            object.__setattr__(self, "a", a)
            object.__setattr__(self, "b", b)

    @decorate(repr=False)
    class Heading(Printed):
        a: int = 3

    @decorate(frozen=True)
    class Empty:
        kind: ClassVar[str] = "empty"

        def doubled(self) -> int:
            return 0

    @decorate(frozen=True)
    class Heir(Plainer, Empty):
        c: int = 4

        def __post_init__(self) -> None:
            if self.c < 0:
                raise ValueError("negative")

    @decorate(frozen=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "own"

    return {kind.__name__: kind for kind in (Plain, Frozen, Hidden, Keyed, Mixed, Itself, Inited, Heading, Empty, Heir, Own)}


class Printed:
    """A class that prints itself."""

    def __repr__(self) -> str:
        return "printed"


@dataclasses.dataclass(frozen=True)
class Plainer:
    """A standard dataclass that others extend."""

    a: int
    b: int = 7


class Kind(ABC):
    """A class without instances."""

    @abstractmethod
    def name(self) -> str: ...


OURS, STANDARD = classes(dataclass), classes(dataclasses.dataclass)
ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, (2,), [3]), {}),
    ((1, 2, 3, 4), {}),
    ((1, 2, -3), {}),
    ((), {"a": 1}),
    ((1,), {"b": 5, "c": 6}),
    ((1,), {"a": 1}),
    ((), {"z": 1}),
]


def assigned(one: Any) -> None:
    one.a = 9


def deleted(one: Any) -> None:
    del one.a


def read(one: Any) -> Any:
    return one.a


ACTIONS = (hash, assigned, deleted, read)


def behaviour(kind: Any, args: tuple[Any, ...], given: dict[str, Any]) -> list[Any]:
    """What can be seen of the instance that these arguments make, or the error."""
    try:
        one = kind(*args, **given)
    except (TypeError, ValueError) as error:
        return [type(error), str(error)]
    try:
        other = kind(*args[:1], **given)
    except TypeError:
        other = None
    seen: list[Any] = [
        repr(one),
        one == copy.copy(one),
        one == copy.deepcopy(one),
        one == other,
        one != other,
        one == 1,
        dataclasses.asdict(one),
    ]
    seen += [one == dataclasses.replace(one), getattr(one, "twice", None), kind.__match_args__, kind.__hash__ is None]
    for act in ACTIONS:
        try:
            result = act(one)
            seen.append(None if type(one).__eq__ is object.__eq__ and act is hash else result)
        except (TypeError, AttributeError) as error:
            seen += [type(error), str(error)]
    return seen


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(("args", "given"), ARGUMENTS)
def test_dataclasses_are_like_standard_ones(name: str, args: tuple[Any, ...], given: dict[str, Any]) -> None:
    ours, wanted = classes(dataclass)[name], behaviour(STANDARD[name], args, given)
    for _ in range(20):  # `__init__` is compiled on the way
        assert behaviour(ours, args, given) == wanted


@pytest.mark.parametrize("name", OURS)
def test_fields_are_like_those_of_standard_ones(name: str) -> None:
    def rows(kind: Any) -> list[Any]:
        return [(f.name, f.type, f.default, f.default_factory, f.init, f.repr, f.compare, f.kw_only) for f in dataclasses.fields(kind)]

    assert rows(OURS[name]) == rows(STANDARD[name])
    thawed = ("Plain", "Mixed", "Itself", "Heading")
    ours, standard = (dataclasses.dataclass(type("Heir", (kind,), {}), frozen=name not in thawed) for kind in (OURS[name], STANDARD[name]))
    assert rows(ours) == rows(standard)


@dataclass(frozen=True, slots=True)
class Kept:
    """A dataclass that is pickled before any of its class was made here."""

    a: int
    b: str = "b"


def test_dataclasses_of_other_processes_can_be_read() -> None:
    @dataclass
    class Never:
        a: int

    assert pickle.loads(pickle.dumps(Kept(1))) == Kept(1)
    unmade = Never.__new__(Never)
    unmade.a = 1
    assert unmade == Never(1)
    assert repr(unmade).endswith("Never(a=1)")


@dataclass(frozen=True)
class Sized:
    """A dataclass that checks itself, and keeps what it works out."""

    rows: int
    columns: int = 2

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise ValueError("negative")

    @cached_property
    def area(self) -> int:
        return self.rows * self.columns


def test_replaced_fields() -> None:
    one = Sized(3)
    assert one.area == 6
    other = replace(one, rows=5)
    assert (other, other.area, one.area) == (Sized(5), 10, 6)  # what was kept is of the old fields
    assert replace(one) == one
    assert hash(replace(other, rows=3)) == hash(one)
    with pytest.raises(ValueError, match="negative"):
        replace(one, rows=-1)
    for wrong in ("depth", "area"):
        with pytest.raises(TypeError, match=f"Sized takes no '{wrong}'"):
            replace(one, **{wrong: 1})
    with pytest.raises(dataclasses.FrozenInstanceError):
        other.rows = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", [name for name in OURS if name not in ("Hidden", "Empty")])
def test_replacing_is_like_that_of_standard_ones(name: str) -> None:
    for _ in range(20):  # `__init__` is compiled on the way
        one = OURS[name](a=1)
        assert dataclasses.asdict(replace(one, a=2)) == dataclasses.asdict(dataclasses.replace(one, a=2))
        assert (type(replace(one)), replace(one).a, one.a) == (type(one), 1, 1)
        with pytest.raises(TypeError):
            replace(one, z=1)


def test_abstract_dataclasses_have_no_instances() -> None:
    @dataclass(frozen=True)
    class Half(Kind):
        a: int

    with pytest.raises(TypeError, match="abstract"):
        Half(1)  # pyright: ignore[reportAbstractUsage]


@dataclass(frozen=True)
class Named:
    """Fields whose names say what `__init__` does."""

    set: str
    absent: int = 1
    make: "list[int]" = dataclasses.field(default_factory=list)  # type: ignore[assignment]


def test_fields_may_have_any_name() -> None:
    for at in range(20):  # `__init__` is compiled on the way
        made = Named(f"set {at}")
        assert (made.set, made.absent, made.make) == (f"set {at}", 1, [])
