"""Backends by vendor: the compiler's own, registered ones, none."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

import treadle
from treadle import driver
from treadle.driver import cache_key, tool_versions
from treadle.driver.lowering import Lowered
from treadle.driver.sources import Source
from treadle.errors import TreadleError
from treadle.machine import lookup, register_target, registrations, target_spec
from treadle.options import CompileOptions
from treadle.runtime.cache import Cache
from treadle.targets import registry
from treadle.targets.amd.backend import AmdBackend
from treadle.targets.nvidia.backend import NvidiaBackend

TEXT = """
func.func @f(%a: tensor<13x7xf32>) -> tensor<13x7xf32> {
  %e = tensor.empty() : tensor<13x7xf32>
  %c = linalg.exp ins(%a : tensor<13x7xf32>) outs(%e : tensor<13x7xf32>) -> tensor<13x7xf32>
  return %c : tensor<13x7xf32>
}
"""
PLAIN = CompileOptions(tuned=False)


@pytest.fixture(autouse=True)
def registrations_end_with_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    tables: list[tuple[Any, str]] = [(lookup, "_rows"), (registrations, "_registered"), (registry, "_vendors")]
    for module, name in tables:
        monkeypatch.setattr(module, name, getattr(module, name).copy())
    yield
    registry._backend.cache_clear()


def compiled(target: str) -> object:
    return treadle.compile(TEXT, target=target, options=PLAIN)


class Kept(Cache):
    """A cache that is always empty, and what was to be kept in it."""

    keys: ClassVar[list[str]] = []

    def get(self, key: str) -> None:
        return None

    def put(self, key: str, files: Mapping[str, bytes]) -> None:
        self.keys.append(key)


class NoProgram:
    """Instead of a program."""

    def __init__(self, *given: object, **named: object) -> None:
        self.given = (given, named)


def lowered(*given: object, **named: object) -> Lowered:
    """Instead of a compilation."""
    return Lowered()


def acme() -> None:
    """A machine like CDNA3 of a vendor that nobody knows."""
    register_target(replace(target_spec("gfx942"), name="acme1", vendor="acme"))


@pytest.mark.parametrize("target", ["sm_90a", "sm_90a:h20", "gfx942", "gfx1201"])
def test_own_vendors_have_backends(target: str) -> None:
    found = registry.backend(target)
    assert isinstance(found, NvidiaBackend if target.startswith("sm") else AmdBackend)
    assert found.spec == target_spec(target)


def test_a_vendor_without_a_backend_is_an_error_that_says_what_to_do() -> None:
    acme()
    for use in (registry.backend, registry.start_tools, compiled):
        with pytest.raises(TreadleError, match=r"acme1.*'acme'.*nvidia, amd") as caught:
            use("acme1")
        assert caught.value.code == "TR503" and "register_backend" in caught.value.fix
    assert driver.trace(TEXT, "acme1", PLAIN, until="schedule").stages["schedule"], "schedules need no backend"


def test_a_registered_backend_is_asked_and_a_later_one_replaces_it() -> None:
    acme()
    made: list[str] = []
    registry.register_backend("acme", lambda spec: made.append(spec.name) or AmdBackend(spec))
    assert registry.backend("acme1") is registry.backend("acme1")
    assert made == ["acme1"]
    registry.register_backend("acme", NvidiaBackend)
    assert isinstance(registry.backend("acme1"), NvidiaBackend)


def test_programs_of_backends_that_state_no_version_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    acme()
    monkeypatch.setattr(Kept, "keys", [])
    monkeypatch.setattr(driver, "Cache", Kept)
    monkeypatch.setattr(driver, "Program", NoProgram)
    monkeypatch.setattr("treadle.driver.lowering.lower", lowered)
    registry.register_backend("acme", AmdBackend)
    compiled("acme1")
    assert Kept.keys == [] and registry.code_version("acme1") is None
    compiled("gfx942")
    assert len(Kept.keys) == 1 and registry.code_version("gfx942") == ""
    registry.register_backend("acme", AmdBackend, version="1")
    compiled("acme1")
    assert len(Kept.keys) == 2


def test_versions_and_packages_of_backends_are_in_keys() -> None:
    def key(target: str) -> str:
        return cache_key(Source(TEXT, "f.mlir"), target, PLAIN, None)

    acme()
    before = key("sm_90a")
    registry.register_backend("acme", AmdBackend, version="1")
    first = key("acme1")
    assert key("sm_90a") == before
    registry.register_backend("acme", AmdBackend, version="2")
    assert key("acme1") != first
    assert not any(name.startswith("pytest-") for name in tool_versions())
    registry.register_backend("acme", AmdBackend, packages=("pytest-",))
    assert any(name.startswith("pytest-") for name in tool_versions())


def test_tools_are_started_by_the_vendor() -> None:
    acme()
    started: list[str] = []
    registry.register_backend("acme", AmdBackend, start=lambda: started.append("acme"))
    registry.start_tools("acme1")
    assert started == ["acme"]
