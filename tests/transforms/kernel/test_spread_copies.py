"""spread-copies: copies go between the multiply-adds, in parts where they turn their operand; what is computed is the same."""

import random
from dataclasses import replace

import numpy as np
import pytest
from generators.contractions import LAYOUTS, ContractionCase, Layout
from sim.schedule.faults import kernel_of

from treadle import pipelines
from treadle.dialects import pipe, sync, tile
from treadle.dialects.tile_types import i64_array
from treadle.driver import trace
from treadle.ir.core import Block, Operation, Region, VerifyException
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.plan.multiply_add_tiles import SPREAD_STEPS
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate
from treadle.transforms.kernel.forms import tiles
from treadle.transforms.kernel.forms.registry import config_of
from treadle.transforms.kernel.kernel_ir import insert_after
from treadle.transforms.kernel.spread_copies import SpreadCopiesPass, spread

LISTED = ("tile.copy", "tile.contract", "sync.commit", "sync.wait", "sync.barrier", "scf.if")


def case_of(layout: Layout, k: int = 64 * 16, element: str = "f32", **options: object) -> ContractionCase:
    return ContractionCase(
        64, 128, k, element, layout, element, options={"tile": (64, 64, 16), "warps": (1, 1), "split_reduction": "off", **options}
    )


def loop_of(kernel: tile.KernelOp) -> scf.ForOp:
    return next(op for op in kernel.walk() if isinstance(op, scf.ForOp))


def schedule(case: ContractionCase) -> str:
    return trace(case.text, "sm_90a", CompileOptions(**case.options), until="schedule").stages["schedule"]


def unspread(case: ContractionCase) -> tile.KernelOp:
    """The kernel as spread-copies finds it."""
    module, options, spec = parse_module(case.text, "case.mlir"), CompileOptions(**case.options), target_spec("sm_90a")
    passes = [
        *pipelines.tensor_passes(spec, options),
        *pipelines.tile_passes(spec, options),
        *pipelines.unproven_schedule_passes(options, spec),
    ]
    run_passes(module, passes[: [one.name for one in passes].index("spread-copies")])
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def order(loop: scf.ForOp) -> list[str]:
    return [op.name for op in loop.body.block.ops if op.name in LISTED]


def bytes_of(op: Operation) -> int:
    assert isinstance(op, tile.CopyOp)
    rows, columns = tile.memref_type(op.destination).get_shape()
    return rows * columns * 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_few_copies_stand_together(layout: Layout) -> None:
    """No two copies without a multiply-add between them, one wait and one barrier a step, no condition, and nothing copied twice."""
    loop = loop_of(kernel_of(schedule(case_of(layout))))
    names = order(loop)
    assert names.count("sync.wait") == names.count("sync.barrier") == names.count("sync.commit") == 1 and "scf.if" not in names
    assert "tile.copy tile.copy" not in " ".join(name for name in names if name in ("tile.copy", "tile.contract"))
    assert names[names.index("tile.contract") :].count("tile.copy") == names.count("tile.copy"), "operands of the first step are read first"
    copies = [op for op in loop.body.block.ops if isinstance(op, tile.CopyOp)]
    turned = (layout[0] == "n") + (layout[1] == "t")
    assert len(copies) == 2 + turned, "two parts of 8 of what lies along k"
    assert sum(map(bytes_of, copies)) == (64 + 64) * 16 * 4
    assert sum(isinstance(op.destination.owner, pipe.PartOp) for op in copies) == 2 * turned


@pytest.mark.parametrize("seed", range(10))
def test_same_results_whenever_copies_land(seed: int) -> None:
    rng = random.Random(seed)
    element = rng.choice(("f32", "f64", "i64"))
    k = 16 * (SPREAD_STEPS + rng.choice((0, 1, rng.randint(2, 40))))
    case = case_of(rng.choice(LAYOUTS), k, element, tile=rng.choice(((64, 64, 16), (32, 64, 16), (64, 32, 16))))
    text = schedule(case)
    kernel = kernel_of(text)
    values = np.random.default_rng(seed)
    a, b = (values.integers(-8, 9, spec.shape).astype({"f32": "f4", "f64": "f8", "i64": "i8"}[element]) for spec in case.inputs)
    left, right = (a if case.layout[0] == "n" else a.T), (b if case.layout[1] == "n" else b.T)
    for mode in ("late", "random"):
        report = simulate(kernel, [a, b, np.zeros((case.m, case.n), a.dtype)], mode=mode, seed=seed)
        assert report.ok, str(report)
        assert np.array_equal(report.outputs[0], left @ right)
    if element == "f32" and case.options["tile"] == (64, 64, 16):
        assert "scf.if" not in order(loop_of(kernel))


def ragged(m: int, n: int, k: int, layout: Layout, tile_of: tuple[int, int, int]) -> ContractionCase:
    off = {"split_reduction": "off", "row_padding": "off", "turned_operands": "off"}
    return ContractionCase(m, n, k, "f32", layout, "f32", options={"tile": tile_of, "warps": (2, 2), **off})


@pytest.mark.parametrize(("n", "repeated"), [(96, [(0,), ()]), (95, [(0,), (1,)])])
def test_rows_behind_the_end_repeat_the_last(n: int, repeated: list[tuple[int, ...]]) -> None:
    loop = loop_of(kernel_of(schedule(ragged(83, n, 16 * SPREAD_STEPS, "nt", (96, 96, 16)))))
    assert "scf.if" not in order(loop)
    assert [op.repeated for op in loop.body.block.ops if isinstance(op, tile.CopyOp)] == repeated


@pytest.mark.parametrize(
    ("m", "dynamic", "repeats", "reason"),
    [
        (83, "", (1,), "rows of their own"),
        (83, "", (2,), "all threads copy"),
        (83, "m", (0,), "known size"),
        (83, "", (0,), None),
    ],
)
def test_what_cannot_be_repeated_is_refused(m: int, dynamic: str, repeats: tuple[int, ...], reason: str | None) -> None:
    """Columns with unit stride, what the tile has no dimension for, sizes that only the runtime knows."""
    case = replace(ragged(m, 96, 16 * SPREAD_STEPS, "nt", (96, 96, 16)), dynamic=dynamic)
    copy = next(op for op in unspread(case).walk() if isinstance(op, tile.CopyOp))
    copy.repeats = i64_array(repeats)
    if reason is None:
        copy.verify()
    else:
        with pytest.raises(VerifyException, match=reason):
            copy.verify()


def test_what_lies_together_is_compared() -> None:
    """Columns of B behind the end are neighbours of its last: such tiles keep the condition, and so do tiles of few warps."""
    for case in (ragged(96, 83, 16 * SPREAD_STEPS, "nn", (96, 96, 16)), ragged(83, 96, 16 * SPREAD_STEPS, "tn", (96, 96, 16))):
        loop = loop_of(kernel_of(schedule(case)))
        assert "scf.if" in order(loop) and not any(isinstance(op, tile.CopyOp) and op.repeats for op in loop.walk())


@pytest.mark.parametrize("is_reduced", [True, False])
def test_rows_that_meet_are_compared(is_reduced: bool) -> None:
    """A reduction of the results would see rows behind the end, and so would sums at computed places: nothing is repeated then."""
    kernel = unspread(ragged(83, 96, 16 * SPREAD_STEPS, "nt", (96, 96, 16)))
    loop = loop_of(kernel)
    kind = tile.tile_type(loop.results[0])
    if is_reduced:
        body = Block(arg_types=[kind.element_type] * 2)
        total = arith.AddfOp(body.args[0], body.args[1])
        body.add_ops([total, tile.YieldOp([total.result])])
        insert_after(loop, tile.ReduceOp([loop.results[0]], 0, Region(body)))
    else:
        view = next(op for op in kernel.walk() if isinstance(op, tile.StoreOp)).view
        places = [tile.IotaOp(axis, tile.tile_of(kind.get_shape(), builtin.i32)) for axis in (0, 1)]
        insert_after(loop, *places, tile.AtomicOp("add", loop.results[0], view, [place.result for place in places]))
    assert spread(loop, "cp_async") == 2
    assert not any(isinstance(op, tile.CopyOp) and op.repeats for op in loop.walk())


@pytest.mark.parametrize("seed", range(12))
def test_no_result_sees_repeated_rows(seed: int) -> None:
    rng = random.Random(seed)
    tile_of = rng.choice(((128, 64, 16), (96, 96, 16), (64, 160, 16)))
    m, n = (rng.choice((1, extent - 1, extent, 2 * extent + 1, rng.randint(1, extent))) for extent in tile_of[:2])
    case = ragged(m, n, 16 * SPREAD_STEPS + rng.choice((0, 1, 7, rng.randint(16, 200))), rng.choice(("nt", "nt", "nn", "tt")), tile_of)
    values = np.random.default_rng(seed)
    a, b = (values.integers(-8, 9, spec.shape).astype("f4") for spec in case.inputs)
    left, right = (a if case.layout[0] == "n" else a.T), (b if case.layout[1] == "n" else b.T)
    kernel = kernel_of(schedule(case))
    for mode in ("late", "random"):
        report = simulate(kernel, [a, b, np.zeros((m, n), "f4")], mode=mode, seed=seed)
        assert report.ok, str(report)
        assert np.array_equal(report.outputs[0], left @ right)


def test_leaves_alone() -> None:
    """Loops of few steps, tiles of few warps that stick out, conditions of more than copies, and loops with too few multiply-adds."""
    short = loop_of(kernel_of(schedule(case_of("nt", (SPREAD_STEPS - 1) * 16))))
    assert "scf.if" in order(short)
    ragged = ContractionCase(
        63, 128, 64 * 16, "f32", "nt", "f32", options={"tile": (64, 64, 16), "warps": (1, 1), "split_reduction": "off"}
    )
    kernel = kernel_of(schedule(ragged))
    config = config_of(kernel)
    assert "scf.if" in order(loop_of(kernel)) and isinstance(config, tiles.Config) and not config.spreads_copies
    for change in (_other_condition, _more_than_copies, _few_contracts):
        loop = loop_of(unspread(case_of("nt")))
        assert spread(loop_of(unspread(case_of("nt"))), "cp_async") == 4
        change(loop)
        before = order(loop)
        assert isinstance(spread(loop, "cp_async"), str) and order(loop) == before


def test_a_refusal_is_told() -> None:
    """The form asks for it, the loop has another condition."""
    module = unspread(case_of("nt")).parent_op()
    assert module is not None
    kernel = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    _other_condition(loop_of(kernel))
    with collect_remarks() as log:
        SpreadCopiesPass().run(kernel, target_spec("sm_90a"))
    assert [(one.kind, one.pass_name) for one in log.remarks] == [("refusal", "spread-copies")]


def _guard(loop: scf.ForOp) -> scf.IfOp:
    return next(op for op in loop.body.block.ops if isinstance(op, scf.IfOp))


def _other_condition(loop: scf.ForOp) -> None:
    compared = _guard(loop).cond.owner
    assert isinstance(compared, Operation)
    compared.operands[1] = loop.lb


def _more_than_copies(loop: scf.ForOp) -> None:
    block = _guard(loop).true_region.block
    assert block.last_op is not None
    block.insert_op_before(sync.BarrierOp(), block.last_op)


def _few_contracts(loop: scf.ForOp) -> None:
    for op in [op for op in loop.body.block.ops if isinstance(op, tile.ContractOp)][7:]:
        op.result.replace_all_uses_with(op.accumulator)
        op.detach()
        op.erase()
