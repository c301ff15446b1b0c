"""Tile kernels whose workgroups share a sum, and of which the last to arrive merges the parts: right ones, and wrong ones beside them."""

from typing import Any

import numpy as np

from treadle import machine
from treadle.dialects import tile
from treadle.driver.lowering import scheduled as lowered_to_schedule
from treadle.driver.sources import read_source
from treadle.ir.dialects import builtin
from treadle.ir.text import parse_module
from treadle.layout.shared_layout import row_major
from treadle.options import CompileOptions
from treadle.pipelines import Door, lower
from treadle.sim.element_types import Array

_ADD = """({
  ^bb0(%l: f32, %r: f32):
    %s = arith.addf %l, %r : f32
    tile.yield %s : f32
  }) : """
MATRIX = "memref<?x?xf32, strided<[?, 1]>>"
VECTOR = "memref<?x{}, strided<[1]>>"


def split_sum(
    *, count: str = "%parts", counter: str = "%row", counters: str = "%rows", merged: str = "%row", guard: str = "%last", extra: str = ""
) -> str:
    """Sums of the rows of an array of any size: `parts` workgroups a row, `chunk` columns each.

    What wrong kernels have otherwise: what a counter counts to, which one a workgroup arrives at, how many there are, which row the last
    one merges, under which condition it does; `extra` operations stand ahead of the arrival.
    """
    return f"""
tile.kernel @split_sum(%x: !tile.ptr<f32>, %part_sums: !tile.ptr<f32>, %counters: !tile.ptr<i32>, %y: !tile.ptr<f32>,
                       %rows: index, %columns: index, %parts: index, %chunk: index) attributes {{
  arg_shapes = [["rows", "columns"], ["parts", "rows"], ["rows"], ["rows"]], output_count = 3, in_place = array<i64: 1, 2>,
  requires = ["columns <= parts * chunk"], grid = ["rows", "parts"], num_warps = 4
}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  %partial = tile.view %part_sums offset 0 : i64 align 16 : i64 sizes [%parts, %rows] strides [%rows] : !tile.ptr<f32> -> {MATRIX}
  %arrived = tile.view %counters offset 0 : i64 align 16 : i64 sizes [{counters}] strides [] : !tile.ptr<i32> -> {VECTOR.format("i32")}
  %out = tile.view %y offset 0 : i64 align 16 : i64 sizes [%rows] strides [] : !tile.ptr<f32> -> {VECTOR.format("f32")}
  %row = tile.program_id 0 : i64
  %part = tile.program_id 1 : i64
  %zero = arith.constant dense<0.0> : tensor<256xf32>
  %none = arith.constant dense<0.0> : tensor<1xf32>
  %first = arith.muli %part, %chunk : index
  %behind = arith.addi %first, %chunk : index
  %end = arith.minsi %behind, %columns : index
  %mine = tile.view %x offset 0 : i64 align 16 : i64 sizes [%rows, %end] strides [%columns] : !tile.ptr<f32> -> {MATRIX}
  %lanes = scf.for %at = %first to %end step %c256 iter_args(%so_far = %zero) -> (tensor<256xf32>) {{
    %values = tile.load %mine[%row, %at] dims array<i64: 1> vector 1 : i64 : {MATRIX} -> tensor<256xf32>
    %more = arith.addf %so_far, %values : tensor<256xf32>
    scf.yield %more : tensor<256xf32>
  }}
  %sum = "tile.reduce"(%lanes) <{{axis = 0 : i64}}> {_ADD}(tensor<256xf32>) -> tensor<1xf32>
  tile.store %sum, %partial[%part, %row] dims array<i64: 1> vector 1 : i64 : tensor<1xf32>, {MATRIX}
{extra}
  %last = tile.arrive_last %arrived[{counter}] of {count} : {VECTOR.format("i32")}
  scf.if {guard} {{
    %total = scf.for %p = %c0 to %parts step %c1 iter_args(%so_far = %none) -> (tensor<1xf32>) {{
      %value = tile.load %partial[%p, {merged}] dims array<i64: 1> vector 1 : i64 : {MATRIX} -> tensor<1xf32>
      %more = arith.addf %so_far, %value : tensor<1xf32>
      scf.yield %more : tensor<1xf32>
    }}
    tile.store %total, %out[{merged}] dims array<i64: 0> vector 1 : i64 : tensor<1xf32>, {VECTOR.format("f32")}
    scf.yield
  }}
  tile.return
}}
"""


def fixed_sum(rows: int, columns: int, parts: int) -> str:
    """`split_sum` for known sizes."""
    return with_sizes(split_sum(), rows, columns, parts)


def with_sizes(text: str, rows: int, columns: int, parts: int) -> str:
    """The text of a `split_sum`, a wrong one too, for known sizes."""
    sizes = {"rows": rows, "columns": columns, "parts": parts, "chunk": -(-columns // parts)}
    text = text.replace(",\n                       %rows: index, %columns: index, %parts: index, %chunk: index)", ")")
    text = text.replace('  requires = ["columns <= parts * chunk"], ', "  ")
    for name, size in sizes.items():
        text = text.replace(f'"{name}"', f'"{size}"')
        text = text.replace("  %c0 = ", f"  %{name} = arith.constant {size} : index\n  %c0 = ", 1)
    return text


WRONG: dict[str, str] = {
    "one too many": split_sum(extra="  %wrong = arith.addi %parts, %c1 : index", count="%wrong"),
    "one too few": split_sum(extra="  %wrong = arith.subi %parts, %c1 : index", count="%wrong"),
    "counts rows": split_sum(count="%rows"),
    "one counter for all": split_sum(counter="%c0"),
    "a counter a part": split_sum(counter="%part", counters="%parts"),
    "fewer counters": split_sum(extra="", counters="%c1"),
    "another row": split_sum(extra="  %up = arith.addi %row, %c1 : index\n  %next = arith.remui %up, %rows : index", merged="%next"),
    "everybody merges": split_sum(extra="  %yes = arith.constant true", guard="%yes"),
    "the first merges": split_sum(extra="  %yes = arith.cmpi eq, %part, %c0 : index", guard="%yes"),
}
"""Kernels whose workgroups do not meet as their authors may have meant."""

TILE = 64


def split_rows(parts: int = 3, *, tail: str = "") -> str:
    """Parts of a sum of tiles that leave shared memory by bulk copies (sm_90a). `tail`: behind the copies."""
    shared = row_major((TILE, TILE), (1, 0))
    offset = "[" + ", ".join(str(list(basis)) for basis in shared.offset) + "]"
    buffer = f"memref<{TILE}x{TILE}xf32, #tile.shared_layout<offset = {offset}, repeat = {list(shared.repeat)}>, #tile.shared>"
    rows = f"memref<{parts * TILE}x{TILE}xf32, strided<[{TILE}, 1]>>"
    tiles = f"tensor<{TILE}x{TILE}xf32>"
    return f"""
tile.kernel @split_rows(%x: !tile.ptr<f32>, %part_sums: !tile.ptr<f32>, %counters: !tile.ptr<i32>, %y: !tile.ptr<f32>) attributes {{
  arg_shapes = [["{parts * TILE}", "{TILE}"], ["{parts * TILE}", "{TILE}"], ["1"], ["{TILE}", "{TILE}"]], output_count = 3,
  in_place = array<i64: 1, 2>, grid = ["{parts}"], num_warps = 4
}} {{
  %in = tile.view %x offset 0 : i64 align 16 : i64 sizes [] strides [] : !tile.ptr<f32> -> {rows}
  %partial = tile.view %part_sums offset 0 : i64 align 16 : i64 sizes [] strides [] : !tile.ptr<f32> -> {rows}
  %arrived = tile.view %counters offset 0 : i64 align 16 : i64 sizes [] strides [] : !tile.ptr<i32> -> memref<1xi32, strided<[1]>>
  %out = tile.view %y offset 0 : i64 align 16 : i64 sizes [] strides [] : !tile.ptr<f32> -> memref<{TILE}x{TILE}xf32, strided<[{TILE}, 1]>>
  %part = tile.program_id 0 : i64
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %tile = arith.constant {TILE} : index
  %parts = arith.constant {parts} : index
  %none = arith.constant dense<0.0> : {tiles}
  %row = arith.muli %part, %tile : index
  %mine = tile.load %in[%row, %c0] dims array<i64: 0, 1> vector 1 : i64 : {rows} -> {tiles}
  %twice = arith.addf %mine, %mine : {tiles}
  %buffer = tile.alloc : {buffer}
  tile.local_store %twice, %buffer array<i64: 0, 0> : {tiles}, {buffer}
  tile.copy_out %buffer, %partial[%row, %c0] dims array<i64: 0, 1> path "bulk_tensor" : {buffer}, {rows}
{tail}
  %last = tile.arrive_last %arrived[%c0] of %parts : memref<1xi32, strided<[1]>>
  scf.if %last {{
    %total = scf.for %p = %c0 to %parts step %c1 iter_args(%so_far = %none) -> ({tiles}) {{
      %there = arith.muli %p, %tile : index
      %value = tile.load %partial[%there, %c0] dims array<i64: 0, 1> vector 1 : i64 : {rows} -> {tiles}
      %more = arith.addf %so_far, %value : {tiles}
      scf.yield %more : {tiles}
    }}
    tile.store %total, %out[%c0, %c0] dims array<i64: 0, 1> vector 1 : i64 : {tiles}, memref<{TILE}x{TILE}xf32, strided<[{TILE}, 1]>>
    scf.yield
  }}
  tile.return
}}
"""


def split_product(m: int, n: int, k: int, parts: int, kind: str = "f16", *, step: int = 64, merge: str = "last") -> str:
    """A product onto an initial value, split along k, at tensor level."""
    a, b, c = f"tensor<{m}x{k}x{kind}>", f"tensor<{k}x{n}x{kind}>", f"tensor<{m}x{n}xf32>"
    return f"""
func.func @f(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
  %r = linalg.matmul {{treadle.split_reduction = #dispatch.split<r0 = "{parts}" step {step}, merge = {merge}>}}
    ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
  return %r : {c}
}}
"""


def product_kernels(text: str, target: str = "sm_90a", **knobs: Any) -> list[tile.KernelOp]:
    """The kernels of a split product at schedule level, without their proof. `knobs`: fields of CompileOptions."""
    module = lowered_to_schedule(read_source(text), target, CompileOptions(verify=False, **knobs), None)
    return [op for op in module.walk() if isinstance(op, tile.KernelOp)]


def product_kernel(text: str, target: str = "sm_90a", **knobs: Any) -> tuple[builtin.ModuleOp, tile.KernelOp]:
    """The one kernel of a split product at schedule level, without its proof, and its module. `knobs`: fields of CompileOptions."""
    module = lowered_to_schedule(read_source(text), target, CompileOptions(verify=False, **knobs), None)
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    return module, kernel


IN_ROLES: dict[str, tuple[str, dict[str, Any]]] = {
    "one group": (split_product(64, 96, 576, 3), {"tile": (64, 32, 64), "num_stages": 2}),
    "two groups": (split_product(128, 128, 768, 3), {"tile": (64, 64, 64), "num_stages": 3, "consumer_warpgroups": 2}),
    "swapped": (split_product(20, 384, 3072, 3), {"form": "swapped", "num_stages": 4}),
}
"""Split products whose parts are computed and merged by consumer warpgroups."""


IN_CLUSTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "one group": (split_product(64, 96, 1024, 4, merge="cluster"), {"tile": (64, 32, 64), "num_stages": 2}),
    "two groups": (split_product(128, 64, 512, 2, merge="cluster"), {"tile": (64, 64, 64), "num_stages": 2, "consumer_warpgroups": 2}),
    "swapped": (split_product(24, 64, 1024, 2, merge="cluster"), {"form": "swapped", "num_stages": 3}),
    "odd pitch": (split_product(63, 65, 639, 2, merge="cluster"), {"form": "roles", "num_stages": 3}),
    "tiles": (split_product(63, 65, 639, 2, merge="cluster"), {"form": "tiles"}),
}
"""Split products whose parts the workgroups of a cluster have."""


def shared_products(merge: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Split products, in parts of equal and of unequal length, whose clusters fetch an operand once; some of them have tiles beyond the
    result. `merge`: who merges.
    """
    two = {"tile": (64, 64, 64), "num_stages": 3, "consumer_warpgroups": 2, "cluster": 2}
    # Who merges in the kernel does so with operands as they stand.
    exchanged = "exchanged" if merge == "kernel" else "roles"
    return {
        "columns": (split_product(136, 32, 640, 3, merge=merge), {"tile": (64, 32, 64), "num_stages": 2, "cluster": 2, "group_m": 2}),
        "rows": (split_product(128, 136, 448, 2, merge=merge), {**two, "group_m": 1}),
        "rows, alike": (split_product(128, 72, 768, 2, "bf16", merge=merge), {**two, "group_m": 1}),
        "exchanged": (split_product(32, 328, 448, 2, merge=merge), {**two, "form": exchanged, "tile": (64, 32, 64), "group_m": 2}),
        "of four": (split_product(136, 32, 320, 2, merge=merge), {"tile": (64, 32, 64), "num_stages": 2, "cluster": 4, "group_m": 4}),
        "swapped": (split_product(32, 512, 1000, 3, merge=merge), {"form": "swapped", "num_stages": 3, "cluster": 2}),
    }


def scheduled(text: str, target: str, options: CompileOptions | None = None) -> tile.KernelOp:
    """The kernel at schedule level, without its proof."""
    module = parse_module(text, "arrivals.mlir")
    lower(module, machine.target_spec(target), options or CompileOptions(), proven=False, door=Door("tile"))
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def sum_arrays(rows: int, columns: int, parts: int, seed: int = 0) -> tuple[list[Array], dict[str, int]]:
    """What a kernel of `split_sum` is given, its memory for parts filled with what is no number; and its sizes."""
    x = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    arrays = [x, np.full((parts, rows), np.nan, np.float32), np.zeros(rows, np.int32), np.full(rows, np.nan, np.float32)]
    return arrays, {"rows": rows, "columns": columns, "parts": parts, "chunk": -(-columns // parts)}


def row_arrays(parts: int = 3, seed: int = 0) -> list[Array]:
    """What a kernel of `split_rows` is given."""
    x = np.random.default_rng(seed).integers(-9, 10, (parts * TILE, TILE)).astype(np.float32)
    return [x, np.full_like(x, np.nan), np.zeros(1, np.int32), np.full((TILE, TILE), np.nan, np.float32)]
