"""Calibration's shapes, trials and the file of times."""

from pathlib import Path

import pytest

from treadle.bench.calibration import add_line, calibration_names, read_lines, trials
from treadle.bench.option_text import plain_options
from treadle.errors import TreadleError
from treadle.machine import target_spec
from treadle.tools.calibrate import _kernels as kernels_of
from treadle.tools.main import invoke


def test_shapes_are_of_all_samples_and_longer_lists_begin_alike() -> None:
    names = calibration_names(24, 1)
    assert names[:8] == calibration_names(8, 1) and len(set(names)) == 24
    assert {len(name.split("-")[3].split("x")) for name in names} == {3, 4}


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_trials_are_the_own_choice_and_others(target: str) -> None:
    for name in calibration_names(6, 5):
        own, *others = trials(name, target, 6)
        assert not own.tile and own.split_reduction == "off"
        assert 0 < len(others) <= 6 and len(set(others)) == len(others) and all(options.tile for options in others)


def test_times_are_kept_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "times" / "t.jsonl"
    name = calibration_names(1, 1)[0]
    tried = trials(name, "sm_90a", 3)
    assert read_lines(path) == {}
    add_line(path, name, [{"options": plain_options(options), "ms": 1.5} for options in tried[:-1]] + [{"options": {}, "problem": "slow"}])
    with path.open("a") as file:
        file.write('{"name": "cut o')
    assert read_lines(path) == {name: [(options, 1.5) for options in tried[:-1]]}
    assert {kernel.name for kernel in kernels_of(path, "sm_90a")} == {name}
    add_line(path, "another", [])
    assert read_lines(path).keys() == {name, "another"}, "a run goes on behind a line that was cut off"
    path.write_text('{"name": 3}\n')
    with pytest.raises(TreadleError, match="TR901"):
        read_lines(path)


def test_the_verb_fits_and_stores_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    times, rates = tmp_path / "times.jsonl", tmp_path / "rates.json"
    for name in calibration_names(6, 1):
        tried = trials(name, "sm_90a", 4)
        add_line(times, name, [{"options": plain_options(options), "ms": 0.1 * at} for at, options in enumerate(tried, 1)])
    assert invoke(["calibrate", "--device", "none", "--times", str(times), "--save", str(rates)]) == 0
    assert "behind the best by" in capsys.readouterr().out
    usual = target_spec("sm_90a").rates
    monkeypatch.setenv("TREADLE_RATES", str(rates))
    assert target_spec("sm_90a").rates.streaming.max_registers == usual.streaming.max_registers
    assert target_spec("sm_90a:h100-pcie").rates == target_spec("sm_90a:h100-pcie").product.rates
    assert invoke(["calibrate", "--device", "none", "--times", str(tmp_path / "none.jsonl")]) == 2
