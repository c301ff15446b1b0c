"""The fault campaign as a table: every schedule, what is needed in it, and who notices when it is taken away or weakened.

Run it with `python tests/hazards/campaign.py`. Exit status 1 where the removal of a needed operation goes unnoticed, a weakened form that
the simulator refuses passes the verifier, or a right schedule does not pass.
"""

import sys
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from generators import arrivals
from generators.attention import attention
from hazards.kernels import kernel_of
from hazards.programs import PROGRAMS
from transforms.kernel_configs import reconfigure
from transforms.role_kernels import kernel_of as kernel_of_roles
from transforms.role_kernels import mixed_kernel, scheduled

from treadle import machine, pipelines
from treadle.analysis.view_access import chosen_size
from treadle.bench.families import beside
from treadle.dialects import pipe, tile
from treadle.dialects.tile_attributes import PointerType
from treadle.ir.builtin import IntegerAttr, i64
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.options import CompileOptions
from treadle.sim.element_types import Array, storage_dtype
from treadle.sim.faults import SimulationFault
from treadle.sim.schedule import simulate
from treadle.sim.schedule.scheduler import Mode
from treadle.verify.check import is_right, prove
from treadle.verify.faults import faults
from treadle.verify.lint import needed_sync_ops, sync_ops

WAYS: tuple[tuple[Mode, int], ...] = (("late", 0), ("late", 3), ("random", 1), ("random", 2))
MATMUL = """
func.func @f(%a: tensor<{m}x{k}xf16>, %b: tensor<{k}x{n}xf16>, %c: tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %r = linalg.matmul ins(%a, %b : tensor<{m}x{k}xf16>, tensor<{k}x{n}xf16>) outs(%c : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %r : tensor<{m}x{n}xf32>
}}
"""


def compiled() -> Iterator[tuple[str, tile.KernelOp]]:
    """Kernels that the pipeline makes, with roles, pipelined and plain, for both vendors."""
    choices = (
        ("roles", "sm_90a", CompileOptions(tile=(64, 64, 64), warps=(4, 1), consumer_warpgroups=2, num_stages=2), (128, 64, 192)),
        ("bulk", "sm_90a", CompileOptions(roles=False), (64, 64, 192)),
        ("threads", "sm_90a", CompileOptions(), (64, 33, 100)),
        ("pipelined", "sm_90a", CompileOptions(roles=False, pipeline_stages=3), (64, 64, 320)),
        ("cluster", "sm_90a", CompileOptions(tile=(64, 64, 64), warps=(4, 1), consumer_warpgroups=1, num_stages=2), (256, 64, 192)),
        (
            "cluster_both",
            "sm_90a",
            CompileOptions(tile=(64, 64, 64), warps=(4, 1), num_stages=2, form="roles", cluster=4, cluster_n=2, group_m=2),
            (128, 128, 192),
        ),
        ("mfma", "gfx942", CompileOptions(), (32, 32, 96)),
        ("wmma", "gfx1100", CompileOptions(), (32, 32, 96)),
    )
    for name, target, options, (m, n, k) in choices:
        module = parse_module(MATMUL.format(m=m, n=n, k=k), f"{name}.mlir")
        spec = machine.target_spec(target)
        run_passes(module, [*pipelines.tensor_passes(spec, options), *pipelines.tile_passes(spec, options)])
        kernel = next(op for op in module.walk() if isinstance(op, tile.KernelOp))
        if name == "cluster":
            reconfigure(kernel, cluster=2, workgroups=2)
        run_passes(module, pipelines.unproven_schedule_passes(options))
        yield f"matmul_{name}_{target}", next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    for groups, workgroups in ((1, 0), (2, 1)):
        text = attention(128 * groups, 192, groups=groups, config=f"roles, num_stages = 2, workgroups = {workgroups}")
        module = parse_module(text, "attention.mlir")
        run_passes(module, pipelines.unproven_schedule_passes())
        yield f"attention_{groups}_sm_90a", next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    module = parse_module(attention(256, 192, groups=2, config="roles, num_stages = 2, workgroups = 1"), "turns.mlir")
    next(op for op in module.walk() if isinstance(op, tile.KernelOp)).attributes[pipe.ISSUE_TURNS] = IntegerAttr(1, i64)
    run_passes(module, pipelines.unproven_schedule_passes())
    yield "attention_turns_sm_90a", next(op for op in module.walk() if isinstance(op, tile.KernelOp))
    deferred = CompileOptions(tile=(64, 128, 64), warps=(4, 1), consumer_warpgroups=1, num_stages=2, deferred_store=True)
    yield "matmul_deferred_sm_90a", kernel_of_roles(64, 352, 128, deferred, deferred_store=True)
    for target in ("sm_90a", "gfx942"):
        yield f"split_sum_{target}", arrivals.scheduled(arrivals.fixed_sum(3, 700, 4), target)
    yield "split_rows_sm_90a", arrivals.scheduled(arrivals.split_rows(), "sm_90a")
    yield from splits()
    yield "matmul_two_widths_sm_90a", mixed_kernel(64, 592, 128, 96, 2, deferred)
    in_turn = CompileOptions(tile=(64, 128, 64), warps=(4, 1), num_stages=2, ping_pong=2)
    for name, options in (("deferred", deferred), ("ping_pong", in_turn)):
        text = beside("residual", "hazards", "linear_residual", 64, 352, 128, "bf16").text
        yield f"residual_{name}_sm_90a", scheduled(text, options, 1)


def splits() -> Iterator[tuple[str, tile.KernelOp]]:
    """Split products by who merges their parts: a second launch, the last workgroup to arrive (both also with clusters that fetch an
    operand once), the workgroups of a cluster, each in its turn.
    """
    choices: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        ("launch", "sm_90a", arrivals.split_product(33, 40, 200, 2, merge="kernel"), {}),
        ("launch", "gfx942", arrivals.split_product(33, 40, 200, 2, merge="kernel"), {}),
        ("last", "sm_90a", arrivals.split_product(33, 40, 200, 2), {}),
        ("last", "gfx942", arrivals.split_product(33, 40, 200, 2), {}),
        ("last_roles", "sm_90a", *arrivals.IN_ROLES["one group"]),
        ("last_shared", "sm_90a", *arrivals.shared_products("last")["rows"]),
        ("launch_shared", "sm_90a", *arrivals.shared_products("kernel")["columns"]),
        ("cluster", "sm_90a", arrivals.split_product(33, 40, 200, 2, merge="cluster"), {}),
        ("cluster_roles", "sm_90a", *arrivals.IN_CLUSTERS["one group"]),
        ("turn", "sm_90a", arrivals.split_product(33, 40, 200, 3, merge="turnstile"), {}),
        ("turn", "gfx942", arrivals.split_product(33, 40, 200, 3, merge="turnstile"), {}),
        ("turn_roles", "sm_90a", arrivals.split_product(64, 96, 576, 3, merge="turnstile"), arrivals.IN_ROLES["one group"][1]),
    )
    for name, target, text, knobs in choices:
        for number, kernel in enumerate(arrivals.product_kernels(text, target, **knobs)):
            yield f"split_{name}_{number}_{target}", kernel


def arrays_of(kernel: tile.KernelOp) -> list[Array]:
    """Small integers for a kernel's pointers, as many as their views reach; counters are zero."""
    rng = np.random.default_rng(0)
    views = {op.pointer: op for op in kernel.walk() if isinstance(op, tile.ViewOp)}
    counters = {op.counters.owner for op in kernel.walk() if isinstance(op, tile.OrderedCounterOp)}
    found: list[Array] = []
    for number, argument in enumerate(kernel.body.block.args):
        if argument in views:
            kind = tile.memref_type(views[argument].result)
            if kernel.arg_shapes is not None:
                size = prod(int(text.data) for text in kernel.arg_shapes.data[number].data)
            else:
                strides, ends = tile.view_strides(views[argument].result), map(chosen_size, views[argument].size_values())
                sizes = [n if end is None else max(end.one, end.other) for n, end in zip(kind.get_shape(), ends, strict=True)]
                size = 1 + sum((n - 1) * (s or 0) for n, s in zip(sizes, strides, strict=True))
            numbers = np.zeros(size) if views[argument] in counters else rng.integers(-3, 4, size)
            found.append(numbers.astype(storage_dtype(kind.element_type)))
        elif isinstance(argument.type, PointerType):
            found.append(np.zeros(1, storage_dtype(argument.type.element_type)))
    return found


def simulator_objects(kernel: tile.KernelOp, symbols: Sequence[int]) -> bool:
    """Whether the simulator objects, with effects as late as they may be and in random orders."""
    arrays = arrays_of(kernel)
    meets = any(isinstance(op, tile.OrderedCounterOp) for op in kernel.walk())
    workgroups = None if meets else kernel.cluster_size()
    try:
        return any(not simulate(kernel, arrays, symbols, mode=mode, seed=seed, workgroups=workgroups).ok for mode, seed in WAYS)
    except SimulationFault:
        return True


def counts_early(kernel: tile.KernelOp) -> bool:
    """Whether all that the verifier says is that a warp's arrival may count for the phase before its own.

    The simulator's warps of a group meet where they multiply, so that none of them comes there ahead of the others.
    """
    found = prove(kernel).findings
    return bool(found) and all("counted into the phase before" in finding.message for finding in found)


def main() -> int:
    """Print the table; 1 where it shows a miss."""
    schedules = [(name, kernel_of(s.text, name), s.symbols) for name, s in PROGRAMS.items()]
    schedules += [(name, kernel, ()) for name, kernel in compiled()]
    missed = 0
    print(f"{'':34} {'':4} {'removed':-^27} {'weakened':-^27} right:")
    heads = ("sync", "needed", "verifier", "simulator", "wrong", "verifier", "simulator", "objections")
    print(f"{'schedule':34} " + " ".join(f"{head:>{max(4, len(head))}}" for head in heads))
    totals = [0] * len(heads)
    for name, kernel, symbols in schedules:
        walked = list(kernel.walk())
        needed = set(needed_sync_ops(kernel))
        removed = [f for f in faults(kernel, ("remove",)) if walked[f.index] in needed]
        by_verifier = sum(not is_right(f.kernel) for f in removed)
        by_simulator = sum(counts_early(f.kernel) or simulator_objects(f.kernel, symbols) for f in removed)
        weakened = [(not is_right(f.kernel), simulator_objects(f.kernel, symbols)) for f in faults(kernel, ("weaken",))]
        wrong = [pair for pair in weakened if any(pair)]
        against = int(not is_right(kernel)) + int(simulator_objects(kernel, symbols))
        row = (
            *(sum(1 for _ in sync_ops(kernel)), len(removed), by_verifier, by_simulator),
            *(len(wrong), sum(one for one, _ in wrong), sum(other for _, other in wrong), against),
        )
        totals = [a + b for a, b in zip(totals, row, strict=True)]
        missed += len(removed) * 2 - by_verifier - by_simulator + against + row[4] - row[5]
        print(line(name, row, heads), flush=True)
    print(line(f"{len(schedules)} schedules", totals, heads))
    return int(missed > 0)


def line(name: str, row: Sequence[int], heads: Sequence[str]) -> str:
    """One row of the table."""
    return f"{name:34} " + " ".join(f"{value:{max(4, len(head))}}" for value, head in zip(row, heads, strict=True))


if __name__ == "__main__":
    sys.exit(main())
