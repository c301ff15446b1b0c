"""Schedule-level kernels in text, written by hand: every kind of queue and barrier, right as they stand.

Each computes something that is wrong as soon as one access happens at another time. `expected` gives what it computes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sim.schedule.program_text import bits, columns_layout, constants, kernel, rows_layout, shared, view, view_type

Array = NDArray[Any]


@dataclass(frozen=True)
class Program:
    """A kernel's text, its inputs (outputs are made), the shape of its output, and what it computes."""

    text: str
    inputs: tuple[Array, ...]
    output: tuple[int, ...]
    expected: Callable[..., Array]
    out_type: Any = np.float32

    def arrays(self) -> list[Array]:
        """Inputs and an output."""
        return [*self.inputs, np.full(self.output, -7, dtype=self.out_type)]


def numbers(shape: tuple[int, ...], dtype: Any, seed: int) -> Array:
    """Small integers: sums of products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


M, N, K = 64, 16, 16
"""The tile of the matrix programs."""


def _matmul_views(steps: int) -> str:
    return "\n".join(
        [
            view("%va", "%a", (M, K * steps), "f16"),
            view("%vb", "%b", (K * steps, N), "f16"),
            view("%vc", "%c", (M, N), "f32"),
        ]
    )


def _matmul(text: str, steps: int) -> Program:
    inputs = numbers((M, K * steps), np.float16, 1), numbers((K * steps, N), np.float16, 2)

    def product(a: Array, b: Array) -> Array:
        return a.astype(np.float32) @ b.astype(np.float32)

    return Program(text, inputs, (M, N), product)


MATMUL_ARGUMENTS = "%a: !tile.ptr<f16>, %b: !tile.ptr<f16>, %c: !tile.ptr<f32>"
ACC = f"tensor<{M}x{N}xf32, {rows_layout((M, N), 4, 32)}>"
VC = view_type((M, N), "f32")


def _contract(a: str, b: str, accumulator: str, result: str) -> str:
    return (
        f'{result} = tile.contract {a}, {b}, {accumulator} "wgmma_m64k16_f32_f16_f16" : {shared((M, K), "f16")}, {shared((K, N), "f16")}, '
        f"{ACC} -> {ACC}"
    )


def _loads(step: str, slot: str, bar: str, steps: int, indent: str = "    ") -> str:
    """Both operands of a step into a slot, with the barrier's slot."""
    a_ring, b_ring = shared((M, K), "f16", slots=3), shared((K, N), "f16", slots=3)
    return "\n".join(
        indent + line
        for line in [
            f"%k_{bar} = arith.muli {step}, %c{K} : index",
            f"%full_{bar} = sync.mbarrier_slot %full[{slot}] : !sync.mbarrier",
            f"sync.mbarrier_expect %full_{bar} bytes {(M * K + K * N) * 2} : i64",
            f"%sa_{bar} = pipe.slot %ra[{slot}] : {a_ring} -> {shared((M, K), 'f16')}",
            f"%sb_{bar} = pipe.slot %rb[{slot}] : {b_ring} -> {shared((K, N), 'f16')}",
            f"tile.copy %va[%c0, %k_{bar}] dims array<i64: 0, 1>, %sa_{bar} signals %full_{bar} : !sync.mbarrier "
            f'path "bulk_tensor" : {view_type((M, K * steps), "f16")}, {shared((M, K), "f16")}',
            f"tile.copy %vb[%k_{bar}, %c0] dims array<i64: 0, 1>, %sb_{bar} signals %full_{bar} : !sync.mbarrier "
            f'path "bulk_tensor" : {view_type((K * steps, N), "f16")}, {shared((K, N), "f16")}',
        ]
    )


def _ring_allocs() -> str:
    return "\n".join(
        [
            f"  %ra = tile.alloc : {shared((M, K), 'f16', slots=3)}",
            f"  %rb = tile.alloc : {shared((K, N), 'f16', slots=3)}",
            "  %full = sync.mbarrier_alloc 1 : i64 slots 3 : i64 : !sync.mbarrier",
        ]
    )


def _parity(step: str, name: str, indent: str) -> str:
    """Slot `%slot_name` of a step in a ring of three, and the parity `%parity_name` of its turn."""
    return "\n".join(
        indent + line
        for line in [
            f"%slot_{name} = arith.remui {step}, %c3 : index",
            f"%turn_{name} = arith.divui {step}, %c3 : index",
            f"%odd_{name} = arith.remui %turn_{name}, %c2 : index",
            f"%parity_{name} = arith.index_cast %odd_{name} : index to i32",
        ]
    )


def bulk_ring(steps: int = 7) -> Program:
    """Three slots, two copies ahead, one matrix instruction in flight; slots are reused after a barrier."""
    body = [constants(0, 1, 2, 3, K, steps), _matmul_views(steps), _ring_allocs()]
    body += [f"  %init = arith.constant dense<0.000000e+00> : {ACC}"]
    body += ["  scf.for %p = %c0 to %c2 step %c1 {", _loads("%p", "%p", "p", steps), "    scf.yield", "  }"]
    body += [f"  %sum = scf.for %i = %c0 to %c{steps} step %c1 iter_args(%old = %init) -> ({ACC}) {{"]
    body += [_parity("%i", "i", "    ")]
    body += [
        "    %ready = sync.mbarrier_slot %full[%slot_i] : !sync.mbarrier",
        "    sync.wait_phase %ready parity %parity_i",
        f"    %sa = pipe.slot %ra[%slot_i] : {shared((M, K), 'f16', slots=3)} -> {shared((M, K), 'f16')}",
        f"    %sb = pipe.slot %rb[%slot_i] : {shared((K, N), 'f16', slots=3)} -> {shared((K, N), 'f16')}",
        "    " + _contract("%sa", "%sb", "%old", "%new"),
        '    sync.commit "wgmma"',
        '    sync.wait "wgmma" pending 1 : i64',
        "    sync.barrier",
        "    %ahead = arith.addi %i, %c2 : index",
        f"    %more = arith.cmpi ult, %ahead, %c{steps} : index",
        "    %free = arith.remui %ahead, %c3 : index",
        "    scf.if %more {",
        _loads("%ahead", "%free", "n", steps, "      "),
        "      scf.yield",
        "    }",
        f"    scf.yield %new : {ACC}",
        "  }",
        '  sync.wait "wgmma" pending 0 : i64',
        f"  tile.store %sum, %vc[%c0, %c0] dims array<i64: 0, 1> vector 1 : i64 : {ACC}, {VC}",
    ]
    return _matmul(kernel(MATMUL_ARGUMENTS, "\n".join(body), warps=4, target="sm_90a", pointers=3), steps)


def roles(steps: int = 7) -> Program:
    """A producer of copies and two consumers that add up the even and the odd columns' products; merged through shared memory."""
    half = f"tensor<{M}x{N}xf32, {rows_layout((M, N), 4, 32)}>"
    merge = shared((M, N), "f32")
    body = [constants(0, 1, 2, 3, K, steps), _matmul_views(steps), _ring_allocs()]
    body += [f"  %merge = tile.alloc : {merge}", "  %empty = sync.mbarrier_alloc 2 : i64 slots 3 : i64 : !sync.mbarrier"]
    facts = "warps = array<i64: 4, 4>, groups = array<i64: 1, 2>, registers = array<i64: 0, 0>"
    body += [f'  "pipe.roles"() <{{names = ["producer", "consumer"], {facts}}}> ({{']
    body += [f"    scf.for %i = %c0 to %c{steps} step %c1 {{", _parity("%i", "i", "      ")]
    body += [
        "      %one = arith.constant 1 : i32",
        "      %before = arith.xori %parity_i, %one : i32",
        "      %taken = sync.mbarrier_slot %empty[%slot_i] : !sync.mbarrier",
        "      sync.wait_phase %taken parity %before",
        _loads("%i", "%slot_i", "p", steps, "      "),
        "      scf.yield",
        "    }",
        "    pipe.end_role",
        "  }, {",
        f"    %init = arith.constant dense<0.000000e+00> : {half}",
        "    %group = pipe.group_id",
        f"    %sum = scf.for %i = %c0 to %c{steps} step %c1 iter_args(%old = %init) -> ({half}) {{",
        _parity("%i", "i", "      "),
        "      %ready = sync.mbarrier_slot %full[%slot_i] : !sync.mbarrier",
        "      sync.wait_phase %ready parity %parity_i",
        "      %which = arith.remui %i, %c2 : index",
        "      %mine = arith.cmpi eq, %which, %group : index",
        f"      %next = scf.if %mine -> ({half}) {{",
        f"        %sa = pipe.slot %ra[%slot_i] : {shared((M, K), 'f16', slots=3)} -> {shared((M, K), 'f16')}",
        f"        %sb = pipe.slot %rb[%slot_i] : {shared((K, N), 'f16', slots=3)} -> {shared((K, N), 'f16')}",
        "        " + _contract("%sa", "%sb", "%old", "%new"),
        '        sync.commit "wgmma"',
        '        sync.wait "wgmma" pending 0 : i64',
        f"        scf.yield %new : {half}",
        "      } else {",
        f"        scf.yield %old : {half}",
        "      }",
        "      %done = sync.mbarrier_slot %empty[%slot_i] : !sync.mbarrier",
        "      sync.arrive %done",
        f"      scf.yield %next : {half}",
        "    }",
        "    %first = arith.cmpi eq, %group, %c0 : index",
        "    scf.if %first {",
        f"      tile.local_store %sum, %merge array<i64: 0, 0> : {half}, {merge}",
        "      sync.named_barrier 1 : i64 warps 8 : i64 arrive",
        "      scf.yield",
        "    } else {",
        "      sync.named_barrier 1 : i64 warps 8 : i64",
        f"      %other = tile.local_load %merge array<i64: 0, 0> : {merge} -> {half}",
        f"      %total = arith.addf %sum, %other : {half}",
        f"      tile.store %total, %vc[%c0, %c0] dims array<i64: 0, 1> vector 1 : i64 : {half}, {VC}",
        "      scf.yield",
        "    }",
        "    pipe.end_role",
        "  }) : () -> ()",
    ]
    return _matmul(kernel(MATMUL_ARGUMENTS, "\n".join(body), warps=12, target="sm_90a", pointers=3), steps)


ROWS, COLUMNS = 64, 16
"""The block of the programs that move data."""
BLOCK = (ROWS, COLUMNS)


def _blocks(text: str, steps: int) -> Program:
    """Adds up `steps` blocks that lie below one another."""
    inputs = (numbers((ROWS * steps, COLUMNS), np.float32, 3),)

    def total(x: Array) -> Array:
        return x.reshape(steps, ROWS, COLUMNS).sum(axis=0)

    return Program(text, inputs, BLOCK, total)


def _copied_ring(queue: str, path: str, target: str, lanes: int, wait: list[str], meet: list[str], steps: int) -> Program:
    tile = f"tensor<{ROWS}x{COLUMNS}xf32, {columns_layout(BLOCK, 4, lanes)}>"
    ring, slot = shared(BLOCK, "f32", slots=3), shared(BLOCK, "f32")
    source = view_type((ROWS * steps, COLUMNS), "f32")
    commit = [] if queue == "vmcnt" else [f'sync.commit "{queue}"']

    def copy(step: str, at: str, name: str) -> list[str]:
        return [
            f"%row_{name} = arith.muli {step}, %c{ROWS} : index",
            f"%to_{name} = pipe.slot %ring[{at}] : {ring} -> {slot}",
            f'tile.copy %vx[%row_{name}, %c0] dims array<i64: 0, 1>, %to_{name} path "{path}" : {source}, {slot}',
        ]

    lines = [
        constants(0, 1, 2, 3, ROWS, steps),
        view("%vx", "%x", (ROWS * steps, COLUMNS), "f32"),
        view("%vy", "%y", BLOCK, "f32"),
        f"%ring = tile.alloc : {ring}",
        f"%init = arith.constant dense<0.000000e+00> : {tile}",
        *copy("%c0", "%c0", "p"),
        *commit,
        *copy("%c1", "%c1", "q"),
        *commit,
        f"%sum = scf.for %i = %c0 to %c{steps} step %c1 iter_args(%old = %init) -> ({tile}) {{",
        "%at = arith.remui %i, %c3 : index",
        "%ahead = arith.addi %i, %c2 : index",
        "%next = arith.addi %i, %c1 : index",
        f"%more = arith.cmpi ult, %ahead, %c{steps} : index",
        f"%last = arith.cmpi eq, %next, %c{steps} : index",
        "%free = arith.remui %ahead, %c3 : index",
        *wait,
        *meet,
        "scf.if %more {",
        *copy("%ahead", "%free", "n"),
        "scf.yield",
        "}",
        *commit,
        f"%from = pipe.slot %ring[%at] : {ring} -> {slot}",
        f"%t = tile.local_load %from array<i64: 0, 0> : {slot} -> {tile}",
        f"%new = arith.addf %old, %t : {tile}",
        f"scf.yield %new : {tile}",
        "}",
        f"tile.store %sum, %vy[%c0, %c0] dims array<i64: 0, 1> vector 1 : i64 : {tile}, {view_type(BLOCK, 'f32')}",
    ]
    return _blocks(kernel("%x: !tile.ptr<f32>, %y: !tile.ptr<f32>", "\n".join(lines), warps=4, target=target, pointers=2), steps)


def cp_async_ring(steps: int = 7) -> Program:
    """Each thread copies its part, two groups ahead; a wait of one's own copies, then a barrier for the others'."""
    return _copied_ring("cp_async", "cp_async", "sm_90a", 32, ['sync.wait "cp_async" pending 1 : i64'], ["sync.barrier"], steps)


def direct_ring(steps: int = 7) -> Program:
    """The same with counters and bare barriers: loads from shared memory are waited for before the slot is given up."""
    wait = [
        "scf.if %last {",
        'sync.wait "vmcnt" pending 0 : i64',
        "scf.yield",
        "} else {",
        'sync.wait "vmcnt" pending 1 : i64',
        "scf.yield",
        "}",
    ]
    meet = ['sync.wait "lgkmcnt" pending 0 : i64', "sync.barrier bare"]
    return _copied_ring("vmcnt", "direct", "gfx950", 64, wait, meet, steps)


def bulk_store(steps: int = 7) -> Program:
    """Blocks are doubled in registers and leave through two staging buffers; a buffer is reused when it has been read."""
    tile = f"tensor<{ROWS}x{COLUMNS}xf32, {rows_layout(BLOCK, 4, 32)}>"
    ring, slot = shared(BLOCK, "f32", slots=2), shared(BLOCK, "f32")
    whole = (ROWS * steps, COLUMNS)
    lines = [
        constants(0, 1, 2, ROWS, steps),
        view("%vx", "%x", whole, "f32"),
        view("%vy", "%y", whole, "f32"),
        f"%ring = tile.alloc : {ring}",
        f"scf.for %i = %c0 to %c{steps} step %c1 {{",
        f"%row = arith.muli %i, %c{ROWS} : index",
        f"%t = tile.load %vx[%row, %c0] dims array<i64: 0, 1> vector 1 : i64 : {view_type(whole, 'f32')} -> {tile}",
        f"%two = arith.addf %t, %t : {tile}",
        "%at = arith.remui %i, %c2 : index",
        f"%s = pipe.slot %ring[%at] : {ring} -> {slot}",
        'sync.wait "bulk_store" pending 1 : i64 read',
        "sync.barrier",
        f"tile.local_store %two, %s array<i64: 0, 0> : {tile}, {slot}",
        'sync.fence "async_shared"',
        "sync.barrier",
        f'tile.copy_out %s, %vy[%row, %c0] dims array<i64: 0, 1> path "bulk_tensor" : {slot}, {view_type(whole, "f32")}',
        'sync.commit "bulk_store"',
        "scf.yield",
        "}",
        'sync.wait "bulk_store" pending 0 : i64 read',
    ]
    text = kernel("%x: !tile.ptr<f32>, %y: !tile.ptr<f32>", "\n".join(lines), warps=4, target="sm_90a", pointers=2)

    def doubled(x: Array) -> Array:
        return 2 * x

    return Program(text, (numbers(whole, np.float32, 4),), whole, doubled)


def shifted(steps: int = 5, target: str = "gfx942", lanes: int = 64) -> Program:
    """Two halves of the workgroup run the same loop one stage apart; each exchanges data among its own warps."""
    rows, columns = bits(ROWS), bits(COLUMNS)
    inner = [f"[0, {c}]" for c in columns[:-1]] + [f"[{r}, 0]" for r in rows[:-1]]
    lane_count = lanes.bit_length() - 1
    exchanged = (
        f"#tile.layout<register = [{', '.join(inner[lane_count:])}], lane = [{', '.join(inner[:lane_count])}], "
        f"warp = [[0, {columns[-1]}], [{rows[-1]}, 0]], repeat = [1, 1]>"
    )
    stored = f"tensor<{ROWS}x{COLUMNS}xf32, {rows_layout(BLOCK, 4, lanes)}>"
    loaded = f"tensor<{ROWS}x{COLUMNS}xf32, {exchanged}>"
    buffer = shared(BLOCK, "f32")
    lines = [
        constants(0, 1, ROWS, steps),
        view("%vx", "%x", (ROWS * steps, COLUMNS), "f32"),
        view("%vy", "%y", BLOCK, "f32"),
        f"%s = tile.alloc : {buffer}",
        f"%init = arith.constant dense<0.000000e+00> : {loaded}",
        "sync.barrier groups array<i64: 1>",
        f"%sum = scf.for %i = %c0 to %c{steps} step %c1 iter_args(%old = %init) -> ({loaded}) {{",
        f"%row = arith.muli %i, %c{ROWS} : index",
        f"%t = tile.load %vx[%row, %c0] dims array<i64: 0, 1> vector 1 : i64 : {view_type((ROWS * steps, COLUMNS), 'f32')} -> {stored}",
        f"tile.local_store %t, %s array<i64: 0, 0> : {stored}, {buffer}",
        "sync.barrier",
        f"%u = tile.local_load %s array<i64: 0, 0> : {buffer} -> {loaded}",
        f"%new = arith.addf %old, %u : {loaded}",
        "sync.barrier",
        f"scf.yield %new : {loaded}",
        "}",
        "sync.barrier groups array<i64: 0>",
        f"tile.store %sum, %vy[%c0, %c0] dims array<i64: 0, 1> vector 1 : i64 : {loaded}, {view_type(BLOCK, 'f32')}",
    ]
    return _blocks(kernel("%x: !tile.ptr<f32>, %y: !tile.ptr<f32>", "\n".join(lines), warps=4, target=target, pointers=2), steps)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "bulk ring": bulk_ring,
    "roles": roles,
    "cp.async ring": cp_async_ring,
    "direct ring": direct_ring,
    "bulk store": bulk_store,
    "shifted": shifted,
    "shifted, gfx1201": lambda: shifted(target="gfx1201", lanes=32),
}
