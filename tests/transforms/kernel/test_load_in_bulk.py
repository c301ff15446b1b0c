"""load-in-bulk: what an epilogue reads is brought by the producer, box by box, proven and simulated in every way of working together."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from transforms.kernel_configs import reconfigure
from transforms.role_kernels import SPEC, mixed_kernel, scheduled

from treadle import pipelines
from treadle.bench.texts import Body, Function
from treadle.dialects import pipe, sync, tile
from treadle.dialects.role_plan import RolePlanAttr
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.remarks import collect_remarks
from treadle.sim.schedule import simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.verify.check import is_right, prove
from treadle.verify.faults import erase

Array = npt.NDArray[np.float64]
TYPES = {"bf16": ml_dtypes.bfloat16, "f32": np.float32}


@dataclass(frozen=True)
class Epilogue:
    """The product of bf16, plus each of `added`, times each of `gates`; each is a matrix by its element type, "t" behind one that is
    transposed; `halves`: two results, of which the second is half of the first.
    """

    added: tuple[str, ...] = ("bf16",)
    gates: tuple[str, ...] = ()
    result: str = "bf16"
    halves: bool = False

    def text(self, m: int, n: int, k: int) -> str:
        """The program."""
        f = Function("f")
        a, b = f.argument("a", (m, k), "bf16"), f.argument("b", (n, k), "bf16")
        kinds = [*self.added, *self.gates]
        read = [f.argument(f"r{i}", (n, m) if "t" in kind else (m, n), kind.rstrip("t")) for i, kind in enumerate(kinds)]

        def compute(body: Body, taken: list[str]) -> Sequence[str]:
            value = taken[0]
            for number, other in enumerate(taken[1:]):
                op = "arith.addf" if number < len(self.added) else "arith.mulf"
                value = body.binary(op, value, body.cast(other, "f32"))
            return [value, body.binary("arith.mulf", value, body.constant(0.5))] if self.halves else [value]

        maps = ",".join(["mn", *("nm" if "t" in kind else "mn" for kind in kinds)])
        results = [self.result] * (1 + self.halves)
        return f.text(*f.elementwise(f"{maps}->mn", [f.contract("mk,nk->mn", a, b), *read], results, compute))

    def check(self, kernel: tile.KernelOp, m: int, n: int, k: int) -> None:
        """Nothing to object, and the right result in the latest and a random order of effects."""
        assert prove(kernel).is_proven
        rng = np.random.default_rng(m * n + k)
        kinds = [*self.added, *self.gates]
        shapes = [(m, k), (n, k), *((n, m) if "t" in kind else (m, n) for kind in kinds)]
        arrays: list[Array] = [rng.integers(-2, 3, shape).astype(np.float64) for shape in shapes]
        expected = arrays[0] @ arrays[1].T
        for number, (kind, other) in enumerate(zip(kinds, arrays[2:], strict=True)):
            here = other.T if "t" in kind else other
            expected = expected + here if number < len(self.added) else expected * here
        given = [x.astype(TYPES[kind.rstrip("t")]) for kind, x in zip(("bf16", "bf16", *kinds), arrays, strict=True)]
        wanted = [expected, 0.5 * expected][: 1 + self.halves]
        ways: tuple[tuple[Mode, int], ...] = (("late", 0), ("random", 1))
        for mode, seed in ways:
            outputs = [np.full((m, n), np.nan, TYPES[self.result]) for _ in wanted]
            report = simulate(kernel, [*given, *outputs], mode=mode, seed=seed)
            assert report.ok, report
            for found, right in zip(report.outputs[-len(wanted) :], wanted, strict=True):
                rounded = right.astype(TYPES[self.result]).astype(np.float64)
                assert np.array_equal(found.reshape(m, n).astype(np.float64), rounded)


RESIDUAL = Epilogue()
WAYS = {
    "together": CompileOptions(tile=(64, 128, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=3, tuned=False),
    "deferred": CompileOptions(tile=(64, 128, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=3, deferred_store=True, tuned=False),
    "ping-pong": CompileOptions(tile=(64, 128, 64), warps=(4, 1), ping_pong=2, num_stages=3, tuned=False),
    "in flight": CompileOptions(tile=(64, 128, 64), warps=(4, 1), ping_pong=2, num_stages=3, steps_in_flight=1, tuned=False),
    "tall": CompileOptions(tile=(128, 96, 64), warps=(4, 1), num_stages=2, tuned=False),
    "narrow boxes": CompileOptions(tile=(64, 168, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=2, tuned=False),
    "narrow boxes deferred": CompileOptions(
        tile=(64, 88, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=2, deferred_store=True, tuned=False
    ),
    "clusters": CompileOptions(tile=(64, 64, 64), warps=(4, 1), cluster=2, num_stages=2, tuned=False),
}


def regions(kernel: tile.KernelOp) -> tuple[pipe.RolesOp, list[list[tile.CopyOp]]]:
    """The roles, and the copies of each."""
    (roles,) = (op for op in kernel.walk() if isinstance(op, pipe.RolesOp))
    return roles, [[op for op in region.walk() if isinstance(op, tile.CopyOp)] for region in roles.roles]


def reads(kernel: tile.KernelOp) -> list[tile.LocalLoadOp]:
    return [op for op in kernel.walk() if isinstance(op, tile.LocalLoadOp)]


@pytest.mark.parametrize("way", [way for way in WAYS if "narrow" not in way])
def test_the_producer_brings_the_boxes(way: str) -> None:
    kernel = scheduled(RESIDUAL.text(256, 256, 128), WAYS[way])
    roles, (copies, *others) = regions(kernel)
    assert not any(others)
    boxes = 2 if WAYS[way].tile[1] > 64 else 1
    groups = WAYS[way].consumer_warpgroups
    residual = [op for op in copies if tile.memref_type(op.view).get_shape() == (256, 256)]
    assert len(residual) == boxes * groups
    assert all(op.is_bulk and op.barrier is not None for op in residual)
    assert not any(isinstance(op, tile.LoadOp) for op in kernel.walk())
    consumers = len(roles.roles) - 1
    assert len(reads(kernel)) == boxes * consumers


@pytest.mark.parametrize(("m", "n", "k"), [(200, 136, 200), (130, 328, 64)])
@pytest.mark.parametrize("way", WAYS)
def test_schedules_are_right_at_odd_sizes(way: str, m: int, n: int, k: int) -> None:
    RESIDUAL.check(scheduled(RESIDUAL.text(m, n, k), WAYS[way]), m, n, k)


@pytest.mark.parametrize(
    "epilogue",
    [
        Epilogue(("bf16",), ("bf16",)),
        Epilogue(("f32",)),
        Epilogue(("f32",), result="f32"),
        Epilogue(("bf16t",)),
        Epilogue(("bf16", "f32"), ("bf16",)),
        Epilogue(("bf16",), halves=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["together", "deferred", "ping-pong"])
def test_matrices_of_other_types_and_orders(way: str, epilogue: Epilogue) -> None:
    m, n, k = 136, 200, 72
    kernel = scheduled(epilogue.text(m, n, k), WAYS[way])
    assert not any(isinstance(op, tile.LoadOp) for op in kernel.walk())
    epilogue.check(kernel, m, n, k)


def test_one_tile_a_workgroup() -> None:
    m, n, k = 136, 200, 72
    RESIDUAL.check(scheduled(RESIDUAL.text(m, n, k), WAYS["together"], 0), m, n, k)


@pytest.mark.parametrize(("slots", "way"), [(1, "together"), (3, "together"), (1, "ping-pong"), (4, "ping-pong"), (1, "deferred")])
def test_rings_of_any_depth(slots: int, way: str) -> None:
    m, n, k = 136, 520, 72
    module = parse_module(RESIDUAL.text(m, n, k), "test.mlir")
    options = WAYS[way]
    run_passes(module, [*pipelines.tensor_passes(SPEC, options), *pipelines.tile_passes(SPEC, options)])
    kernel = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    reconfigure(kernel, workgroups=2)
    passes = pipelines.unproven_schedule_passes(options)
    at = [one.name for one in passes].index("set-roles") + 1
    run_passes(module, passes[:at])
    plan = kernel.attributes["roles"]
    assert isinstance(plan, RolePlanAttr)
    kernel.attributes["roles"] = RolePlanAttr(plan.data._replace(epilogue_slots=slots))
    run_passes(module, passes[at:])
    rings = [op for op in kernel.walk() if isinstance(op, sync.MbarrierAllocOp)]
    assert sum(op.slot_count() == slots for op in rings) >= 2
    RESIDUAL.check(kernel, m, n, k)


@pytest.mark.parametrize("epilogue", [RESIDUAL, Epilogue(halves=True)], ids=str)
def test_tiles_of_two_widths(epilogue: Epilogue) -> None:
    m, n, k = 120, 392, 72
    text = epilogue.text(m, n, k).replace("{", "{{").replace("}", "}}")
    epilogue.check(mixed_kernel(m, n, k, 96, 2, text=text), m, n, k)


@pytest.mark.parametrize("seed", range(20))
def test_random_shapes(seed: int) -> None:
    draw = random.Random(seed)
    step = draw.choice((8, 8, 1))
    m, n, k = draw.randint(1, 280), step * draw.randint(1, 280 // step), 8 * draw.randint(1, 40)
    epilogue = draw.choice((RESIDUAL, Epilogue((), ("bf16",)), Epilogue(("bf16",), ("f32",)), Epilogue(("f32",), ("bf16t",))))
    options = WAYS[draw.choice(list(WAYS))]
    workgroups = draw.randint(0, 3) // (options.cluster or 1) * (options.cluster or 1)  # whole clusters
    epilogue.check(scheduled(epilogue.text(m, n, k), options, workgroups), m, n, k)


@pytest.mark.parametrize("way", ["together", "deferred", "ping-pong"])
def test_each_wait_for_the_boxes_is_needed(way: str) -> None:
    """Without the wait for what was copied, or for a slot that is free again, the schedule is refuted."""
    text = RESIDUAL.text(256, 384, 128)
    kernel = scheduled(text, WAYS[way], 1)
    assert is_right(kernel)
    waits = [op for op in kernel.walk() if isinstance(op, sync.WaitPhaseOp)]
    next_ops = {number: op.next_op for number, op in enumerate(waits)}
    full = [number for number, op in next_ops.items() if isinstance(op, tile.LocalLoadOp)]
    free = [
        number
        for number, op in enumerate(waits)
        if any(isinstance(c, tile.CopyOp) and tile.memref_type(c.view).get_shape() == (256, 384) for c in _behind(op, 5))
    ]
    assert len(full) >= 2 and len(free) >= 2
    for number in (*full, *free):
        broken = scheduled(text, WAYS[way], 1)
        erase([op for op in broken.walk() if isinstance(op, sync.WaitPhaseOp)][number])
        assert not is_right(broken), f"wait {number}"


def _behind(op: object, count: int) -> list[object]:
    found: list[object] = []
    while op is not None and len(found) < count:
        op = getattr(op, "next_op", None)
        found.append(op)
    return found


def texts(text: str, options: CompileOptions = WAYS["together"]) -> tuple[tile.KernelOp, dict[str, list[str]]]:
    """The schedule, and what passes told."""
    with collect_remarks() as log:
        kernel = scheduled(text, options)
    told: dict[str, list[str]] = {}
    for remark in log.remarks:
        told.setdefault(remark.pass_name, []).append(remark.text)
    return kernel, told


def test_rows_that_no_descriptor_reaches_are_read_by_the_threads() -> None:
    kernel, told = texts(RESIDUAL.text(128, 133, 128))
    assert told["load-in-bulk"] == ["read by the threads: pitch 266 bytes is not a multiple of 16"]
    assert any(isinstance(op, tile.LoadOp) for op in kernel.walk())
    assert is_right(kernel)


def test_a_bias_is_read_by_the_threads() -> None:
    f = Function("f")
    a, b, bias = f.argument("a", (128, 64), "bf16"), f.argument("b", (128, 64), "bf16"), f.argument("bias", (128,), "f32")
    sums = f.contract("mk,nk->mn", a, b)
    kernel, told = texts(
        f.text(*f.elementwise("mn,n->mn", [sums, bias], ["bf16"], lambda body, taken: [body.binary("arith.addf", *taken)]))
    )
    assert "load-in-bulk" not in told
    assert any(isinstance(op, tile.LoadOp) for op in kernel.walk())


def test_a_short_ring_is_a_remark() -> None:
    options = CompileOptions(tile=(64, 256, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=4, tuned=False)
    kernel, told = texts(RESIDUAL.text(256, 512, 128), options)
    assert told["set-roles"] == [
        "the ring has 3 stages instead of 4: shared memory holds no more beside the other buffers",
        "what the epilogue reads has 3 slots for 4 boxes a tile: shared memory holds no more beside the other buffers",
    ]
    assert is_right(kernel)
