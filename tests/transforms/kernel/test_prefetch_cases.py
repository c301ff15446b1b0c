"""What a prefetcher of shared memory has to do and to leave alone, case by case, and which test covers each.

The cases are those that IREE's pass is tested by. Names of tests without a file are of `test_pipeline_loops_text.py`; values of every
case for every trip count, `test_pipeline_loops.py`. Behind a dash: what is asked.

| case | test |
|---|---|
| prefetch_add - order, bound of the loop, steps behind it | test_two_stages_read_compute_write, test_three_stages_compute_write_read |
| prefetch_add - barriers and scheduling fences | test_insert_sched_fences.py: test_fences_stand_at_the_borders_of_stages |
| prefetch_add - one stage | here: test_one_stage_leaves_the_text_alone |
| multi_scf_return - two carried values | test_both_carried_values_survive |
| add_with_if - a branch that computes an index | test_a_branch_that_computes_an_index_moves_with_the_read |
| scf_if - read and write under conditions | test_guarded_read_and_write_are_split_over_the_stages |
| scf_if_transientreadwrite - another hop between read and write | here: test_another_hop_stays_between_read_and_write |
| nested_loop - a barrier ahead of the prologue's write | here: test_a_prologue_inside_a_loop_waits_for_the_readers_of_the_trip_before |
| transpose_load, global_transpose_load - reads of other kinds | test_loads_that_turn_tiles_and_loads_for_registers |
| gather_to_lds_two_operands - buffers | test_asynchronous_copies_have_slots |
| gather_to_lds_two_operands - groups and counted waits | here: test_groups_and_counted_waits_of_asynchronous_copies |
| the same with copies counted one by one | test_insert_sync_async.py: test_direct_copies_are_counted_one_by_one |
| inside_if_pipelined, one_predicated - copies under conditions | test_copies_under_a_condition_and_copies_before_the_loop; test_insert_sync_async.py: test_rings_keep_as_much_in_flight_as_their_slots_allow |
| nested_loop_async - the outer trip's readers | here: test_a_prologue_inside_a_loop_waits_for_the_readers_of_the_trip_before |
| pre_loop_gets_explicit_wait, wait_before_non_adjacent_read | here: test_copies_ahead_of_the_loop_are_waited_for_ahead_of_their_first_reader |
| gather_with_swizzle_attr - layouts of slots | here: test_slots_keep_the_swizzle_of_their_buffer |
| NEGATIVE noprefetch_copyback | test_pipeline_loops.py: test_refused_loops_are_untouched[no computation] |
| NEGATIVE readwritetogether | the same, [read and write together] |
| NEGATIVE unsupportedif | the same, [barrier in a branch] |
| NEGATIVE mixed_with_stream_copy | the same, [mixed copies] |
| NEGATIVE subview_escape_no_multibuffer | the same, [escaping buffer] |
"""  # noqa: E501

from typing import Literal

import pytest
from generators.pipelined_kernels import CASES, ROWS, STEP, LoopKernel, Values
from generators.tile_pipeline import find, lowered, skeleton

from treadle.dialects import sync, tile
from treadle.ir.core import SSAValue
from treadle.ir.dialects import builtin, scf
from treadle.ir.passes import run_passes
from treadle.ir.simplify import CsePass, DcePass
from treadle.ir.text import print_module
from treadle.layout.shared_layout import swizzled
from treadle.machine import target_spec
from treadle.plan.stages import Request
from treadle.transforms.kernel.allocate_shared import AllocateSharedPass
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.transforms.kernel.lower_layout_conversions import LowerLayoutConversionsPass
from treadle.transforms.kernel.order_issue import OrderIssuePass
from treadle.transforms.kernel.pipeline_loops import PipelineLoopsPass
from treadle.transforms.kernel.pipelining.request import PIPELINE, PIPELINED, request_attribute
from treadle.transforms.kernel.set_pipeline import SetPipelinePass
from treadle.verify.check import prove

LENGTH = 10 * STEP
QUEUE = "cp_async"
WORDS = {
    "tile.load": "r",
    "tile.local_store": "w",
    "tile.local_load": "l",
    "tile.contract": "m",
    "tile.copy": "c",
    "sync.barrier": "b",
    "sync.commit": "g",
    "sync.wait": "wait",
    "for": "for",
    "end": "end",
}


def copied(*, is_nested: bool = False, is_kept: bool = False) -> tile.KernelOp:
    """Asynchronous copies of two operands; in a loop that is inside another one, or one of them ahead of the loop."""
    k = LoopKernel(LENGTH)
    a, b = k.buffer(), k.buffer()
    if is_kept:
        k.copy_y(k.zero, b, QUEUE)

    def body(i: SSAValue, carried: Values) -> Values:
        k.copy(i, a, QUEUE)
        if not is_kept:
            k.copy_y(i, b, QUEUE)
        return [k.dot(k.get(a), k.get(b), carried[0])]

    def inner(_: SSAValue, carried: Values) -> Values:
        return k.loop(k.n, STEP, carried, body)

    return k.done(*(k.loop(k.index(3), 1, [k.start], inner) if is_nested else inner(k.zero, [k.start])))


def scheduled(kernel: tile.KernelOp, stages: int, tail: Literal["auto", "peeled"] = "auto") -> builtin.ModuleOp:
    """A kernel's innermost loop pipelined and synchronised; the schedule is proven."""
    module = lowered(print_module(builtin.ModuleOp([kernel])), LowerLayoutConversionsPass)
    pipelined = (SetPipelinePass(stages=stages, tail=tail), PipelineLoopsPass(), CsePass(), DcePass())
    run_passes(module, [*pipelined, AllocateSharedPass(), OrderIssuePass(), InsertSyncPass()])
    (made,) = find(module, tile.KernelOp)
    assert any(PIPELINED in loop.attributes for loop in find(module, scf.ForOp))
    assert prove(made, target_spec(made.target.data)).is_proven
    return module


def words(module: builtin.ModuleOp) -> str:
    """What stands in a kernel, in order; equal neighbours once."""
    found = [WORDS[name] for name in skeleton(module, *WORDS) if name in WORDS]
    return " ".join(word for at, word in enumerate(found) if not at or word != found[at - 1])


@pytest.mark.parametrize("name", ["prefetch_add", "async_matmul"])
def test_one_stage_leaves_the_text_alone(name: str) -> None:
    module = builtin.ModuleOp([CASES[name](LENGTH)])
    before = print_module(module)
    run_passes(module, [SetPipelinePass(stages=1), PipelineLoopsPass()])
    assert print_module(module) == before


def test_another_hop_stays_between_read_and_write() -> None:
    """The write stage is both hops, behind the computation."""
    module = builtin.ModuleOp([CASES["through_scratch"](LENGTH)])
    (loop,) = find(module, scf.ForOp)
    loop.attributes[PIPELINE] = request_attribute(Request(2, "stream"))
    run_passes(module, [PipelineLoopsPass(), CsePass(), DcePass()])
    assert words(module) == "r w l w for r l m w l w end l m"


def test_a_prologue_inside_a_loop_waits_for_the_readers_of_the_trip_before() -> None:
    assert words(scheduled(CASES["nested"](LENGTH), 2)).startswith("for r b w for")
    assert words(scheduled(copied(is_nested=True), 3, "peeled")).startswith("for b c g c g for")


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_groups_and_counted_waits_of_asynchronous_copies(stages: int) -> None:
    """A group for each step of the prologue; the loop leaves all groups but one in flight, the last step behind it none."""
    module = scheduled(copied(), stages)
    (loop,) = [op for op in find(module, scf.ForOp) if PIPELINED in op.attributes]
    assert loop.parent is not None
    outside = list(loop.parent.ops)
    ahead = [op for op in outside[: outside.index(loop)] if isinstance(op, sync.CommitOp) and op.queue.data == QUEUE]
    assert len(ahead) == stages - 1
    within = [op.pending.value.data for op in find(loop, sync.WaitOp) if op.queue.data == QUEUE]
    behind = [op.pending.value.data for op in outside[outside.index(loop) :] if isinstance(op, sync.WaitOp) and op.queue.data == QUEUE]
    assert within == [stages - 2] and behind == list(range(stages - 2, -1, -1))[-len(behind) :] and behind[-1] == 0


def test_copies_ahead_of_the_loop_are_waited_for_ahead_of_their_first_reader() -> None:
    names = words(scheduled(copied(is_kept=True), 3)).split()
    assert names.index("c") < names.index("wait") < names.index("b") < names.index("l")


def test_slots_keep_the_swizzle_of_their_buffer() -> None:
    layout = swizzled((ROWS, STEP), (1, 0), 4, 64)
    k = LoopKernel(LENGTH)
    kind = tile.shared_buffer_type((ROWS, STEP), builtin.f32, layout)
    a, b = k.add(tile.AllocOp(kind)), k.add(tile.AllocOp(kind))

    def body(i: SSAValue, carried: Values) -> Values:
        k.copy(i, a)
        k.copy_y(i, b)
        return [k.dot(a, b, carried[0])]

    module = builtin.ModuleOp([k.done(*k.loop(k.n, STEP, [k.start], body))])
    run_passes(module, [SetPipelinePass(stages=3), PipelineLoopsPass(), CsePass(), DcePass()])
    slots = [tile.shared_layout_of(alloc.result) for alloc in find(module, tile.AllocOp)]
    assert [len(slot.shape) for slot in slots] == [3, 3]
    assert all(slot.slot() == layout for slot in slots)
