"""hoist-loads: which loads leave a loop, and which stay."""

from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find

from treadle.dialects import tile
from treadle.ir.core import BlockArgument
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.transforms.kernel.hoist_loads import HoistLoadsPass

INSTRUCTION = "mfma_16x16x16_f32_f16"
TEXT = kernel_texts.matmul(130, 136, 520, target="gfx942", instruction=INSTRUCTION, tile=(64, 64, 32), warps=(2, 2), out="f16")
MOVING, STILL = "tile.load %vb[%i, %n0]", "tile.load %vb[%zero, %n0]"


def hoisted(text: str) -> tuple[list[str], list[str]]:
    """The views of the loads that stand ahead of the loop; in it."""
    module = parse_module(text, "test")
    run_passes(module, [HoistLoadsPass()])
    (loop,) = find(module, scf.ForOp)
    inside = find(loop, tile.LoadOp)
    order = list(loop.parent.ops) if loop.parent is not None else []
    ahead = [op for op in order[: order.index(loop)] if isinstance(op, tile.LoadOp)]
    return [_pointer(op) for op in ahead], [_pointer(op) for op in inside]


def _pointer(op: tile.LoadOp) -> str:
    view = op.view.owner
    assert isinstance(view, tile.ViewOp) and isinstance(view.pointer, BlockArgument)
    return "abc"[view.pointer.index]


def test_a_load_at_the_same_place_in_every_trip_leaves_the_loop() -> None:
    assert hoisted(TEXT.replace(MOVING, STILL)) == (["b"], ["a"])


def test_loads_at_places_that_move_stay() -> None:
    assert hoisted(TEXT) == ([], ["a", "b"])


def test_a_place_that_is_computed_in_the_loop_stays() -> None:
    inner = "%same = arith.addi %zero, %zero : index\n    %tb = tile.load %vb[%same, %n0]"
    assert hoisted(TEXT.replace("%tb = " + MOVING, inner)) == ([], ["a", "b"])


def test_memory_that_the_kernel_writes_is_loaded_again() -> None:
    b_type, c_type = kernel_texts.memref("f16", (520, 136), (136, 1)), kernel_texts.memref("f16", (130, 136), (136, 1))
    assert b_type in TEXT
    text = TEXT.replace(MOVING, "tile.load %vc[%zero, %n0]").replace(f": {b_type} -> tensor<32x64xf16>", f": {c_type} -> tensor<32x64xf16>")
    assert hoisted(text) == ([], ["a", "c"])


def test_loops_that_synchronise_are_left_alone() -> None:
    text = TEXT.replace(MOVING, STILL).replace("    %ta = tile.load", "    sync.barrier\n    %ta = tile.load")
    assert hoisted(text) == ([], ["a", "b"])


def test_loops_that_contract_nothing_are_left_alone() -> None:
    lines = [
        line for line in TEXT.replace(MOVING, STILL).replace("scf.yield %new", "scf.yield %old").splitlines() if "contract" not in line
    ]
    assert hoisted("\n".join(lines)) == ([], ["a", "b"])


def test_a_module_without_kernels_is_left_alone() -> None:
    module = builtin.ModuleOp([])
    run_passes(module, [HoistLoadsPass()])
    assert not list(module.body.block.ops)
