"""Which keys rows never see: told of selections and sums by comparisons of places, wherever they are computed, and of nothing else."""

import pytest
from generators.attention_texts import AttentionText
from transforms.tensor.dispatch_programs import kernels

from treadle.analysis.hidden_keys import Hidden, hidden_keys
from treadle.analysis.loop_nest import loop_nest
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes

CAUSAL = AttentionText((2,), 40, 50, 16, 16, is_causal=True)
MASKED = AttentionText((2,), 40, 50, 16, 16, has_mask=True)
PLACES = " %i = linalg.index 0 : index\n %j = linalg.index 1 : index\n %seen = arith.cmpi sle, %j, %i : index\n"
ADDED = (
    "%low = arith.constant 0xFF800000 : f32",
    "%low = arith.constant 0xFF800000 : f32\n %em = tensor.empty() : tensor<40x50xf32>\n %mask = linalg.generic {indexing_maps = "
    '[affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} outs(%em : tensor<40x50xf32>) {\n'
    f" ^bb0(%o: f32):\n{PLACES} %u = arith.select %seen, %zero, %low : f32\n linalg.yield %u : f32 }} -> tensor<40x50xf32>",
)


def hidden(text: str) -> Hidden | None:
    """What the rows of the one kernel of a text never see."""
    module = parse_module(text, "test.mlir")
    run_passes(module, tensor_passes(target_spec("sm_90a"), CompileOptions(attention="always")))
    (kernel,) = kernels(module)
    found = loop_nest(kernel).attention
    assert found is not None
    return hidden_keys(found, found.rows[-1])


def changed(problem: AttentionText, *changes: tuple[str, str]) -> str:
    text = problem.text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


COMPARED = "%seen = arith.cmpi sle, %j, %i : index"
CAST = " %a = arith.index_cast %i : index to {0}\n %b = arith.index_cast %j : index to {0}\n %seen = arith.cmpi sle, %b, %a : {0}"
FURTHER = " %three = arith.constant 3 : index\n %further = arith.addi %i, %three : index\n "


@pytest.mark.parametrize(
    ("text", "beyond"),
    [
        (CAUSAL.text(), 0),
        (changed(CAUSAL, (COMPARED, "%seen = arith.cmpi slt, %j, %i : index")), -1),
        (changed(CAUSAL, (COMPARED, "%seen = arith.cmpi sge, %i, %j : index")), 0),
        (changed(CAUSAL, (COMPARED, f"{FURTHER}%seen = arith.cmpi sge, %further, %j : index")), 3),
        (changed(CAUSAL, (COMPARED, f"{FURTHER}%seen = arith.cmpi slt, %j, %further : index")), 2),
        (changed(CAUSAL, (COMPARED, "%seen = arith.cmpi sgt, %j, %i : index"), ("%seen, %t, %low", "%seen, %low, %t")), 0),
        (changed(CAUSAL, (COMPARED, CAST.format("i32"))), 0),
        (changed(MASKED, (", %mask: tensor<40x50xf32>", ""), ADDED), 0),
    ],
)
def test_what_is_hidden(text: str, beyond: int) -> None:
    found = hidden(text)
    assert found is not None and (found.beyond, found.first) == (beyond, None) and len(found.selections) == 1


WINDOWED = AttentionText((2,), 40, 50, 16, 16, is_causal=True, window=7)
BEHIND = "%seen = arith.cmpi sge, %j, %i : index"


@pytest.mark.parametrize(
    ("text", "beyond", "first", "selections"),
    [
        (WINDOWED.text(), 0, -6, 1),
        (changed(WINDOWED, ("arith.andi", "arith.ori")), None, None, 0),
        (changed(CAUSAL, (COMPARED, BEHIND)), None, 0, 1),
        (changed(CAUSAL, (COMPARED, f"{FURTHER}%seen = arith.cmpi slt, %further, %j : index")), None, 4, 1),
        (changed(CAUSAL, ("%seen, %t, %low", "%seen, %low, %t")), None, 1, 1),
        (changed(WINDOWED, ("sle, %j, %i", "eq, %j, %i")), None, -6, 0),  # what it selects by besides is not known
    ],
)
def test_windows(text: str, beyond: int | None, first: int | None, selections: int) -> None:
    found = hidden(text)
    if beyond is None and first is None:
        assert found is None
    else:
        assert found is not None and (found.beyond, found.first, len(found.selections)) == (beyond, first, selections)


@pytest.mark.parametrize(
    "text",
    [
        MASKED.text(),
        changed(CAUSAL, (COMPARED, "%seen = arith.cmpi ule, %j, %i : index")),
        changed(CAUSAL, (COMPARED, "%seen = arith.cmpi eq, %j, %i : index")),
        changed(CAUSAL, (COMPARED, " %further = arith.addi %i, %i : index\n %seen = arith.cmpi sle, %j, %further : index")),
        changed(CAUSAL, (COMPARED, CAST.format("i8"))),  # the places of long rows are cut
        changed(CAUSAL, ("%seen, %t, %low", "%seen, %t, %zero")),
        changed(CAUSAL, ("linalg.index 1", "linalg.index 0"), (COMPARED, "%seen = arith.cmpi sle, %j, %i : index")),
    ],
)
def test_nothing_else_hides(text: str) -> None:
    assert hidden(text) is None
