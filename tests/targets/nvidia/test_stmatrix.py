"""stmatrix is derived from layouts: every element goes where the buffer has it, as many matrices at once as there can be."""

import pytest
from targets.nvidia.reading import check_words
from targets.result_programs import matrix_loads, matrix_stores
from targets.schedule_vocabulary import accumulator

from treadle.layout.shared_layout import SharedLayout, row_major, swizzled
from treadle.layout.slicing import slice_layout
from treadle.layout.tile_layout import TileLayout
from treadle.targets.nvidia.stmatrix import StmatrixPlan, stmatrix_plan
from treadle.targets.registry import backend


def check_elements(tile_layout: TileLayout, shared: SharedLayout, plan: StmatrixPlan) -> None:
    """The instruction as the manual has it, against the layouts: every element once, where the buffer keeps it."""
    seen: set[tuple[int, ...]] = set()
    for warp in range(tile_layout.num_warps):
        for store in plan.stores:
            addresses: list[int] = []
            for lane in range(32):
                xor = add = 0
                for bits, adds, number in ((plan.lane_bits, plan.lane_adds, lane), (plan.warp_bits, plan.warp_adds, warp)):
                    for bit in range(len(bits)):
                        if number >> bit & 1:
                            xor ^= bits[bit]
                            add += adds[bit]
                addresses.append((xor ^ store.constant_xor) + add + store.constant_add)
            for matrix, pair in enumerate(store.pairs):
                for lane in range(32):
                    for half, register in enumerate(pair):
                        row, column = lane // 4, 2 * (lane % 4) + half
                        if plan.is_transposed:
                            row, column = column, row
                        at = tile_layout.coordinates(register, lane, warp)
                        assert shared.offset_of(at) == addresses[8 * matrix + row] + column, (at, register, lane, warp)
                        seen.add(at)
    assert len(seen) == shared.size


@pytest.mark.parametrize(
    ("shape", "order", "grid", "row_bytes"),
    [
        ((64, 64), (1, 0), (1, 1), 128),
        ((64, 256), (1, 0), (1, 1), 128),
        ((128, 96), (1, 0), (2, 1), 64),
        ((64, 128), (1, 0), (1, 2), 128),
        ((64, 8), (1, 0), (1, 1), 0),
        ((192, 48), (1, 0), (1, 1), 32),
        ((64, 64), (0, 1), (1, 1), 128),
        ((128, 96), (0, 1), (2, 1), 128),
    ],
)
def test_stmatrix_puts_every_element_where_the_buffer_has_it(
    shape: tuple[int, int], order: tuple[int, int], grid: tuple[int, int], row_bytes: int
) -> None:
    shared = swizzled(shape, order, 2, row_bytes) if row_bytes else row_major(shape, order)
    layout = accumulator(shape, grid)
    plan = stmatrix_plan(layout, shared, (0, 0))
    assert plan is not None and plan.is_transposed == (order == (0, 1))
    check_elements(layout, shared, plan)


@pytest.mark.parametrize("columns", [40, 88, 120, 168, 176, 248])
def test_stmatrix_stores_as_many_matrices_as_the_columns_of_a_box_have(columns: int) -> None:
    whole = accumulator((64, columns))
    for width, count in ((64, 4), (32, 4), (16, 4), (8, 2)):
        if width > columns or columns % width % 8:
            continue
        layout = slice_layout(whole, (64, width))
        shared = swizzled((64, width), (1, 0), 2, 2 * width) if width > 8 else row_major((64, width), (1, 0))
        plan = stmatrix_plan(layout, shared, (0, 0))
        assert plan is not None and plan.count == count
        check_elements(layout, shared, plan)


def test_stmatrix_is_refused_where_rows_are_not_sixteen_bytes() -> None:
    layout = accumulator((64, 64))
    swapped = TileLayout((layout.register[1], layout.register[0], *layout.register[2:]), layout.lane, layout.warp, layout.repeat)
    assert stmatrix_plan(swapped, swizzled((64, 64), (1, 0), 2, 128), (0, 0)) is None
    assert stmatrix_plan(layout.permute((1, 0)), swizzled((64, 64), (1, 0), 2, 128), (0, 0)) is not None  # the transposed form
    replicated = TileLayout(layout.register, layout.lane, (*layout.warp, (0, 0)), layout.repeat)
    assert stmatrix_plan(replicated, swizzled((64, 64), (1, 0), 2, 128), (0, 0)) is None


def test_matrix_stores_compile() -> None:
    target = backend("sm_90a")
    for kernel in (
        matrix_stores((64, 128), (1, 0)),
        matrix_stores((64, 64), (0, 1)),
        matrix_stores((128, 96), (1, 0), warps=(2, 1), row_bytes=64),
    ):
        facts = target.assemble(target.emit(kernel)).facts
        assert facts.instructions["STSM"] >= 3 and "STS" not in facts.instructions


def test_matrix_loads_compile() -> None:
    """Four 8 x 8 matrices an instruction, rows or columns; no plain loads beside them."""
    target = backend("sm_90a")
    for kernel, count, form in (
        (matrix_loads((64, 128), (1, 0)), 8, "x4.shared"),
        (matrix_loads((64, 64), (0, 1)), 4, "x4.trans.shared"),
        (matrix_loads((128, 96), (1, 0), warps=(2, 1), row_bytes=64), 6, "x4.shared"),
    ):
        emitted = target.emit(kernel)
        assert f"ldmatrix.sync.aligned.m8n8.{form}.b16" in emitted.llvm_text
        compiled = target.assemble(emitted)
        assert compiled.facts.instructions["LDSM"] == count and "LDS" not in compiled.facts.instructions
        assert check_words(compiled.binary, compiled.symbol)
