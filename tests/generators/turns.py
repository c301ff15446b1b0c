"""Tile kernels whose workgroups share a sum, which each of them adds its part to in its turn: right ones, and wrong ones beside them."""

import numpy as np
from generators.arrivals import MATRIX, VECTOR

from treadle.sim.element_types import Array

ADD = """({
  ^bb0(%l: f32, %r: f32):
    %s = arith.addf %l, %r : f32
    tile.yield %s : f32
  }) : """
ONE = "tensor<1xf32>"


def turn_sum(
    *,
    turn: str = "%part",
    ended: str = "",
    count: str = "%parts",
    counter: str = "%row",
    counters: str = "%rows",
    merged: str = "%row",
    extra: str = "",
    grid: str = '"rows", "parts"',
    axes: tuple[int, int] = (0, 1),
) -> str:
    """Sums of the rows of an array of any size: `parts` workgroups a row, `chunk` columns each, in the order of the columns.

    What wrong kernels have otherwise: which turn a workgroup waits for and ends, of how many, at which counter of how many, to which row it
    adds its part; `extra` operations stand ahead of the turn; the grid, and along which axes of it rows and parts are.
    """
    vector = VECTOR.format("f32")
    return f"""
tile.kernel @turn_sum(%x: !tile.ptr<f32>, %running: !tile.ptr<f32>, %counters: !tile.ptr<i32>, %y: !tile.ptr<f32>,
                      %rows: index, %columns: index, %parts: index, %chunk: index) attributes {{
  arg_shapes = [["rows", "columns"], ["rows"], ["rows"], ["rows"]], output_count = 3, in_place = array<i64: 1, 2>,
  requires = ["columns <= parts * chunk"], grid = [{grid}], num_warps = 4
}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  %sums = tile.view %running offset 0 : i64 align 16 : i64 sizes [%rows] strides [] : !tile.ptr<f32> -> {vector}
  %arrived = tile.view %counters offset 0 : i64 align 16 : i64 sizes [{counters}] strides [] : !tile.ptr<i32> -> {VECTOR.format("i32")}
  %out = tile.view %y offset 0 : i64 align 16 : i64 sizes [%rows] strides [] : !tile.ptr<f32> -> {vector}
  %row = tile.program_id {axes[0]} : i64
  %part = tile.program_id {axes[1]} : i64
  %zero = arith.constant dense<0.0> : tensor<256xf32>
  %first = arith.muli %part, %chunk : index
  %behind = arith.addi %first, %chunk : index
  %end = arith.minsi %behind, %columns : index
  %mine = tile.view %x offset 0 : i64 align 16 : i64 sizes [%rows, %end] strides [%columns] : !tile.ptr<f32> -> {MATRIX}
  %lanes = scf.for %at = %first to %end step %c256 iter_args(%so_far = %zero) -> (tensor<256xf32>) {{
    %values = tile.load %mine[%row, %at] dims array<i64: 1> vector 1 : i64 : {MATRIX} -> tensor<256xf32>
    %more = arith.addf %so_far, %values : tensor<256xf32>
    scf.yield %more : tensor<256xf32>
  }}
  %sum = "tile.reduce"(%lanes) <{{axis = 0 : i64}}> {ADD}(tensor<256xf32>) -> {ONE}
  %upto = arith.subi %parts, %c1 : index
  %is_first = arith.cmpi eq, %part, %c0 : index
  %is_last = arith.cmpi eq, %part, %upto : index
{extra}
  tile.await_turn %arrived[{counter}] turn {turn} of {count} order "relaxed" : {VECTOR.format("i32")}
  %total = scf.if %is_first -> ({ONE}) {{
    scf.yield %sum : {ONE}
  }} else {{
    %before = tile.load %sums[{merged}] dims array<i64: 0> vector 1 : i64 : {vector} -> {ONE}
    %added = arith.addf %before, %sum : {ONE}
    scf.yield %added : {ONE}
  }}
  scf.if %is_last {{
    tile.store %total, %out[{merged}] dims array<i64: 0> vector 1 : i64 : {ONE}, {vector}
    scf.yield
  }} else {{
    tile.store %total, %sums[{merged}] dims array<i64: 0> vector 1 : i64 : {ONE}, {vector}
    scf.yield
  }}
  tile.pass_turn %arrived[{counter}] turn {ended or turn} of {count} order "relaxed" : {VECTOR.format("i32")}
  tile.return
}}
"""


REVERSED = (
    turn_sum(turn="%down", extra="  %down = arith.subi %upto, %part : index")
    .replace("arith.cmpi eq, %part, %c0", "arith.cmpi eq, %part, %upto", 1)
    .replace("%is_last = arith.cmpi eq, %part, %upto", "%is_last = arith.cmpi eq, %part, %c0", 1)
)
"""The last part first: who begins first waits for who begins last."""
WRONG: dict[str, str] = {
    "backwards": REVERSED,
    "one too many": turn_sum(extra="  %wrong = arith.addi %parts, %c1 : index", count="%wrong"),
    "one too few": turn_sum(extra="  %wrong = arith.subi %parts, %c1 : index", count="%wrong"),
    "one counter for all": turn_sum(counter="%c0"),
    "a counter a part": turn_sum(counter="%part", counters="%parts"),
    "one row for all": turn_sum(merged="%c0"),
    "the turn behind": turn_sum(turn="%late", extra="  %late = arith.addi %part, %c1 : index"),
    "ends another turn": turn_sum(ended="%late", extra="  %late = arith.addi %part, %c1 : index"),
}
"""Kernels whose workgroups do not meet as their authors may have meant."""


def fixed_sum(rows: int, columns: int, parts: int, text: str = "") -> str:
    """`turn_sum` (or another such `text`) for known sizes."""
    sizes = {"rows": rows, "columns": columns, "parts": parts, "chunk": -(-columns // parts)}
    text = (text or turn_sum()).replace(",\n                      %rows: index, %columns: index, %parts: index, %chunk: index)", ")")
    text = text.replace('  requires = ["columns <= parts * chunk"], ', "  ")
    for name, size in sizes.items():
        text = text.replace(f'"{name}"', f'"{size}"')
        text = text.replace("  %c0 = ", f"  %{name} = arith.constant {size} : index\n  %c0 = ", 1)
    return text


def sum_arrays(rows: int, columns: int, parts: int, seed: int = 0) -> tuple[list[Array], dict[str, int]]:
    """What a kernel of `turn_sum` is given, its memory for sums filled with what is no number; and its sizes."""
    x = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    arrays = [x, np.full(rows, np.nan, np.float32), np.zeros(rows, np.int32), np.full(rows, np.nan, np.float32)]
    return arrays, {"rows": rows, "columns": columns, "parts": parts, "chunk": -(-columns // parts)}
