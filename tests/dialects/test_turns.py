"""Turns of workgroups: their text, and what is refused."""

import pytest
from generators.arrivals import scheduled
from generators.turns import turn_sum

from treadle.dialects import tile
from treadle.errors import TreadleError
from treadle.ir.dialects import builtin
from treadle.ir.text import parse_module
from treadle.verify.check import prove

WAIT = '  tile.await_turn %arrived[%row] turn %part of %parts order "relaxed" : memref<?xi32, strided<[1]>>\n'


def test_text_of_both_levels() -> None:
    module = parse_module(turn_sum(), "turns.mlir")
    assert str(parse_module(str(module), "again.mlir")) == str(module)
    text = str(scheduled(turn_sum(), "sm_90a").parent_op())
    assert 'order "acquire"' in text and 'order "release"' in text
    again = parse_module(text, "again.mlir")
    assert str(again) == text
    ops = [op for op in again.walk() if isinstance(op, tile.OrderedCounterOp)]
    assert [(type(op), op.acquires, op.releases) for op in ops] == [(tile.AwaitTurnOp, True, False), (tile.PassTurnOp, False, True)]


def refusal(text: str) -> TreadleError:
    with pytest.raises(TreadleError) as caught:
        parse_module(text, "turns.mlir")
    return caught.value


def test_a_workgroup_has_one_turn() -> None:
    assert WAIT in turn_sum()
    found = refusal(turn_sum().replace(WAIT, f"  scf.for %again = %c0 to %c1 step %c1 {{\n{WAIT}  }}\n"))
    assert found.code == "TR416" and "each workgroup arrives once" in found.message


@pytest.mark.parametrize("order", ["release", "acq_rel", "seq_cst"])
def test_a_wait_passes_on_nothing(order: str) -> None:
    found = refusal(turn_sum().replace(WAIT, WAIT.replace("relaxed", order)))
    assert found.code == "TR416" and f"'{order}' is not known" in found.message


def test_an_end_takes_over_nothing() -> None:
    before, after = turn_sum().split("tile.pass_turn")
    found = refusal(before + "tile.pass_turn" + after.replace("relaxed", "acquire"))
    assert found.code == "TR416" and "'acquire' is not known" in found.message


def test_counters_are_integers() -> None:
    text = turn_sum().replace("!tile.ptr<i32>", "!tile.ptr<f32>").replace("memref<?xi32", "memref<?xf32")
    assert "view of i32" in refusal(text).message
    assert "needs 1 offsets, got 2" in refusal(turn_sum(counter="%row, %c0")).message


def test_clusters_take_no_turns() -> None:
    kernel = scheduled(turn_sum(), "sm_90a")
    kernel.properties["cluster"] = builtin.IntegerAttr(2, builtin.i64)
    with pytest.raises(TreadleError, match="workgroups of a cluster begin together") as caught:
        prove(kernel)
    assert caught.value.code == "TR416"
