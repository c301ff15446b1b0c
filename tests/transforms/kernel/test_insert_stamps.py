"""insert-stamps: the same schedule with records; every operation's stamps in order; proven and simulated as before."""

import re
from collections.abc import Iterator

import numpy as np
import pytest
from sim.schedule.faults import kernel_of
from sim.schedule.programs import PROGRAMS

from treadle import pipelines
from treadle.analysis.recorded_agents import record_layout
from treadle.analysis.spans import span_of
from treadle.bench.families import gated, matmul
from treadle.bench.reductions import softmax
from treadle.dialects import dispatch, pipe, stamp, tile
from treadle.frontends.mlir import load
from treadle.ir.core import Block, Operation
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.sim.schedule.kernel import simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.targets.registry import backend
from treadle.transforms.kernel.insert_stamps import InsertStampsPass, stamp_kernel
from treadle.verify.verify_schedule import VerifySchedulePass

TEXTS = {
    "roles": matmul("nk", "g", 300, 520, 200, "bf16").text,
    "ragged": matmul("kn", "g", 123, 77, 501, "f16", transposed=False).text,
    "softmax": softmax("s", "g", 33, 1000, "f32").text,
    "gated": gated("g", "g", 65, 130, 77, "f16").text,
}
OPTIONS = {"": CompileOptions(), "3 stages": CompileOptions(pipeline_stages=3, roles=False)}


def _lowered(text: str, target: str, options: CompileOptions) -> builtin.ModuleOp:
    module = load(text)
    pipelines.lower(module, target_spec(target), options)
    return module


def _kernels(module: builtin.ModuleOp) -> list[tile.KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, tile.KernelOp)]


def _stamped(name: str, target: str = "sm_90a", options: str = "", capacity: int = 64) -> builtin.ModuleOp:
    module = _lowered(TEXTS[name], target, OPTIONS[options])
    run_passes(module, [InsertStampsPass(workgroups=2, capacity=capacity)], verify="last")
    return module


def _rest(op: Operation) -> list[str]:
    """Names of all operations but stamps and what carries them."""
    return [one.name for one in op.walk() if not one.name.startswith("stamp.") and one.name != "scf.yield"]


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", TEXTS)
def test_everything_else_stays_and_the_result_is_proven(name: str, options: str, target: str) -> None:
    plain = _lowered(TEXTS[name], target, OPTIONS[options])
    module = _lowered(TEXTS[name], target, OPTIONS[options])
    run_passes(module, [InsertStampsPass(), VerifySchedulePass()], verify="last")
    for before, after in zip(_kernels(plain), _kernels(module), strict=True):
        names = _rest(after)
        added = names.index("tile.view")
        del names[added]
        for _ in range(names.count("tile.program_id") - _rest(before).count("tile.program_id")):
            names.remove("tile.program_id")
        if before.grid_text()[1:] == ("1", "1"):
            assert names == _rest(before)
        assert after.output_count.value.data == before.output_count.value.data + 1
    text = print_module(module)
    assert print_module(parse_module(text, "text")) == text


def _chains(block: Block) -> Iterator[list[stamp.EventOp]]:
    yield [op for op in block.ops if isinstance(op, stamp.EventOp)]
    for op in block.ops:
        for region in op.regions:
            if region.blocks:
                yield from _chains(region.block)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", TEXTS)
def test_what_begins_ends_and_what_lies_between_is_of_it(name: str, options: str) -> None:
    for kernel in _kernels(_stamped(name, options=options)):
        for chain in _chains(kernel.body.block):
            under_way = None
            for event in chain:
                assert (event.ends.data if event.ends else None) == under_way
                under_way = event.begins.data if event.begins else None
                after = event.next_op
                while after is not None and not isinstance(after, stamp.EventOp | scf.ForOp | scf.IfOp):
                    assert span_of(after) in (None, under_way)
                    after = after.next_op
            assert under_way is None


def test_each_agent_has_one_begin_and_one_end() -> None:
    (kernel,) = _kernels(_stamped("roles"))
    roles = next(op for op in kernel.body.walk() if isinstance(op, pipe.RolesOp))
    lanes = record_layout(kernel, 2, 64).lanes
    assert len(lanes) == sum(roles.role_groups())
    firsts = [op.first.value.data for op in kernel.body.walk() if isinstance(op, stamp.BeginOp)]
    assert firsts == [op.first.value.data for op in kernel.body.walk() if isinstance(op, stamp.EndOp)]
    assert firsts[0] == 0
    assert len(firsts) == len(roles.roles)
    (plain,) = _kernels(_stamped("ragged", options="3 stages"))
    warps = plain.num_warps.value.data
    assert record_layout(plain, 2, 64).lanes == tuple(f"warp {n}" for n in range(warps))


def test_every_launch_returns_its_records() -> None:
    module = _stamped("gated")
    program = next(op for op in module.body.block.ops if isinstance(op, dispatch.ProgramOp))
    launches = [op for op in program.body.block.ops if isinstance(op, dispatch.LaunchOp)]
    end = program.body.block.last_op
    assert isinstance(end, dispatch.ReturnOp)
    assert [launch.outputs[-1] for launch in launches] == list(end.values)[-len(launches) :]


@pytest.mark.parametrize("mode", ["late", "random"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_hand_written_schedules_compute_the_same(name: str, mode: Mode) -> None:
    program = PROGRAMS[name]()
    kernel = kernel_of(program.text)
    layout = stamp_kernel(kernel, 1, 16)
    kernel.verify()
    report = simulate(kernel, [*program.arrays(), np.zeros(layout.words, np.int64)], mode=mode, seed=5)
    assert report.ok, report
    plain = simulate(kernel_of(program.text), program.arrays(), mode=mode, seed=5)
    for found, expected in zip(report.outputs[:-1], plain.outputs, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("target", "clock"), [("sm_90a", "%clock64"), ("gfx942", "s_memtime"), ("gfx950", "s_memtime"), ("gfx1201", "s_get")]
)
@pytest.mark.parametrize("name", ["roles", "softmax"])
def test_machine_code_reads_the_clock_once_a_stamp(name: str, target: str, clock: str) -> None:
    chosen = backend(target)
    for kernel in _kernels(_stamped(name, target)):
        done = chosen.assemble(chosen.emit(kernel))
        stamps = [op for op in kernel.body.walk() if isinstance(op, stamp.BeginOp | stamp.EventOp | stamp.EndOp)]
        assert len(re.findall(re.escape(clock), done.assembly)) >= len(stamps)
        assert done.facts.spill_bytes == 0


def test_a_capacity_is_a_power_of_two() -> None:
    with pytest.raises(Exception, match="power of two"):
        _stamped("softmax", capacity=100)
