"""Code of arrivals: the atomic operation with its order and scope, and what every thread does before it."""

import re

import pytest
from generators.arrivals import IN_CLUSTERS, product_kernel, scheduled, split_rows, split_sum

from treadle.targets.interface import CompiledKernel
from treadle.targets.registry import backend


def assembled(text: str, target: str) -> CompiledKernel:
    chosen = backend(target)
    return chosen.assemble(chosen.emit(scheduled(text, target)))


def instructions(assembly: str) -> list[str]:
    """The instructions in order."""
    return [line.strip() for line in assembly.splitlines() if line.startswith("\t") and not line.strip().startswith((".", ";", "//"))]


def test_hopper() -> None:
    """LLVM leaves the order of this operation out, so it is written as it is."""
    text = assembled(split_sum(), "sm_90a").assembly
    assert "atom.acq_rel.gpu.global.inc.u32" in text
    at = text.index("atom.acq_rel")
    assert "bar.sync 0" in text[text.rindex("st.global", 0, at) : at]
    assert "bar.sync 0" in text[at : text.index("ld.global.b32", at)]
    assert "ld.global.nc" not in text[at:]  # what others wrote is read past the cache of constants


def test_bulk_stores_are_written_before_it() -> None:
    text = assembled(split_rows(), "sm_90a").assembly
    stored, waited, counted = (text.index(word) for word in ("cp.async.bulk.tensor", "cp.async.bulk.wait_group 0", "atom.acq_rel.gpu"))
    assert stored < waited < counted
    assert "wait_group.read" not in text


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_several_caches_of_the_second_level(target: str) -> None:
    """Stores of every wave, barrier, write-back, the count, invalidation, barrier; each waited for."""
    code = instructions(assembled(split_sum(), target).assembly)
    at = next(n for n, one in enumerate(code) if one.startswith("global_atomic_inc"))
    ahead = [one for one in code[:at] if re.match(r"global_store|s_waitcnt|s_barrier|buffer_wbl2", one)]
    stored = max(n for n, one in enumerate(ahead) if one.startswith("global_store"))
    assert [one.split()[0] for one in ahead[stored:]] == ["global_store_dword", "s_waitcnt", "s_barrier", "buffer_wbl2", "s_waitcnt"]
    assert all("vmcnt(0)" in one for one in ahead[stored:] if one.startswith("s_waitcnt"))
    behind = [one for one in code[at:] if re.match(r"global_(load|atomic)|s_waitcnt vm|s_barrier|buffer_inv", one)]
    names = ["global_atomic_inc", "s_waitcnt", "buffer_inv", "s_waitcnt", "s_barrier"]
    assert [one.split()[0] for one in behind[:5]] == names and "sc1" in behind[2]


@pytest.mark.parametrize(
    ("target", "wait", "inverse"), [("gfx1100", "s_waitcnt_vscnt", "buffer_gl1_inv"), ("gfx1201", "s_wait_storecnt", "global_inv")]
)
def test_one_cache_of_the_second_level(target: str, wait: str, inverse: str) -> None:
    code = instructions(assembled(split_sum(), target).assembly)
    at = next(n for n, one in enumerate(code) if one.startswith("global_atomic_inc"))
    stored = max(n for n, one in enumerate(code[:at]) if one.startswith("global_store"))
    ordered = [one.split()[0] for one in code[stored:at] if one.startswith((wait, "s_barrier"))]
    assert ordered[0].startswith(wait) and any(name.startswith("s_barrier") for name in ordered)
    assert any(one.startswith(inverse) for one in code[at : at + 4])
    assert "cmpswap" not in " ".join(code)


def test_barriers_of_other_accesses_order_shared_memory_alone() -> None:
    """Those of a reduction, ahead of all that workgroups hand on, neither wait for global memory nor invalidate anything."""
    text = backend("gfx942").emit(scheduled(split_sum(), "gfx942")).llvm_text
    fences = re.findall(r'fence syncscope\("workgroup"\) release(.*)', text)
    assert ["mmra" in fence for fence in fences] == [True, False, False]


@pytest.mark.parametrize(("order", "words"), [("release", ("buffer_wbl2",)), ("acquire", ("buffer_inv",)), ("relaxed", ())])
def test_other_orders(order: str, words: tuple[str, ...]) -> None:
    kernel = scheduled(split_sum(), "gfx942")
    next(op for op in kernel.walk() if op.name == "tile.count_in").set_order(order)  # type: ignore[attr-defined]
    chosen = backend("gfx942")
    text = chosen.assemble(chosen.emit(kernel)).assembly
    assert [word for word in ("buffer_wbl2", "buffer_inv") if word in text] == list(words)
    hopper = scheduled(split_sum(), "sm_90a")
    next(op for op in hopper.walk() if op.name == "tile.count_in").set_order(order)  # type: ignore[attr-defined]
    assert f"atom.{order}.gpu.global.inc.u32" in backend("sm_90a").emit(hopper).llvm_text


@pytest.mark.parametrize("name", IN_CLUSTERS)
def test_reads_of_other_workgroups(name: str) -> None:
    """What is written is released to the cluster and acquired from it; nothing spills, no counter is left."""
    text, knobs = IN_CLUSTERS[name]
    chosen = backend("sm_90a")
    compiled = chosen.assemble(chosen.emit(product_kernel(text, **knobs)[1]))
    code = compiled.assembly
    read = code.index("ld.shared::cluster")
    ordered = "barrier.cluster.arrive.release" if name == "tiles" else "mbarrier.arrive.release.cluster.shared::cluster"
    known = "barrier.cluster.wait.acquire" if name == "tiles" else "mbarrier.try_wait.parity.acquire.cluster"
    assert code.index("st.shared") < code.index(ordered) < code.index(known) < read < code.rindex("barrier.cluster.arrive.release")
    assert "mapa.shared::cluster" in code and "atom." not in code
    # At the start there is nothing to release but the barriers, which have a fence.
    first = code.index("barrier.cluster.arrive")
    assert name == "tiles" or ("fence.mbarrier_init" in code[:first] and code[first:].startswith("barrier.cluster.arrive.relaxed"))
    assert compiled.facts.spill_bytes == 0
