"""Two contractions with a softmax between them are one kernel, by structure; what is anything else is left alone, with the reason."""

from dataclasses import replace

import numpy as np
import pytest
from generators.attention_texts import AttentionText
from transforms.tensor.dispatch_programs import kernels, lower, run_program

from treadle.analysis.loop_nest import loop_nest
from treadle.dialects import dispatch
from treadle.ir.dialects import builtin, linalg
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.remarks import collect_remarks
from treadle.transforms.tensor.set_attention import SetAttentionPass

LARGE = AttentionText((4,), 2048, 2048, 64, 64)


def decided(text: str, attention: str = "auto", target: str = "sm_90a") -> tuple[list[dispatch.GroupAttr], list[str]]:
    """The groups that the pass writes, and what it says."""
    module: builtin.ModuleOp = parse_module(text, "test.mlir")
    passes = tensor_passes(target_spec(target), CompileOptions(attention=attention))  # type: ignore[arg-type]
    place = next(number for number, item in enumerate(passes) if isinstance(item, SetAttentionPass))
    run_passes(module, passes[:place])
    with collect_remarks() as log:
        run_passes(module, passes[place : place + 1])
    found = [op.attributes.get(dispatch.GROUP) for op in module.walk() if isinstance(op, linalg.ops.GenericOp)]
    return [attr for attr in found if isinstance(attr, dispatch.GroupAttr)], [remark.text for remark in log.remarks]


@pytest.mark.parametrize(
    "problem",
    [
        LARGE,
        replace(LARGE, element="bf16", is_named=True),
        replace(LARGE, is_late=True),
        replace(LARGE, is_transposed=True, has_mask=True),
        replace(LARGE, is_causal=True),
        replace(LARGE, batch=(2, 4, 3), shared=3),
        replace(LARGE, dynamic="mna"),
    ],
    ids=str,
)
@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_attention_is_one_group(problem: AttentionText, target: str) -> None:
    groups, said = decided(problem.text(), target=target)
    names = {name for group in groups for name, _ in group.data}
    roles = sorted(role for group in groups for _, role in group.data)
    assert names == {"attention0"} and roles.count("root") == 4, said
    assert any("one kernel of attention" in text for text in said)
    module, _ = lower(problem.text(), target)
    (kernel,) = kernels(module)
    assert loop_nest(kernel).kind == "attention"


@pytest.mark.parametrize(
    "problem",
    [
        AttentionText((2,), 13, 17, 5, 7),
        AttentionText((2, 3), 6, 9, 8, 4, is_late=True),
        AttentionText((), 7, 7, 4, 4, is_causal=True, is_named=True),
        AttentionText((2, 2), 5, 8, 3, 6, has_mask=True, is_transposed=True),
        AttentionText((2, 3), 5, 8, 3, 6, shared=3),
        AttentionText((2,), 5, 8, 3, 6, dynamic="mna", has_mask=True),
    ],
    ids=str,
)
def test_the_kernel_computes_the_same(problem: AttentionText) -> None:
    """The dispatch level is the text's own operations: in float64 nothing differs but the rounding of what is 16 bits wide."""
    module = parse_module(problem.text(), "test.mlir")
    run_passes(module, tensor_passes(target_spec("sm_90a"), CompileOptions(attention="always")))
    assert len(kernels(module)) == 1
    arrays = problem.arrays()
    np.testing.assert_allclose(run_program(module, arrays)[0], problem.expected(arrays), rtol=1e-9, atol=1e-9)


def replaced(problem: AttentionText, *changes: tuple[str, str]) -> str:
    text = problem.text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


SQUARE = AttentionText((4,), 2048, 2048, 64, 64)
ALL_SCORES = "tensor<4x2048x2048xf32>"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # The maximum is along the queries, the sum along the keys.
        (
            replaced(SQUARE, ("(a, m, n) -> (a, m)>], iterator_types = [\"parallel\", \"parallel\", \"reduction\"]} ins(%s1",
                              "(a, m, n) -> (a, n)>], iterator_types = [\"parallel\", \"reduction\", \"parallel\"]} ins(%s1")),
            "",
        ),
        # The second contraction reduces the queries.
        (
            replaced(SQUARE, ("(a, m, e, n) -> (a, m, n)", "(a, m, e, n) -> (a, n, m)")),
            "does not reduce the dimension that the softmax is along",
        ),
        # Powers of another scale than the maximum's.
        (replaced(SQUARE, ("%d = arith.subf %x", "%h = arith.mulf %x, %c : f32\n %d = arith.subf %h")), ""),
        (replaced(SQUARE, ("arith.divf %x, %y", "arith.mulf %x, %y")), ""),
        # The scores are a result, too.
        (
            replaced(SQUARE, ("-> tensor<4x2048x64xf16> {", f"-> (tensor<4x2048x64xf16>, {ALL_SCORES}) {{"),
                     ("return %r : tensor<4x2048x64xf16>", f"return %r, %s1 : tensor<4x2048x64xf16>, {ALL_SCORES}")),
            "something else reads its result",
        ),
        (
            replaced(SQUARE, ("%low = arith.constant 0xFF800000", "%low = arith.constant 0x7F800000")),
            "its maximum starts from no constant, or from none of the numbers",
        ),
        (replace(SQUARE, columns=320).text(), "rows are 320 wide"),
        (replace(SQUARE, element="f32").text(), "not all f16 or all bf16"),
        (AttentionText((4,), 1, 65536, 64, 64).text(), "us apart"),
    ],
)  # fmt: skip
def test_anything_else_is_left_alone(text: str, reason: str) -> None:
    groups, said = decided(text)
    assert groups == []
    assert (not reason and not said) or any(reason in one for one in said), said
    module, _ = lower(text)
    assert len(kernels(module)) > 1


def test_it_can_be_asked_for_and_turned_off() -> None:
    few = AttentionText((4,), 1, 65536, 64, 64).text()
    assert len(decided(few, "always")[0]) > 4
    assert decided(SQUARE.text(), "off") == ([], [])


def test_rows_that_fit_one_machine_alone() -> None:
    wide = replace(SQUARE, width=256, columns=256).text()
    assert decided(wide)[0] and not decided(wide, "always", "gfx942")[0]


def test_groups_of_the_user_are_left_alone() -> None:
    text = replaced(SQUARE, ("%s1 = linalg.generic {", "%s1 = linalg.generic {dispatch.group = #dispatch.group<mine = root>, "))
    groups, said = decided(text)
    assert len(groups) == 1 and any("attributes say how" in one for one in said)
    assert len(kernels(lower(text)[0])) > 1
