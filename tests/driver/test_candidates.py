"""A rejected candidate is followed by the next, with a remark; without one left there is an error that names what was asked for."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from generators.contractions import ContractionCase

from treadle.driver.candidates import NAME, chosen_options
from treadle.driver.lowering import lower
from treadle.driver.sources import Source
from treadle.errors import KernelRejected, TreadleError
from treadle.options import CompileOptions
from treadle.targets import registry
from treadle.targets.amd.backend import AmdBackend
from treadle.targets.interface import CompiledKernel, EmittedKernel
from treadle.targets.nvidia.backend import NvidiaBackend

CASE = ContractionCase(2000, 2048, 512, "bf16", "nt", "bf16", "residual")


class Fussy(NvidiaBackend):
    """A backend that rejects the code of its first kernels."""

    rejects: ClassVar[int] = 0
    seen: ClassVar[list[EmittedKernel]] = []

    def assemble(self, emitted: EmittedKernel) -> CompiledKernel:
        """Reject, or make code."""
        type(self).seen.append(emitted)
        if len(self.seen) <= self.rejects:
            raise KernelRejected(emitted.symbol, "registers do not hold the tile (999 registers)")
        return super().assemble(emitted)


@pytest.fixture
def fussy(monkeypatch: pytest.MonkeyPatch) -> type[Fussy]:
    real = registry.backend("sm_90a")

    def backend(target: str) -> Fussy:
        assert target == "sm_90a"
        return Fussy(real.spec)

    monkeypatch.setattr(registry, "backend", backend)
    monkeypatch.setattr(Fussy, "seen", [])
    return Fussy


def compiled(options: CompileOptions | None = None) -> list[str]:
    """The remarks about candidates."""
    found = lower(Source(CASE.text, "case.mlir"), "sm_90a", options or CompileOptions(tuned=False), None)
    assert found.files
    return [remark.text for remark in found.remarks if remark.pass_name == NAME]


def test_the_best_is_taken_where_nothing_objects(fussy: type[Fussy]) -> None:
    assert not compiled()
    assert len(fussy.seen) == 1


@pytest.mark.parametrize("count", [1, 2])
def test_rejected_candidates_are_followed_by_the_next(fussy: type[Fussy], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fussy, "rejects", count)
    remarks = compiled()
    assert len(remarks) == count and len({emitted.llvm_text for emitted in fussy.seen}) == count + 1
    for number, text in enumerate(remarks):
        assert text.startswith(f"candidate {number} (contraction 2000x2048x512")
        assert "registers do not hold the tile (999 registers)" in text and text.endswith(f"candidate {number + 1} is next")


def test_without_a_candidate_left_it_is_an_error(fussy: type[Fussy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fussy, "rejects", 99)
    with pytest.raises(TreadleError) as caught:
        compiled()
    error = caught.value
    assert error.code == "TR561" and error.location is not None and error.location.file == "case.mlir"
    assert "candidates were tried" in error.message
    assert 3 <= len(fussy.seen) <= 8


def test_an_option_that_cannot_be_had_is_named(fussy: type[Fussy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fussy, "rejects", 99)
    with pytest.raises(TreadleError) as caught:
        compiled(CompileOptions(tuned=False, tile=(64, 64, 64), roles=False))
    assert caught.value.code == "TR562"
    assert "tile=64,64,64, roles=False" in caught.value.message
    assert len(fussy.seen) <= 2, "no other tile is taken: this one with its waits elsewhere is all there is"


def test_tiles_that_shared_memory_does_not_hold() -> None:
    case, options = replace(CASE, target="gfx1100"), CompileOptions(tuned=False, tile=(256, 256, 128), warps=(4, 4))
    with pytest.raises(TreadleError, match="tile=256,256,128") as caught:
        lower(Source(case.text, "case.mlir"), "gfx1100", options, None)
    assert caught.value.code == "TR562" and "shared memory" in caught.value.message


def test_options_that_choose() -> None:
    assert chosen_options(CompileOptions()) == ()
    assert chosen_options(replace(CompileOptions(), f32_precision="tf32", verify=False)) == ()
    assert chosen_options(CompileOptions(pipeline_stages=3, persistent="always", tile=(32, 32))) == (
        "tile=32,32",
        "persistent=always",
        "pipeline_stages=3",
    )


def test_an_epilogue_that_takes_most_registers() -> None:
    """Exponentials in f64 of 16 elements a thread spill, overlapping or not; those of 8 do not."""
    case = ContractionCase(848, 2377, 1, "f64", "tn", "f64", "silu_multiply", True, "n")
    found = lower(Source(case.text, "case.mlir"), "sm_90a", CompileOptions(tuned=False), None)
    refused = [remark.text for remark in found.remarks if remark.pass_name == NAME]
    assert found.files and all("registers do not hold the tile" in text for text in refused)


@pytest.mark.parametrize("target", ["gfx950", "sm_90a"])
def test_a_tile_that_the_instruction_does_not_divide_is_refused(target: str) -> None:
    text = ContractionCase(256, 256, 256, "i8", "nt", "i32").text
    with pytest.raises(TreadleError, match=r"TR562.*extent along k is 16, no multiple of the (32|64)"):
        lower(Source(text, "tile.mlir"), target, CompileOptions(tile=(128, 128, 16), roles=False), None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (CompileOptions(tile=(64, 160, 64), warps=(8, 1)), "extent along m is 64, no multiple of the 128"),
        (CompileOptions(tile=(64, 160, 64), warps=(2, 1), num_stages=4), "2 warps along m are no multiple of the 4"),
        (CompileOptions(tile=(64, 100, 64), form="tiles"), "extent along n is 100, no multiple of the 8"),
        (CompileOptions(tile=(64, 160, 60), num_stages=3), "extent along k is 60, no multiple of the 16"),
    ],
)
def test_a_tile_that_its_warps_cannot_hold_is_refused(options: CompileOptions, reason: str) -> None:
    text = ContractionCase(256, 320, 256, "bf16", "nt", "bf16").text
    with pytest.raises(TreadleError, match=f"TR562.*tile=.*{reason}"):
        lower(Source(text, "tile.mlir"), "sm_90a", options, None)


def test_a_tile_without_warps_has_those_that_issue_its_instruction() -> None:
    """The usual warps of a large result whose k only the runtime knows, eight along m, would not fit 64 rows."""
    case = ContractionCase(4096, 4096, 512, "bf16", "nt", "bf16", dynamic="k")
    options = CompileOptions(tile=(64, 232, 64), num_stages=4, consumer_warpgroups=2, split_reduction="off")
    found = lower(Source(case.text, "tile.mlir"), "sm_90a", options, None, until="schedule", texts=True)
    assert "tile = [64, 232, 64], warps = [4, 1]" in found.stages["tile"]


SPLIT = ContractionCase(64, 96, 20000, "bf16", "nt", "bf16", "residual")


def rejects_parts(monkeypatch: pytest.MonkeyPatch, *, all_of_them: bool = False) -> None:
    """The kernels of what is split are those that merge parts, too: only one is left without."""

    def assemble(self: Fussy, emitted: EmittedKernel) -> CompiledKernel:
        if all_of_them or not emitted.symbol.endswith("_k0"):
            raise KernelRejected(emitted.symbol, "registers do not hold the tile (999 registers)")
        return NvidiaBackend.assemble(self, emitted)

    monkeypatch.setattr(Fussy, "assemble", assemble)


def test_a_split_whose_kernels_are_all_rejected_is_given_up(fussy: type[Fussy], monkeypatch: pytest.MonkeyPatch) -> None:
    rejects_parts(monkeypatch)
    found = lower(Source(SPLIT.text, "case.mlir"), "sm_90a", CompileOptions(tuned=False), None)
    assert found.files
    assert "no candidate is left; no reduction is split" in [remark.text for remark in found.remarks if remark.pass_name == NAME]
    assert not any(remark.pass_name == "split-reduction" and remark.kind == "decision" for remark in found.remarks)


def test_what_is_rejected_without_a_split_too_is_an_error(fussy: type[Fussy], monkeypatch: pytest.MonkeyPatch) -> None:
    rejects_parts(monkeypatch, all_of_them=True)
    with pytest.raises(TreadleError) as caught:
        lower(Source(SPLIT.text, "case.mlir"), "sm_90a", CompileOptions(tuned=False), None)
    assert "this is about the first" in str(caught.value)
    assert "options" not in str(caught.value)


def test_a_split_that_is_asked_for_stays(fussy: type[Fussy], monkeypatch: pytest.MonkeyPatch) -> None:
    rejects_parts(monkeypatch)
    with pytest.raises(TreadleError, match="split_reduction=4"):
        lower(Source(SPLIT.text, "case.mlir"), "sm_90a", CompileOptions(tuned=False, split_reduction="4"), None)


@pytest.mark.parametrize(("rejects", "stages"), [(1, -1), (2, -1), (1, 1)])
def test_kernels_that_a_user_wrote_are_lowered_without_a_pipeline(rejects: int, stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no candidates. Only where nobody asked for a number of stages, and once."""
    real, seen = registry.backend("gfx942"), list[str]()

    class FussyAmd(AmdBackend):
        """Rejects the code of its first kernels."""

        def assemble(self, emitted: EmittedKernel) -> CompiledKernel:
            """Reject, or make code."""
            seen.append(emitted.llvm_text)
            if len(seen) <= rejects:
                raise KernelRejected(emitted.symbol, "registers do not hold the tile (999 registers)")
            return super().assemble(emitted)

    monkeypatch.setattr(registry, "backend", lambda target: FussyAmd(real.spec))  # pyright: ignore[reportUnknownLambdaType]
    text, options = Path("examples/tile_matmul.mlir").read_text(encoding="utf-8"), CompileOptions(pipeline_stages=stages)
    if rejects == 2 or stages == 1:
        with pytest.raises(TreadleError, match=r"TR561.*999 registers"):
            lower(Source(text, "kernel.mlir"), "gfx942", options, None)
    else:
        found = lower(Source(text, "kernel.mlir"), "gfx942", options, None)
        assert [r.text for r in found.remarks if r.pass_name == NAME] == [
            "pipelined it is rejected: registers do not hold the tile (999 registers); no loop is pipelined"
        ]
    assert len(seen) == len(set(seen)) == (1 if stages == 1 else 2)
