"""AMD machine code in an emulator, against float64: random ragged contractions, pipelined or not, and random modules.

The emulator is slow and has faults of its own (targets/amd/emulator.py): sizes are small, numbers are odd halves, and what it cannot
judge is counted as refused.
"""

import random

import numpy as np
from fuzz.kinds import Kind
from fuzz.outcomes import Outcome, Settings
from generators.modules import random_module
from targets.amd import emulator, programs

from treadle.frontends.mlir import load
from treadle.ir.dialects import builtin
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.sim.check import check
from treadle.sim.element_types import Array
from treadle.sim.reference import evaluate_module

KINDS = (("f16", "f32"), ("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("i8", "i32"))
Case = tuple[str, list[Array], CompileOptions, str]
"""A module's text and arguments, the options of its compilation, and what to call it."""
LARGEST = 6000
"""Elements of an argument of a module: a kernel of this size takes seconds."""


def run(seed: int, settings: Settings) -> Outcome:
    """A contraction where the seed is even, a module where it is odd."""
    rng = random.Random(f"emulated {seed}")
    target, order = rng.choice(settings.targets or programs.TARGETS), rng.choice(list(emulator.ORDERS))
    make = _contraction if seed % 2 == 0 else _module
    return judged(seed, target, order, make(rng))


def judged(seed: int, target: str, order: str, case: Case) -> Outcome:
    """What comes of a case whose waves run in an order: right, wrong, or refused by the emulator."""
    text, arrays, options, label = case
    label = f"{target} {label}, waves {order}"
    module = load(text)
    lower(module, target_spec(target), options)
    try:
        got = _run(module, target, order, arrays)
    except NotImplementedError as error:
        return Outcome(seed, "refused", label, str(error))
    (reference,) = evaluate_module(parse_module(text, "case.mlir"), arrays)
    verdict = check(got, reference)
    return Outcome(seed, "right", label) if verdict.ok else Outcome(seed, "wrong", label, str(verdict), text)


def _run(module: builtin.ModuleOp, target: str, order: str, arrays: list[Array]) -> Array:
    return emulator.EmulatedProgram(module, target, order)(*arrays)[0]


def _contraction(rng: random.Random) -> Case:
    m, n, k = rng.randint(1, 100), rng.randint(1, 100), rng.randint(1, 300)
    kind, result = rng.choice(KINDS)
    transposed, stages = rng.choice(("", "a", "b", "ab")), rng.choice((0, 2, 2, 3, 3, 4))
    program = programs.matmul(m, n, k, kind, result, transposed=transposed, bias=rng.random() < 0.4)
    label = f"{m}x{n}x{k} {kind} transposed '{transposed}' stages {stages}"
    return program.text, program.arrays(), CompileOptions(pipeline_stages=stages), label


def _module(rng: random.Random) -> Case:
    while True:
        module = random_module(rng.randrange(1 << 30))
        if all(np.prod(spec.shape) <= LARGEST for spec in module.inputs):
            break
    generator = np.random.default_rng(rng.randrange(1 << 30))
    arrays = [array if array.dtype.kind == "i" else _odd_halves(array, generator) for array in module.arrays()]
    return module.text, arrays, CompileOptions(), f"{module.name} {module.family}"


def _odd_halves(array: Array, generator: np.random.Generator) -> Array:
    """±0.5, ±1.5, ±2.5: no zeros and nothing subnormal."""
    return (generator.integers(-3, 3, array.shape) + 0.5).astype(np.float32).astype(array.dtype)


KIND = Kind(run, seconds=300.0)
