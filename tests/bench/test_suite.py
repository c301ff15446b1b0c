"""The suite as data: names, sizes, texts that compile to the contraction they claim to be."""

import re

import pytest

from treadle import driver
from treadle.bench.peers import COMPILED, EAGER, require_torch
from treadle.bench.suite import choose, find, suite
from treadle.bench.workload import Workload
from treadle.errors import TreadleError

LARGEST_FLOP = 2e12


class Anything:
    """Has every attribute."""

    def __getattr__(self, name: str) -> object:
        return Anything()


def anything(name: str) -> object:
    return Anything()


def nothing(name: str) -> None:
    return None


def test_names_are_unique_and_plain() -> None:
    names = [workload.name for workload in suite()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) for name in names)
    assert not set(names) & {workload.group for workload in suite()} - {"k512", "swiglu"}


def test_what_is_measured_is_there() -> None:
    assert {w.group for w in suite()} >= {"square", "prefill", "decode", "sdxl", "epilogue", "mlp", "quantised", "ragged", "reduction"}
    assert len([w for w in suite() if w.group == "decode"]) == 8


@pytest.mark.parametrize("workload", suite(), ids=[w.name for w in suite()])
def test_a_workload_says_what_its_text_does(workload: Workload) -> None:
    """Types of the signature against the records, work against the loops' extents."""
    text = workload.text
    signature = text.partition("{")[0]
    arguments, _, results = signature.partition("->")
    types = re.compile(r"tensor<((?:\d+x)*)(\w+)>")
    shown = [(tuple(int(e) for e in shape.split("x") if e), dtype) for shape, dtype in types.findall(arguments)]
    assert shown == [(spec.shape, spec.dtype) for spec in workload.inputs]
    shown = [(tuple(int(e) for e in shape.split("x") if e), dtype) for shape, dtype in types.findall(results)]
    assert shown == [(spec.shape, spec.dtype) for spec in workload.outputs]
    for spec in (*workload.inputs, *workload.outputs):
        assert spec.rows is None or spec.shape[spec.rows] == workload.rows
        assert spec.columns is None or spec.shape[spec.columns] == workload.columns
    assert 0 < workload.flop < LARGEST_FLOP
    assert driver.trace(text, target="sm_90a", options=workload.options, until="dispatch").stages["dispatch"]


def test_a_few_figures() -> None:
    by_name = {workload.name: workload for workload in suite()}
    assert by_name["square-4096-nk"].flop == 2 * 4096**3
    assert by_name["square-4096-nk"].bytes == 3 * 2 * 4096**2
    assert by_name["llama3-8b-decode-1-qkv"].bytes == 2 * (4096 + 6144 * 4096 + 6144)
    assert by_name["swiglu"].flop == 4 * 4096 * 14336 * 4096
    assert by_name["mlp-silu"].bytes == 2 * (4096 * 5120 + 14336 * 5120 + 2 * 4096 * 14336)
    assert by_name["int8-2048x10240x1280"].outputs[0].dtype == "i32"


def test_workloads_are_chosen_by_name_group_and_pattern() -> None:
    assert [w.name for w in choose(["k512"])] == ["k512"]
    assert {w.group for w in choose(["decode"])} == {"decode"}
    assert len(choose(["square-*-kn"])) == 3
    assert [w.name for w in choose(["swiglu", "square-2048-nk"])] == ["square-2048-nk", "swiglu"]
    assert choose([]) == suite()
    assert find("swiglu") in suite()
    assert find("square-*") is None
    with pytest.raises(TreadleError, match="TR821"):
        choose(["swiglu", "nonsense"])


def test_every_peer_has_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.bench import peers

    monkeypatch.setattr(peers, "import_module", anything)
    assert all(peers.function_of(workload.peer) is not None for workload in suite())
    assert {EAGER, COMPILED} == set(peers.PEERS)


def test_torch_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.bench import peers

    monkeypatch.setattr(peers, "find_spec", nothing)
    with pytest.raises(TreadleError, match="TR611"):
        require_torch()
    monkeypatch.setattr(peers, "find_spec", anything)
    require_torch()
