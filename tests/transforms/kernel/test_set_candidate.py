"""set-candidate, and what the deciders make of it."""

import pytest
from generators.contractions import ContractionCase

from treadle.dialects import tile
from treadle.frontends import mlir
from treadle.ir.passes import parse_passes
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.tools.pass_runner import all_passes
from treadle.transforms.kernel.set_candidate import SetCandidatePass


def configs(case: ContractionCase, count: int, options: CompileOptions | None = None) -> list[str]:
    """The config of the kernel of a case with candidate 0, 1, .."""
    found: list[str] = []
    for number in range(count):
        module = mlir.load(case.text, "case.mlir")
        candidates = {f"{case.name}_k0": number} if number else {}
        lower(module, target_spec(case.target), options or CompileOptions(), until="tile", candidates=candidates)
        found.append(next(str(op.config) for op in module.body.block.ops if isinstance(op, tile.KernelOp)))
    return found


def test_it_is_a_pass_of_its_own() -> None:
    assert parse_passes("set-candidate{kernel=f_k0, candidate=2}", all_passes()) == (SetCandidatePass("f_k0", 2),)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize(("m", "n", "k"), [(2048, 4096, 4096), (333, 77, 50)])
def test_each_candidate_is_another_until_the_last(target: str, m: int, n: int, k: int) -> None:
    found = configs(ContractionCase(m, n, k, "f16", "nt", "f16", target=target), 12)
    different = list(dict.fromkeys(found))
    assert len(different) > 1
    assert found == different + [different[-1]] * (len(found) - len(different))


def test_candidates_go_form_by_form() -> None:
    found = configs(ContractionCase(4, 4096, 4096, "f16", "nt", "f16"), 9)
    forms = [config[: config.index(",")] for config in dict.fromkeys(found)]
    assert len(set(forms)) >= 3 and forms[-1] == "#tile.form<tiles"
    assert sorted(forms, key=forms.index) == forms, "a form that was left is not taken up again"


def test_a_tile_that_is_asked_for_stays() -> None:
    found = configs(ContractionCase(333, 256, 512, "f16"), 3, CompileOptions(tile=(64, 64, 64), roles=False))
    assert all("tile = [64, 64, 64]" in config for config in found)


def test_other_kernels_are_left_alone() -> None:
    case = ContractionCase(333, 256, 512, "f16")
    module = mlir.load(case.text, "case.mlir")
    lower(module, target_spec("sm_90a"), CompileOptions(), until="tile", candidates={"another": 3})
    assert [str(op.config) for op in module.body.block.ops if isinstance(op, tile.KernelOp)] == configs(case, 1)


def test_a_small_contraction_without_a_step_to_stream_has_tiles() -> None:
    (config,) = configs(ContractionCase(8, 64, 10, "f8E4M3FNUZ", "tn", "f32", target="gfx1100"), 1)
    assert "streaming" not in config
