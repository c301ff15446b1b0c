"""One workload from text to record: compiled, run, compared with float64 and with its peers, measured."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from treadle.bench.environment import DeviceState
from treadle.bench.machine import Machine, Pick
from treadle.bench.peers import Peer
from treadle.bench.protocol import MeasureOptions, Samples, flush_ms, measure, ratio, sample_indices, spread
from treadle.bench.records import COPY, OURS, CaseRecord
from treadle.bench.windows import places_of, sampled_images, sampled_results
from treadle.bench.workload import TensorSpec, Window, Workload
from treadle.driver import Program
from treadle.errors import TreadleError
from treadle.frontends import mlir
from treadle.options import CompileOptions
from treadle.sim.check import CheckResult, check
from treadle.sim.reference import evaluate_module

PLACES_A_ROW = 4
"""Results of a convolution that are compared for each row that is of other workloads, as long as their terms are few."""
MOST_TERMS = 1 << 21
"""Of all these results together, of one column."""
PEER_TOLERANCE = 0.05
"""Peers round between their steps; a result with a missing tile differs by the size of the values."""

Compile = Callable[[str, CompileOptions], Program]


class CompilationFailed(Exception):
    """The compiler gave up, in whatever way: the device has nothing to do with it."""


def compiled(compile_text: Compile, text: str, options: CompileOptions) -> Program:
    """The program. Raises CompilationFailed with the reason in one line."""
    try:
        return compile_text(text, options)
    except TreadleError as problem:
        raise CompilationFailed(f"{problem.code}: {problem.message}") from problem
    except Exception as problem:
        raise CompilationFailed(f"{type(problem).__name__}: {problem}") from problem


def bound_call(program: Program, arrays: Sequence[Any]) -> Callable[[], tuple[Any, ...]]:
    """The cheapest way to call the program on these arrays again and again."""
    bind = getattr(program, "bind", None)
    if bind is not None:
        return bind(*arrays)
    return lambda: program(*arrays)


def run_case(
    workload: Workload,
    machine: Machine,
    compile_text: Compile,
    peers: Mapping[str, Callable[[], Peer]],
    options: MeasureOptions,
    compile_options: CompileOptions | None = None,
) -> CaseRecord:
    """Measure a workload. Errors of the compiler and the device are raised; a wrong result is a record of status "wrong".

    A peer that fails is left out, and the record says why. Memory-bound workloads are measured beside a copy of as many bytes.
    """
    begun = time.perf_counter()
    chosen = compile_options or workload.options
    record = CaseRecord(workload.name, workload.group, workload.title, options=chosen.key())
    program = compiled(compile_text, workload.text, chosen)
    record.compile_seconds = time.perf_counter() - begun
    record.kernels = kernel_facts(program)
    arrays = [machine.tensor(spec, options.seed + number) for number, spec in enumerate(workload.inputs)]
    call = bound_call(program, arrays)
    results = tuple(machine.adopt(result) for result in call())
    machine.synchronize()
    first = [machine.bits(result) for result in results]
    verdicts = compare(workload, machine, arrays, results, options, chosen)
    record.error, record.worst = max(v.relative_error for v in verdicts), max(v.worst for v in verdicts)
    wrong = [spec.name for spec, verdict in zip(workload.outputs, verdicts, strict=True) if not verdict.ok]
    contenders: dict[str, Callable[[], object]] = {OURS: call}
    for name, make in peers.items():
        try:
            peer = make()
            given = peer(*arrays)
            machine.synchronize()
        except Exception as problem:  # noqa: BLE001 - what other people's compilers raise is no fault of ours
            record.peer_problems[name] = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
            continue
        theirs: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)  # pyright: ignore[reportUnknownVariableType]
        pairs = zip(results, theirs, strict=True)
        record.peer_difference[name] = max(machine.difference(mine, other) for mine, other in pairs)
        contenders[name] = _call_of(peer, arrays)
    far = [name for name, difference in record.peer_difference.items() if difference > PEER_TOLERANCE]
    if wrong or far:
        record.status = "wrong"
        reasons = [f"output {name} is outside its bounds" for name in wrong] + [f"it is not what {name} gives" for name in far]
        record.message = "; ".join(reasons)
    if workload.is_memory_bound:
        contenders[COPY] = machine.copy(workload.bytes)
    time.sleep(options.pause_seconds)
    state = DeviceState()
    sweep = flush_ms(machine)
    samples = measure(machine, contenders, options, state.begin)
    record.state = state.end()
    again = [machine.bits(machine.adopt(result)) for result in call()]
    record.repeatable = all(map(machine.equal_bits, first, again))
    _fill(record, workload, samples, sweep)
    record.seconds = time.perf_counter() - begun
    return record


def _call_of(peer: Peer, arrays: Sequence[Any]) -> Callable[[], object]:
    return lambda: peer(*arrays)


def _fill(record: CaseRecord, workload: Workload, samples: Mapping[str, Samples], sweep_ms: float) -> None:
    ours = samples[OURS]
    for name, taken in samples.items():
        record.ms[name], record.host_us[name] = taken.median_ms, taken.median_host_us
        record.spread[name] = spread(taken.device_ms)
        if name == COPY:
            record.of_copy = ratio(taken, ours)
        elif name != OURS:
            record.ratio[name] = ratio(taken, ours)
    record.rounds = len(ours.device_ms)
    record.tflops = workload.flop / ours.median_ms / 1e9
    record.gbps = workload.bytes / ours.median_ms / 1e6
    record.host_bound = [name for name, microseconds in record.host_us.items() if microseconds > 800 * sweep_ms]


def kernel_facts(program: Program) -> list[dict[str, Any]]:
    """Size and resources of the program's kernels."""
    kept = ("registers", "spill_bytes")
    return [
        {"name": kernel.symbol, "threads": kernel.block[0], "shared_bytes": kernel.shared_bytes}
        | {name: kernel.facts[name] for name in kept if name in kernel.facts}
        for kernel in program.manifest.kernels
    ]


def _compare_windows(
    workload: Workload,
    window: Window,
    machine: Machine,
    arrays: Sequence[Any],
    results: Sequence[Any],
    options: MeasureOptions,
    compile_options: CompileOptions,
) -> list[CheckResult]:
    """The verdict on single results of a convolution: so many places, each with so many columns."""
    generator, (spec,) = random.Random(options.seed), workload.outputs
    count = workload.rows * window.sides[0] * window.sides[1]
    wanted = max(options.rows, min(PLACES_A_ROW * options.rows, MOST_TERMS // (window.side**2 * workload.inputs[0].shape[-1])))
    places = places_of(sample_indices(count, wanted, generator), window.sides)
    columns = sample_indices(workload.columns, options.columns, generator)
    image, *others = zip(arrays, workload.inputs, strict=True)
    inputs = [sampled_images(machine, *image, window, places)]
    for array, own in others:
        inputs.append(machine.sample(array, [] if own.columns is None else [(own.columns, columns)], own.dtype))
    module = mlir.load(window.write(len(places), len(columns)), workload.name)
    (reference,) = evaluate_module(module, inputs, f32_precision=compile_options.f32_precision)
    return [check(sampled_results(machine, results[0], spec, columns, places), reference)]


def compare(
    workload: Workload,
    machine: Machine,
    arrays: Sequence[Any],
    results: Sequence[Any],
    options: MeasureOptions,
    compile_options: CompileOptions,
) -> list[CheckResult]:
    """The verdict on a sample of rows and columns of each output, against the float64 evaluation of the same program on that sample."""
    generator = random.Random(options.seed)
    if workload.window is not None:
        return _compare_windows(workload, workload.window, machine, arrays, results, options, compile_options)
    has_columns = any(spec.columns is not None for spec in workload.outputs)
    rows = sample_indices(workload.rows, options.rows, generator)
    columns = sample_indices(workload.columns, options.columns, generator) if has_columns else tuple(range(workload.columns))

    def picks(spec: TensorSpec) -> list[Pick]:
        along = ((spec.rows, rows), (spec.columns, columns))
        return [(axis, indices) for axis, indices in along if axis is not None]

    inputs = [machine.sample(array, picks(spec), spec.dtype) for array, spec in zip(arrays, workload.inputs, strict=True)]
    module = mlir.load(workload.write(len(rows), len(columns)), workload.name)
    references = evaluate_module(module, inputs, f32_precision=compile_options.f32_precision)
    return [
        check(machine.sample(result, picks(spec), spec.dtype), reference)
        for result, spec, reference in zip(results, workload.outputs, references, strict=True)
    ]
