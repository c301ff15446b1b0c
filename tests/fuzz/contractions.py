"""Random contractions as AMD machine code in an emulator, scheduled as the compiler chooses where nobody asks for anything.

Sizes are ragged or whole, transposed or not, of all types that the targets multiply, with a bias or without. Numbers are small and whole,
so that every sum is exact in float32. The emulator's faults are those of targets/amd/emulator.py; what it cannot judge is refused.
"""

import random

from fuzz.emulated import Case, judged
from fuzz.kinds import Kind
from fuzz.outcomes import Outcome, Settings
from targets.amd import emulator, programs

from treadle.options import CompileOptions

KINDS = (("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("i8", "i32"))
WORK = 1 << 21
"""Most multiplications of a case: a few seconds of the emulator."""


def run(seed: int, settings: Settings) -> Outcome:
    """One contraction for one target, its waves in some order."""
    rng = random.Random(f"contractions {seed}")
    target, order = rng.choice(settings.targets or programs.TARGETS), rng.choice(list(emulator.ORDERS))
    return judged(seed, target, order, _case(rng))


def _case(rng: random.Random) -> Case:
    while True:
        m, n, k = (_size(rng, 7), _size(rng, 7), _size(rng, 9))
        if m * n * k <= WORK:
            break
    kind, result = rng.choice(KINDS)
    transposed = rng.choice(("", "a", "b", "b", "ab"))
    program = programs.matmul(m, n, k, kind, result, transposed=transposed, bias=rng.random() < 0.3)
    return program.text, program.arrays(), CompileOptions(), f"{m}x{n}x{k} {kind} transposed '{transposed}'"


def _size(rng: random.Random, bits: int) -> int:
    """Log-uniform up to 2^bits and a half more: as it falls, or a multiple of 8 or of 32."""
    size = int(2 ** rng.uniform(0.0, bits + 0.5))
    unit = rng.choice((1, 1, 8, 32))
    return -(-size // unit) * unit


KIND = Kind(run, seconds=300.0)
