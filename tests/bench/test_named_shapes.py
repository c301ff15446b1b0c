"""Workloads that their name says: text, records and peers agree for random names; other names say nothing."""

import random

import numpy as np
import pytest
from bench.test_suite import anything

from treadle.bench import peers
from treadle.bench.named_shapes import EPILOGUES, LAYOUTS, gemm_name, named_workload, pitch_bytes
from treadle.bench.suite import choose, find
from treadle.bench.workload import Workload
from treadle.frontends import mlir
from treadle.sim.reference import evaluate_module
from treadle.tools.inputs import random_array

SEEDS = range(12)


def drawn(seed: int) -> Workload:
    draw = random.Random(seed)
    extents = [draw.randint(1, 9) for _ in range(draw.choice((3, 4)))]
    epilogue = draw.choice(("", *EPILOGUES))
    workload = named_workload(gemm_name(draw.choice(("f16", "bf16", "f32")), draw.choice(LAYOUTS), extents, epilogue))
    assert workload is not None
    return workload


@pytest.mark.parametrize("seed", SEEDS)
def test_the_text_computes_what_the_name_says(seed: int) -> None:
    workload = drawn(seed)
    generator = np.random.default_rng(seed)
    arrays = [random_array(spec.shape, spec.dtype, generator) for spec in workload.inputs]
    (found,) = evaluate_module(mlir.load(workload.text, workload.name), arrays)
    layouts = workload.name.split("-")[2]
    a, b = (np.asarray(array, np.float64) for array in arrays[:2])
    a, b = a if layouts[0] == "n" else a.swapaxes(-1, -2), b if layouts[1] == "n" else b.swapaxes(-1, -2)
    y = a @ b
    if workload.name.endswith("bias"):
        y = y + np.asarray(arrays[2], np.float64)
    elif workload.name.endswith("silu"):
        y = y / (1 + np.exp(-y))
    elif workload.name.endswith("gelu"):
        y = 0.5 * y * (1 + np.tanh(0.7978845608028654 * (y + 0.044715 * y**3)))
    assert found.value.shape == workload.outputs[0].shape
    np.testing.assert_allclose(np.asarray(found.value, np.float64), y, rtol=0.01, atol=0.02)  # the output type rounds
    assert workload.flop == 2 * y.size * a.shape[-1]


@pytest.mark.parametrize("seed", SEEDS)
def test_samples_lie_along_rows_and_columns(seed: int) -> None:
    workload = drawn(seed)
    for spec in (*workload.inputs, *workload.outputs):
        assert spec.rows is None or spec.shape[spec.rows] == workload.rows
        assert spec.columns is None or spec.shape[spec.columns] == workload.columns


def test_other_names_say_nothing() -> None:
    for name in (
        "gemm-bf16-nt-3x4",
        "gemm-bf16-3x4x5",
        "gemm-q4-nt-3x4x5",
        "gemm-bf16-nt-0x4x5",
        "gemm-bf16-nt-3x4x5-tanh",
        "rowsums-i8-3x4",
    ):
        assert named_workload(name) is None, name
    assert find("softmax-f32-3x4") is not None
    assert [w.name for w in choose(["gemm-i8-nt-3x4x5", "k512"])] == ["k512", "gemm-i8-nt-3x4x5"]


def test_peers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "import_module", anything)
    names = [
        gemm_name(dtype, layouts, (16, 16, 16), epilogue)
        for dtype in ("f16", "f8E4M3FN")
        for layouts in LAYOUTS
        for epilogue in ("", *EPILOGUES)
    ]
    found = [named_workload(name) for name in (*names, "gemm-i8-nt-4x4x4", "rowsums-f32-3x4", "softmax-bf16-3x4")]
    assert {workload.peer for workload in found if workload} <= set(peers.functions())
    assert None not in found


def test_pitches() -> None:
    def pitch(name: str) -> int:
        workload = named_workload(name)
        assert workload is not None
        return pitch_bytes(workload)

    assert pitch("gemm-bf16-nt-128x128x64") == 128
    assert pitch("gemm-bf16-nt-128x128x72") == 16
    assert pitch("gemm-bf16-nn-128x128x65") == 2
    assert pitch("gemm-i8-nt-7x7x33") == 1
