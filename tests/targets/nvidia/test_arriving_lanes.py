"""Who arrives at barriers: one lane for its warp or, where a tool is to follow it, every lane."""

import re

import pytest

from treadle import driver, knobs
from treadle.bench import families
from treadle.options import CompileOptions

OPTIONS = CompileOptions(
    tuned=False, tile=(64, 128, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=3, cluster=2, form="roles", persistent="never"
)


def _code() -> str:
    work = families.matmul("case", "case", 512, 520, 200, "bf16", transposed=True, options=OPTIONS)
    return driver.compile(work.text, target="sm_90a", options=OPTIONS).stages["asm"]


def _counts(code: str) -> list[int]:
    """What barriers are initialised with, in order."""
    values = dict(re.findall(r"mov\.b32 \t(%r\d+), (\d+);", code))
    return [int(values[register]) for register in re.findall(r"mbarrier\.init\.shared::cta\.b64 \[%r\d+\], (%r\d+);", code)]


def test_every_lane_arrives_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Barriers expect 32 times as many arrivals, own copies and arrivals at other workgroups count as those of a warp's lanes."""
    elected = _code()
    monkeypatch.setenv(knobs.EVERY_LANE.name, "1")
    every = _code()
    assert _counts(elected) and _counts(every) == [32 * count for count in _counts(elected)]
    assert "@p mbarrier.arrive.shared::cta.b64 _, [" in elected or "@p mbarrier.arrive.shared::cluster" in elected
    assert "mbarrier.arrive.expect_tx" in elected and "mbarrier.arrive.expect_tx" not in every
    assert re.search(r"mbarrier\.arrive\.shared::cta\.b64 _, \[%r\d+\], 32;", every)
    assert not re.search(r"@p mbarrier\.arrive\.shared::cta", every)
