"""What a start from the cache imports: the reader of manifests, not the compiler, and nothing of Python's that takes long to import."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
