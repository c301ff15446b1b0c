"""Attention's shape at tile level, without a word of roles or synchronisation: two chained contractions, an online softmax between them.

A workgroup has 64 rows of Q for each group of warps, which are brought once; K and V come in tiles of 64 rows. P stays in registers, or
goes through shared memory where that is asked for.
"""

from generators.tile_kernel_texts import kernel, memref, view

SIDE = 64
INSTRUCTION = "wgmma_m64k16_f32_f16_f16"


def _reduce(result: str, source: str, op: str, kind: str) -> list[str]:
    return [
        f'    {result} = "tile.reduce"({source}) <{{axis = 1 : i64}}> ({{',
        "    ^bb0(%l: f32, %r: f32):",
        f"      %both = {op} %l, %r : f32",
        "      tile.yield %both : f32",
        f"    }}) : ({kind}) -> tensor<{SIDE}x1xf32>",
    ]


def attention(rows: int, length: int, *, groups: int = 1, config: str = "tiles", through: str = "") -> str:
    """softmax(Q K^T) V for Q of `rows` x 64, K and V of `length` x 64, all f16, and a result in f32. `config`: its form and what
    is said of it.

    `through`: the path that P is asked to take.
    """
    staging = f' {{staging = {{a = {{path = "{through}"}}}}}}' if through else ""
    q, o = memref("f16", (rows, SIDE), (SIDE, 1)), memref("f32", (rows, SIDE), (SIDE, 1))
    kt, v = memref("f16", (SIDE, length), (1, SIDE)), memref("f16", (length, SIDE), (SIDE, 1))
    wide, half, narrow = f"tensor<{SIDE}x{SIDE}xf32>", f"tensor<{SIDE}x{SIDE}xf16>", f"tensor<{SIDE}x1xf32>"
    load = "dims array<i64: 0, 1> vector 1 : i64"
    lines = [
        f"  %vq = {view('%q', 'f16', (rows, SIDE), (SIDE, 1))}",
        f"  %vk = {view('%k', 'f16', (SIDE, length), (1, SIDE))}",
        f"  %vv = {view('%v', 'f16', (length, SIDE), (SIDE, 1))}",
        f"  %vo = {view('%o', 'f32', (rows, SIDE), (SIDE, 1))}",
        "  %pid = tile.program_id 0 : i64",
        "  %group = pipe.group_id" if groups > 1 else "  %group = arith.constant 0 : index",
        "  %zero = arith.constant 0 : index",
        f"  %side = arith.constant {SIDE} : index",
        f"  %many = arith.constant {groups} : index",
        f"  %end = arith.constant {length} : index",
        "  %first = arith.muli %pid, %many : index",
        "  %mine = arith.addi %first, %group : index",
        "  %m0 = arith.muli %mine, %side : index",
        f"  %none = arith.constant dense<0.000000e+00> : {wide}",
        f"  %lowest = arith.constant dense<-1.000000e+30> : {narrow}",
        f"  %nothing = arith.constant dense<0.000000e+00> : {narrow}",
        f"  %tq = tile.load %vq[%m0, %zero] {load} : {q} -> {half}",
        f"  %acc, %top, %total = scf.for %i = %zero to %end step %side iter_args(%a = %none, %m = %lowest, %s = %nothing) -> "
        f"({wide}, {narrow}, {narrow}) {{",
        f"    %tk = tile.load %vk[%zero, %i] {load} : {kt} -> {half}",
        f'    %scores = tile.contract %tq, %tk, %none "{INSTRUCTION}" : {half}, {half}, {wide} -> {wide}',
        *_reduce("%most", "%scores", "arith.maximumf", wide),
        f"    %max = arith.maximumf %m, %most : {narrow}",
        f"    %maxw = tile.broadcast %max : {narrow} -> {wide}",
        f"    %d = arith.subf %scores, %maxw : {wide}",
        f"    %p = math.exp %d : {wide}",
        *_reduce("%part", "%p", "arith.addf", wide),
        f"    %lost = arith.subf %m, %max : {narrow}",
        f"    %scale = math.exp %lost : {narrow}",
        f"    %old = arith.mulf %s, %scale : {narrow}",
        f"    %sum = arith.addf %old, %part : {narrow}",
        f"    %scalew = tile.broadcast %scale : {narrow} -> {wide}",
        f"    %kept = arith.mulf %a, %scalew : {wide}",
        f"    %ph = arith.truncf %p : {wide} to {half}",
        f"    %tv = tile.load %vv[%i, %zero] {load} : {v} -> {half}",
        f'    %new = tile.contract %ph, %tv, %kept "{INSTRUCTION}"{staging} : {half}, {half}, {wide} -> {wide}',
        f"    scf.yield %new, %max, %sum : {wide}, {narrow}, {narrow}",
        "  }",
        f"  %totalw = tile.broadcast %total : {narrow} -> {wide}",
        f"  %out = arith.divf %acc, %totalw : {wide}",
        f"  tile.store %out, %vo[%m0, %zero] {load} : {wide}, {o}",
    ]
    args = "%q: !tile.ptr<f16>, %k: !tile.ptr<f16>, %v: !tile.ptr<f16>, %o: !tile.ptr<f32>"
    settings = f'{config}, warps = [4, 1], instruction = "{INSTRUCTION}"'
    grid = (str(-(-rows // (SIDE * groups))), "1")
    text = kernel("attention", args, "\n".join(lines), warps=4, target="sm_90a", grid=grid, config=settings, pointers=4)
    return text.replace("symbols = []", f"symbols = [], groups = {groups} : i64") if groups > 1 else text
