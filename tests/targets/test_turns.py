"""Code of turns: who looks at the counter, in which order and scope, and what every thread does around it."""

import re

import pytest
from generators.arrivals import scheduled
from generators.turns import turn_sum

from treadle.targets.interface import CompiledKernel
from treadle.targets.registry import backend


def assembled(text: str, target: str) -> CompiledKernel:
    chosen = backend(target)
    return chosen.assemble(chosen.emit(scheduled(text, target)))


def instructions(assembly: str) -> list[str]:
    """The instructions in order."""
    return [line.strip() for line in assembly.splitlines() if line.startswith("\t") and not line.strip().startswith((".", ";", "//"))]


def test_hopper() -> None:
    """One thread loads until it is the turn; a barrier, the sum, a barrier, and one thread stores."""
    compiled = assembled(turn_sum(), "sm_90a")
    text = compiled.assembly
    looked, passed = text.index("ld.acquire.gpu.global.u32"), text.index("st.release.gpu.global.u32")
    assert "bar.sync 0" in text[looked : text.index("ld.global.b32", looked)]
    assert "bar.sync 0" in text[text.rindex("st.global", 0, passed) : passed]
    assert "ld.global.nc" not in text[looked:]  # what others wrote is read past the cache of constants
    assert compiled.facts.spill_bytes == 0


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_several_caches_of_the_second_level(target: str) -> None:
    """The look, a rest, invalidation, barrier; stores of every wave, barrier, write-back, the store of the turn; each waited for."""
    code = instructions(assembled(turn_sum(), target).assembly)
    rest = next(n for n, one in enumerate(code) if one.startswith("s_sleep"))
    look = max(n for n, one in enumerate(code[:rest]) if one.startswith("global_load_dword"))
    assert "sc1" in code[look]
    behind = [one for one in code[rest:] if re.match(r"global_load|s_waitcnt vm|s_barrier|buffer_inv", one)]
    assert [one.split()[0] for one in behind[:3]] == ["buffer_inv", "s_waitcnt", "s_barrier"] and "sc1" in behind[0]
    written = next(n for n, one in enumerate(code) if one.startswith("buffer_wbl2"))
    ahead = [one for one in code[:written] if re.match(r"global_store|s_waitcnt vm|s_barrier", one)]
    assert [one.split()[0] for one in ahead[-3:]] == ["global_store_dword", "s_waitcnt", "s_barrier"]
    passed = [one for one in code[written:] if re.match(r"global_store|s_waitcnt", one)]
    assert [one.split()[0] for one in passed] == ["s_waitcnt", "global_store_dword"] and "sc1" in passed[1]


@pytest.mark.parametrize(
    ("target", "wait", "inverse"), [("gfx1100", "s_waitcnt_vscnt", "buffer_gl1_inv"), ("gfx1201", "s_wait_storecnt", "global_inv")]
)
def test_one_cache_of_the_second_level(target: str, wait: str, inverse: str) -> None:
    code = instructions(assembled(turn_sum(), target).assembly)
    rest = next(n for n, one in enumerate(code) if one.startswith("s_sleep"))
    barrier = next(n for n, one in enumerate(code[rest:], rest) if one.startswith("s_barrier"))
    assert any(one.startswith(inverse) for one in code[rest:barrier])
    passed = max(n for n, one in enumerate(code) if one.startswith("global_store"))
    stored = max(n for n, one in enumerate(code[:passed]) if one.startswith("global_store"))
    ordered = [one.split()[0] for one in code[stored:passed] if one.startswith((wait, "s_barrier"))]
    assert ordered[0].startswith(wait) and any(name.startswith("s_barrier") for name in ordered)


@pytest.mark.parametrize(("name", "words"), [("tile.await_turn", ("buffer_inv",)), ("tile.pass_turn", ("buffer_wbl2",))])
def test_relaxed_orders(name: str, words: tuple[str, ...]) -> None:
    """What is not asked for is not done, and nothing else is left out."""
    chosen = backend("gfx942")
    kernel = scheduled(turn_sum(), "gfx942")
    next(op for op in kernel.walk() if op.name == name).set_order("relaxed")  # type: ignore[attr-defined]
    text = chosen.assemble(chosen.emit(kernel)).assembly
    assert [word for word in ("buffer_wbl2", "buffer_inv") if word not in text] == list(words)
    hopper = scheduled(turn_sum(), "sm_90a")
    next(op for op in hopper.walk() if op.name == name).set_order("relaxed")  # type: ignore[attr-defined]
    emitted = backend("sm_90a").emit(hopper).llvm_text
    assert ("ld.relaxed.gpu.global" in emitted) != ("st.relaxed.gpu.global" in emitted)
