"""Kernels whose only fault is one that a few sizes, workgroups or iterations show, and right ones beside them.

Each passes a tile from one register layout to another through shared memory; the barrier between is left out where `%skip` holds.
"""

from hazards import programs_nvidia as nvidia
from hazards.schedules import ACC_LAYOUT, ROWS_LAYOUT, alloc, array, constants, kernel, load, local_load, local_store, slot, store, view

TILE = array(64, 64)


def arguments(symbols: tuple[str, ...]) -> str:
    return "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>" + "".join(f", %{name}: index" for name in symbols)


def passed(skip: str = "%skip") -> list[str]:
    """A tile through shared memory; without the barrier where `skip` holds."""
    return [
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%s", ROWS_LAYOUT),
        f"  scf.if {skip} {{\n  }} else {{\n  sync.barrier\n  }}",
        local_load("%y", "%s", ACC_LAYOUT),
        "  sync.barrier",
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
    ]


def text(*lines: str, symbols: tuple[str, ...] = (), grid: str = "1", numbers: tuple[int, ...] = ()) -> str:
    """A kernel around lines that may use `%c<number>`, `%p` (the workgroup's id) and the symbols."""
    made = kernel(
        arguments(symbols),
        view("%va", "%a", 64, 64),
        view("%vc", "%c", 64, 64),
        constants(0, 1, 2, 3, *numbers),
        alloc("%s"),
        "  %p = tile.program_id 0 : i64",
        *lines,
        pointers=2,
        symbols=symbols,
    )
    return made.replace('grid = ["1"', f'grid = ["{grid}"')


def once(*skip: str, symbols: tuple[str, ...] = (), grid: str = "1", numbers: tuple[int, ...] = ()) -> str:
    """Outside loops; `skip` computes %skip."""
    return text(*(f"  {line}" for line in skip), *passed(), symbols=symbols, grid=grid, numbers=numbers)


def looped(
    *skip: str,
    bounds: str = "%c0 to %n step %c1",
    symbols: tuple[str, ...] = ("n",),
    grid: str = "1",
    numbers: tuple[int, ...] = (),
    before: tuple[str, ...] = (),
) -> str:
    """In a loop over %i; `skip` computes %skip there, `before` stands before the loop."""
    lines = [f"  {line}" for line in before] + [f"  scf.for %i = {bounds} {{", *(f"  {line}" for line in skip), *passed(), "  }"]
    return text(*lines, symbols=symbols, grid=grid, numbers=numbers)


def slotted(*slot_lines: str, grid: str = "1", symbols: tuple[str, ...] = (), numbers: tuple[int, ...] = (), read: str = "%w") -> str:
    """A tile is written to slot %w of two and read from slot `read`."""
    body = [
        "  scf.if %always {\n  }",
        alloc("%ring", 2),
        slot("%to", "%ring", (2,), "%w"),
        slot("%from", "%ring", (2,), read),
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%to", ROWS_LAYOUT),
        "  sync.barrier",
        local_load("%y", "%from", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
    ]
    lines = ["  %always = arith.constant true", *(f"  {line}" for line in slot_lines), *body]
    return text(*lines, symbols=symbols, grid=grid, numbers=numbers)


def compared(name: str, predicate: str, left: str, right: str) -> str:
    return f"{name} = arith.cmpi {predicate}, {left}, {right} : index"


def binary(name: str, kind: str, left: str, right: str, of: str = "index") -> str:
    return f"{name} = arith.{kind} {left}, {right} : {of}"


TRIPS = (
    "%t = scf.for %tile = %p to %c256 step %c132 iter_args(%old = %c0) -> (index) {",
    "  %new = arith.addi %old, %c1 : index",
    "  scf.yield %new : index",
    "  }",
)
RINGS = (
    *(binary(f"%r{n}", "remui", "%i", f"%c{n}") for n in (7, 8, 9)),
    *(compared(f"%q{n}", "eq", f"%r{n}", f"%c{n - 1}") for n in (7, 8, 9)),
    binary("%q78", "andi", "%q7", "%q8", "i1"),
)


def up_to_a_turn(predicate: str) -> str:
    """The barrier is left out in every fifth iteration before (or from) the m-th of a loop that ends there at the latest."""
    return looped(
        binary("%r", "remui", "%i", "%c5"),
        compared("%x0", "eq", "%r", "%c4"),
        compared("%x1", predicate, "%i", "%m"),
        binary("%skip", "andi", "%x0", "%x1", "i1"),
        bounds="%c0 to %b step %c1",
        symbols=("n", "m"),
        numbers=(4, 5),
        before=("%b = arith.minsi %n, %m : index",),
    )


WRONG: dict[str, str] = {
    # --- workgroups
    "the workgroups with one tile": once(*TRIPS, compared("%skip", "eq", "%t", "%c1"), grid="132", numbers=(132, 256)),
    "a slot by the id over eight": slotted(
        binary("%d", "divui", "%p", "%c8"), binary("%w", "remui", "%d", "%c2"), grid="64", numbers=(8,), read="%c0"
    ),
    "a select on one id": slotted(
        compared("%is", "eq", "%p", "%c17"), "%w = arith.select %is, %c1, %c0 : index", grid="40", numbers=(17,), read="%c0"
    ),
    "one tile of a loop": looped(
        compared("%skip", "eq", "%i", "%c77"), bounds="%p to %c256 step %c132", symbols=(), grid="132", numbers=(77, 132, 256)
    ),
    "one id of a grid that sizes make": once(compared("%skip", "eq", "%p", "%c100"), symbols=("n",), grid="(n + 63) // 64", numbers=(100,)),
    "the last id": once("%l = arith.addi %p, %c1 : index", compared("%skip", "eq", "%l", "%n"), symbols=("n",), grid="n"),
    # --- sizes
    "no row and one column": once(
        compared("%x0", "eq", "%n", "%c0"),
        compared("%y1", "eq", "%m", "%c1"),
        binary("%skip", "andi", "%x0", "%y1", "i1"),
        symbols=("n", "m"),
    ),
    "two residues": once(
        binary("%n3", "remui", "%n", "%c3"),
        binary("%m3", "remui", "%m", "%c3"),
        compared("%x2", "eq", "%n3", "%c2"),
        compared("%y2", "eq", "%m3", "%c2"),
        binary("%skip", "andi", "%x2", "%y2", "i1"),
        symbols=("n", "m"),
    ),
    "one value of three sizes": once(compared("%skip", "eq", "%n", "%c2048"), symbols=("n", "m", "k"), numbers=(2048,)),
    "a late iteration": looped(compared("%skip", "eq", "%i", "%c10000"), numbers=(10000,)),
    "late iterations of wide steps": looped(compared("%skip", "sge", "%i", "%c16384"), bounds="%c0 to %n step %c64", numbers=(64, 16384)),
    "a select on a large size": slotted(
        compared("%is", "sgt", "%n", "%c20000"), "%w = arith.select %is, %c1, %c0 : index", symbols=("n",), numbers=(20000,), read="%c0"
    ),
    "a limit by the smaller of two": looped(
        "%last = arith.addi %i, %c1 : index",
        compared("%x0", "eq", "%last", "%b"),
        compared("%x1", "sgt", "%n", "%c20000"),
        binary("%skip", "andi", "%x0", "%x1", "i1"),
        bounds="%c0 to %b step %c1",
        numbers=(20000,),
        before=("%b = arith.minsi %n, %c20000 : index",),
    ),
    "a quotient by shifting": looped("%q = arith.shrui %i, %c7 : index", compared("%skip", "eq", "%q", "%c100"), numbers=(7, 100)),
    "a limit that is a product": looped(
        binary("%limit", "muli", "%c640", "%c64"), compared("%skip", "eq", "%i", "%limit"), numbers=(64, 640)
    ),
    "three rings that meet": looped(*RINGS, binary("%skip", "andi", "%q78", "%q9", "i1"), numbers=(6, 7, 8, 9)),
    "a multiple modulo a prime": once(
        binary("%n37", "muli", "%n", "%c37"),
        binary("%r", "remui", "%n37", "%c101"),
        compared("%skip", "eq", "%r", "%c5"),
        symbols=("n",),
        numbers=(5, 37, 101),
    ),
    "a product of two sizes": once(
        binary("%nm", "muli", "%n", "%m"), compared("%skip", "eq", "%nm", "%c35"), symbols=("n", "m"), numbers=(35,)
    ),
    "a condition that would turn where the loop ends": up_to_a_turn("slt"),
    "the sign of a bit": slotted(
        compared("%is", "sgt", "%n", "%c3"),
        "%bit = arith.extsi %is : i1 to i32",
        "%two = arith.constant 2 : i32",
        "%r32 = arith.addi %bit, %two : i32",
        "%w0 = arith.index_cast %r32 : i32 to index",
        binary("%w", "subi", "%w0", "%c1"),
        symbols=("n",),
        read="%c1",
    ),
}
"""A fault that only some sizes, workgroups or iterations show."""

RIGHT: dict[str, str] = {
    "a slot by the id in a grid of two": slotted("%w = arith.addi %p, %c0 : index", grid="2"),
    "a slot by the id over eight": slotted(binary("%d", "divui", "%p", "%c8"), binary("%w", "remui", "%d", "%c2"), grid="64", numbers=(8,)),
    "a grid of n has an n": once(compared("%skip", "eq", "%n", "%c0"), symbols=("n",), grid="n"),
    "a grid of tiles has an n": once(compared("%skip", "eq", "%n", "%c0"), symbols=("n", "m"), grid="(n + 63) // 64 * ((m + 63) // 64)"),
    "no id beyond the grid": once(compared("%skip", "sge", "%p", "%c132"), grid="132", numbers=(132,)),
    "no id beyond a grid that sizes make": once(compared("%skip", "sge", "%p", "%n"), symbols=("n",), grid="(n + 63) // 64"),
    "no workgroup without a tile": once(*TRIPS, compared("%skip", "eq", "%t", "%c0"), grid="132", numbers=(132, 256)),
    "no iteration at the bound": looped(compared("%skip", "sge", "%i", "%n")),
    "no odd step": looped(
        binary("%r", "remui", "%i", "%c64"), compared("%skip", "ne", "%r", "%c0"), bounds="%c0 to %n step %c64", numbers=(64,)
    ),
    "a limit by the smaller of two": looped(
        compared("%skip", "sge", "%i", "%c20000"),
        bounds="%c0 to %b step %c1",
        numbers=(20000,),
        before=("%b = arith.minsi %n, %c20000 : index",),
    ),
    "parts of a length, as many as another size says": looped(
        compared("%skip", "sge", "%i", "%end"),
        bounds="%c0 to %end step %c1",
        symbols=("n", "m"),
        numbers=(8192,),
        before=(
            "%less = arith.subi %n, %c1 : index",
            "%quotient = arith.divui %less, %m : index",
            "%each = arith.maxsi %quotient, %c1 : index",
            binary("%place", "muli", "%p", "%each"),
            binary("%first", "muli", "%place", "%c8192"),
            "%rest = arith.subi %n, %first : index",
            "%end = arith.minsi %each, %rest : index",
        ),
    ),
    "a quotient by shifting": looped(
        "%q = arith.shrui %i, %c7 : index",
        compared("%x0", "eq", "%q", "%c100"),
        compared("%x1", "slt", "%i", "%c12800"),
        binary("%skip", "andi", "%x0", "%x1", "i1"),
        numbers=(7, 100, 12800),
    ),
    "rings that do not meet": looped(
        binary("%r6", "remui", "%i", "%c6"),
        binary("%r8", "remui", "%i", "%c8"),
        compared("%x0", "eq", "%r6", "%c1"),
        compared("%x1", "eq", "%r8", "%c2"),
        binary("%skip", "andi", "%x0", "%x1", "i1"),
        numbers=(6, 8),
    ),
    "a condition that turns where the loop ends": up_to_a_turn("sge"),
    "a multiple modulo a prime": once(
        binary("%n37", "muli", "%n", "%c37"),
        binary("%r", "remui", "%n37", "%c101"),
        compared("%skip", "sge", "%r", "%c101"),
        symbols=("n",),
        numbers=(37, 101),
    ),
    "three sizes": once(
        binary("%nm", "addi", "%n", "%m"),
        compared("%x0", "slt", "%nm", "%k"),
        compared("%x1", "sgt", "%n", "%k"),
        binary("%skip", "andi", "%x0", "%x1", "i1"),
        symbols=("n", "m", "k"),
    ),
}
"""Right for all sizes and workgroups, by arguments that are affine with quotients."""


LOADED = ("%f = arith.constant 1.0 : f32", "%g = arith.constant 2.0 : f32")
"""What an unknown is compared of: arithmetic on floats, which the checker does not do."""


def loaded(name: str, at: int = 0) -> str:
    """A truth value that nothing is known of; another one for every `at`."""
    return f"{name} = arith.cmpf {('olt', 'ogt', 'ole', 'oge', 'one')[at]}, %f, %g : f32"


def switching(count: int) -> str:
    """The barrier is left out where `count` truth values are all true."""
    every = "%u0"
    lines = [*LOADED, *(loaded(f"%u{at}", at) for at in range(count))]
    for at in range(1, count):
        lines.append(binary(f"%all{at}", "andi", every, f"%u{at}", "i1"))
        every = f"%all{at}"
    return once(*lines, binary("%skip", "andi", every, every, "i1"))


def alternating(*, barrier: bool) -> str:
    """In each iteration the tile goes one of two ways, which nobody knows; each way leaves the barrier behind to the other."""
    both = "  sync.barrier" if barrier else ""
    way = [
        local_load("%y0", "%s", ACC_LAYOUT),
        store("%y0", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        "  sync.barrier\n  } else {",
        local_store("%x", "%s", ROWS_LAYOUT),
        "  }",
    ]
    lines = [*LOADED, "scf.for %i = %c0 to %n step %c1 {", f"{loaded('%u')}", both, "  scf.if %u {", *way, "  }"]
    first = [load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT), local_store("%x", "%s", ROWS_LAYOUT), "  sync.barrier"]
    return text(*first, *lines, symbols=("n",))


def stored_where_loaded() -> str:
    """In each iteration nobody knows whether the tile is stored: right, whoever stores it."""
    guarded = ["  scf.if %u {", store("%x", "%vc", TILE, "%c0, %c0", ROWS_LAYOUT, "f16"), "  }"]
    return text(
        *LOADED,
        "  scf.for %i = %c0 to %n step %c1 {",
        f"  {loaded('%u')}",
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        *guarded,
        "  }",
        symbols=("n",),
    )


def read_where_loaded(barrier: str) -> str:
    """In each iteration nobody knows whether the shared tile is read."""
    return text(
        *LOADED,
        "  scf.for %i = %c0 to %n step %c1 {",
        f"  {loaded('%u')}",
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%s", ROWS_LAYOUT),
        "  sync.barrier",
        "  scf.if %u {",
        local_load("%y", "%s", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        "  }",
        barrier,
        "  }",
        symbols=("n",),
    )


def written_where_loaded() -> str:
    """The shared tile is read in any case, and written in none that is sure."""
    return text(
        *LOADED,
        "  scf.for %i = %c0 to %n step %c1 {",
        f"  {loaded('%u')}",
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        "  scf.if %u {",
        local_store("%x", "%s", ROWS_LAYOUT),
        "  }",
        "  sync.barrier",
        local_load("%y", "%s", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        "  sync.barrier\n  }",
        symbols=("n",),
    )


def roles_of(producer: int, consumer: int) -> str:
    """A producer and a consumer that run so many steps."""
    made = nvidia.producer_consumer(3, 1, producer)
    head, tail = made.split("pipe.end_role", 1)
    tail = tail.replace("to %steps step", "to %fewer step")
    return head.replace("  %even = ", f"  %fewer = arith.constant {consumer} : index\n  %even = ") + "pipe.end_role" + tail


def numbered_and_carried(steps: int) -> str:
    """The producer takes its slot by the number of the step, the consumer carries it."""
    numbered, carried = (nvidia.producer_consumer(3, 1, steps, carried=way) for way in (False, True))
    return numbered.split("pipe.end_role", 1)[0] + "pipe.end_role" + carried.split("pipe.end_role", 1)[1]


WRONG.update(
    {
        # --- long loops
        "fewer steps of the consumer": roles_of(6000, 5000),
        "fewer steps of the producer": roles_of(5000, 6000),
        "one step more of the producer than slots": roles_of(6004, 6000),
        # --- unknown truth values
        "one unknown": switching(1),
        "five unknowns": switching(5),
        "alternating ways": alternating(barrier=False),
        "read while written again": read_where_loaded(""),
        "written where unknown": written_where_loaded(),
        "an equality with an unknown": once(
            *LOADED,
            loaded("%u"),
            "%i = arith.extui %u : i1 to i32",
            "%one = arith.constant 1 : i32",
            "%skip = arith.cmpi eq, %i, %one : i32",
        ),
        "a slot by an unknown": slotted(*LOADED, loaded("%u"), "%w = arith.select %u, %c1, %c0 : index", read="%c0"),
        "a slot by an unknown, the other way": slotted(*LOADED, loaded("%u"), "%w = arith.select %u, %c0, %c1 : index", read="%c0"),
    }
)
RIGHT.update(
    {
        "as many steps": roles_of(6000, 6000),
        "a few steps ahead at the end": roles_of(6002, 6000).replace("to %steps step", "to %fewer step"),
        "a slot by the number, and carried": numbered_and_carried(10_000),
        "stored where unknown": stored_where_loaded(),
        "read where unknown": read_where_loaded("  sync.barrier"),
        "a slot by an unknown, both times": slotted(*LOADED, loaded("%u"), "%w = arith.select %u, %c1, %c0 : index"),
    }
)
