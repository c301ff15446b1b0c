"""Kernels that read and write one global array: right ones, and what is wrong about each of the others."""

from hazards.schedules import (
    ROWS_LAYOUT,
    array,
    constants,
    kernel,
    load,
    store,
    view,
)

ARG = "%a: !tile.ptr<f16>"
ID = "  %w = tile.program_id 0 : i64\n  %o = arith.muli %w, %c64 : index"
META = "  sync.cluster_barrier"


def on_grid(text: str, *grid: object, cluster: int = 1) -> str:
    """A kernel's text for another grid."""
    counts = ", ".join(f'"{count}"' for count in (*grid, 1, 1, 1)[:3])
    text = text.replace('grid = ["1", "1", "1"]', f"grid = [{counts}]")
    return text.replace("symbols = ", f"cluster = {cluster} : i64, symbols = ") if cluster > 1 else text


def one(*lines: str, symbols: tuple[str, ...] = (), **options: object) -> str:
    """A kernel of one array; `symbols` are its index arguments `%<name>`."""
    args = ", ".join([ARG, *(f"%{name}: index" for name in symbols)])
    return kernel(args, constants(0, 1, 2, 32, 64, 128), *lines, pointers=1, symbols=symbols, **options)  # pyright: ignore[reportArgumentType]


def strided(rows: object, columns: object, *strides: object) -> str:
    """The type of a view; "?" where the text gives a value."""
    shape = "x".join("?" if isinstance(n, str) else str(n) for n in (rows, columns))
    listed = ", ".join("?" if isinstance(s, str) else str(s) for s in strides)
    return f"memref<{shape}xf16, strided<[{listed}]>>"


def view_of(name: str, sizes: tuple[object, object], strides: tuple[object, object], offset: int = 0) -> str:
    """A view of `%a` with sizes and strides that are numbers or values (`%n`)."""
    given = [", ".join(str(v) for v in values if isinstance(v, str)) for values in (sizes, strides)]
    return (
        f"  {name} = tile.view %a offset {offset} : i64 align 16 : i64 sizes [{given[0]}] strides [{given[1]}] : !tile.ptr<f16> -> "
        f"{strided(*sizes, *strides)}"
    )


def update(at: str, kind: str, *, back: str | None = None, into: str = "%v", into_kind: str = "", layout: str = ROWS_LAYOUT, tag: str = "") -> str:
    """Load a tile at `at` and store it at `back` (the same place unless given)."""
    return "\n".join(
        [
            load(f"%x{tag}", "%v", kind, at, layout),
            store(f"%x{tag}", into, into_kind or kind, at if back is None else back, layout, "f16"),
        ]
    )


def elementwise(rows: int = 256) -> str:
    """Each workgroup updates its tile in place."""
    kind = array(rows, 64)
    return on_grid(one(ID, view("%v", "%a", rows, 64), update("%o, %c0", kind)), rows // 64)


def dynamic_elementwise(stride: str = "%m") -> str:
    """The same for any sizes, on a grid of two axes."""
    kind = strided("%n", "%m", stride, 1)
    symbols = ("n", "m", *(("s",) if stride == "%s" else ()))
    ids = "  %w2 = tile.program_id 1 : i64\n  %p = arith.muli %w2, %c64 : index"
    text = one(ID, ids, view_of("%v", ("%n", "%m"), (stride, 1)), update("%o, %p", kind), symbols=symbols)
    return on_grid(text, "(n + 63) // 64", "(m + 63) // 64")


def grid_stride(step: str = "%g", symbols: tuple[str, ...] = ("n", "g"), grid: object = "g") -> str:
    """Workgroups take tiles in turn; how many workgroups there are is known at run time only."""
    kind = strided("%n", 64, 64, 1)
    return on_grid(
        one(
            view_of("%v", ("%n", 64), (64, 1)),
            "  %w = tile.program_id 0 : i64",
            "  %n63 = arith.constant 63 : index\n  %up = arith.addi %n, %n63 : index\n  %tiles = arith.divui %up, %c64 : index",
            f"  scf.for %t = %w to %tiles step {step} {{",
            "  %o = arith.muli %t, %c64 : index",
            update("%o, %c0", kind),
            "  }",
            symbols=symbols,
        ),
        grid,
    )


def halves(two_views: bool, distance: int = 128) -> str:
    """Reads one half of an array, writes the other one."""
    if two_views:
        parts = [view_of("%v", (128, 64), (64, 1)), view_of("%u", (128, 64), (64, 1), 64 * distance)]
        return on_grid(one(ID, *parts, update("%o, %c0", array(128, 64), into="%u")), 2)
    there = f"  %far = arith.constant {distance} : index\n  %q = arith.addi %o, %far : index"
    return on_grid(one(ID, there, view("%v", "%a", 256, 64), update("%o, %c0", array(256, 64), back="%q, %c0")), 2)
