"""Tile kernels in text, as convert-dispatch-to-tile leaves them, for the tests of the passes behind it."""


def view(pointer: str, element: str, sizes: tuple[int, int], strides: tuple[int, int], align: int = 16) -> str:
    """A `tile.view` of static sizes and strides."""
    shape = "x".join(map(str, sizes))
    return (
        f"tile.view {pointer} offset 0 : i64 align {align} : i64 sizes [] strides [] : !tile.ptr<{element}> -> "
        f"memref<{shape}x{element}, strided<[{strides[0]}, {strides[1]}]>>"
    )


def memref(element: str, sizes: tuple[int, int], strides: tuple[int, int]) -> str:
    """The type of such a view."""
    return f"memref<{sizes[0]}x{sizes[1]}x{element}, strided<[{strides[0]}, {strides[1]}]>>"


def kernel(
    name: str,
    args: str,
    body: str,
    *,
    warps: int,
    target: str,
    grid: tuple[str, str] = ("1", "1"),
    config: str = "tiles",
    pointers: int = 3,
) -> str:
    """A kernel in generic form around `body`."""
    types = ", ".join("16" for _ in range(pointers))
    header = (
        f'symbols = [], grid = ["{grid[0]}", "{grid[1]}", "1"], num_warps = {warps} : i64, target = "{target}", '
        f'arg_align = array<i64: {types}>, output_count = 1 : i64, config = #tile.form<{config}>, sym_name = "{name}"'
    )
    return f'"tile.kernel"() <{{{header}}}> ({{\n^bb0({args}):\n{body}\n  tile.return\n}}) : () -> ()\n'


def matmul(
    m: int,
    n: int,
    k: int,
    *,
    element: str = "f16",
    tile: tuple[int, int, int] = (128, 128, 64),
    warps: tuple[int, int] = (4, 1),
    target: str = "sm_90a",
    instruction: str = "wgmma_m64k16_f32_f16_f16",
    b_transposed: bool = False,
    a_transposed: bool = False,
    out: str = "f32",
    bias: bool = False,
    lda: int | None = None,
) -> str:
    """C[m, n] = A[m, k] * B[k, n] (+ bias[n]), A and B in any order, C row-major."""
    bm, bn, bk = tile
    a_strides = (1, m) if a_transposed else (lda or k, 1)
    b_strides = (1, k) if b_transposed else (n, 1)
    a_type, b_type = memref(element, (m, k), a_strides), memref(element, (k, n), b_strides)
    c_type = memref(out, (m, n), (n, 1))
    acc, a_tile, b_tile = f"tensor<{bm}x{bn}xf32>", f"tensor<{bm}x{bk}x{element}>", f"tensor<{bk}x{bn}x{element}>"
    lines = [
        f"  %va = {view('%a', element, (m, k), a_strides)}",
        f"  %vb = {view('%b', element, (k, n), b_strides)}",
        f"  %vc = {view('%c', out, (m, n), (n, 1))}",
        "  %pm = tile.program_id 1 : i64",
        "  %pn = tile.program_id 0 : i64",
        f"  %bm = arith.constant {bm} : index",
        f"  %bn = arith.constant {bn} : index",
        f"  %bk = arith.constant {bk} : index",
        "  %zero = arith.constant 0 : index",
        f"  %k = arith.constant {k} : index",
        "  %m0 = arith.muli %pm, %bm : index",
        "  %n0 = arith.muli %pn, %bn : index",
        f"  %init = arith.constant dense<0.000000e+00> : {acc}",
        f"  %acc = scf.for %i = %zero to %k step %bk iter_args(%old = %init) -> ({acc}) {{",
        f"    %ta = tile.load %va[%m0, %i] dims array<i64: 0, 1> vector 1 : i64 : {a_type} -> tensor<{bm}x{bk}x{element}>",
        f"    %tb = tile.load %vb[%i, %n0] dims array<i64: 0, 1> vector 1 : i64 : {b_type} -> tensor<{bk}x{bn}x{element}>",
        f'    %new = tile.contract %ta, %tb, %old "{instruction}" : {a_tile}, {b_tile}, {acc} -> {acc}',
        f"    scf.yield %new : {acc}",
        "  }",
    ]
    value, value_type = "%acc", acc
    args = f"%a: !tile.ptr<{element}>, %b: !tile.ptr<{element}>"
    if bias:
        args += ", %d: !tile.ptr<f32>"
        d_type = memref("f32", (1, n), (0, 1))
        lines += [
            f"  %vd = {view('%d', 'f32', (1, n), (0, 1))}",
            f"  %td = tile.load %vd[%zero, %n0] dims array<i64: 0, 1> vector 1 : i64 : {d_type} -> tensor<1x{bn}xf32>",
            f"  %wide = tile.broadcast %td : tensor<1x{bn}xf32> -> {acc}",
            f"  %sum = arith.addf %acc, %wide : {acc}",
        ]
        value = "%sum"
    if out != "f32":
        value_type = f"tensor<{bm}x{bn}x{out}>"
        lines.append(f"  %narrow = arith.truncf {value} : {acc} to {value_type}")
        value = "%narrow"
    lines.append(f"  tile.store {value}, %vc[%m0, %n0] dims array<i64: 0, 1> vector 1 : i64 : {value_type}, {c_type}")
    config = f'tiles, warps = [{warps[0]}, {warps[1]}], instruction = "{instruction}"'
    grid = (str(-(-n // bn)), str(-(-m // bm)))
    args += f", %c: !tile.ptr<{out}>"
    return kernel(
        "mm", args, "\n".join(lines), warps=warps[0] * warps[1], target=target, grid=grid, config=config, pointers=4 if bias else 3
    )


def row_softmax(rows: int, columns: int, tile: tuple[int, int], *, warps: int = 4, target: str = "sm_90a") -> str:
    """Softmax along the rows of a `rows` x `columns` array whose columns fit one tile."""
    bm, bn = tile
    wide, narrow = f"tensor<{bm}x{bn}xf32>", f"tensor<{bm}x1xf32>"
    x_type = memref("f32", (rows, columns), (columns, 1))

    def reduce(result: str, source: str, op: str) -> list[str]:
        return [
            f'  {result} = "tile.reduce"({source}) <{{axis = 1 : i64}}> ({{',
            "  ^bb0(%l: f32, %r: f32):",
            f"    %v = {op} %l, %r : f32",
            "    tile.yield %v : f32",
            f"  }}) : ({wide}) -> {narrow}",
        ]

    lines = [
        f"  %vx = {view('%x', 'f32', (rows, columns), (columns, 1))}",
        f"  %vy = {view('%y', 'f32', (rows, columns), (columns, 1))}",
        "  %pm = tile.program_id 0 : i64",
        f"  %bm = arith.constant {bm} : index",
        "  %zero = arith.constant 0 : index",
        "  %m0 = arith.muli %pm, %bm : index",
        f"  %t = tile.load %vx[%m0, %zero] dims array<i64: 0, 1> vector 1 : i64 other 0xFF800000 : f32 : {x_type} -> {wide}",
        *reduce("%max", "%t", "arith.maximumf"),
        f"  %maxw = tile.broadcast %max : {narrow} -> {wide}",
        f"  %d = arith.subf %t, %maxw : {wide}",
        f"  %e = math.exp %d : {wide}",
        *reduce("%sum", "%e", "arith.addf"),
        f"  %sumw = tile.broadcast %sum : {narrow} -> {wide}",
        f"  %q = arith.divf %e, %sumw : {wide}",
        f"  tile.store %q, %vy[%m0, %zero] dims array<i64: 0, 1> vector 1 : i64 : {wide}, {x_type}",
    ]
    config = "reduction"
    args = "%x: !tile.ptr<f32>, %y: !tile.ptr<f32>"
    return kernel("softmax", args, "\n".join(lines), warps=warps, target=target, grid=(str(-(-rows // bm)), "1"), config=config, pointers=2)


def transpose(rows: int, columns: int, tile: tuple[int, int], *, element: str = "f32", warps: int = 4, target: str = "sm_90a") -> str:
    """y[j, i] = 2 x[i, j]: loads along columns, stores along rows."""
    bm, bn = tile
    shape = f"tensor<{bm}x{bn}x{element}>"
    x, y = memref(element, (rows, columns), (columns, 1)), memref(element, (rows, columns), (1, rows))
    lines = [
        f"  %vx = {view('%x', element, (rows, columns), (columns, 1))}",
        f"  %vy = {view('%y', element, (rows, columns), (1, rows))}",
        "  %pm = tile.program_id 1 : i64",
        "  %pn = tile.program_id 0 : i64",
        f"  %bm = arith.constant {bm} : index",
        f"  %bn = arith.constant {bn} : index",
        "  %m0 = arith.muli %pm, %bm : index",
        "  %n0 = arith.muli %pn, %bn : index",
        f"  %t = tile.load %vx[%m0, %n0] dims array<i64: 0, 1> vector 1 : i64 : {x} -> {shape}",
        f"  %two = arith.addf %t, %t : {shape}",
        f"  tile.store %two, %vy[%m0, %n0] dims array<i64: 0, 1> vector 1 : i64 : {shape}, {y}",
    ]
    config = "elementwise"
    args = f"%x: !tile.ptr<{element}>, %y: !tile.ptr<{element}>"
    grid = (str(-(-columns // bn)), str(-(-rows // bm)))
    return kernel("transpose", args, "\n".join(lines), warps=warps, target=target, grid=grid, config=config, pointers=2)
