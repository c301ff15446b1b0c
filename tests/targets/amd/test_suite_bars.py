"""The bars of AMD loops over what is drawn of the suite and the architectures, and that they are missed without fences or with one more
wait. `benchmarks/loop_costs.py` and `benchmarks/loop_bars.py` ask all of it.
"""

import random
import re
import tempfile
from pathlib import Path

import pytest
from targets.amd import emulator, programs

from treadle.bench.suite import suite
from treadle.bench.workload import Workload
from treadle.frontends.mlir import load
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.targets.loop_report import ReportsLoops
from treadle.targets.registry import backend
from treadle.tools.audit import Row, as_plain, own_rows, shortfalls

CASES = 6


def drawn(seed: int) -> tuple[Workload, str]:
    """A workload that contracts, and an architecture."""
    rng = random.Random(f"loop bars {seed}")
    return rng.choice([one for one in suite() if one.group != "reduction"]), rng.choice(programs.TARGETS)


def rows(workload_text: str, target: str, options: CompileOptions, *, bare: bool) -> list[Row]:
    """The loops of a program's kernels; with `bare` also without scheduling fences."""
    tool = backend(target)
    assert isinstance(tool, ReportsLoops)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "module.mlir")
        file.write_text(workload_text)
        return own_rows(file, target, tool, options, None, bare=bare)


@pytest.mark.parametrize("seed", range(CASES))
def test_drawn_loops_keep_their_bars(seed: int) -> None:
    workload, target = drawn(seed)
    found = [text for row in rows(workload.text, target, workload.options, bare=False) for text in shortfalls(target, as_plain(row))]
    assert not found, f"{workload.name} {target}"


@pytest.mark.parametrize("transposed", ["b", "ab"])
def test_without_fences_loads_are_waited_for_among_matrix_instructions(transposed: str) -> None:
    text = programs.matmul(1024, 1024, 4096, "f16", "f32", transposed=transposed).text
    fenced, bare = rows(text, "gfx942", CompileOptions(), bare=True)
    assert fenced.fences and not bare.fences
    assert shortfalls("gfx942", as_plain(fenced)) == ()
    assert any("waits for loads" in text for text in shortfalls("gfx942", as_plain(bare)))


def test_one_more_wait_misses_the_bar() -> None:
    target, module = "gfx942", load(programs.matmul(1024, 1024, 4096, "f16", "f32", transposed="b").text)
    lower(module, target_spec(target), CompileOptions())
    (kernel,) = emulator.compile_kernels(module, target).values()
    tool = backend(target)
    assert isinstance(tool, ReportsLoops)
    loop = kernel.assembly.index(".LBB0_1:")
    matrix = [loop + one.start() for one in re.finditer(r"\n\tv_mfma", kernel.assembly[loop:])]
    added = kernel.assembly[: matrix[4]] + "\n\ts_waitcnt vmcnt(0)" + kernel.assembly[matrix[4] :]
    for assembly, missed in ((kernel.assembly, ()), (added, ("1 waits for loads between matrix instructions",))):
        (found,) = tool.read_reports(assembly)
        assert shortfalls(target, as_plain(Row("stream-4", 0, found))) == missed
