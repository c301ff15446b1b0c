"""Products whose workgroups take tiles in turn, by sets of warps and by all together, on a GPU: right, and the same again and again."""

from typing import Any

import numpy as np
import pytest
from device.test_schedules_cuda import RUNS
from language.persistent_products import operands, plain, staged

SIZES = [(200, 136, 200), (130, 72, 64), (1024, 1032, 8), (2048, 2048, 1024), (520, 4096, 4096)]


@pytest.mark.parametrize("grid", [1, 7, 132])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [plain, staged], ids=["plain", "staged"])
@pytest.mark.usefixtures("hopper")
def test_tiles_in_turn(kernel: Any, groups: int, m: int, n: int, k: int, grid: int) -> None:
    a, b, c = operands(m, n, k)
    wanted = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    for _ in range(max(1, RUNS // 20)):
        c[:] = np.nan
        kernel[grid](a, b, c, num_warps=8, GROUPS=groups, target="sm_90a")
        np.testing.assert_array_equal(c, wanted)
