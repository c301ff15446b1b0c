"""A check that cannot fail is none. (tests/fuzz holds random modules against float64 and IREE.)"""

import numpy as np
from generators.modules import random_module
from numeric.differential import COUNT, reference_of

from treadle.sim.check import check


def test_wrong_results_are_told_apart() -> None:
    """One element moved by more than its bound is refused, in every module."""
    for module in map(random_module, range(0, COUNT, 5)):
        arrays = module.arrays()
        reference = reference_of(module, arrays)
        got = reference.value.copy()
        if not got.size:
            continue
        place = np.unravel_index(got.size // 2, got.shape)
        room = 0.0 if reference.bound is None else float(reference.bound[place])
        if got.dtype.kind == "i":
            got[place] += 1
        elif np.isfinite(room):
            got[place] += 3 * room + 0.02 * abs(float(got[place])) + 1e-3
        else:
            continue
        assert not check(got, reference).ok, module.name
