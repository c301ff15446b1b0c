"""What programs import: a start from the cache reads manifests and imports no compiler; a compilation imports what it has a use for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import treadle

PROGRAM = """
func.func @f(%a: tensor<13x7xf32>, %b: tensor<13x7xf32>) -> tensor<13x7xf32> {
  %e = tensor.empty() : tensor<13x7xf32>
  %c = linalg.add ins(%a, %b : tensor<13x7xf32>, tensor<13x7xf32>) outs(%e : tensor<13x7xf32>) -> tensor<13x7xf32>
  return %c : tensor<13x7xf32>
}
"""
SCRIPT = "import sys, json, treadle; treadle.compile(sys.argv[1], target='sm_90a'); print(json.dumps(list(sys.modules)))"
LIGHT_ROOMS = {
    "artifact",
    "artifact_folder",
    "errors",
    "frontends",
    "knobs",
    "machine",
    "manifest_reader",
    "options",
    "plan",
    "records",
    "remarks",
}
ALLOWED = LIGHT_ROOMS | {"driver", "runtime", "targets"}
LIGHT = ("products", "rates", "registrations")
SLOW = {"ast", "concurrent", "dataclasses", "filelock", "inspect", "llvmlite", "numpy", "platformdirs", "subprocess", "tempfile", "xdsl"}


def test_a_start_from_the_cache(tmp_path: Path) -> None:
    environment = {**os.environ, "TREADLE_CACHE_DIR": str(tmp_path)}

    def loaded() -> set[str]:
        command = [sys.executable, "-c", SCRIPT, PROGRAM]
        return set(json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout))

    assert "xdsl" in loaded(), "the first start was to compile"
    found = loaded()
    assert {name.split(".")[1] for name in found if name.startswith("treadle.")} <= ALLOWED
    before = set(json.loads(subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=True).stdout))
    assert not SLOW & (found - before)
    assert {name for name in found if name.startswith("treadle.machine.")} <= {f"treadle.machine.{name}" for name in LIGHT}
    assert {name for name in found if name.startswith("treadle.targets.")} == {"treadle.targets.registry"}


BARE = "import sys, json; print(json.dumps(list(sys.modules)))"


def test_the_import_alone() -> None:
    done = subprocess.run([sys.executable, "-c", f"import treadle; {BARE}"], capture_output=True, text=True, check=True)
    assert {name for name in json.loads(done.stdout) if name.startswith("treadle")} == {"treadle"}
    assert callable(treadle.compile)


MATMUL = """
func.func @f(%a: tensor<130x70xf16>, %b: tensor<70x90xf16>, %c: tensor<130x90xf32>) -> tensor<130x90xf32> {
  %d = linalg.matmul ins(%a, %b : tensor<130x70xf16>, tensor<70x90xf16>) outs(%c : tensor<130x90xf32>) -> tensor<130x90xf32>
  return %d : tensor<130x90xf32>
}
"""
OF_NO_USE = {"bench", "language", "sim", "timeline", "tools", "torch"}
LATE = {"cffi", "importlib.metadata", "jinja2", "llvmlite", "ml_dtypes", "numpy", "pydantic", "rich", "torch", "typer", "xdsl.interpreters"}
"""Packages of others that no compilation needs: LLVM runs in a process of its own, arrays are the caller's."""

UPSTREAM = {"affine", "arith", "builtin", "func", "linalg", "math", "memref", "scf", "tensor", "utils"}


@pytest.mark.parametrize(("target", "vendor"), [("sm_90a", "nvidia"), ("gfx942", "amd")])
def test_a_compilation(target: str, vendor: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TREADLE_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT.replace("sm_90a", target), MATMUL]
    found = set(json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout))
    assert "treadle.driver.lowering" in found, "nothing was compiled"
    rooms = {name.split(".")[1] for name in found if name.startswith("treadle.")}
    assert not OF_NO_USE & rooms
    assert not LATE & found
    assert {name for name in found if name.startswith("treadle.runtime.")} == {"treadle.runtime.cache", "treadle.runtime.device"}
    vendors = {name.split(".")[2] for name in found if name.startswith("treadle.targets.")}
    assert vendors & {"amd", "nvidia"} == {vendor}
    assert {name.split(".")[2] for name in found if name.startswith("xdsl.dialects.")} == UPSTREAM
