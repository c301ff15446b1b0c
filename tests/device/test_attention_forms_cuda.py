"""On a GPU: attention over pages, within windows and of heads that share keys by quotients; grouped products with roles."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generators.attention_texts import AttentionText
from transforms.attention_kernels import check

import treadle
from treadle.options import CompileOptions

pytestmark = pytest.mark.usefixtures("hopper")
KERNELS = Path(__file__).parents[2] / "examples" / "kernels"


@pytest.mark.parametrize(
    "problem",
    [
        AttentionText((1, 3), 301, 301, 64, 64, is_causal=True, window=100),
        AttentionText((2, 6), 133, 277, 96, 64, divided=3),
        AttentionText((1, 4), 300, 300, 128, 128, is_causal=True, window=64, divided=2, dynamic="mn"),
    ],
    ids=str,
)
def test_text(problem: AttentionText) -> None:
    program = treadle.compile(problem.text(), target="sm_90a", options=CompileOptions(attention="always"))
    results: Any = program(*problem.arrays())
    check(np.asarray(results[0]), problem)


@pytest.mark.parametrize(("page", "width"), [(64, 128), (16, 64), (5, 64)])
def test_pages(page: int, width: int) -> None:
    torch: Any = pytest.importorskip("torch")
    paged = importlib.import_module("paged_decode")
    *arrays, want = paged.problem(np.random.default_rng(page), 3, 2, 4, page, (700, 130, 1), width)

    def empty(shape: tuple[int, ...], is_wide: bool) -> Any:
        return torch.empty(shape, dtype=torch.float32 if is_wide else torch.float16, device="cuda")

    found = paged.decode(*(torch.from_numpy(array).cuda() for array in arrays), empty)
    np.testing.assert_allclose(found.cpu().numpy(), want, atol=3e-3)


@pytest.mark.parametrize("sizes", [(301, 4, 145, 100), (1000, 7, 256, 512)])
def test_groups(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(KERNELS)])
    pytest.importorskip("torch")
    grouped, harness = importlib.import_module("grouped_matmul"), importlib.import_module("harness")
    assert harness.run(grouped.problem(np.random.default_rng(1), *sizes)) < 2e-3
