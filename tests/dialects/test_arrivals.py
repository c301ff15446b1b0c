"""Arrivals of workgroups: their text, and what is refused."""

import pytest
from generators.arrivals import IN_CLUSTERS, product_kernel, scheduled, split_sum

from treadle.dialects import tile
from treadle.errors import TreadleError
from treadle.ir.text import parse_module


def test_text_of_both_levels() -> None:
    module = parse_module(split_sum(), "arrivals.mlir")
    assert str(parse_module(str(module), "again.mlir")) == str(module)
    kernel = scheduled(split_sum(), "sm_90a")
    text = str(kernel.parent_op())
    assert 'order "acq_rel" into' in text and "tile.local_flag" in text
    assert str(parse_module(text, "again.mlir")) == text


def refusal(text: str) -> TreadleError:
    with pytest.raises(TreadleError) as caught:
        parse_module(text, "arrivals.mlir")
    return caught.value


def test_a_workgroup_arrives_once() -> None:
    arrival = "  %last = tile.arrive_last %arrived[%row] of %parts : memref<?xi32, strided<[1]>>\n"
    looped = f"  scf.for %again = %c0 to %c1 step %c1 {{\n{arrival}  }}\n  %last = arith.constant true\n"
    found = refusal(split_sum().replace(arrival, looped))
    assert found.code == "TR416" and "each workgroup arrives once" in found.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("%arrived[%row]", "%arrived[%row, %c0]"), "needs 1 offsets, got 2"),
        (("!tile.ptr<i32>", "!tile.ptr<f32>"), "view of i32"),
    ],
)
def test_counters_are_integers(change: tuple[str, str], message: str) -> None:
    text = split_sum().replace(*change)
    text = text.replace("memref<?xi32", "memref<?xf32") if "ptr" in change[0] else text
    assert message in refusal(text).message


def test_what_a_schedule_may_not_say() -> None:
    text = str(scheduled(split_sum(), "sm_90a").parent_op())
    found = refusal(text.replace('order "acq_rel"', 'order "seq_cst"'))
    assert found.code == "TR416" and "'seq_cst' is not known" in found.message
    counts = [op for op in parse_module(text, "again.mlir").walk() if isinstance(op, tile.CountInOp)]
    assert [(op.releases, op.acquires) for op in counts] == [(True, True)]


def test_reads_of_other_workgroups() -> None:
    """Their text, and which there are none of."""
    text, knobs = IN_CLUSTERS["one group"]
    whole = str(product_kernel(text, **knobs)[0])
    assert "peer 3 : i64" in whole
    assert str(parse_module(whole, "again.mlir")) == whole
    found = refusal(whole.replace("peer 3 : i64", "peer 4 : i64"))
    assert found.code == "TR416" and "of a cluster of 4" in found.message
