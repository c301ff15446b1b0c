"""What a proof loads: it is part of the time of every first compilation, and each module takes as long as a tenth of a small proof."""

import ast
import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from test_layers import SOURCE, imported, module_name

ONLY_FOR_FAULTS = ("fixes", "phase_fixes", "faults", "findings", "lint", "races", "stuck", "early_uses")
ALWAYS = {
    *("check", "classes", "clocks", "decode", "engine", "events", "idle", "memory", "program", "regions", "reports", "scalars", "strands"),
    *("structure", "trace", "trace_memory", "trace_state", "turning_points", "unknowns", "verify_schedule", "workgroups"),
}
LOOPS = {"demand", "trace_loops"}
RINGS = {"counting_barriers", "phases", "ring_counters", "ring_values", "ring_walks", "strands_apart"}
ROWS = """
func.func @f(%x: tensor<13x700xf32>) -> tensor<13x700xf32> {
  %e = tensor.empty() : tensor<13x700xf32>
  %y = linalg.softmax dimension(1) ins(%x : tensor<13x700xf32>) outs(%e : tensor<13x700xf32>) -> tensor<13x700xf32>
  return %y : tensor<13x700xf32>
}
"""
PRODUCT = (SOURCE.parents[1] / "examples" / "linear_bias_gelu.mlir").read_text(encoding="utf-8")
LOADED = """
import sys, treadle
treadle.compile(sys.argv[1], target=sys.argv[2])
print(*(name for name in sys.modules if name.startswith('treadle.verify.')))
"""


def test_modules_import_in_one_direction() -> None:
    """Imports for types and inside functions count too."""
    modules = {module_name(path): path for path in sorted((SOURCE / "verify").glob("*.py"))}
    needs: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for _, target in imported(ast.parse(path.read_text(encoding="utf-8")), name):
            needs[name] |= {target, target.rpartition(".")[0]} & modules.keys() - {name, "treadle.verify"}
    assert len(list(TopologicalSorter(needs).static_order())) == len(modules) > 20


def loaded(text: str, target: str, cache: Path) -> set[str]:
    """The modules of the prover that a process has loaded which compiled a module."""
    environment = {**os.environ, "TREADLE_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", LOADED, text, target]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return {name.rpartition(".")[2] for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("text", "target", "besides"),
    [
        pytest.param(ROWS, "sm_90a", set(), id="rows-sm_90a"),
        pytest.param(ROWS, "gfx942", set(), id="rows-gfx942"),
        pytest.param(PRODUCT, "sm_90a", LOOPS | RINGS, id="product-sm_90a"),
        pytest.param(PRODUCT, "gfx942", LOOPS, id="product-gfx942"),
    ],
)
def test_a_proof_loads_what_its_kernel_needs(text: str, target: str, besides: set[str], tmp_path: Path) -> None:
    """Where this fails with a module more: import it where it is needed, if few kernels do; else let it be part of another."""
    found = loaded(text, target, tmp_path)
    assert found == ALWAYS | besides
    assert not found.intersection(ONLY_FOR_FAULTS)


def test_what_only_faults_need_is_there() -> None:
    """The names above are those of modules."""
    names = {path.stem for path in (SOURCE / "verify").glob("*.py")}
    assert names.issuperset({*ONLY_FOR_FAULTS, *ALWAYS, *LOOPS, *RINGS})
