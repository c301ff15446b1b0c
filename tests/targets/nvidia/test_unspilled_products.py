"""Products in the vector units, and those whose rows begin anywhere, keep their registers: the first choice is compiled, nothing spills."""

import json
import random

import pytest
from generators.grouped_contractions import grouped_text

import treadle
from treadle.bench.calibration import workload_of

LAYOUTS = ("nn", "nt", "tn", "tt")
KNOWN = (
    "gemm-f32-tt-1775x8x3024",  # streamed, whose workgroups merge parts: 96 bytes
    "gemm-f32-nt-346x471x128",  # tiles that begin earlier, many to a unit: 4 bytes
    "gemm-f32-nt-2230x117x846",  # tiles that stick out along one side: 4 bytes
    "gemm-f32-nt-11x1047x2746",  # small tiles whose last workgroup loads parts together: 44 bytes
    "gemm-f16-nt-939x2x131123",  # five groups of warps, whose last workgroup merges parts: 72 bytes
)


def drawn(seed: int) -> str:
    rng = random.Random(seed)
    m, n, k = (int(2 ** rng.uniform(0, 13)) for _ in range(3))
    return f"gemm-f32-{rng.choice(LAYOUTS)}-{m}x{n}x{k}"


def drawn_odd(seed: int) -> str:
    """In 16-bit floats, k odd: rows along it are shifted on their way."""
    rng = random.Random(seed)
    m, n, k = (int(2 ** rng.uniform(*at)) for at in ((4, 12), (4, 12), (7, 17)))
    return f"gemm-{rng.choice(('f16', 'bf16'))}-{rng.choice(LAYOUTS)}-{m}x{n}x{k | 1}"


def assert_unspilled(text: str) -> None:
    program = treadle.compile(text, target="sm_90a")
    manifest = json.loads(program.files["manifest.json"])
    assert all(kernel["facts"]["spill_bytes"] == 0 for kernel in manifest["kernels"])
    assert not [remark.text for remark in program.remarks if "is rejected" in remark.text]


@pytest.mark.parametrize("name", [*KNOWN, *map(drawn, range(12)), *map(drawn_odd, range(12))])
def test_nothing_is_spilled(name: str) -> None:
    assert_unspilled(workload_of(name).text)


def test_groups_of_different_sizes_spill_nothing() -> None:
    """Their tiles stick out of the groups, so that copies compare rows and are not spread between the multiply-adds."""
    assert_unspilled(grouped_text((611, 1024, 37, 2048, 300), 1000, 700, "f32"))
