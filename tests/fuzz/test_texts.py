"""1000 mutations of texts: exit status 0 or 2 within 5 s; and the mutations and texts themselves."""

import random

import pytest
from fuzz.expect import without_defects
from fuzz.outcomes import Settings
from fuzz.texts import run
from generators.corpus import CONTRACTIONS, MODULES, SCHEDULES, random_text, written
from generators.mutations import MUTATIONS, mutate

PART = 125


@pytest.mark.parametrize("first", range(0, 1000, PART))
def test_texts(first: int) -> None:
    outcomes = without_defects("texts", first, PART)
    assert {outcome.status for outcome in outcomes} == {"right", "refused"}


def test_texts_are_many_and_of_every_level() -> None:
    texts = written()
    assert len(texts) + MODULES + CONTRACTIONS + SCHEDULES >= 500
    assert any("tile.kernel" in text for text in texts)
    assert random_text(random.Random(5)) == random_text(random.Random(5))


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutations_change_something(name: str) -> None:
    text = """func.func @f(%a: tensor<4x5xf32>, %b: tensor<4xf32>) -> f32 attributes {x = 1, y = 2, z = 3} {
  %c = arith.constant 1 : i32
  %d = math.exp %a : tensor<3xf32>
  %e = tensor.dim %a, %c : tensor<6xf32>
  return %a : f32
}
"""
    found = {MUTATIONS[name](random.Random(seed), text) for seed in range(20)}
    assert len(found - {text}) > 2
    assert found == {MUTATIONS[name](random.Random(seed), text) for seed in range(20)}


def test_mutations_of_nothing() -> None:
    for seed in range(100):
        mutate(random.Random(seed), "\n")


@pytest.mark.parametrize(
    ("status", "shown", "expected"), [(70, "internal error", "internal"), (3, "", "wrong"), (2, "error TR101: x", "unhelpful")]
)
def test_what_is_a_defect(monkeypatch: pytest.MonkeyPatch, status: int, shown: str, expected: str) -> None:
    def invoked(words: list[str]) -> tuple[int, str]:
        return status, shown

    monkeypatch.setattr("fuzz.texts._invoked", invoked)
    assert run(0, Settings()).status == expected
