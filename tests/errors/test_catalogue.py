"""The catalogue of user errors: stable, unique, in use, and each with something to do."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from treadle.errors import Entry, SourceLocation, TreadleError

SOURCE = Path(__file__).parents[2] / "src" / "treadle"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def entries() -> dict[str, Entry]:
    """Every module-level `NAME = Entry(...)` of the package, by name."""
    found: dict[str, Entry] = {}
    for tree in TREES.values():
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "Entry":
                (name,) = node.targets
                assert isinstance(name, ast.Name)
                assert name.id not in found, f"two entries are called {name.id}"
                values = [ast.literal_eval(argument) for argument in node.value.args]
                found[name.id] = Entry(*values, **{keyword.arg or "": ast.literal_eval(keyword.value) for keyword in node.value.keywords})
    return found


ENTRIES = entries()


def read_names() -> Counter[str]:
    """How often each name is read in the package, as a name or as an attribute of a module."""
    nodes = [node for tree in TREES.values() for node in ast.walk(tree)]
    names = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return names + Counter(node.attr for node in nodes if isinstance(node, ast.Attribute))


USES = read_names()


class Anything:
    """A field value that every format specification accepts."""

    def __format__(self, spec: str) -> str:
        return "<anything>"


def fields(text: str) -> set[str]:
    """The fields of a format string."""
    return set(re.findall(r"(?<!{){(\w+)", text))


def test_codes_are_unique() -> None:
    twice = [code for code, count in Counter(entry.code for entry in ENTRIES.values()).items() if count > 1]
    assert not twice


def test_no_entry_hides_from_the_catalogue() -> None:
    calls = sum(
        isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "Entry"
        for tree in TREES.values()
        for node in ast.walk(tree)
    )
    assert calls == len(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_entry(name: str) -> None:
    entry = ENTRIES[name]
    assert re.fullmatch(r"TR[1-9]\d\d", entry.code)
    assert entry.text.strip(), "an entry says what is wrong"
    assert len(entry.fix.strip()) > 10 or fields(entry.fix), "an entry says what to do"
    assert USES[name], f"{name} is raised nowhere"


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_renders(name: str) -> None:
    entry = ENTRIES[name]
    error = TreadleError(entry, SourceLocation("a.mlir", 3, 7), **dict.fromkeys(fields(entry.text) | fields(entry.fix), Anything()))
    assert error.render().startswith(f"a.mlir:3:7: error {entry.code}: ")
    assert "\n  fix: " in error.render()


def test_the_helper_functions_can_fail() -> None:
    assert USES["NO_SUCH_ENTRY"] == 0
    assert fields("{a} {{b}} {c!r}") == {"a", "c"}
