"""The form attention: right and proven for any sizes, in one kernel with roles, and the same on other machines."""

import pytest
from generators.attention_texts import AttentionText
from transforms.attention_kernels import check, kernels, lowered, simulated

from treadle.dialects import pipe

PLAIN = [
    AttentionText((2,), 200, 300, 64, 64),
    AttentionText((), 77, 93, 40, 72, is_late=True),
    AttentionText((1, 3), 65, 130, 96, 128, "bf16", is_named=True),
    AttentionText((2, 2), 64, 64, 32, 32, is_transposed=True),
    AttentionText((3,), 129, 70, 256, 256),
]


@pytest.mark.parametrize("problem", PLAIN, ids=str)
def test_plain_attention_is_proven_and_right(problem: AttentionText) -> None:
    module = lowered(problem)
    (kernel,) = kernels(module)
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk())
    check(simulated(module, problem), problem)


OTHERS = [
    AttentionText((2,), 100, 150, 64, 64, dynamic="mna"),
    AttentionText((2,), 200, 200, 64, 64, is_causal=True),
    AttentionText((2, 2, 3), 70, 100, 64, 64, shared=3),
    AttentionText((2,), 100, 100, 64, 64, has_mask=True),
]


@pytest.mark.parametrize("problem", OTHERS, ids=str)
def test_masks_and_shared_heads(problem: AttentionText) -> None:
    module = lowered(problem)
    (kernel,) = kernels(module)
    assert any(isinstance(op, pipe.RolesOp) for op in kernel.walk())
    check(simulated(module, problem), problem)
