"""Role kernels whose tiles are an odd multiple of 8 wide: chosen where they cover a result closely, and right whoever stores what and how
parts of sums are merged.
"""

import random
from dataclasses import replace

import pytest
from transforms.form_programs import assert_right, kernel_of, lowered, workload

from treadle.bench.families import epilogue
from treadle.bench.workload import Workload
from treadle.dialects import tile
from treadle.options import CompileOptions, Form

WIDTHS = (40, 88, 120, 168)


def drawn(form: Form, seed: int) -> tuple[Workload, int]:
    """A product that such tiles cover closely, of about as many tiles as there are units: what it is, and its extent along n."""
    draw = random.Random(seed)
    columns, rows, k = 8 * (2 * draw.randint(4, 10) + 1), 8 * draw.randint(1060, 1300), 8 * draw.randint(8, 12)
    return workload(*((rows, columns) if form == "roles" else (columns, rows)), k), columns


@pytest.mark.parametrize("form", ["roles", "exchanged"])
def test_they_are_chosen_for_random_products(form: Form) -> None:
    chosen: list[int] = []
    for seed in range(12):
        work, columns = drawn(form, seed)
        module, said = lowered(work.text, "sm_90a", CompileOptions(form=form, split_reduction="off"))
        width = int(said.split("tile ")[1].split(",")[0].split("x")[1])
        if width % 16 == 0:
            continue
        assert -(-columns // width) < -(-columns // (width - 8)), "no narrower one covers the result in as many tiles"
        assert any(isinstance(op, tile.CopyOutOp) for op in module.walk()) == (form == "roles")
        chosen.append(width)
        if len(chosen) == 1:
            assert_right(work, module, 1)
    assert len(chosen) >= 4 and len(set(chosen)) > 2


@pytest.mark.parametrize("merge", ["last", "cluster", "turnstile", "kernel"])
@pytest.mark.parametrize(("form", "width"), [("roles", 88), ("roles", 168), ("exchanged", 40), ("exchanged", 120)])
def test_parts_of_sums(form: Form, width: int, merge: str) -> None:
    work = workload(*((136, 2 * width - 8) if form == "roles" else (2 * width - 8, 136)), 328)
    at = "{indexing_maps = [affine_map<(m, n, k)"
    asked = f'{{treadle.split_reduction = #dispatch.split<r0 = "3" step 64, merge = {merge}>, {at[1:]}'
    whole = work.write

    def write(rows: int, columns: int) -> str:
        return whole(rows, columns).replace(at, asked, 1)

    work = replace(work, write=write)
    options = CompileOptions(form=form, tile=(64, width, 64), warps=(4, 1), num_stages=3, consumer_warpgroups=2)
    module, said = lowered(work.text, "sm_90a", options)
    assert f"tile 64x{width}x64" in said
    assert ("merge" in said or "add its parts in turn" in said) == (merge != "kernel")
    assert_right(work, module)


@pytest.mark.parametrize("form", ["roles", "exchanged"])
@pytest.mark.parametrize("width", WIDTHS)
def test_epilogues(form: Form, width: int) -> None:
    m, n = (136, 2 * width - 8) if form == "roles" else (2 * width - 8, 136)
    work = epilogue("test", "test", "linear_bias_gelu", m, n, 72, "f16")
    options = CompileOptions(form=form, tile=(64, width, 64), warps=(4, 1), num_stages=3, consumer_warpgroups=2)
    module, _ = lowered(work.text, "sm_90a", options)
    assert_right(work, module, 1)


def test_rows_of_an_odd_number_of_bytes_are_stored_by_the_threads() -> None:
    work = workload(136, 165, 72)
    options = CompileOptions(form="roles", tile=(64, 88, 64), warps=(4, 1), num_stages=3, consumer_warpgroups=2)
    module, _ = lowered(work.text, "sm_90a", options)
    assert any(isinstance(op, tile.StoreOp) for op in kernel_of(module).walk())
    assert_right(work, module)
