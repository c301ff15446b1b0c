"""Kernels that read and write one global array: right ones, and wrong ones that differ from them in one thing."""

from collections.abc import Callable

from hazards.schedules import (
    ACC_LAYOUT,
    ROWS_LAYOUT,
    TILE_BYTES,
    alloc,
    array,
    buffer,
    bulk_store,
    constants,
    kernel,
    load,
    local_load,
    local_store,
    queued_copy,
    roles,
    store,
    tma,
    view,
)

IDS = "  %w = tile.program_id 0 : i64\n  %o = arith.muli %w, %c64 : index"
BARRIER = "  sync.barrier"
MEET = "  sync.cluster_barrier"


def on_grid(text: str, *grid: object, cluster: int = 1) -> str:
    """A kernel's text for another grid."""
    counts = ", ".join(f'"{count}"' for count in (*grid, 1, 1, 1)[:3])
    text = text.replace('grid = ["1", "1", "1"]', f"grid = [{counts}]")
    return text.replace("symbols = ", f"cluster = {cluster} : i64, symbols = ", 1) if cluster > 1 else text


def one(*lines: str, symbols: tuple[str, ...] = (), warps: int = 4) -> str:
    """A kernel of one array; `symbols` are its index arguments `%<name>`."""
    args = ", ".join(["%a: !tile.ptr<f16>", *(f"%{name}: index" for name in symbols)])
    return kernel(args, constants(0, 1, 2, 4, 8, 32, 64, 128, 256), *lines, pointers=1, symbols=symbols, warps=warps)


def two(*lines: str) -> str:
    """A kernel of two arrays."""
    return kernel("%a: !tile.ptr<f16>, %b: !tile.ptr<f16>", constants(0, 1, 2, 4, 8, 32, 64, 128, 256), *lines, pointers=2)


def strided(sizes: tuple[object, object], strides: tuple[object, object]) -> str:
    """The type of a view; values of the text (`%n`) are unknown."""
    shape = "x".join("?" if isinstance(n, str) else str(n) for n in sizes)
    listed = ", ".join("?" if isinstance(s, str) else str(s) for s in strides)
    return f"memref<{shape}xf16, strided<[{listed}]>>"


def view_of(name: str, sizes: tuple[object, object], strides: tuple[object, object], offset: int = 0) -> str:
    """A view of `%a` with sizes and strides that are numbers or values (`%n`)."""
    given = [", ".join(str(v) for v in values if isinstance(v, str)) for values in (sizes, strides)]
    head = f"  {name} = tile.view %a offset {offset} : i64 align 16 : i64 sizes [{given[0]}] strides [{given[1]}]"
    return f"{head} : !tile.ptr<f16> -> {strided(sizes, strides)}"


def update(
    at: str,
    kind: str,
    *,
    back: str = "",
    into: str = "%v",
    into_kind: str = "",
    layout: str = ROWS_LAYOUT,
    between: str = "",
    tag: str = "",
) -> str:
    """Load a tile of `%v` at `at` and store it at `back` (unless given, at the same place)."""
    stored = store("%x", into, into_kind or kind, back or at, layout, "f16")
    return "\n".join([load("%x", "%v", kind, at, layout), between, stored])


# --- elementwise, in place


def elementwise(rows: int = 256, *, back: str = "%o, %c0", layout: str = ROWS_LAYOUT) -> str:
    """Each workgroup updates its tile in place."""
    return on_grid(one(IDS, view("%v", "%a", rows, 64), update("%o, %c0", array(rows, 64), back=back, layout=layout)), rows // 64)


def dynamic(stride: str = "%m", *, between: str = "", into: str = "%v", into_strides: tuple[object, object] | None = None) -> str:
    """The same for any sizes, on a grid of two axes; stored through another view where its strides are given."""
    sizes = ("%n", "%m")
    symbols = ("n", "m", *(("s", "z") if stride == "%s" else ()))
    ids = "  %w2 = tile.program_id 1 : i64\n  %p = arith.muli %w2, %c64 : index"
    views = [view_of("%v", sizes, (stride, 1))]
    kind = into_kind = strided(sizes, (stride, 1))
    if into_strides is not None:
        views.append(view_of("%u", sizes, into_strides))
        into, into_kind = "%u", strided(sizes, into_strides)
    text = one(IDS, ids, *views, update("%o, %p", kind, into=into, into_kind=into_kind, between=between), symbols=symbols)
    return on_grid(text, "(n + 63) // 64", "(m + 63) // 64")


def transposed(strides: tuple[object, object] = (1, 64), layout: str = ROWS_LAYOUT, between: str = "") -> str:
    """A tile is stored through another view of the same array."""
    kind = strided((64, 64), strides)
    return one(
        view("%v", "%a", 64, 64),
        view_of("%u", (64, 64), strides),
        load("%x", "%v", array(64, 64), "%c0, %c0", ROWS_LAYOUT),
        between,
        store("%x" if layout == ROWS_LAYOUT else "%y", "%u", kind, "%c0, %c0", layout, "f16"),
    )


def grid_stride(count: int = 32, step: str = "%c32") -> str:
    """Workgroups take tiles in turn, however many there are."""
    return on_grid(
        one(
            view_of("%v", ("%n", 64), (64, 1)),
            IDS,
            "  %n63 = arith.addi %n, %c64 : index\n  %tiles = arith.divui %n63, %c64 : index",
            f"  scf.for %t = %w to %tiles step {step} {{",
            "  %p = arith.muli %t, %c64 : index",
            update("%p, %c0", strided(("%n", 64), (64, 1))),
            "  }",
            symbols=("n",),
        ),
        count,
    )


def tiles_in_turn(columns: int = 8) -> str:
    """Tiles of rows and columns, taken in turn: row = t / 8, column = t mod `columns`."""
    kind = array(512, 512)
    return on_grid(
        one(
            view("%v", "%a", 512, 512),
            IDS,
            f"  %cols = arith.constant {columns} : index",
            "  scf.for %t = %w to %c64 step %c4 {",
            "  %r = arith.divui %t, %c8 : index\n  %c = arith.remui %t, %cols : index",
            "  %p = arith.muli %r, %c64 : index\n  %q = arith.muli %c, %c64 : index",
            update("%p, %q", kind),
            "  }",
        ),
        4,
    )


def accumulate(*, own: bool = True, layout: str = ROWS_LAYOUT) -> str:
    """A workgroup adds to its tile in a loop (to that of the first workgroup unless `own`)."""
    at = "%o, %c0" if own else "%c0, %c0"
    kind = array(256, 64)
    body = ["  scf.for %i = %c0 to %n step %c1 {", update(at, kind, layout=layout), "  }"]
    return on_grid(one(IDS, view("%v", "%a", 256, 64), *body, symbols=("n",)), 4)


def halves(*, two_views: bool, distance: int = 128) -> str:
    """Reads one half of an array, writes the other one."""
    if two_views:
        parts = [view_of("%v", (128, 64), (64, 1)), view_of("%u", (128, 64), (64, 1), 64 * distance)]
        return on_grid(one(IDS, *parts, update("%o, %c0", array(128, 64), into="%u")), 2)
    there = f"  %far = arith.constant {distance} : index\n  %q = arith.addi %o, %far : index"
    return on_grid(one(IDS, there, view("%v", "%a", 256, 64), update("%o, %c0", array(256, 64), back="%q, %c0")), 2)


def only_written(*, own: bool = True, second: str = "", between: str = "") -> str:
    """Each workgroup stores a tile (all of them the same one unless `own`), perhaps twice, in other layouts."""
    at = "%o, %c0" if own else "%c0, %c0"
    again = [load("%y", "%v", array(64, 64), "%c0, %c0", second), store("%y", "%u", array(256, 64), at, second, "f16")] if second else []
    return on_grid(
        two(
            IDS,
            view("%v", "%b", 64, 64),
            view("%u", "%a", 256, 64),
            load("%x", "%v", array(64, 64), "%c0, %c0", ROWS_LAYOUT),
            store("%x", "%u", array(256, 64), at, ROWS_LAYOUT, "f16"),
            between,
            *again,
        ),
        4,
    )


def computed_row(*lines: str, guard: str = "") -> str:
    """Each of four workgroups updates the rows from `%r` on, which `lines` compute (where `guard` holds)."""
    inside = [f"  scf.if {guard} {{"] if guard else []
    body = update("%r, %c0", array(512, 64))
    return on_grid(one(IDS, view("%v", "%a", 512, 64), *lines, *inside, body, "  }" if guard else ""), 4)


def carried_row(step: int = 256) -> str:
    """A row that each iteration raises, from the workgroup's own."""
    return on_grid(
        one(
            IDS,
            view("%v", "%a", 2048, 64),
            f"  %step = arith.constant {step} : index",
            "  %e = scf.for %i = %c0 to %c4 step %c1 iter_args(%r = %o) -> (index) {",
            update("%r, %c0", array(2048, 64)),
            "  %r2 = arith.addi %r, %step : index\n  scf.yield %r2 : index\n  }",
        ),
        4,
    )


def counted_row(bits: int = 8) -> str:
    """Tile k + 128 is stored in iteration k by a counter of so many bits; behind the loop other warps load tile 1."""
    kind, tiles = f"i{bits}", array(65536, 64)
    widened = "%k" if bits == 32 else "%k32"
    return one(
        view("%v", "%a", 65536, 64),
        f"  %zero = arith.constant 0 : {kind}\n  %step = arith.constant 1 : {kind}\n  %count = arith.constant 300 : index",
        load("%x", "%v", tiles, "%c0, %c0", ROWS_LAYOUT),
        f"  %e = scf.for %i = %c0 to %count step %c1 iter_args(%k = %zero) -> ({kind}) {{",
        f"  %k32 = arith.extsi %k : {kind} to i32" if bits < 32 else "",
        f"  %ki = arith.index_cast {widened} : i32 to index",
        "  %t = arith.addi %ki, %c128 : index\n  %o = arith.muli %t, %c64 : index",
        store("%x", "%v", tiles, "%o, %c0", ROWS_LAYOUT, "f16"),
        f"  %k2 = arith.addi %k, %step : {kind}\n  scf.yield %k2 : {kind}\n  }}",
        load("%y", "%v", tiles, "%c64, %c0", ACC_LAYOUT),
    )


def tiles_of_unknown_rows(divisor: str = "%m") -> str:
    """Tiles taken in turn; how many are side by side is known at run time only."""
    kind = strided(("%n", "%mm"), ("%mm", 1))
    return on_grid(
        one(
            IDS,
            "  %mm = arith.muli %m, %c64 : index",
            view_of("%v", ("%n", "%mm"), ("%mm", 1)),
            "  scf.for %t = %w to %k step %c4 {",
            f"  %r = arith.divui %t, {divisor} : index\n  %c = arith.remui %t, %m : index",
            "  %p = arith.muli %r, %c64 : index\n  %q = arith.muli %c, %c64 : index",
            update("%p, %q", kind),
            "  }",
            symbols=("n", "m", "k"),
        ),
        4,
    )


FIRST = "  %first = arith.cmpi slt, %w, %c{} : index"


# --- stencils


def stencil(*, in_place: bool = True, shift: int = 1) -> str:
    """Reads the rows `shift` further on, writes its own."""
    there = f"  %s = arith.constant {shift} : index\n  %q = arith.addi %o, %s : index"
    kind = array(256, 64)
    if in_place:
        return on_grid(one(IDS, there, view("%v", "%a", 256, 64), update("%q, %c0", kind, back="%o, %c0")), 4)
    parts = [view("%v", "%a", 256, 64), view("%u", "%b", 256, 64)]
    return on_grid(two(IDS, there, *parts, update("%q, %c0", kind, back="%o, %c0", into="%u")), 4)


def reads_the_neighbour(distance: int = 1, between: str = "") -> str:
    """Each iteration writes its tile and reads the one of `distance` iterations before, by other warps."""
    kind = array(8192, 64)
    return one(
        view("%v", "%a", 8192, 64),
        f"  %back = arith.constant {distance} : index",
        load("%x", "%v", kind, "%c0, %c0", ROWS_LAYOUT),
        "  scf.for %i = %c0 to %n step %c1 {",
        "  %o = arith.muli %i, %c64 : index\n  %j = arith.subi %i, %back : index\n  %q = arith.muli %j, %c64 : index",
        store("%x", "%v", kind, "%o, %c0", ROWS_LAYOUT, "f16"),
        between,
        load("%y", "%v", kind, "%q, %c0", ACC_LAYOUT),
        "  }",
        symbols=("n",),
    )


# --- views and values that change


def carried_stride() -> str:
    """The stride of the view grows from iteration to iteration."""
    kind = strided((64, 64), ("%s", 1))
    return on_grid(
        one(
            IDS,
            "  %last = scf.for %i = %c0 to %n step %c1 iter_args(%s = %c64) -> (index) {",
            view_of("%v", (64, 64), ("%s", 1)),
            update("%c0, %c0", kind),
            "  %s2 = arith.addi %s, %c64 : index",
            "  scf.yield %s2 : index\n  }",
            symbols=("n",),
        )
    )


def unknown_offsets(*, same: bool) -> str:
    """Offsets that are products of workgroup id and size."""
    other = "%p" if same else "%q"
    return on_grid(
        one(
            IDS,
            view_of("%v", ("%n", 64), (64, 1)),
            "  %p = arith.muli %w, %n : index\n  %w1 = arith.addi %w, %m : index\n  %q = arith.muli %w1, %n : index",
            update("%p, %c0", strided(("%n", 64), (64, 1)), back=f"{other}, %c0"),
            symbols=("n", "m"),
        )
    )


def overlapping(stride: int = 64) -> str:
    """A view whose rows are 64 elements long and `stride` apart."""
    return one(view_of("%v", (64, 64), (stride, 1)), update("%c0, %c0", strided((64, 64), (stride, 1))))


# --- clusters, copies, roles


def exchange(between: str = MEET, *, cluster: int = 2) -> str:
    """Each workgroup of a cluster writes its tile and reads that of its neighbour."""
    kind = array(256, 64)
    return on_grid(
        one(
            "  %r = pipe.cluster_rank\n  %w = tile.program_id 0 : i64\n  %base = arith.subi %w, %r : index",
            "  %r1 = arith.addi %r, %c1 : index\n  %other = arith.remui %r1, %c2 : index\n  %t = arith.addi %base, %other : index",
            "  %o = arith.muli %w, %c64 : index\n  %q = arith.muli %t, %c64 : index",
            view("%v", "%a", 256, 64),
            load("%x", "%v", kind, "%o, %c0", ROWS_LAYOUT),
            store("%x", "%v", kind, "%o, %c0", ROWS_LAYOUT, "f16"),
            between,
            load("%y", "%v", kind, "%q, %c0", ROWS_LAYOUT),
        ),
        4,
        cluster=cluster,
    )


def fenced_copy(*between: str) -> str:
    """Threads write a tile of a global array, a bulk copy reads it."""
    kind = array(64, 64)
    return two(
        "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
        "  %even = arith.constant 0 : i32",
        view("%v", "%a", 64, 64),
        view("%u", "%b", 64, 64),
        alloc("%s"),
        load("%x", "%u", kind, "%c0, %c0", ROWS_LAYOUT),
        store("%x", "%v", kind, "%c0, %c0", ROWS_LAYOUT, "f16"),
        *between,
        f"  sync.mbarrier_expect %full bytes {TILE_BYTES} : i64",
        tma("%v", kind, "%c0, %c0", "%s", "%full"),
        "  sync.wait_phase %full parity %even",
        local_load("%y", "%s", ROWS_LAYOUT),
    )


def multicast_source(before_store: str) -> str:
    """Both workgroups of a cluster copy a tile to both; then one of them overwrites the tiles' source."""
    kind = array(128, 64)
    copy = tma("%v", kind, "%from, %c0", "%h", "%full", rows=32).replace(
        'path "bulk_tensor"', 'path "bulk_tensor" multicast array<i64: 0, 1>'
    )
    half = "  %h = pipe.part %s[%r] of 2 : i64 along 0 : i64 : " + buffer() + " -> " + buffer(rows=32)
    return on_grid(
        two(
            "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier\n  %even = arith.constant 0 : i32",
            MEET,
            "  %r = pipe.cluster_rank\n  %from = arith.muli %r, %c32 : index",
            view("%v", "%a", 128, 64),
            view("%u", "%b", 64, 64),
            alloc("%s"),
            half,
            f"  sync.mbarrier_expect %full bytes {TILE_BYTES} : i64",
            copy,
            before_store,
            "  %mine = arith.cmpi eq, %r, %c1 : index\n  scf.if %mine {",
            load("%x", "%u", array(64, 64), "%c0, %c0", ROWS_LAYOUT),
            store("%x", "%v", kind, "%c0, %c0", ROWS_LAYOUT, "f16"),
            "  }",
            "  sync.wait_phase %full parity %even",
            MEET,
        ),
        2,
        cluster=2,
    )


def queued_source(wait: str) -> str:
    """Threads copy a tile to shared memory and then overwrite its source."""
    kind = array(64, 64)
    return two(
        view("%v", "%a", 64, 64),
        view("%u", "%b", 64, 64),
        alloc("%s"),
        load("%x", "%u", kind, "%c0, %c0", ROWS_LAYOUT),
        queued_copy("%v", kind, "%c0, %c0", "%s", "cp_async"),
        '  sync.commit "cp_async"',
        wait,
        store("%x", "%v", kind, "%c0, %c0", ROWS_LAYOUT, "f16"),
        '  sync.wait "cp_async" pending 0 : i64',
    )


def bulk_store_then_load(wait: str) -> str:
    """A bulk store to a global array, read back by threads."""
    kind = array(64, 64)
    return two(
        view("%v", "%a", 64, 64),
        view("%u", "%b", 64, 64),
        alloc("%s"),
        load("%x", "%u", kind, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%s", ROWS_LAYOUT),
        '  sync.fence "async_shared"\n  sync.barrier',
        bulk_store("%s", kind, "%c0, %c0", "%v"),
        '  sync.commit "bulk_store"',
        wait,
        BARRIER,
        load("%y", "%v", kind, "%c0, %c0", ROWS_LAYOUT),
    )


def handed_over(*, wait: bool = True) -> str:
    """One role writes tiles of a global array, the other reads each once it is announced (before that unless `wait`)."""
    kind = array(8192, 64)
    phase = "  %q = arith.remui %i, %c2 : index\n  %p = arith.index_cast %q : index to i32"
    writer = "\n".join(
        [
            load("%x", "%u", array(64, 64), "%c0, %c0", ROWS_LAYOUT),
            "  scf.for %i = %c0 to %n step %c1 {",
            phase,
            "  %o = arith.muli %i, %c64 : index",
            "  %inv = arith.xori %p, %one : i32\n  sync.wait_phase %free parity %inv",
            store("%x", "%v", kind, "%o, %c0", ROWS_LAYOUT, "f16"),
            "  sync.named_barrier 1 : i64 warps 4 : i64",
            "  sync.arrive %full\n  }",
        ]
    )
    reader = "\n".join(
        [
            "  scf.for %i = %c0 to %n step %c1 {",
            phase,
            "  %o = arith.muli %i, %c64 : index",
            "  sync.wait_phase %full parity %p" if wait else "",
            load("%y", "%v", kind, "%o, %c0", ROWS_LAYOUT),
            "  sync.named_barrier 2 : i64 warps 4 : i64",
            "  sync.arrive %free" if wait else "  sync.wait_phase %full parity %p\n  sync.arrive %free",
            "  }",
        ]
    )
    return kernel(
        "%a: !tile.ptr<f16>, %b: !tile.ptr<f16>, %n: index",
        constants(0, 1, 2, 64),
        "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier\n  %free = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
        "  %one = arith.constant 1 : i32",
        view("%v", "%a", 8192, 64),
        view("%u", "%b", 64, 64),
        alloc("%s"),
        roles(("writer", "reader"), (4, 4), (1, 1), writer + _touch("%z"), reader + _touch("%t")),
        pointers=2,
        warps=8,
        symbols=("n",),
    )


def _touch(name: str) -> str:
    """What makes all warps of a role agents of their own: an access to shared memory of the role's own."""
    buffer = f"{name}b"
    return "\n" + "\n".join(
        [
            alloc(buffer, at=0 if name == "%z" else TILE_BYTES),
            load(name, "%u", array(64, 64), "%c0, %c0", ROWS_LAYOUT),
            local_store(name, buffer, ROWS_LAYOUT),
        ]
    )


FENCE = '  sync.fence "async_global"'
RIGHT: dict[str, Callable[[], str]] = {
    "elementwise": elementwise,
    "elementwise, other layout": lambda: elementwise(layout=ACC_LAYOUT),
    "sizes known at run time": dynamic,
    "strides known at run time": lambda: dynamic("%s"),
    "strides known at run time, the view made twice": lambda: dynamic("%s", into_strides=("%s", 1)),
    "tiles in turn": grid_stride,
    "tiles of rows and columns in turn": tiles_in_turn,
    "accumulation": accumulate,
    "a row that steps": carried_row,
    "a row by a counter of 32 bits": lambda: counted_row(32),
    "a row up to a limit": lambda: computed_row("  %l = arith.constant 192 : index\n  %r = arith.minsi %o, %l : index"),
    "a row of two": lambda: computed_row(FIRST.format(2), "  %r = arith.select %first, %o, %o : index"),
    "one workgroup's row": lambda: computed_row(FIRST.format(1), "  %r = arith.muli %c0, %c1 : index", guard="%first"),
    "tiles of rows and columns, as many as there are": tiles_of_unknown_rows,
    "halves": lambda: halves(two_views=False),
    "halves as two views": lambda: halves(two_views=True),
    "stores of one's own": only_written,
    "stores of one's own, twice": lambda: only_written(second=ROWS_LAYOUT),
    "stores of one's own, with a barrier": lambda: only_written(second=ACC_LAYOUT, between=BARRIER),
    "stencil from one array to another": lambda: stencil(in_place=False),
    "stencil that reaches past the grid": lambda: stencil(shift=256),
    "the iteration before, with barriers": lambda: reads_the_neighbour(1, BARRIER),
    "the same view made twice": lambda: transposed((64, 1)),
    "transposed with a barrier": lambda: transposed(between=BARRIER),
    "rows apart": lambda: overlapping(72),
    "an unknown place of one workgroup": lambda: unknown_offsets(same=True),
    "exchange in a cluster": exchange,
    "a fenced copy": lambda: fenced_copy(FENCE, BARRIER),
    "a copy's source, waited for": lambda: queued_source('  sync.wait "cp_async" pending 0 : i64\n  sync.barrier'),
    "a multicast's source, waited for": lambda: multicast_source("  sync.wait_phase %full parity %even\n" + MEET),
    "a bulk store, waited for": lambda: bulk_store_then_load('  sync.wait "bulk_store" pending 0 : i64'),
    "handed over by roles": handed_over,
}
WRONG: dict[str, Callable[[], str]] = {
    "a transposed view": transposed,
    "two views with strides known at run time": lambda: dynamic("%s", into_strides=("%z", 1)),
    "a transposed view with strides known at run time": lambda: dynamic("%s", into_strides=(1, "%s")),
    "two unknown offsets": lambda: unknown_offsets(same=False),
    "a stride that changes in the loop": carried_stride,
    "rows that overlap": lambda: overlapping(63),
    "rows at one place": lambda: overlapping(0),
    "the neighbour workgroup's rows": stencil,
    "the rows before": lambda: stencil(shift=-1),
    "the neighbour workgroup's tile": lambda: stencil(shift=64),
    "halves that overlap": lambda: halves(two_views=False, distance=127),
    "halves as two views that overlap": lambda: halves(two_views=True, distance=127),
    "all workgroups add to one tile": lambda: accumulate(own=False),
    "all workgroups store to one tile": lambda: only_written(own=False),
    "stores of other threads": lambda: only_written(second=ACC_LAYOUT),
    "a row that steps too little": lambda: carried_row(64),
    "a row by a counter of eight bits, which wraps": counted_row,
    "a row up to a limit that cuts": lambda: computed_row("  %l = arith.constant 100 : index\n  %r = arith.minsi %o, %l : index"),
    "a row of two that are one": lambda: computed_row(FIRST.format(2), "  %r = arith.select %first, %o, %c0 : index"),
    "two workgroups' row": lambda: computed_row(FIRST.format(2), "  %r = arith.muli %c0, %c1 : index", guard="%first"),
    "quotient and remainder by different sizes": lambda: tiles_of_unknown_rows("%c2"),
    "tiles taken twice": lambda: grid_stride(step="%c8"),
    "quotient and remainder by different numbers": lambda: tiles_in_turn(columns=7),
    "the iteration before, without barriers": lambda: reads_the_neighbour(1),
    "three iterations before, without barriers": lambda: reads_the_neighbour(3),
    "exchange without the cluster's barrier": lambda: exchange(BARRIER),
    "exchange between clusters": lambda: exchange(BARRIER, cluster=1),
    "no fence": lambda: fenced_copy(BARRIER),
    "a fence for shared memory": lambda: fenced_copy('  sync.fence "async_shared"', BARRIER),
    "a fence without a barrier": lambda: fenced_copy(FENCE),
    "a fence after the barrier": lambda: fenced_copy(BARRIER, FENCE),
    "a copy's source, overwritten": lambda: queued_source(""),
    "a copy's source, overwritten by other threads": lambda: queued_source('  sync.wait "cp_async" pending 0 : i64'),
    "a multicast's source, overwritten": lambda: multicast_source(""),
    "a multicast's source, known to one workgroup": lambda: multicast_source("  sync.wait_phase %full parity %even"),
    "a bulk store that was only read": lambda: bulk_store_then_load('  sync.wait "bulk_store" pending 0 : i64 read'),
    "handed over before it is there": lambda: handed_over(wait=False),
}
