"""Grouped contractions: one kernel for groups of different sizes, with roles where machines have them; tiles of no group take no steps."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from generators.grouped_contractions import grouped_text
from transforms.form_programs import kernel_of, lowered

import treadle
from treadle.dialects import pipe
from treadle.options import CompileOptions, Persistence
from treadle.sim.schedule import run_program_scheduled


def operands(rows: Sequence[int], n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(len(rows) + n)
    x = random.standard_normal((sum(rows), k)).astype(np.float16)
    w = random.standard_normal((len(rows), k, n)).astype(np.float16)
    ends = [0, *np.cumsum(rows)]
    parts = [x[low:high].astype(np.float64) @ w[g].astype(np.float64) for g, (low, high) in enumerate(pairwise(ends))]
    return x, w, np.concatenate(parts)


@pytest.mark.parametrize(
    ("rows", "n", "k", "persistent"),
    [
        ((100, 37, 200, 5), 64, 96, "auto"),
        ((1, 129, 64), 72, 130, "auto"),
        ((70, 300, 3), 200, 72, "always"),
        ((64, 0, 65), 64, 64, "auto"),
    ],
)
def test_groups_of_any_size_are_one_kernel(rows: tuple[int, ...], n: int, k: int, persistent: Persistence) -> None:
    module, said = lowered(grouped_text(rows, n, k), "sm_90a", CompileOptions(persistent=persistent))
    assert "fed through" in said
    assert [op for op in kernel_of(module).walk() if isinstance(op, pipe.RolesOp)]
    x, w, want = operands(rows, n, k)
    for mode in ("late", "random"):
        report = run_program_scheduled(module, [x, w], mode, 1)
        assert report.ok, str(report)
        assert np.abs(report.outputs[0] - want).max() <= 2e-3 * np.abs(want).max()


def test_tiles_of_no_group_take_no_steps() -> None:
    """As many tiles are counted for a small group as for the largest."""
    steps: list[int] = []
    for rows in ((256, 255), (256, 1)):
        module, _ = lowered(grouped_text(rows, 64, 256), "sm_90a", CompileOptions())
        x, w, _ = operands(rows, 64, 256)
        steps.append(run_program_scheduled(module, [x, w], "late", 1).steps)
    assert steps[1] < 0.7 * steps[0]


def test_eight_ragged_experts_compile_with_descriptor_copies() -> None:
    text = grouped_text((611, 1024, 37, 2048, 300, 129, 1500, 77), 4096, 7168, "bf16")
    program = treadle.compile(text, target="sm_90a")
    assert len(program.manifest.kernels) == 1
    said = next(r.text for r in program.remarks if (r.pass_name, r.kind) == ("set-kernel-form", "decision"))
    assert "2 consumer warpgroups" in said
    assert not [r.text for r in program.remarks if "is rejected" in r.text]


def test_machines_without_roles_take_tiles() -> None:
    module, said = lowered(grouped_text((13, 40), 32, 64), "gfx942", CompileOptions())
    assert "mfma" in said and "fed through" not in said
    assert kernel_of(module).grid_text()[0] != "1"
