"""Role kernels whose tiles are an odd multiple of half a swizzle's row wide, of operands that lie along n: chosen where there are many
steps, and right in clusters that share rows too.
"""

import random

import pytest
from transforms.form_programs import assert_right, lowered, workload

from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.role_tiles import STEPS_OF_HALF_ROWS, OperandRows, width_step

SPEC = target_spec("sm_90a")
ROW = SPEC.instruction("wgmma_m64k16_f32_f16_f16")


def test_there_are_halves_of_rows_where_there_are_many_steps() -> None:
    along_n, whole, many = OperandRows(False), 64, 64 * STEPS_OF_HALF_ROWS
    assert width_step(along_n, many, ROW, 2, SPEC) == whole // 2
    assert width_step(along_n, many - 1, ROW, 2, SPEC) == whole
    assert width_step(along_n, None, ROW, 2, SPEC) == whole
    assert width_step(OperandRows(True), many, ROW, 2, SPEC) == ROW.n_step


def width(said: str) -> int:
    """Columns of the tile that was decided on."""
    return int(said.split("tile ")[1].split(",", maxsplit=1)[0].split("x")[1])


def test_they_are_chosen_for_some_random_products() -> None:
    """Of a side that three tiles of such a width cover, beside one that gives each unit one of them."""
    draw, found = random.Random(5), set[int]()
    for _ in range(12):
        columns = 3 * 32 * (2 * draw.randint(1, 3) + 1)
        work = workload(128 * draw.randint(38, 44), columns, 64 * draw.randint(30, 60), kn=True)
        _, said = lowered(work.text, "sm_90a", CompileOptions(form="roles", split_reduction="off"))
        found.add(width(said) % 64)
    assert found == {0, 32}


@pytest.mark.parametrize(("columns", "cluster", "group_m"), [(96, 1, 1), (160, 2, 2), (224, 2, 1), (32, 4, 1)])
def test_they_are_right(columns: int, cluster: int, group_m: int) -> None:
    work = workload(520, 3 * columns - 8, 1096, kn=True)
    asked = CompileOptions(
        form="roles",
        tile=(64, columns, 64),
        warps=(4, 1),
        num_stages=3,
        consumer_warpgroups=2,
        cluster=cluster,
        group_m=group_m,
        split_reduction="off",
    )
    module, said = lowered(work.text, "sm_90a", asked)
    assert width(said) == columns
    assert_right(work, module, 1)
