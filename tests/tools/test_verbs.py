"""The verbs of the command line on the examples: what they print and write, and how they end."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle import __version__, artifact_folder
from treadle.driver import Program
from treadle.sim.check import CheckResult
from treadle.tools import run
from treadle.tools.main import VERBS, invoke

EXAMPLES = Path(__file__).parents[2] / "examples"
SOFTMAX, LINEAR = str(EXAMPLES / "softmax.mlir"), str(EXAMPLES / "linear_bias_gelu.mlir")
SPLIT = str(EXAMPLES / "splitk_matmul.mlir")
"""Two kernels: of the parts and of their merge."""
Captured = pytest.CaptureFixture[str]


def out(capsys: Captured, *arguments: str, status: int = 0) -> str:
    """What the command prints when it ends as expected."""
    assert invoke(list(arguments)) == status, capsys.readouterr().err
    return capsys.readouterr().out


def test_version(capsys: Captured) -> None:
    assert out(capsys, "--version") == f"treadle {__version__}\n"


@pytest.mark.parametrize("file", [SOFTMAX, LINEAR])
def test_run_checks(capsys: Captured, file: str) -> None:
    record = json.loads(out(capsys, "run", file, "--device", "sim", "--check", "--json"))
    assert record["verdict"] == "correct"
    assert 0 < record["relative_error"] <= record["outputs"][0]["allowed"]
    assert record["kernels"]
    assert any(remark["pass"] == "set-kernel-form" for remark in record["remarks"])


RECORD = {
    "function": str,
    "target": str,
    "device": str,
    "seed": int,
    "seconds": {"compile": float, "run": float},
    "inputs": [{"name": str, "dtype": str, "shape": [int]}],
    "outputs": [
        {
            "name": str,
            "dtype": str,
            "shape": [int],
            "relative_error": float,
            "worst": float,
            "allowed": float,
            "correct": bool,
            "problem": str,
        }
    ],
    "kernels": [{"name": str, "symbol": str, "workgroup": [int], "shared_bytes": int}],
    "relative_error": float,
    "verdict": str,
    "remarks": [{"kind": str, "pass": str, "subject": str, "text": str}],
}


def check_form(value: Any, form: Any, place: str = "record") -> None:
    """Every key that is documented is there, no other, each of its type."""
    if isinstance(form, dict):
        assert value.keys() == form.keys(), place
        for key, inner in form.items():
            check_form(value[key], inner, f"{place}.{key}")
    elif isinstance(form, list):
        assert value, f"{place} is empty"
        for one in value:
            check_form(one, form[0], f"{place}[]")
    else:
        assert type(value) is form, place


def test_the_record_of_a_run_has_the_documented_form(capsys: Captured) -> None:
    check_form(json.loads(out(capsys, "run", SOFTMAX, "--device", "sim", "--check", "--json")), RECORD)


def test_the_record_of_devices_has_the_documented_form(capsys: Captured) -> None:
    form = [{"device": str, "target": str, "available": bool, "description": str}]
    check_form(json.loads(out(capsys, "devices", "--json")), form)


def test_records_hold_no_infinities(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = CheckResult(float("nan"), float("inf"), float("inf"), None, False)

    def judged(*_: object) -> CheckResult:
        return endless

    monkeypatch.setattr(run, "check_one", judged)
    shown = out(capsys, "run", SOFTMAX, "--device", "sim", "--check", "--json", status=1)
    record = json.loads(shown, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    (output,) = record["outputs"]
    assert [output["relative_error"], output["allowed"], output["worst"], record["relative_error"]] == [None] * 4


def test_run_shows_tables(capsys: Captured) -> None:
    shown = out(capsys, "run", LINEAR, "--device", "sim", "--check")
    assert all(word in shown for word in ("formed", "chosen", "result", "linear_bias_gelu_k0", "correct", "77x136xbfloat16"))


def test_run_without_check_has_no_verdict(capsys: Captured) -> None:
    record = json.loads(out(capsys, "run", SOFTMAX, "--device", "sim", "--json"))
    assert record["verdict"] is None
    assert "correct" not in record["outputs"][0]


def test_a_wrong_result_ends_with_1(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Program.__call__

    def wrong(self: Program, *arrays: Any) -> tuple[Any, ...]:
        (result,) = right(self, *arrays)
        result[32, 999] += 0.01
        return (result,)

    monkeypatch.setattr(Program, "__call__", wrong)
    record = json.loads(out(capsys, "run", SOFTMAX, "--device", "sim", "--check", "--json", status=1))
    assert record["verdict"] == "wrong"
    assert "WRONG" in out(capsys, "run", SOFTMAX, "--device", "sim", "--check", status=1)
    assert out(capsys, "run", SOFTMAX, "--device", "sim")


def test_input_files(capsys: Captured, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((33, 1000), np.float32))
    record = json.loads(out(capsys, "run", SOFTMAX, "--device", "sim", "--check", "--json", "--input", str(tmp_path / "x.npy")))
    assert record["verdict"] == "correct"


@pytest.mark.parametrize(
    ("program", "target", "stage", "word"),
    [
        (SOFTMAX, "sm_90a", "tensor", "linalg.generic"),
        (SOFTMAX, "sm_90a", "dispatch", "dispatch.program"),
        (SOFTMAX, "gfx1100", "tile", "tile.kernel"),
        (LINEAR, "gfx942", "schedule", "sync."),
        (SOFTMAX, "gfx1201", "llvm", "amdgpu_kernel"),
        (SOFTMAX, "sm_90a", "llvm", "nvptx64"),
        (SOFTMAX, "gfx950", "asm", "s_endpgm"),
        (SOFTMAX, "sim", "tile", "tile.kernel"),
    ],
    ids=lambda value: Path(value).stem if value in (SOFTMAX, LINEAR) else value,
)
def test_emitted_texts(capsys: Captured, tmp_path: Path, program: str, target: str, stage: str, word: str) -> None:
    shown = out(capsys, "compile", program, "--target", target, "--emit", stage)
    assert word in shown
    assert out(capsys, "compile", program, "--target", target, "--emit", stage, "-o", str(tmp_path / "text")) == ""
    assert (tmp_path / "text").read_text(encoding="utf-8") == shown


@pytest.mark.parametrize("stage", ["tensor", "dispatch", "tile", "schedule"])
def test_emitted_modules_parse_again(capsys: Captured, tmp_path: Path, stage: str) -> None:
    path = tmp_path / "a.mlir"
    shown = out(capsys, "compile", LINEAR, "--target", "sm_90a", "--emit", stage)
    path.write_text(shown, encoding="utf-8")
    assert out(capsys, "opt", str(path)) == shown


def test_artifacts_read_back(capsys: Captured, tmp_path: Path) -> None:
    out(capsys, "compile", LINEAR, "--target", "gfx942", "--emit", "artifact", "-o", str(tmp_path / "a"))
    manifest, files = artifact_folder.read(tmp_path / "a")
    assert (manifest.target, manifest.function) == ("gfx942", "linear_bias_gelu")
    assert all(files[kernel.binary].startswith(b"\x7fELF") for kernel in manifest.kernels)


def test_binaries(capsys: Captured, tmp_path: Path) -> None:
    out(capsys, "compile", LINEAR, "--target", "sm_90a", "--emit", "binary", "-o", str(tmp_path / "one.cubin"))
    assert (tmp_path / "one.cubin").read_bytes().startswith(b"\x7fELF")
    out(capsys, "compile", SPLIT, "--target", "gfx1100", "--emit", "binary", "-o", str(tmp_path / "several"))
    assert len(list((tmp_path / "several").glob("*.hsaco"))) == 2


def test_opt_prints_after_every_pass(capsys: Captured) -> None:
    assert invoke(["opt", SOFTMAX, "--passes", "generalize-named-ops,normalize-generics", "--print-after-all"]) == 0
    shown = capsys.readouterr()
    assert [line.split()[5] for line in shown.err.splitlines() if "IR Dump After" in line] == ["generalize-named-ops", "normalize-generics"]
    assert "func.func @softmax" in shown.out


def test_opt_lists_passes_of_every_level(capsys: Captured) -> None:
    shown = out(capsys, "opt", "--list")
    assert all(name in shown for name in ("form-dispatches", "set-kernel-form{target, f32_precision=ieee", "insert-sync", "cse"))


def test_explain(capsys: Captured) -> None:
    shown = out(capsys, "explain", LINEAR, "--target", "gfx942")
    assert "set-kernel-form" in shown
    assert "mfma" in shown
    assert "decisions" in shown


def test_audit(capsys: Captured, tmp_path: Path) -> None:
    fenced, bare = json.loads(out(capsys, "audit", LINEAR, "--target", "gfx942", "--json"))
    assert (fenced["schedule"], fenced["load_waits"], fenced["broken"]) == ("stream-4", 0, [])
    assert fenced["matrix"] > 0 and fenced["fences"] > bare["fences"] == 0
    assert "matrix share (model)" in out(capsys, "audit", LINEAR, "--target", "gfx942")
    (sequential,) = json.loads(out(capsys, "audit", LINEAR, "--target", "gfx942", "--json", "--option", "pipeline_stages=1"))
    assert (sequential["schedule"], sequential["fences"]) == ("sequential", 0)
    listing = tmp_path / "linear.s"
    listing.write_text(out(capsys, "compile", LINEAR, "--target", "gfx942"))
    (read,) = json.loads(out(capsys, "audit", str(listing), "--asm", "--target", "gfx942", "--json"))
    from_schedule = {name: fenced[name] for name in ("fences", "tile")}  # which a listing does not tell
    assert {**read, "schedule": "stream-4", **from_schedule} == fenced
    assert "no kernel has a loop" in out(capsys, "audit", SOFTMAX, "--target", "gfx942")
    assert invoke(["audit", LINEAR, "--target", "sm_90a"]) == 2
    assert "TR505" in capsys.readouterr().err


def test_targets(capsys: Captured) -> None:
    found = {one["target"]: one for one in json.loads(out(capsys, "targets", "--json"))}
    assert found["sm_90a:h200-sxm"]["default"] and found["sm_90a:h200-sxm"]["measured"]
    assert not found["sm_90a:h20"]["default"] and not found["sm_90a:h20"]["measured"]
    assert {one["architecture"] for one in found.values()} >= {"sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}
    assert "not measured" in out(capsys, "targets")


def test_a_product_is_compiled_for_by_its_name(capsys: Captured) -> None:
    assert "114" in out(capsys, "explain", str(LINEAR), "--target", "sm_90a:h100-pcie")


def test_devices(capsys: Captured) -> None:
    found = {one["device"]: one for one in json.loads(out(capsys, "devices", "--json"))}
    assert found["sim"]["available"]
    assert set(found) == {"cuda", "hip", "sim"}
    assert "the simulator" in out(capsys, "devices")


WARM = """
import sys
import treadle
assert "numpy" not in sys.modules, "importing treadle imports numpy"
program = treadle.compile(sys.argv[1], target="sm_90a")
print(program.manifest.function, program.remarks[0].kind, "xdsl" in sys.modules, "llvmlite" in sys.modules)
"""


LIGHT = """
import sys
from treadle.tools.main import invoke
assert invoke(sys.argv[1:]) == 0
print([name for name in ("numpy", "xdsl", "rich", "treadle.bench", "treadle.verify") if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [["--version"], ["compile", LINEAR, "--target", "gfx1100", "--emit", "artifact", "-o"]])
def test_a_verb_does_not_wait_for_the_others(tmp_path: Path, arguments: list[str]) -> None:
    """The version, and a compilation that the cache holds, import no framework, no NumPy and no other verb."""
    words = [*arguments, *([str(tmp_path / "out")] if "-o" in arguments else [])]
    environment = {**os.environ, "TREADLE_CACHE_DIR": str(tmp_path / "cache")}
    runs = [
        subprocess.run([sys.executable, "-c", LIGHT, *words], capture_output=True, text=True, check=True, env=environment) for _ in range(2)
    ]
    assert runs[1].stderr.strip() == "[]"


def test_every_verb_shows_its_help(capsys: Captured) -> None:
    shown = out(capsys, "--help")
    for verb in VERBS:
        assert f" {verb} " in shown
        assert f"treadle {verb}" in out(capsys, verb, "-h")


def test_no_verb_shows_the_help(capsys: Captured) -> None:
    assert invoke([]) == 2
    shown = capsys.readouterr()
    assert "Usage: treadle" in shown.out
    assert shown.err == ""


def test_a_start_from_the_cache_loads_no_compiler(tmp_path: Path) -> None:
    command, environment = [sys.executable, "-c", WARM, LINEAR], {**os.environ, "TREADLE_CACHE_DIR": str(tmp_path)}
    runs = [subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout for _ in range(2)]
    assert runs[0].split()[2] == "True", "the first run was to compile"
    assert runs[1].split() == ["linear_bias_gelu", "decision", "False", "False"]


def test_run_schedules(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("run", LINEAR, "--device", "sim", "--schedule", "--target", "gfx942", "--check", "--json")
    record = json.loads(out(capsys, *arguments))
    assert record["verdict"] == "correct" and record["schedule"]["correct"]
    assert [(run["mode"], run["objections"]) for run in record["schedule"]["runs"]] == [("late", []), ("random", [])]
    assert "no objection in" in out(capsys, "run", LINEAR, "--device", "sim", "--schedule")
    from treadle.transforms.kernel.insert_sync import InsertSyncPass

    def nothing(_pass: InsertSyncPass, _kernel: object, _spec: object) -> None:
        """Synchronises nothing."""

    monkeypatch.setattr(InsertSyncPass, "run", nothing)
    shown = out(capsys, "run", LINEAR, "--device", "sim", "--schedule", "--target", "gfx942", status=1)
    assert "tile.local_store" in shown and "are not ordered" in shown
    assert invoke(["run", LINEAR, "--device", "auto", "--schedule"]) == 2
    assert "--schedule needs --device sim" in capsys.readouterr().err


class OnDevice:
    """An array as a GPU returns it: it can be copied to the host, and nothing else."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Any:
        return self._array


def test_results_on_a_device_are_checked(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    call: Any = Program.__call__

    def on_device(program: Program, *arrays: Any) -> tuple[OnDevice, ...]:
        return tuple(OnDevice(np.asarray(result)) for result in call(program, *arrays))

    monkeypatch.setattr(Program, "__call__", on_device)
    assert "correct" in out(capsys, "run", LINEAR, "--device", "sim", "--check")
