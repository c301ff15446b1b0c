"""The form swapped: what it refuses, what it chooses, and that what it builds computes the right values."""

from typing import Any

import pytest
from transforms.form_programs import assert_right, kernel_of, lowered, problem_of, workload

from treadle.bench.families import epilogue, gated
from treadle.dialects import tile
from treadle.options import CompileOptions, ContractionOverrides
from treadle.transforms.kernel.forms import swapped

SWAPPED = [(16, 96, 200), (17, 64, 72), (33, 80, 128), (3, 1000, 64), (64, 128, 136), (9, 72, 8)]


@pytest.mark.parametrize(("m", "n", "k"), SWAPPED)
def test_swapped(m: int, n: int, k: int) -> None:
    work = workload(m, n, k)
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="swapped"))
    assert "swapped" in said
    assert any(op.name == "pipe.roles" for op in module.walk())
    assert_right(work, module)


@pytest.mark.parametrize(("step", "tiles"), [(8, 12), (24, 4), (48, 2), (64, 2)])
def test_tiles_of_fewer_rows_than_the_instruction_has(step: int, tiles: int) -> None:
    work = workload(16, 96, 128)
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="swapped", tile=(0, step, 0)))
    assert f"{step} rows a tile, {tiles} tiles" in said
    assert kernel_of(module).grid_text()[0] == str(tiles)
    assert_right(work, module, 1)


def test_neighbouring_tiles_fetch_the_small_operand_together() -> None:
    work = workload(16, 96, 136)
    module, _ = lowered(work.text, "sm_90a", CompileOptions(form="swapped", tile=(0, 24, 0), cluster=2))
    assert "cluster" in kernel_of(module).properties
    assert_right(work, module)
    odd, _ = lowered(work.text, "sm_90a", CompileOptions(form="swapped", tile=(0, 32, 0), cluster=2))
    assert "cluster" not in kernel_of(odd).properties


def test_few_columns_are_narrow_tiles() -> None:
    work = workload(96, 16, 128)
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="swapped"))
    assert "narrow tiles" in said
    assert_right(work, module, 1)


def test_epilogues() -> None:
    work = epilogue("test", "test", "linear_bias_gelu", 16, 96, 72, "f16")
    module, _ = lowered(work.text, "sm_90a", CompileOptions(form="swapped"))
    assert_right(work, module, 1)


def test_contractions_that_share_the_small_operand() -> None:
    work = gated("test", "test", 16, 96, 136, "f16", outputs=3)
    module, said = lowered(work.text, "sm_90a", CompileOptions(form="swapped"))
    assert "swapped" in said
    assert len([op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]) == 1
    assert_right(work, module, 1)


@pytest.mark.parametrize(
    ("m", "n", "k", "target", "asked", "why"),
    [
        (65, 4096, 4096, "sm_90a", {}, "neither side is known to have at most 64"),
        (16, 4096, 4097, "sm_90a", {}, "a pitch of 4097 elements"),
        (16, 4096, 4096, "gfx942", {}, "the machine has no bulk copies"),
        (16, 4096, 4096, "sm_90a", {"roles": False}, "roles are turned off"),
        (16, 4096, 4096, "sm_90a", {"tile": (64, 64, 64)}, "a tile is asked for"),
        (16, 4096, 4096, "sm_90a", {"form": "swapped", "tile": (0, 48, 0)}, None),
        (64, 4096, 4096, "sm_90a", {}, None),
    ],
)
def test_refusals(m: int, n: int, k: int, target: str, asked: dict[str, Any], why: str | None) -> None:
    said = swapped.refusal(problem_of(workload(m, n, k).text, target, overrides=ContractionOverrides(**asked)))
    assert said is None if why is None else said is not None and why in said


@pytest.mark.parametrize("target", ["sm_90a"])
@pytest.mark.parametrize("m", [9, 16, 48])
def test_more_to_read_takes_no_less_time(m: int, target: str) -> None:
    sizes = [(n, k) for n in (520, 4104, 9000) for k in (1032, 4096, 14336)]
    times = {(n, k): swapped.decide(problem_of(workload(m, n, k).text, target))[0].seconds for n, k in sizes}
    for (n, k), seconds in times.items():
        assert all(seconds <= other for size, other in times.items() if size[0] >= n and size[1] >= k)
