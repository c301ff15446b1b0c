"""What `torch_blocks.py` prints: one block with this backend and with Inductor, measured side by side."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import argparse
import gc
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch_block_jobs import side_by_side
from torch_block_kernels import table
from torch_models import BLOCKS, TINY, Block, random_block

import treadle.torch
from treadle.bench.machine import TorchMachine
from treadle.bench.protocol import QUICK, Clock, MeasureOptions, measure, ratio

SCRIPT = Path(__file__).with_name("torch_blocks.py")
WITH_GRAPHS = ("max-autotune", "reduce-overhead")
FULL = MeasureOptions(rounds=41, warm_seconds=0.2, most_seconds=8.0)
HOST_ROUNDS, HOST_CALLS = 25, 6
"""Calls enqueued in a row must fit into the device's queue of launches."""
SLACK = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-20}
"""Of an error beside eager's: an epsilon of the results' type."""
TINY_BESIDE = 2.0**-10
compiling: Callable[[], AbstractContextManager[None]] = nullcontext
"""What surrounds a first call, in which a block is compiled."""


class HostClock:
    """Times of the simulator, which mean nothing."""

    def flush(self) -> None:
        """There is no cache of a device."""

    def mark(self) -> float:
        """Now."""
        return time.perf_counter()

    def elapsed_ms(self, start: float, end: float) -> float:
        """Between two marks."""
        return 1e3 * (end - start)

    def synchronize(self) -> None:
        """Nothing is in flight."""


def device(options: argparse.Namespace) -> str:
    """Where tensors are."""
    return "cpu" if options.tiny else "cuda"


def peer(options: argparse.Namespace) -> str:
    """What is measured beside: a backend that needs no C++ compiler where there is no GPU."""
    return "aot_eager" if options.tiny else "inductor"


def made(block: Block, options: argparse.Namespace) -> tuple[Any, tuple[Any, ...], Any]:
    """A block's model, its inputs, and what comes back to its result."""
    torch.manual_seed(options.seed)
    with torch.device(device(options)):
        model = block.layout(block.make().to(block.dtype).train(block.is_training))
    inputs = block.inputs(device(options))
    with torch.no_grad():
        return model, inputs, torch.randn_like(model(*inputs))


def compiled(model: Any, compiler: str, options: argparse.Namespace) -> Callable[..., Any]:
    """The model by "treadle" or the peer."""
    others: dict[str, Any] = {}
    if compiler == "treadle" and options.tiny:
        others["options"] = {"treadle.rest": "eager", "treadle.target": "sim"}
    elif options.mode != "default" and not options.tiny:
        others["mode"] = options.mode
    return torch.compile(model, backend=treadle.torch.backend if compiler == "treadle" else peer(options), dynamic=False, **others)


def caller(block: Block, model: Any, run: Callable[..., Any], inputs: tuple[Any, ...], back: Any) -> Callable[[], list[Any]]:
    """One call: the result; with the gradients of the first input and of the parameters where the block is trained."""

    def forward() -> list[Any]:
        with torch.no_grad():
            return [run(*inputs)]

    def training() -> list[Any]:
        y = run(*inputs)
        return [y.detach(), *torch.autograd.grad(y, wanted, back)]

    wanted = [inputs[0].requires_grad_(), *model.parameters()] if block.is_training else []
    return training if block.is_training else forward


def errors(found: list[Any], right: list[Any]) -> list[float]:
    """Of each tensor the largest difference over the largest value. What is tiny beside the others' values is as exact as these let it be:
    some gradients, as those of the keys' biases, are zero but for rounding.
    """
    largest = [float(r.abs().max()) for r in right]
    least = max(1e-30, TINY_BESIDE * max(largest))
    return [float((f.double() - r).abs().max()) / max(most, least) for f, r, most in zip(found, right, largest, strict=True)]


def are_right(found: list[float], eager: list[float], dtype: Any) -> bool:
    """Whether no tensor is much further off than eager's."""
    return all(mine <= 2 * theirs + SLACK[dtype] for mine, theirs in zip(found, eager, strict=True))


def stepped(call: Callable[[], Any]) -> Callable[[], Any]:
    """A call whose results may lie where those of the last one lay: what Inductor's graphs want to be told."""

    def run() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return call()

    return run


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """A call as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()

    def replay(_: Any = kept) -> None:
        graph.replay()

    return replay


def host_us(calls: dict[str, Callable[[], Any]], clock: Clock) -> dict[str, float]:
    """Microseconds of the host for a call of each: the median over rounds of a few calls that nothing waits for. Which is first changes
    from round to round, and garbage is collected before: what either left behind is not the other's.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(HOST_ROUNDS):
        gc.collect()
        for name, call in list(calls.items())[:: -1 if turn % 2 else 1]:
            clock.synchronize()
            start = time.perf_counter()
            for _ in range(HOST_CALLS):
                call()
            times[name].append(1e6 * (time.perf_counter() - start) / HOST_CALLS)
    clock.synchronize()
    return {name: statistics.median(found) for name, found in times.items()}


def right_results(block: Block, model: Any, inputs: tuple[Any, ...], back: Any, options: argparse.Namespace) -> list[Any]:
    """In float64."""
    with torch.device(device(options)):
        wide = block.make().double()
    wide.load_state_dict(model.state_dict())
    given = tuple(v.detach().double() if v.is_floating_point() else v for v in inputs)
    return [v.detach() for v in caller(block, wide, wide, given, back.double())()]


def measured(name: str, block: Block, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """One block: right, and how fast with either compiler."""
    torch._dynamo.reset()
    treadle.torch.clear_report()
    model, inputs, back = made(block, options)
    row: dict[str, Any] = {"block": name, "dtype": str(block.dtype), "mode": options.mode, "training": block.is_training}
    exact = right_results(block, model, inputs, back, options)
    eager = errors(caller(block, model, model, inputs, back)(), exact)
    row["eager_error"] = max(eager)
    calls: dict[str, Callable[[], Any]] = {}
    at_first: list[float] = []
    for compiler in (peer(options), "treadle"):
        call = caller(block, model, compiled(model, compiler, options), inputs, back)
        call = stepped(call) if options.mode in WITH_GRAPHS else call
        start = time.perf_counter()
        with compiling():
            first = call()
        row[f"{compiler}_first_s"] = time.perf_counter() - start
        at_first = errors(first, exact)
        row[f"{compiler}_error"] = max(at_first)
        del first
        calls[compiler] = call
    row["host_us"] = host_us(calls, clock)
    own_graphs = options.mode in WITH_GRAPHS or options.tiny
    timed = calls if own_graphs else {compiler: captured(call) for compiler, call in calls.items()}
    samples = measure(clock, timed, QUICK if options.tiny else FULL)
    for compiler, found in samples.items():
        row[f"{compiler}_ms"] = found.median_ms
    if options.kernels and not options.tiny:
        row["kernel_times"] = table(timed, clock)
    after = errors([v.clone() for v in calls["treadle"]()], exact)
    row["error_after"] = max(after)
    row["ratio"] = ratio(samples[peer(options)], samples["treadle"])
    report = treadle.torch.report()
    row |= {"products": len(report.regions), "taken": report.taken, "left": [r.reason for r in report.regions if not r.taken]}
    row["kernels"] = sum(len(r.kernels) for r in report.regions if r.taken)
    row["report"] = str(report)
    row["is_right"] = are_right(at_first, eager, block.dtype) and are_right(after, eager, block.dtype)
    return row


def shown(row: dict[str, Any], options: argparse.Namespace) -> str:
    """A row as a line."""
    theirs = peer(options)
    host, host_theirs = row["host_us"]["treadle"], row["host_us"][theirs]
    regions = max(1, row["taken"])
    line = (
        f"{row['ratio']:.3f}  {row['block']}  {row['treadle_ms']:.4f} ms, {theirs} {row[f'{theirs}_ms']:.4f}"
        f" | {row['taken']}/{row['products']} taken, {row['kernels']} kernels"
        f" | error {max(row['treadle_error'], row['error_after']):.1e}, {theirs} {row[f'{theirs}_error']:.1e}"
        f", eager {row['eager_error']:.1e}"
        f" | host {host:.0f} us, {theirs} {host_theirs:.0f} ({(host - host_theirs) / regions:+.1f} a region)"
        f" | first call {row['treadle_first_s']:.1f} s, {theirs} {row[f'{theirs}_first_s']:.1f}"
    )
    if "compile" in row:
        line += " | fresh processes " + ", ".join(f"{who} {s['cold']:.2f} s cold {s['warm']:.2f} warm" for who, s in row["compile"].items())
    return line + ("" if row["is_right"] else "  WRONG")


# --- compile time


def first_call(name: str, options: argparse.Namespace) -> float:
    """Seconds of a compiled block's first call in this process, which has run and compiled something else before."""
    block = chosen(options)[name]
    model, inputs, back = made(block, options)
    torch.compile(torch.sin, backend=peer(options))(torch.randn(7, device=device(options)))
    start = time.perf_counter()
    found = caller(block, model, compiled(model, options.first_call, options), inputs, back)()
    float(found[0].sum())
    return time.perf_counter() - start


def compile_seconds(name: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """First calls in fresh processes, by compiler: with empty caches, then with those that the first one filled."""
    found: dict[str, dict[str, float]] = {}
    for compiler in (peer(options), "treadle"):
        with tempfile.TemporaryDirectory() as folder:
            there = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TREADLE_CACHE_DIR": f"{folder}/treadle"}
            command = [sys.executable, str(SCRIPT), name, "--first-call", compiler, "--mode", options.mode, "--seed", str(options.seed)]
            command += ["--tiny"] * options.tiny + ["--random", str(options.random)] * bool(options.random)
            found[compiler] = {}
            for caches in ("cold", "warm"):
                done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **there})
                if done.returncode:
                    raise RuntimeError(f"a first call of {name} failed:\n{done.stderr[-2000:]}")
                found[compiler][caches] = float(done.stdout.split()[-1])
    return found


# --- which


def clock_of(options: argparse.Namespace) -> Clock:
    """What times are taken with."""
    return HostClock() if options.tiny else TorchMachine(FULL.flush_bytes)


def chosen(options: argparse.Namespace) -> dict[str, Block]:
    """The blocks that the command line names, in its order; random ones forward, and forward with backward."""
    if options.random:
        rng = random.Random(options.seed)
        drawn = [random_block(rng, 64 if options.tiny else 8192) for _ in range(options.random)]
        return {f"{name}{' training' * t}": replace(b, is_training=t) for name, b in drawn for t in (False, True)}
    known = TINY if options.tiny else BLOCKS
    if missing := [name for name in options.blocks if name not in known]:
        raise SystemExit(f"no block {missing[0]!r}; there are {', '.join(known)}")
    return {name: known[name] for name in options.blocks or known}


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure one after the other, until the deadline."""
    start = time.perf_counter()
    blocks = list(chosen(options).items())[options.first * (2 if options.random else 1) :]
    if options.jobs > 1:
        yield from side_by_side([name for name, _ in blocks], options, lambda: 0 < options.deadline < time.perf_counter() - start)
        return
    clock = clock_of(options)
    for number, (name, block) in enumerate(blocks):
        if options.deadline and time.perf_counter() - start > options.deadline:
            print(f"deadline: {len(blocks) - number} not begun, from {name!r} on", flush=True)
            return
        row = measured(name, block, options, clock)
        if options.compile:
            row["compile"] = compile_seconds(name, options)
        yield row
