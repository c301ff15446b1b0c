"""When a compilation takes the choices that were measured: same text, numerics, target and product, and nothing chosen by the user."""

import json
from pathlib import Path

import pytest

from treadle import driver
from treadle.bench.families import matmul
from treadle.bench.tuning import store
from treadle.driver import tuned
from treadle.driver.tuned import leaves_choices, record_path, with_tuned_options
from treadle.options import CompileOptions
from treadle.tools.main import invoke

TEXT = matmul("small", "test", 256, 256, 128, "bf16").text
BEST = {"options": {"tile": [64, 64, 64], "warps": [4, 1], "num_stages": 3, "tuned": False}, "ms": 1.0}
PRODUCT = "NVIDIA H200"


def has_product(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def product_of(_: str) -> str:
        return name

    monkeypatch.setattr(tuned, "product_of", product_of)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "cache"))
    has_product(monkeypatch, PRODUCT)
    return store(TEXT, "sm_90a", PRODUCT, CompileOptions(), BEST, [BEST])


def test_a_record_is_used_and_told(stored: Path) -> None:
    options, told = with_tuned_options(TEXT, "sm_90a", CompileOptions())
    assert (options.tile, options.warps, options.num_stages) == ((64, 64, 64), (4, 1), 3)
    assert PRODUCT in told and stored.name in told
    program = driver.compile(TEXT, target="sm_90a")
    assert any(remark.pass_name == "tune" for remark in program.remarks)
    assert any("tile 64x64x64" in remark.text for remark in program.remarks)
    plain = driver.compile(TEXT, target="sm_90a", options=CompileOptions(tuned=False))
    assert not any(remark.pass_name == "tune" for remark in plain.remarks)
    assert "tile 64x64x64" not in "".join(remark.text for remark in plain.remarks if remark.pass_name == "set-kernel-form")


def test_explain_says_where_choices_are_from(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.mlir"
    file.write_text(TEXT)
    assert invoke(["explain", str(file), "--target", "sm_90a"]) == 0
    assert "treadle tune" in " ".join(capsys.readouterr().out.split())
    assert invoke(["explain", str(file), "--target", "sm_90a", "--no-tuned"]) == 0
    assert "treadle tune" not in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("text", "target", "options"),
    [
        (TEXT + " ", "sm_90a", CompileOptions()),
        (TEXT, "gfx942", CompileOptions()),
        (TEXT, "sim", CompileOptions()),
        (TEXT, "sm_90a", CompileOptions(tuned=False)),
        (TEXT, "sm_90a", CompileOptions(f32_precision="tf32")),
        (TEXT, "sm_90a", CompileOptions(fp8_accumulation="promoted")),
        (TEXT, "sm_90a", CompileOptions(num_stages=4)),
        (TEXT, "sm_90a", CompileOptions(roles=False)),
        (TEXT, "sm_90a", CompileOptions(pipeline_stages=0)),
    ],
)
def test_whatever_differs_is_left_alone(stored: Path, text: str, target: str, options: CompileOptions) -> None:
    assert with_tuned_options(text, target, options) == (options, "")


def test_another_product_is_another_machine(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NVIDIA H100 80GB HBM3", ""):
        has_product(monkeypatch, name)
        assert with_tuned_options(TEXT, "sm_90a", CompileOptions())[1] == ""


@pytest.mark.parametrize("change", [{"treadle": "0.0.0"}, {"best": {}}, {"best": {"options": {"rings": 3}}}, {"best": {"options": 3}}])
def test_records_that_cannot_be_read(stored: Path, change: dict[str, object]) -> None:
    stored.write_text(json.dumps(json.loads(stored.read_text()) | change))
    assert with_tuned_options(TEXT, "sm_90a", CompileOptions())[1] == ""


def test_numerics_never_come_from_a_record(stored: Path) -> None:
    content = json.loads(stored.read_text())
    content["best"]["options"]["f32_precision"] = "tf32"
    stored.write_text(json.dumps(content))
    assert with_tuned_options(TEXT, "sm_90a", CompileOptions())[0].f32_precision == "ieee"


def test_the_cache_holds_both(stored: Path) -> None:
    """The choices are part of the key, where they are from is not."""
    chosen, _ = with_tuned_options(TEXT, "sm_90a", CompileOptions())
    assert chosen.key() != CompileOptions().key() == CompileOptions(tuned=False).key()
    assert leaves_choices(CompileOptions(verify=False)) and not leaves_choices(chosen)
    assert record_path(TEXT, "sm_90a", chosen) == stored, "tuning again finds the same record"
