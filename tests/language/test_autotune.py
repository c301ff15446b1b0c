"""Configurations of kernels: chosen by the model on the simulator, kept, and compiled side by side; measured where a device is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.errors import TreadleError
from treadle.language.autotune import Tuned
from treadle.language.kernel import Kernel

CONFIGS = [treadle.Config({"BM": m, "BN": n}, num_warps=w) for m, n, w in ((16, 16, 1), (64, 64, 4), (128, 128, 8))]


@pytest.fixture(autouse=True)
def fixture_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))


def product(a: Any, b: Any, c: Any, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr = 64) -> None:
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, a.shape[1], BK):
        acc = tl.dot(a[m : m + BM, k : k + BK], b[k : k + BK, n : n + BN], acc)
    c[m : m + BM, n : n + BN] = acc


def grid(given: Any) -> tuple[int, int]:
    return -(-given["a"].shape[0] // given["BM"]), -(-given["b"].shape[1] // given["BN"])


def tuned() -> Tuned:
    return treadle.autotune(CONFIGS, key=["a", "b"])(treadle.kernel(target="sim")(product))


def arrays(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(m)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b, np.zeros((m, n), np.float32)


def test_the_model_chooses_for_the_simulator() -> None:
    kernel = tuned()
    a, b, c = arrays(70, 75, 100)
    kernel[grid](a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-3)
    (choice,) = kernel.choices.values()
    assert set(choice.times) == set(CONFIGS) and choice.source == "the model of sm_90a"
    known = {config: time for config, time in choice.times.items() if time is not None}
    assert choice.config == min(known, key=lambda config: known[config]) and len(known) > 1
    large = kernel[grid].choice(*arrays(2048, 2048, 256))
    assert len(kernel.choices) == 2 and large.config != CONFIGS[0]  # tiles of 16 x 16 read everything many times
    assert f"num_warps = {choice.config.num_warps}" in kernel.inspection().ir()


def test_choices_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first = tuned()[grid].choice(*arrays(70, 75, 100))
    monkeypatch.setattr("treadle.language.inspection.Inspection.modelled_ms", None)  # nothing is modelled again
    again = tuned()[grid].choice(*arrays(70, 75, 100))
    assert again.config == first.config and again.source == "stored: the model of sm_90a"


def test_configurations_that_do_not_compile_are_left_out() -> None:
    broken = treadle.Config({"BM": 64, "BN": 64, "BK": 0})
    kernel = treadle.autotune([broken, CONFIGS[1]])(treadle.kernel(target="sim")(product))
    choice = kernel[grid].choice(*arrays(70, 75, 100))
    assert choice.config == CONFIGS[1]
    assert [bool(why) for why in choice.problems.values()] == [True]


def test_what_no_kernel_takes() -> None:
    with pytest.raises(TreadleError, match="TR738: kernel 'product': it has no argument 'BX', which autotune names"):
        treadle.autotune([treadle.Config({"BX": 1})])(treadle.kernel(product))
    with pytest.raises(TreadleError, match="TR738: kernel 'product': autotune has no configurations"):
        treadle.autotune([])(treadle.kernel(product))


def test_kernels_are_compiled_in_processes_of_their_own() -> None:
    kernel: Kernel = treadle.kernel(target="sim")(product)
    a, b, c = arrays(30, 20, 40)
    assert not kernel[1, 1].prepare(a, b, c, BM=32, BN=32)
    assert "compiled 1 time" in repr(kernel)
    kernel[1, 1](a, b, c, BM=32, BN=32)
    assert "compiled 1 time" in repr(kernel)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-3)
    why = kernel[1, 1].prepare(a, b, c, BM=32, BN=32, target="sm_1")
    assert why.startswith("TR"), why
