"""Random attention of tensor text, as one kernel: proven, and right where copies and matrix instructions complete late.

TREADLE_ATTENTION_SEED and TREADLE_ATTENTION_COUNT choose others.
"""

import os
import random
from dataclasses import replace

import numpy as np
import pytest
from generators.attention_texts import AttentionText
from transforms.attention_kernels import Late, check, lowered

from treadle.sim.program import SimProgram

SEED = int(os.environ.get("TREADLE_ATTENTION_SEED", "5"))
COUNT = int(os.environ.get("TREADLE_ATTENTION_COUNT", "12"))


def problem_of(number: int) -> AttentionText:
    """Problem `number` of the seed: few heads, lengths of one and more tiles, any widths up to 256."""
    draw = random.Random(f"attention text {SEED} {number}")
    shared = draw.choice((1, 1, 1, 2, 3))
    batch = tuple(draw.randint(1, 2) for _ in range(draw.randint(0 if shared == 1 else 1, 1))) + ((shared,) if shared > 1 else ())
    if shared == 1 and draw.random() < 0.5:
        batch = (*batch, draw.randint(1, 3))
    width = draw.choice((draw.randint(1, 256), draw.choice((32, 64, 96, 128))))
    columns = width if draw.random() < 0.6 else draw.randint(1, 256)
    most = 150 if width + columns > 256 else 260
    dynamic = "".join(letter for letter in "mn" if draw.random() < 0.25)
    found = AttentionText(
        batch,
        draw.randint(1, most),
        draw.randint(2, most),
        width,
        columns,
        draw.choice(("f16", "bf16")),
        is_transposed=draw.random() < 0.3,
        is_causal=draw.random() < 0.4,
        has_mask=draw.random() < 0.25,
        is_named=draw.random() < 0.3,
        is_late=draw.random() < 0.3,
        dynamic=dynamic,
        shared=shared,
    )
    found = replace(found, has_logs=not found.is_named and draw.random() < 0.4)
    # Every row sees a key: no place but those behind the keys' end is far from all of them.
    window = draw.randint(max(1, found.rows - found.keys + 1), 2 * found.rows)
    return replace(found, window=window) if found.is_causal and draw.random() < 0.5 else found


@pytest.mark.parametrize("number", range(COUNT))
def test_random_attention(number: int) -> None:
    problem = problem_of(number)
    module = lowered(problem)
    arrays = problem.arrays(number)
    results = SimProgram(module, Late)(*arrays)
    check(results[0], problem, seed=number)
    if problem.has_logs:
        want = problem.expected_logs(arrays)
        assert np.abs(results[1] - want).max() <= 4e-6 * (1 + np.abs(want).max())
