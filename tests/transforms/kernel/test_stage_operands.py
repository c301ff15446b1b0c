"""stage-operands on text."""

import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find, lowered, skeleton
from language.attention_problems import Problem

from treadle.dialects import tile
from treadle.dialects.tile_attributes import is_shared
from treadle.ir.builtin import StringAttr
from treadle.ir.dialects import scf
from treadle.machine import target_spec
from treadle.transforms.kernel.set_access_widths import SetAccessWidthsPass
from treadle.transforms.kernel.set_instruction import SetInstructionPass
from treadle.transforms.kernel.set_operand_staging import SetOperandStagingPass
from treadle.transforms.kernel.stage_operands import StageOperandsPass

OPS = ("tile.alloc", "tile.load", "tile.copy", "tile.local", "tile.contract")


def shape(text: str) -> list[str]:
    return skeleton(lowered(text, StageOperandsPass), *OPS)


def test_bulk_copies_feed_a_contraction_of_buffers() -> None:
    module = lowered(kernel_texts.matmul(512, 512, 512), StageOperandsPass)
    assert skeleton(module, *OPS) == ["tile.alloc", "tile.alloc", "for", "tile.copy", "tile.copy", "tile.contract", "end"]
    (contract,) = find(module, tile.ContractOp)
    assert is_shared(contract.a.type) and is_shared(contract.b.type) and "staging" not in contract.attributes


def test_a_ragged_operand_is_stored_by_the_threads() -> None:
    expected = ["tile.alloc", "tile.alloc", "for", "tile.load", "tile.copy", "tile.local_store", "tile.contract", "end"]
    assert shape(kernel_texts.matmul(123, 456, 51234)) == expected


def test_register_instructions_read_fragments_step_by_step() -> None:
    """Two instructions a step: lanes hold neighbours along k for both."""
    text = kernel_texts.matmul(512, 512, 512, target="gfx942", instruction="mfma_16x16x16_f32_f16", tile=(128, 128, 64), warps=(2, 2))
    module = lowered(text, StageOperandsPass)
    step = ["tile.local_load", "tile.local_load", "tile.contract"]
    loads, stores = ["tile.load"] * 2, ["tile.local_store"] * 2
    assert skeleton(module, *OPS) == ["tile.alloc", "tile.alloc", "for", *loads, *stores, *step, *step, "end"]
    first, second = find(module, tile.ContractOp)
    assert second.accumulator is first.result
    assert [tile.ints(op.offsets) for op in find(module, tile.LocalLoadOp)] == [(0, 0), (0, 0), (0, 32), (32, 0)]


def test_a_contraction_outside_loops() -> None:
    text = kernel_texts.matmul(128, 128, 64)
    start, end = text.index("  %acc = scf.for"), text.index("  tile.store")
    body = text[start:end].split("\n")[1:4]
    flat = "\n".join(body).replace("%old", "%init").replace("%i,", "%zero,").replace("%i]", "%zero]").replace("%new", "%acc")
    module = lowered(text[:start] + flat + "\n" + text[end:], StageOperandsPass)
    assert skeleton(module, *OPS) == ["tile.alloc", "tile.copy", "tile.alloc", "tile.copy", "tile.contract"]


def test_contractions_without_a_decision_are_left_alone() -> None:
    module = lowered(kernel_texts.matmul(512, 512, 512), SetAccessWidthsPass)
    before = str(module)
    for kernel in find(module, tile.KernelOp):
        StageOperandsPass().run(kernel, target_spec("sm_90a"))
    assert str(module) == before


@pytest.mark.parametrize(("width", "ahead"), [(64, 2), (1024, 0)])
def test_what_no_iteration_changes_is_read_ahead_of_the_loop(width: int, ahead: int) -> None:
    """The queries of an attention, where registers hold their fragments: 8 for each thread of eight warps of D = 64, too many of 1024."""
    module = Problem(1, 1, 1, 128, 128, width).module(128, 32, 8, 1)
    for kernel in find(module, tile.KernelOp):
        kernel.target = StringAttr("gfx950")
        for one in (SetInstructionPass, SetAccessWidthsPass, SetOperandStagingPass, StageOperandsPass):
            one().run(kernel, target_spec("gfx950"))
    (loop,) = find(module, scf.ForOp)
    outside = [op for op in find(module, tile.LocalLoadOp) if op.parent is loop.parent]
    assert len(outside) == ahead
    assert sum(op.parent is loop.parent for op in find(module, tile.LocalStoreOp)) == bool(ahead)
