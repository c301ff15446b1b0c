"""set-operand-staging on text."""

from typing import Any

import pytest
from generators import tile_kernel_texts as kernel_texts
from generators.tile_pipeline import find, lowered

from treadle.dialects import tile
from treadle.dialects.tile_attributes import SharedLayoutAttr
from treadle.ir.dialects import builtin
from treadle.layout.shared_layout import SharedLayout, swizzled
from treadle.machine import target_spec
from treadle.remarks import collect_remarks
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.transforms.kernel.operand_layouts import staging_of
from treadle.transforms.kernel.set_operand_staging import SetOperandStagingPass


def staging(text: str) -> list[tuple[str, SharedLayout]]:
    (contract,) = find(lowered(text, SetOperandStagingPass), tile.ContractOp)
    found = contract.attributes["staging"]
    assert isinstance(found, builtin.DictionaryAttr)
    result: list[tuple[str, SharedLayout]] = []
    for name in ("a", "b"):
        entry = found.data[name]
        assert isinstance(entry, builtin.DictionaryAttr)
        path, layout = entry.data["path"], entry.data["layout"]
        assert isinstance(path, builtin.StringAttr) and isinstance(layout, SharedLayoutAttr)
        result.append((path.data, layout.data))
    return result


def test_aligned_operands_are_copied_in_bulk_in_their_own_order() -> None:
    assert staging(kernel_texts.matmul(512, 512, 512)) == [
        ("bulk_tensor", swizzled((128, 64), (1, 0), 2, 128)),
        ("bulk_tensor", swizzled((64, 128), (1, 0), 2, 128)),
    ]
    assert staging(kernel_texts.matmul(512, 512, 512, b_transposed=True, a_transposed=True)) == [
        ("bulk_tensor", swizzled((128, 64), (0, 1), 2, 128)),
        ("bulk_tensor", swizzled((64, 128), (0, 1), 2, 128)),
    ]


def test_ragged_pitch_goes_through_the_threads_and_says_why() -> None:
    with collect_remarks() as log:
        (a, _), (b, _) = staging(kernel_texts.matmul(123, 456, 51234))
    assert (a, b) == ("threads", "bulk_tensor")
    refusals = [r.text for r in log.remarks if r.kind == "refusal" and r.pass_name == "set-operand-staging"]
    assert len(refusals) == 1 and "pitch 102468 bytes is not a multiple of 16" in refusals[0]


def test_instructions_that_read_along_k_only_get_k_major_buffers() -> None:
    text = kernel_texts.matmul(512, 512, 512, element="f32", tile=(128, 128, 32), instruction="wgmma_m64k8_f32_tf32_tf32")
    (a, a_layout), (b, b_layout) = staging(text)
    assert (a, b) == ("bulk_tensor", "threads")
    assert a_layout == swizzled((128, 32), (1, 0), 4, 128)
    assert b_layout == swizzled((32, 128), (0, 1), 4, 128)


def test_computed_operands_go_through_the_threads() -> None:
    text = kernel_texts.matmul(512, 512, 512)
    text = text.replace("%new = tile.contract %ta,", "%sq = arith.mulf %ta, %ta : tensor<128x64xf16>\n    %new = tile.contract %sq,")
    with collect_remarks() as log:
        (a, _), (b, _) = staging(text)
    assert (a, b) == ("threads", "bulk_tensor")
    assert any("computed" in r.text for r in log.remarks)


def test_other_fill_values_go_through_the_threads() -> None:
    text = kernel_texts.matmul(512, 512, 512).replace("vector 1 : i64 :", "vector 1 : i64 other 1.000000e+00 : f16 :", 1)
    assert [path for path, _ in staging(text)] == ["threads", "bulk_tensor"]


@pytest.mark.parametrize(("target", "instruction"), [("gfx942", "mfma_16x16x16_f32_f16"), ("gfx1201", "wmma12_16x16x16_f32_f16")])
def test_machines_without_descriptor_copies_use_the_threads(target: str, instruction: str) -> None:
    text = kernel_texts.matmul(512, 512, 512, target=target, instruction=instruction, tile=(64, 64, 32), warps=(2, 2))
    with collect_remarks() as log:
        assert [path for path, _ in staging(text)] == ["threads", "threads"]
    assert not [r for r in log.remarks if r.kind == "refusal"]


@pytest.mark.parametrize(
    ("target", "instruction", "changes", "path", "why"),
    [
        ("gfx950", "mfma_16x16x32_f32_f16", {}, "direct", ""),
        ("gfx942", "mfma_16x16x16_f32_f16", {}, "threads", "copies move 4 bytes at once, loads 16"),
        ("gfx942", "mfma_16x16x16_f32_f16", {"k": 506}, "direct", ""),  # rows begin at multiples of 4 bytes
        ("gfx950", "mfma_16x16x32_f32_f16", {"k": 508}, "threads", "copies move 4 bytes at once, loads 8"),
        ("gfx950", "mfma_16x16x32_f32_f16", {"k": 511}, "threads", "2 bytes at once are fewer than the 4 of a lane"),
        ("gfx950", "mfma_16x16x32_f32_f16", {"b_transposed": False}, "threads", "its fragments would be read in narrower pieces"),
        ("gfx950", "mfma_16x16x32_f32_f16", {"tile": (96, 64, 32)}, "threads", "4 warps cannot fill the tile in order"),
        ("gfx950", "mfma_16x16x32_f32_f16", {"bias": True}, "direct", ""),
    ],
)
def test_lanes_that_fill_in_order_bring_what_they_can(target: str, instruction: str, changes: dict[str, Any], path: str, why: str) -> None:
    how: dict[str, Any] = {"k": 512, "tile": (64, 64, 64), "b_transposed": True, **changes}
    k = how.pop("k")
    with collect_remarks() as log:
        found = staging(kernel_texts.matmul(512, 512, k, target=target, instruction=instruction, warps=(2, 2), **how))
    assert [one for one, _ in found] == [path, path]
    notes = [r.text for r in log.remarks if r.pass_name == "set-operand-staging" and r.kind == "note"]
    assert [why in text for text in notes] == ([True] if why else [])


def test_a_path_that_is_asked_for_is_taken() -> None:
    text = kernel_texts.matmul(
        512, 512, 512, target="gfx942", instruction="mfma_16x16x16_f32_f16", tile=(64, 64, 32), warps=(2, 2), b_transposed=True
    )
    module = lowered(text, SetOperandStagingPass)
    (contract,) = find(module, tile.ContractOp)
    for asked, given in (("direct", "direct"), ("threads", "threads")):
        path = builtin.DictionaryAttr({"path": builtin.StringAttr(asked)})
        contract.attributes["staging"] = builtin.DictionaryAttr({"a": path, "b": path})
        for kernel in find(module, tile.KernelOp):
            SetOperandStagingPass().run(kernel, target_spec("gfx942"))
        assert [staging_of(contract, name)[0] for name in "ab"] == [given, given]


def test_kernels_without_contractions_and_staged_ones_are_left_alone() -> None:
    text = kernel_texts.transpose(100, 100, (32, 32))
    assert "staging" not in str(lowered(text, SetOperandStagingPass))
    done = lowered(kernel_texts.matmul(512, 512, 512), InsertSyncPass)
    before = str(done)
    for kernel in find(done, tile.KernelOp):
        SetOperandStagingPass().run(kernel, target_spec("sm_90a"))
    assert str(done) == before
