"""Versions of PyTorch that are not supported: a warning, and the model runs without our kernels."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it")

import treadle.torch  # noqa: E402
from treadle.torch import taking, versions  # noqa: E402


@pytest.fixture(autouse=True)
def afresh() -> None:
    torch._dynamo.reset()
    treadle.torch.clear_report()


def run(rest: str, strict: bool = False, mode: str | None = None, taken: int = 0) -> None:
    """Run a model that has one matrix product. `taken`: how many the report has as taken."""
    model, x = torch.nn.Linear(13, 17), torch.randn(5, 13)
    caches = {"force_disable_caches": True} if rest == "inductor" else {}
    options = {"treadle.rest": rest, "treadle.target": "sim", "treadle.strict": strict, **caches}

    def backend(gm: Any, inputs: list[Any]) -> Any:
        return treadle.torch.backend(gm, inputs, mode=mode, options=options)

    with torch.no_grad():
        assert (torch.compile(model, backend=backend)(x) - model(x)).abs().max() < 1e-6
    assert treadle.torch.report().taken == taken


@pytest.mark.parametrize(("rest", "mode"), [("eager", None), ("inductor", None), ("inductor", "reduce-overhead")])
def test_an_old_version_leaves_everything_to_pytorch(monkeypatch: pytest.MonkeyPatch, rest: str, mode: str | None) -> None:
    monkeypatch.setattr(versions, "OLDEST", (99, 0))
    with pytest.warns(UserWarning, match="TR124: PyTorch .* is not supported.*it is too old.*install PyTorch 99.0 or a later one"):
        run(rest, mode=mode)


def test_a_version_that_lacks_what_is_used_does_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "treadle.torch.dynamo", None)
    with pytest.warns(UserWarning, match="TR124.*it lacks what is used of its compiler: import of treadle.torch.dynamo halted"):
        run("eager")


def test_what_is_lacking_when_a_graph_is_looked_at_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "treadle.torch.taking", None)
    torch.compiler.reset()
    with pytest.warns(UserWarning, match="TR124.*it lacks what is used of its compiler: import of treadle.torch.taking halted"):
        run("inductor")


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize("step", ["write", "_replace"])
def test_a_later_version_that_fails_leaves_the_graph(monkeypatch: pytest.MonkeyPatch, rest: str, step: str) -> None:
    """Before the graph is changed, and while it is."""

    def fail(*_: Any) -> Any:
        raise AttributeError("no such thing")

    monkeypatch.setattr(taking, step, fail)
    torch.compiler.reset()
    with pytest.raises(Exception, match="no such thing"):
        run(rest)
    treadle.torch.clear_report()  # with a tested version it has the graph's rows
    torch.compiler.reset()
    monkeypatch.setattr(versions, "NEWEST", (1, 0))
    with pytest.warns(
        UserWarning, match="TR124.*it is later than those that are tested, and AttributeError came of a graph: no such thing"
    ):
        run(rest)
    torch.compiler.reset()
    with pytest.raises(Exception, match="TR124"):
        run(rest, strict=True)


def test_a_later_version_that_does_not_fail_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "NEWEST", (1, 0))
    torch.compiler.reset()
    run("eager", strict=True, taken=1)


def test_the_document_names_the_versions() -> None:
    text = (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text(encoding="utf-8")
    oldest, newest = (".".join(map(str, version)) for version in (versions.OLDEST, versions.NEWEST))
    assert f"(PyTorch {oldest} or later; " in text
    assert f" and {newest} are tested)" in text


def test_a_start_from_pytorchs_cache_loads_no_ir() -> None:
    """What looks at graphs is loaded with the first that is looked at."""
    script = """
import sys, treadle.torch.versions, treadle.torch.inductor
assert treadle.torch.versions.lacking() == ""
found = [name for name in sys.modules if name.startswith(("xdsl", "treadle.ir", "treadle.torch.writer", "treadle.torch.decompositions"))]
sys.exit(str(found) if found else 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_strict_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "OLDEST", (99, 0))
    with pytest.raises(Exception, match="TR124"):
        run("eager", strict=True)


def test_this_version_lacks_nothing() -> None:
    assert versions.lacking() == ""
