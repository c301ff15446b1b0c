"""A loop that the compiler cuts into stages, beside the same loop cut by hand in several ways, by the model of the machines."""

from typing import Any

import pytest
from language.staged_kernels import DEEPER, PRODUCTS, operands
from transforms.kernel.test_set_stages import cut


def clocks(kernel: Any, target: str) -> float:
    arrays = operands(256, 64, 512)
    timeline = kernel[2, 2].inspect(*arrays, num_warps=8, target=target, BN=32).timeline(target)
    return float(timeline.outcome.clocks)


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_no_partition_by_hand_is_much_faster(target: str) -> None:
    """Within 3 % of the best of those with 2, 3 and 4 stages, and of a triple buffer."""
    by_hand = min(clocks(kernel, target) for kernel in (*PRODUCTS.values(), DEEPER["triple"]))
    assert clocks(cut, target) <= 1.03 * by_hand
