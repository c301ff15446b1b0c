"""Records behave as frozen dataclasses do, and cost a start neither `dataclasses` nor `inspect`."""

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import pytest

from treadle.records import Record

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


@dataclass(frozen=True)
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
    script = "import sys, treadle.records, treadle.options; print([n for n in ('dataclasses', 'inspect', 'ast') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
