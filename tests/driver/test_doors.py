"""Kernels that users write: called by themselves, on every device, at the level that they are written at."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hazards.programs_amd import double_buffer
from hazards.programs_nvidia import tma_unpipelined

import treadle
from treadle import artifact_folder, driver
from treadle.driver.lowering import lower
from treadle.driver.sources import read_source
from treadle.errors import TreadleError
from treadle.frontends.levels import LEVELS, Level
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.plan.argument_layout import ArgumentLayout
from treadle.plan.expr import as_expr

EXAMPLES = Path(__file__).parents[2] / "examples"
SOFTMAX, MATMUL = EXAMPLES / "row_softmax.mlir", EXAMPLES / "tile_matmul.mlir"
LINEAR = EXAMPLES / "linear_bias_gelu.mlir"
TARGETS = ("sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "cache"))


def softmax(x: Any) -> Any:
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def code_of(call: Any) -> str:
    with pytest.raises(TreadleError) as caught:
        call()
    return caught.value.code


def test_a_kernel_of_random_sizes() -> None:
    program = treadle.compile(SOFTMAX, target="sim")
    for _ in range(12):
        x = RNG.standard_normal((int(RNG.integers(1, 20)), int(RNG.integers(1, 1025))), np.float32)
        np.testing.assert_allclose(program(x)[0], softmax(x), rtol=1e-6)
    assert code_of(lambda: program(np.ones((2, 1025), np.float32))) == "TR724"
    assert repr(program) == "<treadle.Program row_softmax(x: f32[rows, columns]) -> (f32[rows, columns]) for sim, kernels: row_softmax_k0>"


def test_a_contraction_of_random_sizes() -> None:
    program = treadle.compile(MATMUL, target="sim")
    for _ in range(6):
        m, n, k = (int(size) for size in RNG.integers(1, 150, 3))
        a, b = RNG.integers(-3, 4, (m, k)).astype(np.float16), RNG.integers(-3, 4, (k, n)).astype(np.float16)
        np.testing.assert_array_equal(program(a, b)[0], a.astype(np.float64) @ b)
    assert code_of(lambda: program(np.ones((4, 5), np.float16), np.ones((6, 4), np.float16))) == "TR723"
    a, b = RNG.integers(-3, 4, (8, 5)).astype(np.float16), RNG.integers(-3, 4, (8, 4)).astype(np.float16)
    np.testing.assert_array_equal(program(a.T, b)[0], a.T.astype(np.float64) @ b)  # the simulator copies


def test_a_kernel_has_no_variants_for_other_layouts() -> None:
    layouts = (ArgumentLayout((1, None), 1, 16), None)
    assert code_of(lambda: lower(read_source(MATMUL), "gfx942", CompileOptions(), None, layouts=layouts)) == "TR736"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("path", [SOFTMAX, MATMUL], ids=lambda path: path.stem)
def test_every_machine_gets_its_code(path: Path, target: str, tmp_path: Path) -> None:
    """Compiled, proven, explained, packed; one text for all of them."""
    program = treadle.compile(path, target=target)
    assert all(contents.startswith(b"\x7fELF") for contents in program.binaries.values())
    assert list(program.stages) == ["tile", "schedule", "llvm", "asm"]
    if path == MATMUL:
        chosen = [remark.text for remark in program.remarks if remark.pass_name == "set-instruction"]
        family = {"sm": "wgmma", "gfx9": "mfma", "gfx11": "wmma11", "gfx12": "wmma12"}
        assert any(target.startswith(start) and chosen[0].startswith(f"instruction {word}") for start, word in family.items()), chosen
    program.save(tmp_path / "artifact")
    manifest, files = artifact_folder.read(tmp_path / "artifact")
    assert manifest == program.manifest and files == dict(program.binaries)


def test_a_kernel_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    first = treadle.compile(SOFTMAX, target="gfx1100")

    def again(*_: object, **__: object) -> None:
        pytest.fail("compiled again")

    monkeypatch.setattr("treadle.driver.lowering.lower", again)
    assert treadle.compile(SOFTMAX, target="gfx1100").files == first.files


def test_a_module_in_memory() -> None:
    module = parse_module(SOFTMAX.read_text(encoding="utf-8"), "rows.mlir")
    x = RNG.standard_normal((3, 100), np.float32)
    program = treadle.compile(module, target="sim")
    np.testing.assert_allclose(program(x)[0], softmax(x), rtol=1e-6)
    assert "row_softmax_k0" not in str(module), "the caller's module stays as it is"


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_computes_the_same(level: Level) -> None:
    """The text of any level, compiled for the simulator; roles and barriers included."""
    texts = driver.trace(LINEAR, target="sm_90a", until="schedule").stages
    whole, part = treadle.compile(LINEAR, target="sim"), treadle.compile(texts[level], target="sim")
    arrays = [RNG.integers(-2, 3, [as_expr(n).evaluate({}) for n in t.shape]).astype(np.float32) for t in whole.manifest.inputs]
    given = [array.astype(ml_dtypes.bfloat16) for array in arrays]
    np.testing.assert_array_equal(whole(*given)[0], part(*given)[0])


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_gives_the_same_machine_code(level: Level) -> None:
    texts = driver.trace(LINEAR, target="gfx942", until="schedule").stages
    assert treadle.compile(texts[level], target="gfx942").stages["llvm"] == treadle.compile(LINEAR, target="gfx942").stages["llvm"]


# schedules that users write


def signed(text: str, steps: int) -> str:
    """A schedule of the hazards, A[64, k] B[k, 64] in one workgroup, with a signature."""
    k = 64 * steps
    return text.replace('sym_name = "k"', f'sym_name = "k", arg_shapes = [["64", "{k}"], ["{k}", "64"], ["64", "64"]]')


@pytest.mark.parametrize("steps", [1, 5])
def test_a_schedule_runs(steps: int) -> None:
    program = treadle.compile(signed(tma_unpipelined(steps), steps), target="sim")
    a, b = (RNG.integers(-2, 3, shape).astype(np.float16) for shape in ((64, 64 * steps), (64 * steps, 64)))
    np.testing.assert_array_equal(program(a, b)[0], a.astype(np.float64) @ b)


@pytest.mark.parametrize("target", ["sim", "sm_90a", "gfx942"])
def test_a_schedule_is_proven_before_there_is_code(target: str) -> None:
    """Also on the simulator, which runs one thing after the other and would not see the race. `verify` is the user's to leave out."""
    machine = "sm_90a" if target == "sim" else target
    right = driver.trace(LINEAR, target=machine, options=CompileOptions(roles=False), until="schedule").stages["schedule"]
    assert treadle.compile(right, target=target).manifest.kernels
    faulty = right.replace("      sync.barrier\n", "", 1)
    assert faulty != right
    for options in (CompileOptions(), CompileOptions(allow_unproven=True)):
        assert code_of(lambda options=options: treadle.compile(faulty, target=target, options=options)) == "TR411"
    assert treadle.compile(faulty, target=target, options=CompileOptions(verify=False)).manifest.kernels


def test_what_is_not_proven_is_said() -> None:
    text = double_buffer(3).replace("arith.constant 2 : index", "arith.constant 3 : index")
    text = text.replace('sym_name = "k"', 'sym_name = "k", arg_shapes = [["4096", "64"], ["4096", "64"]]')
    assert code_of(lambda: treadle.compile(text, target="sim")) == "TR415"
    program = treadle.compile(text, target="sim", options=CompileOptions(allow_unproven=True))
    assert any(remark.text.startswith("not proven: ") for remark in program.remarks)


def test_a_reference_needs_tensors() -> None:
    program = treadle.compile(SOFTMAX, target="sim")
    assert code_of(lambda: program.reference(np.ones((2, 3), np.float32))) == "TR323"


def test_stages_before_the_program_do_not_exist() -> None:
    assert code_of(lambda: driver.trace(SOFTMAX, target="sm_90a", until="dispatch")) == "TR808"


def edited(path: Path, old: str, new: str) -> str:
    text = path.read_text(encoding="utf-8")
    assert old in text, old
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "target", "code"),
    [
        (edited(MATMUL, '%acc ""', '%acc "mfma_16x16x16_f32_f16"'), "sm_90a", "TR416"),
        (edited(MATMUL, '%acc ""', '%acc "wgmma_m64k16_f32_bf16_bf16"'), "sm_90a", "TR416"),
        (edited(MATMUL, "num_warps = 4", "num_warps = 64"), "gfx942", "TR107"),
        (edited(MATMUL, "num_warps = 4", 'num_warps = 4, target = "gfx942"'), "sm_90a", "TR504"),
        (edited(SOFTMAX, "num_warps = 4", "num_warps = 3"), "sm_90a", "TR310"),
        (edited(SOFTMAX, "axis = 0", "axis = 1"), "sm_90a", "TR201"),
    ],
)
def test_what_no_machine_does(text: str, target: str, code: str) -> None:
    assert code_of(lambda: treadle.compile(text, target=target)) == code


def test_a_broken_promise_is_the_kernels_fault() -> None:
    text = edited(SOFTMAX, "align 16 : i64 sizes", "align 256 : i64 sizes").replace("vector 1 : i64 other", "vector 4 : i64 other")
    program = treadle.compile(text, target="sim")
    assert code_of(lambda: program(np.ones((3, 101), np.float32))) == "TR324"


def test_the_key_of_the_cache_tells_levels_apart() -> None:
    text = SOFTMAX.read_text(encoding="utf-8")
    keys = {driver.cache_key(read_source(text, level), "sim", CompileOptions(), None) for level in (None, "tile", "schedule")}
    assert len(keys) == 3
