"""Stage plans against an abstract machine: every schedule that is given keeps the meaning of the loop, for every trip count."""

from collections.abc import Callable
from typing import Any

import pytest
from generators.loop_machine import check
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.plan.expansion import expand
from treadle.plan.loop_body import Access, Body, Resource, Unit, Yielded
from treadle.plan.pipeline_depth import choose_depth
from treadle.plan.stages import Mode, Refusal, Request, Schedule, Tail, plan_loop

SHARED = Resource("shared")
ONE = frozenset({(0, 0)})


def read(resource: int, condition: object = None) -> Access:
    return Access(resource, is_write=False, condition=condition)


def write(resource: int, condition: object = None) -> Access:
    return Access(resource, is_write=True, condition=condition)


def copy(resource: int, **more: Any) -> Unit:
    return Unit("copy", copies=True, accesses=(write(resource),), **more)


def contract(*resources: int, uses: frozenset[tuple[int, int]] = frozenset(), carried: tuple[int, ...] = (0,)) -> Unit:
    accesses = tuple(read(r) for r in resources)
    return Unit("contract", uses, frozenset(carried), accesses, computes=True, is_final=True)


MATMUL = Body((copy(0), copy(1), contract(0, 1)), (SHARED, SHARED), (Yielded((2, 0)),))
STREAM = Body(
    (
        Unit("load", loads=True),
        Unit("local_store", ONE, accesses=(write(0),)),
        Unit("local_load", accesses=(read(0),)),
        contract(uses=frozenset({(2, 0)})),
    ),
    (SHARED,),
    (Yielded((3, 0)),),
)


def planned(body: Body, stages: int, mode: Mode, buffers: int = 0, tail: Tail | None = None) -> Schedule:
    schedule = plan_loop(body, Request(stages, mode, buffers, tail))
    assert isinstance(schedule, Schedule), schedule
    return schedule


TAILS: tuple[Tail, ...] = ("peeled", "versioned", "guarded")


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("mode", ["async", "async-late"])
@pytest.mark.parametrize("stages", [2, 3, 4, 7])
def test_asynchronous_copies_at_any_depth(stages: int, mode: Mode, tail: Tail) -> None:
    schedule = planned(MATMUL, stages, mode, tail=tail)
    assert schedule.slots == (stages, stages)
    expected = [("copy", 0, (0, 1)), ("compute", stages - 1, (2,))]
    assert [(c.name, c.stage, c.units) for c in schedule.clusters] == (expected if mode == "async" else expected[::-1])
    check(MATMUL, schedule)


@pytest.mark.parametrize("tail", TAILS)
def test_streams(tail: Tail) -> None:
    two, three = planned(STREAM, 2, "stream", tail=tail), planned(STREAM, 3, "stream", tail=tail)
    assert [(c.name, c.stage) for c in two.clusters] == [("read", 0), ("compute", 1), ("write", 0)]
    assert [(c.name, c.stage) for c in three.clusters] == [("compute", 2), ("write", 1), ("read", 0)]
    assert two.slots == three.slots == (1,)
    assert three.result_versions == (((0, 0), 1),)
    for schedule in (two, three, planned(STREAM, 2, "stream", 2, tail), planned(STREAM, 3, "stream", 5, tail)):
        check(STREAM, schedule)


RING = Body(
    (
        copy(0),
        copy(1),
        Unit("local_load", accesses=(read(0),)),
        Unit("local_load", accesses=(read(1),)),
        contract(uses=frozenset({(2, 0), (3, 0)})),
    ),
    (SHARED, SHARED),
    (Yielded((4, 0)),),
)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("stages", [3, 4, 7])
def test_reads_ahead_of_the_computation(stages: int, tail: Tail) -> None:
    schedule = plan_loop(RING, Request(stages, "async", tail=tail, reads_ahead=True))
    assert isinstance(schedule, Schedule)
    assert [(c.name, c.stage, c.units) for c in schedule.clusters] == [
        ("copy", 0, (0, 1)),
        ("fetch", stages - 2, (2, 3)),
        ("compute", stages - 1, (4,)),
    ]
    assert schedule.slots == (stages - 1, stages - 1) and schedule.result_versions == (((2, 0), 1), ((3, 0), 1))
    check(RING, schedule)
    streamed = plan_loop(STREAM, Request(4, "stream", tail=tail, reads_ahead=True))
    assert isinstance(streamed, Schedule) and streamed.slots == (2,)
    assert [(c.name, c.stage) for c in streamed.clusters] == [("write", 1), ("read", 0), ("fetch", 2), ("compute", 3)]
    check(STREAM, streamed)
    further = plan_loop(STREAM, Request(5, "stream", tail=tail, reads_ahead=True))
    assert isinstance(further, Schedule) and further.slots == (2,)
    assert [(c.name, c.stage) for c in further.clusters] == [("write", 2), ("read", 0), ("fetch", 3), ("compute", 4)]
    check(STREAM, further)


@pytest.mark.parametrize(
    ("loop", "request_", "rule"),
    [
        (RING, Request(2, "async", reads_ahead=True), "depth"),
        (RING, Request(3, "async-late", reads_ahead=True), "depth"),
        (STREAM, Request(3, "stream", reads_ahead=True), "depth"),
        (STREAM, Request(6, "stream", reads_ahead=True), "depth"),
        (MATMUL, Request(3, "async", reads_ahead=True), "nothing-ahead"),  # the computation reads the buffers itself
        (RING, Request(4, "async", 2, reads_ahead=True), "buffers"),
    ],
)
def test_nothing_is_read_ahead_where_it_cannot_be(loop: Body, request_: Request, rule: str) -> None:
    refusal = plan_loop(loop, request_)
    assert isinstance(refusal, Refusal) and refusal.rule == rule


def test_copies_after_the_computation_need_one_slot_less() -> None:
    assert planned(MATMUL, 4, "async-late", 3).slots == (3, 3)
    refusal = plan_loop(MATMUL, Request(4, "async", 3))
    assert isinstance(refusal, Refusal) and refusal.rule == "buffers"
    assert planned(MATMUL, 3, "async", 6).slots == (6, 6)


def test_steps_are_spelled_out() -> None:
    schedule = planned(MATMUL, 3, "async", tail="peeled")
    spelled = expand(schedule, 5)
    assert [[(p.stage, p.offset) for p in s] for s in spelled.prologue] == [[(0, 0)], [(0, 1)]]
    assert spelled.steady is not None and [(p.stage, p.offset, p.guarded) for p in spelled.steady] == [(0, 2, False), (2, 0, False)]
    assert (spelled.shortened, spelled.after) == (2, 3)
    assert [[(p.stage, p.offset) for p in s] for s in spelled.epilogue] == [[(2, 0)], [(2, 1)]]
    short = expand(schedule, 2)
    assert short.steady is None and sum(len(s) for s in (*short.prologue, *short.epilogue)) == 4
    guarded = expand(planned(MATMUL, 3, "async", tail="guarded"), None)
    assert guarded.steady is not None and [p.guarded for p in guarded.steady] == [True, False]
    assert [p.guarded for s in guarded.prologue for p in s] == [True, True]
    assert [p.guarded for s in expand(schedule, None, 2).prologue for p in s] == [False, False]


def rule(body: Body, stages: int, mode: Mode, buffers: int = 0) -> tuple[str, int | None]:
    refusal = plan_loop(body, Request(stages, mode, buffers))
    assert isinstance(refusal, Refusal)
    assert refusal.text
    return refusal.rule, refusal.unit


def body(*units: Unit, resources: tuple[Resource, ...] = (SHARED,), yields: tuple[Yielded, ...] = ()) -> Body:
    return Body(units, resources, yields)


LAST = (Yielded((2, 0)),)
CONDITIONAL = Unit("if", copies=True, accesses=(write(0, "c"),))


def with_read(condition: object) -> Unit:
    return Unit("contract", carried=frozenset({0}), accesses=(read(0, condition),), computes=True, is_final=True)


REFUSED: dict[str, tuple[Body, int, Mode, str, int | None]] = {
    "one stage": (MATMUL, 1, "async", "depth", None),
    "deep stream": (STREAM, 4, "stream", "depth", None),
    "no copies": (STREAM, 2, "async", "mode", None),
    "copies in a stream": (MATMUL, 2, "stream", "mode", 0),
    "barrier": (body(copy(0), Unit("if", synchronises=True), contract(0), yields=LAST), 2, "async", "synchronised", 1),
    "unknown": (body(copy(0), Unit("call", is_opaque=True), contract(0), yields=LAST), 2, "async", "unknown-effects", 1),
    "read and write in one": (
        body(Unit("if", loads=True, accesses=(write(0),)), contract(0), yields=(Yielded((1, 0)),)),
        2,
        "stream",
        "read-and-write",
        0,
    ),
    "mixed": (
        body(
            copy(0),
            Unit("load", loads=True),
            Unit("local_store", frozenset({(1, 0)}), accesses=(write(1),)),
            contract(0, 1),
            resources=(SHARED, SHARED),
            yields=(Yielded((3, 0)),),
        ),
        2,
        "async",
        "mixed-copies",
        2,
    ),
    "copy back": (
        body(copy(0), Unit("local_load", accesses=(read(0),)), Unit("store", frozenset({(1, 0)}), is_final=True)),
        2,
        "async",
        "no-compute",
        None,
    ),
    "nothing to read": (body(contract(), yields=(Yielded((0, 0)),)), 2, "stream", "nothing-ahead", None),
    "escape": (body(copy(0), contract(0), resources=(Resource("b", escapes=True),), yields=(Yielded((1, 0)),)), 2, "async", "escape", 0),
    "alignment": (
        body(copy(0), contract(0), resources=(Resource("b", can_stack=False),), yields=(Yielded((1, 0)),)),
        2,
        "async",
        "alignment",
        0,
    ),
    "copy depends on the computation": (
        Body((copy(0, carried=frozenset({0})), contract(0)), (SHARED,), (Yielded((1, 0)),)),
        2,
        "async",
        "recurrence",
        0,
    ),
    "read before it is written": (body(contract(0), copy(0), yields=(Yielded((0, 0)),)), 2, "async", "order", 1),
    "older data": (body(CONDITIONAL, with_read(None), yields=(Yielded((1, 0)),)), 2, "async", "conditional-write", 0),
    "another condition": (body(CONDITIONAL, with_read("d"), yields=(Yielded((1, 0)),)), 2, "async", "conditional-write", 0),
    "global memory written and read": (
        body(
            Unit("copy", copies=True, accesses=(write(0), read(1))),
            contract(0),
            Unit("store", frozenset({(1, 0)}), accesses=(write(1),), is_final=True),
            resources=(SHARED, Resource("p", is_shared=False, escapes=True)),
            yields=(Yielded((1, 0)),),
        ),
        2,
        "async",
        "recurrence",
        0,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_rule_and_operation(name: str) -> None:
    loop, stages, mode, expected, unit = REFUSED[name]
    assert rule(loop, stages, mode) == (expected, unit)


def test_equal_conditions_go_together() -> None:
    loop = body(CONDITIONAL, with_read("c"), yields=(Yielded((1, 0)),))
    schedule = planned(loop, 3, "async")
    assert schedule.slots == (3,)
    check(loop, schedule)


def test_carried_values_that_are_read_ahead() -> None:
    """An index that each iteration advances is needed by the load and, older, by the computation; another pair changes places."""
    loop = Body(
        (
            Unit("load", carried=frozenset({0}), loads=True),
            Unit("local_store", ONE, accesses=(write(0),)),
            Unit("advance", carried=frozenset({0})),
            Unit("local_load", accesses=(read(0),)),
            contract(uses=frozenset({(3, 0)}), carried=(0, 1, 2)),
        ),
        (SHARED,),
        (Yielded((2, 0)), Yielded((4, 0)), Yielded(carried=1)),
    )
    for stages in (2, 3):
        schedule = planned(loop, stages, "stream")
        assert schedule.carried_stage == (0, stages - 1, stages - 1)
        assert schedule.carried_versions[0] == stages - 1
        check(loop, schedule)


def test_data_through_another_buffer_is_written_ahead_too() -> None:
    """Load, scratch, staged buffer, contraction: both stores belong to the write, the scratch needs no slots."""
    loop = Body(
        (
            Unit("load", loads=True),
            Unit("local_store", ONE, accesses=(write(0),)),
            Unit("local_load", accesses=(read(0),)),
            Unit("local_store", frozenset({(2, 0)}), accesses=(write(1),)),
            contract(1),
        ),
        (SHARED, SHARED),
        (Yielded((4, 0)),),
    )
    schedule = planned(loop, 2, "stream", 2)
    assert [c.units for c in schedule.clusters] == [(0,), (4,), (1, 2, 3)]
    assert schedule.slots == (1, 2)
    check(loop, schedule)


def test_loads_for_the_computation_run_one_step_ahead() -> None:
    loop = Body((*STREAM.units[:3], Unit("load", loads=True), contract(uses=frozenset({(2, 0), (3, 0)}))), (SHARED,), (Yielded((4, 0)),))
    for stages in (2, 3):
        schedule = planned(loop, stages, "stream")
        assert schedule.stage_of(3) == stages - 2
        check(loop, schedule)


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    """Random bodies: units of all kinds with random uses, three resources, one of them global."""
    count, carried = draw(st.integers(2, 7)), draw(st.integers(0, 3))
    conditions = st.sampled_from([None, None, None, "c", "d"])
    units: list[Unit] = []
    for at in range(count):
        earlier = st.sets(st.integers(0, at - 1), max_size=2) if at else st.just(set[int]())
        uses = frozenset((p, 0) for p in draw(earlier))
        kind = draw(st.sampled_from(["load", "store", "local", "copy", "contract", "arith", "free"]))
        phis = frozenset(draw(st.sets(st.integers(0, carried - 1), max_size=1)) if carried and draw(st.booleans()) else set())
        resource, condition = draw(st.integers(0, 1)), draw(conditions)
        match kind:
            case "load":
                units.append(Unit(kind, uses, phis, (read(2),), loads=True))
            case "store":
                written = write(resource, condition) if draw(st.integers(0, 3)) else write(2)
                units.append(Unit(kind, uses, phis, (written,), is_final=written.resource == 2))
            case "local":
                units.append(Unit(kind, uses, phis, (read(resource, condition),)))
            case "copy":
                units.append(Unit(kind, uses, phis, (read(2), write(resource, condition)), copies=True))
            case "contract":
                units.append(Unit(kind, uses, phis, (read(resource),), computes=True, is_final=True))
            case "arith":
                units.append(Unit(kind, uses, phis, computes=True))
            case _:
                units.append(Unit(kind, frozenset(u for u in uses if units[u[0]].is_free), is_free=True))
    kinds = st.sampled_from(["result", "result", "carried", "invariant"])
    sources = {"result": count - 1, "carried": max(carried - 1, 0), "invariant": 0}
    picked = [(kind, draw(st.integers(0, sources[kind]))) for kind in (draw(kinds) for _ in range(carried))]
    yields = tuple(Yielded((at, 0)) if kind == "result" else Yielded(carried=at) if kind == "carried" else Yielded() for kind, at in picked)
    return Body(tuple(units), (SHARED, SHARED, Resource("global", is_shared=False, escapes=True)), yields)


TRIED: dict[bool, int] = {}


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(bodies(), st.sampled_from([(2, "stream"), (3, "stream"), (2, "async"), (3, "async"), (4, "async-late")]), st.integers(0, 3))
def test_every_schedule_given_is_right(loop: Body, how: tuple[int, Mode], buffers: int) -> None:
    stages, mode = how
    for tail in TAILS:
        schedule = plan_loop(loop, Request(stages, mode, buffers, tail))
        TRIED[isinstance(schedule, Schedule)] = TRIED.get(isinstance(schedule, Schedule), 0) + 1
        if isinstance(schedule, Schedule):
            check(loop, schedule)


def test_enough_of_the_random_loops_had_a_schedule() -> None:
    assert not TRIED or TRIED[True] > 200


def test_depth_by_shared_memory() -> None:
    def step(size: int) -> Callable[[int], int]:
        def needed(stages: int) -> int:
            return stages * size

        return needed

    unit, workgroup = 228 * 1024, 227 * 1024
    assert choose_depth(step(32 * 1024), workgroup, unit) == 3  # two workgroups of 96 KiB
    assert choose_depth(step(48 * 1024), workgroup, unit) == 4  # two of them leave two stages: rather one, deep
    assert choose_depth(step(64 * 1024), workgroup, unit) == 3
    assert choose_depth(step(100 * 1024), workgroup, unit) == 2
    assert choose_depth(step(120 * 1024), workgroup, unit) == 1
    assert choose_depth(step(16 * 1024), 64 * 1024, 64 * 1024, 2) == 2
