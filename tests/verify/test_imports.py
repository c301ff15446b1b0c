"""What a proof loads: it is part of the time of every first compilation."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter

from test_layers import SOURCE, imported, module_name

ONLY_FOR_FAULTS = ("fixes", "phase_fixes", "faults", "lint")
LOADED = "import sys, treadle.verify.verify_schedule as found; print(*(name for name in sys.modules if name.startswith('treadle.verify.')))"


def test_modules_import_in_one_direction() -> None:
    """Imports for types and inside functions count too."""
    modules = {module_name(path): path for path in sorted((SOURCE / "verify").glob("*.py"))}
    needs: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for _, target in imported(ast.parse(path.read_text(encoding="utf-8")), name):
            needs[name] |= {target, target.rpartition(".")[0]} & modules.keys() - {name, "treadle.verify"}
    assert len(list(TopologicalSorter(needs).static_order())) == len(modules) > 20


def test_a_proof_loads_nothing_that_only_faults_need() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert "engine" in loaded
    assert not loaded.intersection(ONLY_FOR_FAULTS)
