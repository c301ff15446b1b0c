"""tabulate-indices: long arithmetic on a loop's index becomes a table, of which what comes behind sees one operation however long it is."""

import random
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import numpy as np
import pytest
from generators.grouped_contractions import diagonal_text, grouped_text

import treadle
from treadle import pipelines
from treadle.errors import TreadleError
from treadle.ir.core import Operation
from treadle.ir.dialects import arith, builtin, tensor
from treadle.ir.passes import run_passes
from treadle.ir.tables import table_of
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.sim.dispatch_level import evaluate_dispatches
from treadle.sim.reference import evaluate_module
from treadle.transforms.tensor.inline_foralls import InlineForallsPass
from treadle.transforms.tensor.tabulate_indices import TabulateIndicesPass


def sizes(groups: int) -> tuple[int, ...]:
    drawn = random.Random(groups)
    return tuple(drawn.randint(0, 300) for _ in range(groups))


def tabulated(text: str) -> builtin.ModuleOp:
    module = parse_module(text, "text")
    run_passes(module, [InlineForallsPass(), TabulateIndicesPass()])
    return module


def tables(module: Operation) -> list[tuple[int, ...]]:
    found = (table_of(op) for op in module.walk() if isinstance(op, tensor.ExtractOp))
    return [table for table in found if table is not None]


def starts(rows: Sequence[int]) -> tuple[int, ...]:
    return tuple(sum(rows[:at]) for at in range(len(rows)))


@pytest.mark.parametrize("groups", [37, 64, 400])
def test_a_long_list_is_two_tables(groups: int) -> None:
    rows = sizes(groups)
    module = tabulated(grouped_text(rows, 72, 50))
    assert tables(module) == [starts(rows), rows]
    assert not [op for op in module.walk() if isinstance(op, arith.MinSIOp | arith.MaxSIOp)]


@pytest.mark.parametrize("groups", [1, 5, 16])
def test_few_groups_stay_arithmetic(groups: int) -> None:
    text = grouped_text(sizes(groups), 72, 50)
    module = parse_module(text, "text")
    run_passes(module, [InlineForallsPass()])
    assert print_module(tabulated(text)) == print_module(module)


def test_a_list_that_rises_evenly_is_a_product() -> None:
    module = tabulated(grouped_text((33,) * 101, 72, 50))
    assert not tables(module)
    (slice_, *_) = (op for op in module.walk() if isinstance(op, tensor.ExtractSliceOp))
    assert isinstance(slice_.offsets[0].owner, arith.MuliOp)


def test_quotients_and_tables_are_followed() -> None:
    """Divided, and looked up in a table of the text: what long arithmetic may be made of besides."""
    rows = sizes(40)
    more = "    %seven = arith.constant 7 : index\n    %quotient = arith.divui %start, %seven : index\n"
    more += "    %rest = arith.remui %start, %seven : index"
    more += "\n    %whole = arith.muli %quotient, %seven : index\n    %again = arith.addi %whole, %rest : index\n    %a = "
    text = grouped_text(rows, 72, 50).replace("    %a = ", more, 1).replace("%x[%start, 0]", "%x[%again, 0]")
    assert starts(rows) in tables(tabulated(text))
    text = (
        grouped_text(rows, 72, 50)
        .replace("%x[%start", "%x[%same")
        .replace(
            "    %a = ",
            f"    %t = arith.constant dense<{list(range(0, 2 * sum(rows), 2))}> : tensor<{sum(rows)}xindex>\n"
            f"    %twice = tensor.extract %t[%start] : tensor<{sum(rows)}xindex>\n"
            "    %two = arith.constant 2 : index\n    %same = arith.divui %twice, %two : index\n    %a = ",
            1,
        )
    )
    assert tables(tabulated(text)).count(starts(rows)) == 2


def test_what_two_loops_tell_is_left_alone() -> None:
    rows = sizes(40)
    text = diagonal_text(rows, (64,) * 40, 50, outer=3).replace("%row = arith.addi", "%row_g = arith.addi", 1)
    text = text.replace(
        "    %column_0 ", "    %row_u = arith.addi %row_g, %u : index\n    %row = arith.subi %row_u, %u : index\n    %column_0 ", 1
    )
    found = tables(tabulated(text))
    assert starts(rows) in found, "what is computed of one of them is a table"
    assert any(isinstance(op, arith.SubiOp) for op in tabulated(text).walk())


@pytest.mark.parametrize("kind", ["index", "i32", "i64"])
@pytest.mark.parametrize("groups", [5, 8, 41])
def test_tables_of_the_text_are_the_same_program(groups: int, kind: str) -> None:
    rows = sizes(groups)
    modules = [parse_module(grouped_text(rows, 24, 10, "f32", tables=form), "text") for form in ("", kind)]
    random_ = np.random.default_rng(groups)
    given = [random_.standard_normal(shape).astype(np.float32) for shape in ((sum(rows), 10), (groups, 10, 24))]
    (want,) = evaluate_module(modules[0], given)
    for module in modules:
        run_passes(module, tensor_passes())
        (found,) = evaluate_dispatches(module, given)
        np.testing.assert_allclose(found, want.value, rtol=1e-9, atol=1e-9)
    texts = []
    for module in modules:
        options = CompileOptions()
        run_passes(module, pipelines.tile_passes(target_spec("sm_90a"), options))
        texts.append(print_module(module))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [("tensor.extract %start_table[%g]", "tensor.extract %start_table[%after]"), ("dense<[0, ", "dense<[9999, ")],
)
def test_tables_that_lead_outside_are_refused(old: str, new: str) -> None:
    text = grouped_text((5, 40, 7), 24, 10, tables="index").replace(old, new, 1)
    text = text.replace("    %start_table", "    %after = arith.addi %g, %one : index\n    %start_table", 1)
    with pytest.raises(TreadleError, match="TR202"):
        treadle.compile(text, target="sim")


def _operations(groups: int, target: str) -> dict[str, int]:
    """How many operations there are at each level."""
    found: dict[str, int] = {}
    module = parse_module(grouped_text(sizes(groups), 520, 64), "text")
    options = CompileOptions(form="roles" if target == "sm_90a" else "tiles")
    pipelines.lower(
        module, target_spec(target), options, lambda level, seen: found.update({level: sum(1 for _ in seen.walk())}), proven=False
    )
    return found


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_kernels_grow_with_the_bits_of_the_number_of_groups(target: str) -> None:
    few, many = (_operations(groups, target) for groups in (240, 960))
    assert few["dispatch"] == many["dispatch"]
    for level in ("tile", "schedule"):
        assert many[level] - few[level] <= 2 * 8 * 4, "two bits more, in each of a few roles"


def _calls(compute: Callable[[], object]) -> int:
    """How many functions are called, which unlike seconds is the same wherever it is counted."""
    count = 0

    def called(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        compute()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_work_grows_with_the_number_of_groups(target: str) -> None:
    _operations(40, target)  # what is made once
    calls = [_calls(lambda groups=groups: _operations(groups, target)) for groups in (120, 240, 480)]
    assert calls[2] - calls[1] <= 1.15 * 2 * (calls[1] - calls[0])
