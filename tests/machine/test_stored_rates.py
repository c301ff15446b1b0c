"""Rates in a file: used where it is named, part of cache keys, refused where they are none."""

import json
from pathlib import Path

import pytest

from treadle import driver
from treadle.driver.sources import Source
from treadle.errors import TreadleError
from treadle.machine import target_name, target_spec
from treadle.machine.rates import RoleRates
from treadle.machine.stored_rates import plain_rates, rates_from_plain, store_rates
from treadle.options import CompileOptions


def key() -> str:
    return driver.cache_key(Source("text", "t.mlir"), "sm_90a", CompileOptions(), None)


def test_stored_rates_are_those_of_their_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, spec, before = tmp_path / "rates.json", target_spec("sm_90a"), key()
    path.write_text(json.dumps({"sm_90a:h200-sxm": {"roles": {"tile_overhead": 999}}}))
    monkeypatch.setenv("TREADLE_RATES", str(path))
    changed = target_spec("sm_90a")
    assert changed.rates.roles.tile_overhead == 999 and changed.rates.roles.few_rounds == spec.rates.roles.few_rounds
    assert target_spec("sm_90a:h100-pcie").rates.roles.tile_overhead == spec.rates.roles.tile_overhead
    assert target_name(changed) == "sm_90a" and target_spec(target_name(changed)) == changed
    assert key() != before


def test_what_is_stored_is_read_and_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, spec, other = tmp_path / "rates.json", target_spec("sm_90a"), target_spec("gfx942").product
    assert rates_from_plain(spec.rates, plain_rates(spec.rates)) == spec.rates
    store_rates(path, other, other.rates)
    store_rates(path, spec.product, rates_from_plain(spec.rates, {"swapped": {"row_clocks": 7.5}}))
    assert set(json.loads(path.read_text())) == {"sm_90a:h200-sxm", "gfx942:mi300x"}
    monkeypatch.setenv("TREADLE_RATES", str(path))
    assert target_spec("sm_90a").rates.swapped.row_clocks == 7.5
    assert isinstance(target_spec("sm_90a").rates.roles, RoleRates)


@pytest.mark.parametrize("text", ["[]", "{", '{"sm_90a:h200-sxm": {"roles": {"speed": 1}}}', '{"sm_90a:h200-sxm": {"other": {}}}'])
def test_other_files_are_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rates.json"
    path.write_text(text)
    monkeypatch.setenv("TREADLE_RATES", str(path))
    with pytest.raises(TreadleError, match="TR901"):
        target_spec("sm_90a")
    monkeypatch.setenv("TREADLE_RATES", str(tmp_path / "missing.json"))
    with pytest.raises(TreadleError, match="TR901"):
        target_spec("sm_90a")
