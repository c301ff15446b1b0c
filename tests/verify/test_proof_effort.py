"""What a proof costs, counted: its time is that of the nodes that its runs look at, which no other load of the machine makes more."""

import time
from dataclasses import replace
from random import Random

import pytest
from language.persistent_products import SMALL, lowered, plain

from treadle import pipelines
from treadle.bench.suite import find
from treadle.dialects import tile
from treadle.frontends import mlir
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.verify.check import COST_OF_A_PIECE, Proof
from treadle.verify.classes import Atoms, Class, Form, TooHard, combined, scaled, shifted
from treadle.verify.program import Program
from treadle.verify.repetition import Repetitions
from treadle.verify.uncovered import FEW_QUOTIENTS, MAX_COLUMNS, NEARLY, UncoveredSet
from treadle.verify.verify_schedule import COMPILED, schedule_kernels

RUNTIME_ROWS = """
func.func @f(%x: tensor<?x501xf16>, %w: tensor<501x77xf16>) -> tensor<?x77xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x501xf16>
  %e = tensor.empty(%m) : tensor<?x77xf32>
  %z = arith.constant 0.0 : f32
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x77xf32>) -> tensor<?x77xf32>
  %r = linalg.matmul ins(%x, %w : tensor<?x501xf16>, tensor<501x77xf16>) outs(%f : tensor<?x77xf32>) -> tensor<?x77xf32>
  return %r : tensor<?x77xf32>
}
"""
LIMITS = {
    "square-4096-nk": 4000,
    "square-8192-nk": 4000,
    "llama3-8b-prefill-2048-qkv": 2800,
    "fp8-8192-blocks": 4700,
    "sdxl-geglu640": 6300,
    "sdxl-geglu1280": 5400,
    "int8-2048x10240x1280": 5400,
}
"""Nodes of all runs together; one takes some four microseconds."""
LOOKS = {"square-8192-nk": 45, "linear-residual-4096x4096x4096": 30, "int8-2048x10240x1280": 30}
"""States that are compared in all runs together; one takes as long as some hundred nodes."""


STEPS = {"linear-residual-4096x4096x4096": 9000, "square-4096-nk": 2000, "sdxl-geglu640": 5600}
"""Steps of the control of all runs together: some two microseconds each."""


def compiled_kernels(name: str) -> tuple[tile.KernelOp, ...]:
    """The schedules of a workload of the suite, not proven yet."""
    workload = find(name)
    assert workload is not None
    module = mlir.load(workload.text, f"{name}.mlir")
    pipelines.lower(module, target_spec("sm_90a"), replace(workload.options, tuned=False), until="schedule", proven=False)
    kernels = schedule_kernels(module)
    assert kernels
    return kernels


@pytest.mark.parametrize("name", LIMITS | STEPS)
def test_runs_of_warp_specialised_kernels_are_short(name: str) -> None:
    """Each state comes back as soon as its rounds are the same: what all agents know of the past is no part of it."""
    for kernel in compiled_kernels(name):
        proof = Proof(Program(kernel), 1, COMPILED)
        assert proof.verdict().is_proven
        assert 0 < proof.cost <= LIMITS.get(name, proof.cost)
        assert 0 < proof.tracer.state.cost <= STEPS.get(name, proof.tracer.state.cost)


@pytest.mark.parametrize("name", LOOKS)
def test_few_states_are_compared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None before the rings are full, and none in loops that are over soon after: these iterations are sooner run."""
    looks, look = list[int](), Repetitions.look

    def counted(self: Repetitions) -> bool:
        looks.append(1)
        return look(self)

    monkeypatch.setattr(Repetitions, "look", counted)
    for kernel in compiled_kernels(name):
        assert Proof(Program(kernel), 1, COMPILED).verdict().is_proven
    assert 0 < len(looks) <= LOOKS[name]


@pytest.mark.parametrize(("stages", "classes", "nodes"), [(3, 100, 30_000), (4, 120, 45_000)])
def test_tiles_in_ping_pong_are_few_classes(stages: int, classes: int, nodes: int) -> None:
    """A set counts the steps of the other's tile along with it, so that a tile may have any number of steps more; and the mbarriers by
    which the sets take turns are rings of one slot, so that any two tiles may follow.
    """
    kernel, _, _ = lowered(plain, 304, 304, 304, stages=stages, GROUPS=2, **SMALL)
    proof = Proof(Program(kernel), 1, COMPILED)
    assert proof.verdict().is_proven
    assert proof.classes <= classes
    assert proof.cost <= nodes


@pytest.mark.parametrize("stages", [3, 4])
def test_threads_that_copy_for_sets_in_ping_pong_are_few_classes(stages: int) -> None:
    """Threads of a producer may be in different tiles: the steps that one does in the next while another is still in the last are rounds
    of their own, so that both tiles may have any number of steps more.
    """
    text = """
    func.func @f(%a: tensor<1978x?xf16>, %b: tensor<?x4736xf16>, %c: tensor<1978x4736xf32>) -> tensor<1978x4736xf32> {
      %r = linalg.matmul ins(%a, %b : tensor<1978x?xf16>, tensor<?x4736xf16>) outs(%c : tensor<1978x4736xf32>) -> tensor<1978x4736xf32>
      return %r : tensor<1978x4736xf32>
    }"""
    module = mlir.load(text, "product.mlir")
    options = CompileOptions(form="roles", tile=(64, 192, 64), warps=(4, 1), ping_pong=2, num_stages=stages, tuned=False, verify=False)
    pipelines.lower(module, target_spec("sm_90a"), options, until="schedule")
    (kernel,) = schedule_kernels(module)
    proof = Proof(Program(kernel), 1, COMPILED)
    assert proof.verdict().is_proven
    assert proof.classes <= 70


def test_large_sizes_are_tried_from_below() -> None:
    """A length of a loop stands for longer ones: a class each for those below it, as long as the first that is tried is any large one."""
    turns = "floor((3 * floor((n + 127) / 128) - p + 131) / 132)"
    left = UncoveredSet(("n", "p"), f"9000 <= n < {2**31} and {turns} mod 8 = 3 and 0 <= p < 132 and 128 * p < n", 10**6)
    n, p = next(iter(left))
    assert 0 <= p < 132
    assert n <= (1 + 1 / NEARLY) * 132 * 2 * 128  # three turns are made from 2 * 132 thirds of a tile's rows on


def proof_of_runtime_rows() -> Proof:
    """The proof, not made yet, of the kernel of `RUNTIME_ROWS`."""
    module = mlir.load(RUNTIME_ROWS, "rows.mlir")
    pipelines.lower(module, target_spec("sm_90a"), CompileOptions(tuned=False), until="schedule")
    (kernel,) = schedule_kernels(module)
    return Proof(Program(kernel), 1, COMPILED)


def test_runtime_rows_in_turns_are_few_classes() -> None:
    """Three tiles of one workgroup are more rows than classes are looked for among one by one."""
    proof = proof_of_runtime_rows()
    assert proof.verdict().is_proven
    assert proof.classes <= 6


@pytest.mark.parametrize(("dtype", "most"), [("f64", 24), ("f32", 25), ("i64", 24)])
def test_products_of_runtime_sizes_on_vector_units_are_few_classes(dtype: str, most: int) -> None:
    """The lesser of two lengths is one of them throughout; and lengths between small and large are tried from below, too."""
    of = f"tensor<?x?x{dtype}>"
    text = f"""
    func.func @f(%x: {of}, %w: {of}, %out: {of}) -> {of} {{
      %r = linalg.matmul ins(%x, %w : {of}, {of}) outs(%out : {of}) -> {of}
      return %r : {of}
    }}"""
    module = mlir.load(text, "product.mlir")
    pipelines.lower(module, target_spec("sm_90a"), CompileOptions(tuned=False, verify=False), until="schedule")
    for kernel in schedule_kernels(module):
        proof = Proof(Program(kernel), 1, COMPILED)
        assert proof.verdict().is_proven
        assert proof.classes <= most


def test_lengths_of_middle_size_are_tried_from_below() -> None:
    left = UncoveredSet(("n", "m"), f"100 <= n < {2**31} and 0 <= m < {2**31} and floor((n + 7) / 8) mod 4 = 1", 10**6)
    n, _ = next(iter(left))
    assert n <= (1 + 1 / NEARLY) * (100 + 4 * 8)


@pytest.mark.parametrize(
    ("condition", "about"),
    [
        ("m >= 700 and n + m < 300 and m - n < 100000000", 700),
        ("n + 128 * m < p and 700 <= m < 100000000", 64 * 700),
        ("n < -40000", 40001),
    ],
)
def test_numbers_of_either_sign_are_found_in_a_few_operations(condition: str, about: int) -> None:
    """Numbers that a kernel reads may be negative: each box that is looked in is smaller than what was found before."""
    left = UncoveredSet(("n", "m", "p"), f"{-(2**31)} <= n, m, p < {2**31} and {condition}", 30_000)
    assert max(map(abs, next(iter(left)))) <= (1 + 1 / NEARLY) * about


def test_a_class_of_many_quotients_is_given_up_at_once() -> None:
    """What the library does for each constraint grows with the cube of their number, and it counts nothing of that."""
    names = ("n", "m")
    atoms = Atoms([0] * len(names))
    many = Class(atoms)
    for at in range(1, 16):
        for of in range(16):
            form = combined(scaled(atoms.unknown(0), 5 * at), scaled(atoms.unknown(1), 5 * of))
            many.not_negative(shifted(atoms.remainder(form, 16), -1))
    assert many.size()[1] > MAX_COLUMNS
    left = UncoveredSet(names, "0 <= n < 1000 and 0 <= m < 1000", 10**6)
    start = time.process_time()
    with pytest.raises(TooHard):
        left.remove(many)
    assert time.process_time() - start < 1


def seconds_and_cost(quotients: int) -> tuple[float, int]:
    """Of taking one class with so many quotients away: the least of five times, for others' work makes some of them long."""
    names = ("n", "m")
    atoms = Atoms([0] * len(names))
    made = Class(atoms)
    for at in range(1, quotients + 1):
        made.not_negative(shifted(atoms.remainder(shifted(scaled(atoms.unknown(at % 2), 5), 3 * at), 16 + at), -1))
    took, cost = list[float](), 0
    for _ in range(5):
        left = UncoveredSet(names, f"0 <= n < {2**31} and 0 <= m < {2**31}", 10**7)
        start = time.process_time()
        left.remove(made)
        took.append(time.process_time() - start)
        cost = left.cost
    return min(took), cost


def test_what_a_class_costs_is_charged() -> None:
    """Of the most columns a class takes, seconds go to one at most; its charge grows as they do, and is that of as long a run."""
    found = [seconds_and_cost(quotients) for quotients in (FEW_QUOTIENTS, 16, MAX_COLUMNS)]
    assert found[-1][0] < 1
    rates = [seconds / cost for seconds, cost in found]
    assert max(rates) < 3 * min(rates)
    proof, start = proof_of_runtime_rows(), time.process_time()
    assert proof.verdict().is_proven
    assert max(rates) < 4 * COST_OF_A_PIECE * (time.process_time() - start) / proof.cost


def test_sums_of_remainders_are_known_to_be_no_less_than_zero() -> None:
    """What a form is found to be, it is for all values; and sums of remainders of both sides are found."""
    random = Random(3)
    for _ in range(200):
        lows = [random.choice((-99, -3, 0, 2)) for _ in range(2)]
        atoms = Atoms(lows)
        form, constant = Form((), 0), random.randint(-2, 2)
        remainders = []
        for _ in range(random.randint(1, 3)):
            inner = combined(scaled(atoms.unknown(0), random.randint(-9, 9)), scaled(atoms.unknown(1), random.randint(-9, 9)))
            remainders.append((atoms.remainder(shifted(inner, random.randint(0, 5)), random.randint(2, 9)), random.choice((-1, 1, 2, 3))))
        for remainder, factor in remainders:
            form = combined(form, remainder, factor)
        quotient = atoms.quotient(scaled(atoms.unknown(random.randint(0, 1)), random.randint(-1, 3)), random.randint(2, 5))
        form = shifted(combined(form, quotient, random.randint(0, 2)), constant)
        if atoms.is_never_negative(form):
            points = [(random.randint(lows[0], 99), random.randint(lows[1], 99)) for _ in range(60)]
            assert all(atoms.value(form.terms, form.constant, dict(enumerate(point))) >= 0 for point in points)
        else:
            assert constant < 0 or any(factor < 0 for _, factor in remainders) or any(low < 0 for low in lows) or quotient.terms
