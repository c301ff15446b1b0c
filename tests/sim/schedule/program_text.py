"""Pieces of schedule-level kernels in text: types, layouts, views, constants, the kernel around a body."""


def bits(extent: int) -> list[int]:
    return [1 << b for b in range(extent.bit_length() - 1)]


def shared(shape: tuple[int, ...], element: str, slots: int = 0) -> str:
    """A dense row-major buffer of two dimensions, powers of two, in `slots` slots."""
    rows, columns = shape
    prefix = "0, " if slots else ""
    bases = [f"[{prefix}0, {b}]" for b in bits(columns)] + [f"[{prefix}{b}, 0]" for b in bits(rows)]
    repeat = f"[{slots}, 1, 1]" if slots else "[1, 1]"
    lead = f"{slots}x" if slots else ""
    return f"memref<{lead}{rows}x{columns}x{element}, #tile.shared_layout<offset = [{', '.join(bases)}], repeat = {repeat}>, #tile.shared>"


def rows_layout(shape: tuple[int, int], warps: int, lanes: int) -> str:
    """Rows over warps (blocks of rows), columns over lanes, the rest in registers."""
    rows, columns = shape
    column_bits, row_bits, lane_count, warp_count = bits(columns), bits(rows), lanes.bit_length() - 1, warps.bit_length() - 1
    warp = [f"[{b}, 0]" for b in row_bits[len(row_bits) - warp_count :]]
    left = [f"[0, {b}]" for b in column_bits] + [f"[{b}, 0]" for b in row_bits[: len(row_bits) - warp_count]]
    lane = left[:lane_count] + ["[0, 0]"] * (lane_count - len(left))
    register = left[lane_count:]
    return f"#tile.layout<register = [{', '.join(register)}], lane = [{', '.join(lane)}], warp = [{', '.join(warp)}], repeat = [1, 1]>"


def columns_layout(shape: tuple[int, int], warps: int, lanes: int) -> str:
    """Columns over warps, so that what one warp wrote by rows is read by all."""
    rows, columns = shape
    column_bits, row_bits, lane_count, warp_count = bits(columns), bits(rows), lanes.bit_length() - 1, warps.bit_length() - 1
    warp = [f"[0, {b}]" for b in column_bits[len(column_bits) - warp_count :]]
    left = [f"[0, {b}]" for b in column_bits[: len(column_bits) - warp_count]] + [f"[{b}, 0]" for b in row_bits]
    lane = left[:lane_count] + ["[0, 0]"] * (lane_count - len(left))
    register = left[lane_count:]
    return f"#tile.layout<register = [{', '.join(register)}], lane = [{', '.join(lane)}], warp = [{', '.join(warp)}], repeat = [1, 1]>"


def view_type(shape: tuple[int, int], element: str) -> str:
    return f"memref<{shape[0]}x{shape[1]}x{element}, strided<[{shape[1]}, 1]>>"


def view(name: str, pointer: str, shape: tuple[int, int], element: str) -> str:
    return (
        f"  {name} = tile.view {pointer} offset 0 : i64 align 16 : i64 sizes [] strides [] : "
        f"!tile.ptr<{element}> -> {view_type(shape, element)}"
    )


def kernel(arguments: str, body: str, *, warps: int, target: str, pointers: int) -> str:
    """A kernel of one workgroup."""
    types = ", ".join(["16"] * pointers)
    header = (
        f'symbols = [], grid = ["1", "1", "1"], num_warps = {warps} : i64, target = "{target}", arg_align = array<i64: {types}>, '
        f'output_count = 1 : i64, sym_name = "k"'
    )
    return f'"tile.kernel"() <{{{header}}}> ({{\n^bb0({arguments}):\n{body}\n  tile.return\n}}) : () -> ()\n'


def constants(*values: int) -> str:
    return "\n".join(f"  %c{v} = arith.constant {v} : index" for v in dict.fromkeys(values))
