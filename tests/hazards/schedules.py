"""Text of schedule-level kernels, piece by piece: types, views, allocations, index arithmetic."""

from treadle.layout.shared_layout import SharedLayout, row_major

ACC_LAYOUT = (
    "#tile.layout<register = [[0, 1], [8, 0], [0, 8], [0, 16], [0, 32]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], "
    "warp = [[16, 0], [32, 0]], repeat = [1, 1]>"
)
"""A 64x64 accumulator over four warps of 32."""
ROWS_LAYOUT = (
    "#tile.layout<register = [[0, 1], [0, 2], [0, 4], [16, 0], [32, 0]], lane = [[0, 8], [0, 16], [0, 32], [1, 0], [2, 0]], "
    "warp = [[4, 0], [8, 0]], repeat = [1, 1]>"
)
"""64x64 over four warps of 32, rows contiguous; other elements a warp than ACC_LAYOUT."""
WAVE_ROWS = (
    "#tile.layout<register = [[0, 1], [0, 2], [0, 4], [32, 0]], lane = [[0, 8], [0, 16], [0, 32], [1, 0], [2, 0], [4, 0]], "
    "warp = [[8, 0], [16, 0]], repeat = [1, 1]>"
)
"""64x64 over four warps of 64, rows contiguous."""
WAVE_COLUMNS = (
    "#tile.layout<register = [[1, 0], [2, 0], [4, 0], [0, 32]], lane = [[8, 0], [16, 0], [32, 0], [0, 1], [0, 2], [0, 4]], "
    "warp = [[0, 8], [0, 16]], repeat = [1, 1]>"
)
"""64x64 over four warps of 64, columns contiguous."""
EIGHT_ROWS = (
    "#tile.layout<register = [[0, 1], [0, 2], [0, 4]], lane = [[0, 8], [0, 16], [0, 32], [1, 0], [2, 0], [4, 0]], "
    "warp = [[8, 0], [16, 0], [32, 0]], repeat = [1, 1]>"
)
"""64x64 over eight warps of 64."""
EIGHT_COLUMNS = (
    "#tile.layout<register = [[1, 0], [2, 0], [4, 0]], lane = [[8, 0], [16, 0], [32, 0], [0, 1], [0, 2], [0, 4]], "
    "warp = [[0, 8], [0, 16], [0, 32]], repeat = [1, 1]>"
)
"""64x64 over eight warps of 64, columns contiguous."""
WIDE_ACC = (
    "#tile.layout<register = [[0, 1], [8, 0], [0, 8], [0, 16], [0, 32]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], "
    "warp = [[16, 0], [32, 0], [64, 0]], repeat = [1, 1]>"
)
"""A 128x64 accumulator over eight warps of 32."""

TILE_BYTES = 64 * 64 * 2


def shared_layout(layout: SharedLayout) -> str:
    """`#tile.shared_layout<..>`."""
    offset = "[" + ", ".join(str(list(basis)) for basis in layout.offset) + "]"
    return f"#tile.shared_layout<offset = {offset}, repeat = {list(layout.repeat)}>"


def buffer(*slots: int, rows: int = 64, columns: int = 64, element: str = "f16") -> str:
    """The type of a shared buffer of `slots` tiles."""
    layout = row_major((rows, columns), (1, 0))
    for count in reversed(slots):
        layout = layout.stacked(count)
    shape = "x".join(map(str, (*slots, rows, columns)))
    return f"memref<{shape}x{element}, {shared_layout(layout)}, #tile.shared>"


def array(rows: int, columns: int, element: str = "f16") -> str:
    """The type of a row-major view."""
    return f"memref<{rows}x{columns}x{element}, strided<[{columns}, 1]>>"


def view(name: str, pointer: str, rows: int, columns: int, element: str = "f16") -> str:
    """`name = tile.view ..`."""
    return (
        f"  {name} = tile.view {pointer} offset 0 : i64 align 256 : i64 sizes [] strides [] : !tile.ptr<{element}> -> "
        f"{array(rows, columns, element)}"
    )


def alloc(name: str, *slots: int, at: int | None = None, rows: int = 64, columns: int = 64, element: str = "f16") -> str:
    """`name = tile.alloc ..`."""
    place = "" if at is None else f" at {at} : i64"
    return f"  {name} = tile.alloc{place} : {buffer(*slots, rows=rows, columns=columns, element=element)}"


def slot(name: str, source: str, slots: tuple[int, ...], *indices: str, rows: int = 64, columns: int = 64, element: str = "f16") -> str:
    """`name = pipe.slot source[..]`."""
    whole = buffer(*slots, rows=rows, columns=columns, element=element)
    part = buffer(*slots[len(indices) :], rows=rows, columns=columns, element=element)
    return f"  {name} = pipe.slot {source}[{', '.join(indices)}] : {whole} -> {part}"


def constants(*values: int) -> str:
    """`%c<value>` of type index for each."""
    return "\n".join(f"  %c{value} = arith.constant {value} : index" for value in sorted(set(values)))


def tma(source: str, kind: str, at: str, destination: str, barrier: str, rows: int = 64) -> str:
    """A bulk tensor copy of a tile that signals `barrier`."""
    target = buffer(rows=rows)
    return (
        f'  tile.copy {source}[{at}] dims array<i64: 0, 1>, {destination} signals {barrier} : !sync.mbarrier path "bulk_tensor" : '
        f"{kind}, {target}"
    )


def queued_copy(source: str, kind: str, at: str, destination: str, path: str) -> str:
    """A copy by all threads, complete in a queue."""
    return f'  tile.copy {source}[{at}] dims array<i64: 0, 1>, {destination} path "{path}" : {kind}, {buffer()}'


def bulk_store(source: str, kind: str, at: str, target: str, element: str = "f16") -> str:
    """A bulk tensor copy from a shared tile to a global array."""
    return f'  tile.copy_out {source}, {target}[{at}] dims array<i64: 0, 1> path "bulk_tensor" : {buffer(element=element)}, {kind}'


def tensor(layout: str, element: str = "f32", rows: int = 64) -> str:
    """The type of a register tile."""
    return f"tensor<{rows}x64x{element}, {layout}>"


def wgmma(result: str, a: str, b: str, acc: str) -> str:
    """A warpgroup matrix instruction on 64x64 tiles."""
    t = tensor(ACC_LAYOUT)
    return f'  {result} = tile.contract {a}, {b}, {acc} "wgmma_m64k16_f32_f16_f16" : {buffer()}, {buffer()}, {t} -> {t}'


def wgmma_registers(result: str, a: str, b: str, acc: str) -> str:
    """The same with A from registers."""
    t, half = tensor(ACC_LAYOUT), tensor(ACC_LAYOUT, "f16")
    return f'  {result} = tile.contract {a}, {b}, {acc} "wgmma_m64k16_f32_f16_f16" : {half}, {buffer()}, {t} -> {t}'


def local_store(value: str, destination: str, layout: str, element: str = "f16") -> str:
    """Register tile to shared buffer."""
    return f"  tile.local_store {value}, {destination} array<i64: 0, 0> : {tensor(layout, element)}, {buffer(element=element)}"


def local_load(result: str, source: str, layout: str, element: str = "f16") -> str:
    """Shared buffer to register tile."""
    return f"  {result} = tile.local_load {source} array<i64: 0, 0> : {buffer(element=element)} -> {tensor(layout, element)}"


def load(result: str, source: str, kind: str, at: str, layout: str, element: str = "f16") -> str:
    """Global array to register tile."""
    return f"  {result} = tile.load {source}[{at}] dims array<i64: 0, 1> vector 1 : i64 : {kind} -> {tensor(layout, element)}"


def store(value: str, target: str, kind: str, at: str, layout: str, element: str = "f16", rows: int = 64) -> str:
    """Register tile to global array."""
    return f"  tile.store {value}, {target}[{at}] dims array<i64: 0, 1> vector 1 : i64 : {tensor(layout, element, rows)}, {kind}"


def zeros(name: str, layout: str = ACC_LAYOUT, element: str = "f32") -> str:
    """A register tile of zeros."""
    return f"  {name} = arith.constant dense<0.0> : {tensor(layout, element)}"


def kernel(args: str, *lines: str, warps: int = 4, target: str = "sm_90a", symbols: tuple[str, ...] = (), pointers: int = 3) -> str:
    """A kernel around `lines`; `args` are its block arguments."""
    listed = ", ".join(f'"{s}"' for s in symbols)
    aligned = ", ".join("256" for _ in range(pointers))
    header = (
        f'symbols = [{listed}], grid = ["1", "1", "1"], num_warps = {warps} : i64, target = "{target}", '
        f'arg_align = array<i64: {aligned}>, output_count = 1 : i64, sym_name = "k"'
    )
    body = "\n".join(lines)
    return f'"tile.kernel"() <{{{header}}}> ({{\n^bb0({args}):\n{body}\n  tile.return\n}}) : () -> ()\n'


def roles(names: tuple[str, ...], warps: tuple[int, ...], groups: tuple[int, ...], *bodies: str) -> str:
    """`pipe.roles` with one body a role."""
    numbers = ", ".join(f'"{n}"' for n in names)
    header = (
        f"names = [{numbers}], warps = array<i64: {', '.join(map(str, warps))}>, groups = array<i64: {', '.join(map(str, groups))}>, "
        f"registers = array<i64: {', '.join('0' for _ in names)}>"
    )
    regions = ", ".join("{\n" + body + "\n  pipe.end_role\n}" for body in bodies)
    return f'  "pipe.roles"() <{{{header}}}> ({regions}) : () -> ()'
