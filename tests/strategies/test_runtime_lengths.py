"""Splits of loops whose length only the runtime knows: the model is asked at few lengths, with the answer that asking at all gives."""

import random
from collections.abc import Callable, Sequence

import pytest

from treadle import pipelines
from treadle.dialects.split_attribute import SplitLoop
from treadle.frontends.mlir import load
from treadle.ir.passes import run_passes
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.split_parts import Parts
from treadle.strategies import split_sizes

TARGETS = ("sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
MOST_ASKED = 5
"""The longest of 16 lengths, and the shortest worth a split by halves."""
Asked = tuple[Callable[[int], Parts | None], Sequence[int], SplitLoop | None, int]


def contraction(rng: random.Random) -> str:
    kind = rng.choice(["f32", "f16", "bf16"])
    m, n = (int(2 ** rng.uniform(0, 11)) for _ in range(2))
    a, b, c = f"tensor<{m}x?x{kind}>", f"tensor<?x{n}x{kind}>", f"tensor<{m}x{n}xf32>"
    return f"""func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
      %0 = linalg.matmul ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
      return %0 : {c}
    }}"""


def reduction(rng: random.Random) -> str:
    kept, kind, dim = int(2 ** rng.uniform(0, 12)), rng.choice(["f32", "f64", "i32"]), rng.randrange(2)
    x, y = f"tensor<{kept}x?x{kind}>" if dim else f"tensor<?x{kept}x{kind}>", f"tensor<{kept}x{kind}>"
    add = "arith.addi" if kind == "i32" else "arith.addf"
    return f"""func.func @f(%x: {x}, %y: {y}) -> {y} {{
      %0 = linalg.reduce {{ {add} }} ins(%x : {x}) outs(%y : {y}) dimensions = [{dim}]
      return %0 : {y}
    }}"""


def asked(text: str, target: str, monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What was asked about runtime lengths, what came of it, and how often the model was."""
    found: list[Asked] = []
    ask = split_sizes.over_lengths

    def recorded(parts: Callable[[int], Parts | None], loop: int, lengths: Sequence[int], blocks: str = "") -> SplitLoop | None:
        times: list[int] = []

        def counted(length: int) -> Parts | None:
            times.append(length)
            return parts(length)

        answer = ask(counted, loop, lengths, blocks)
        found.append((parts, lengths, answer, len(times)))
        return answer

    monkeypatch.setattr(split_sizes, "over_lengths", recorded)
    run_passes(load(text), pipelines.tensor_passes(target_spec(target), CompileOptions()))
    monkeypatch.setattr(split_sizes, "over_lengths", ask)
    return found


@pytest.mark.parametrize("make", [contraction, reduction])
def test_the_shortest_length_worth_a_split_is_found(make: Callable[[random.Random], str], monkeypatch: pytest.MonkeyPatch) -> None:
    rng, split = random.Random(20), 0
    for number in range(24):
        for parts, lengths, answer, times in asked(make(rng), TARGETS[number % len(TARGETS)], monkeypatch):
            assert times <= MOST_ASKED
            worth = [length for length in lengths if parts(length) is not None]
            assert (answer is None) == (not worth)
            if answer is not None:
                shortest = worth[0]
                first = parts(shortest)
                assert first is not None
                count = eval(answer.parts, {"min": min, "max": max, f"r{answer.loop}": shortest})
                below = eval(answer.parts, {"min": min, "max": max, f"r{answer.loop}": shortest - 1})
                assert below == 0 and count == first.count, (answer, worth)
                split += 1
    assert split > 6
