"""Pairs of kernels that differ in one wait, fence, count or place: queues, named barriers, roles, clusters and global arrays."""

from hazards.programs_cluster import MEET, in_cluster, shared_operand
from hazards.programs_global import BARRIER, on_grid, one, strided, update, view_of
from hazards.schedules import (
    ACC_LAYOUT,
    ROWS_LAYOUT,
    TILE_BYTES,
    alloc,
    array,
    bulk_store,
    constants,
    kernel,
    load,
    local_load,
    local_store,
    queued_copy,
    roles,
    slot,
    store,
    tensor,
    tma,
    view,
    wgmma,
    zeros,
)
from verify.class_programs import LOADED, TILE, arguments, binary, compared, loaded
from verify.step_programs import FILL, USE, ring, turn

WRONG: dict[str, str] = {}
RIGHT: dict[str, str] = {}
HEAD = "  scf.for %i = %c0 to %n step %c1 {"
LOAD, LOAD_AGAIN = load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT), load("%z", "%va", TILE, "%c0, %c0", ROWS_LAYOUT)
STORE = store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16")


def pair(name: str, wrong: str, right: str) -> None:
    WRONG[name], RIGHT[name] = wrong, right


def made(*lines: str, warps: int = 4, symbols: tuple[str, ...] = ("n",), numbers: tuple[int, ...] = ()) -> str:
    even = "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32"
    head = (view("%va", "%a", 64, 64), view("%vc", "%c", 64, 64), constants(0, 1, 2, 3, 4, *numbers), even)
    return kernel(arguments(symbols), *head, *lines, pointers=2, symbols=symbols, warps=warps)


# --- queues


def copied(pending: int, slots: int = 3, *, inside: bool = False, first: bool = False) -> str:
    """Copies run two tiles ahead. `inside`: a group is closed with each alone; `first`: copies stand ahead of reads."""
    closed = ['  sync.commit "cp_async"', "  }"] if inside else ["  }", '  sync.commit "cp_async"']
    lines = [alloc("%ring", slots)]
    for at in range(2):
        lines += [compared(f"%h{at}", "slt", f"%c{at}", "%n"), f"  scf.if %h{at} {{", slot(f"%d{at}", "%ring", (slots,), f"%c{at}")]
        lines += [queued_copy("%va", TILE, "%c0, %c0", f"%d{at}", "cp_async"), *closed]
    lines += [HEAD, f'  sync.wait "cp_async" pending {pending} : i64', "  sync.barrier", binary("%r", "remui", "%i", f"%c{slots}")]
    read = [slot("%from", "%ring", (slots,), "%r"), local_load("%y", "%from", ACC_LAYOUT), STORE]
    more = [
        binary("%j", "addi", "%i", "%c2"),
        compared("%more", "slt", "%j", "%n"),
        "  scf.if %more {",
        binary("%k", "remui", "%j", f"%c{slots}"),
    ]
    more += [slot("%to", "%ring", (slots,), "%k"), queued_copy("%va", TILE, "%c0, %c0", "%to", "cp_async"), *closed]
    return made(*lines, *(more + read if first else read + more), "  }")


def multiplied(pending: int = 1, fence: str = '  sync.fence "async_shared"', *, behind: bool = True) -> str:
    """Tiles go through two slots to matrix instructions, of which some are in flight; `behind`: and are waited for behind the loop."""
    acc = tensor(ACC_LAYOUT)
    wait = '  sync.wait "wgmma" pending {} : i64'.format
    return kernel(
        "%a: !tile.ptr<f16>, %c: !tile.ptr<f32>, %n: index",
        *(view("%va", "%a", 64, 64), view("%vc", "%c", 64, 64, "f32"), constants(0, 1, 2), zeros("%init"), alloc("%sa", 2), alloc("%sb")),
        *(LOAD_AGAIN, local_store("%z", "%sb", ROWS_LAYOUT)),
        f"  %acc = scf.for %i = %c0 to %n step %c1 iter_args(%old = %init) -> ({acc}) {{",
        *(binary("%r", "remui", "%i", "%c2"), slot("%s", "%sa", (2,), "%r"), LOAD, local_store("%x", "%s", ROWS_LAYOUT)),
        *(fence, "  sync.barrier", wgmma("%new", "%s", "%sb", "%old"), '  sync.commit "wgmma"', wait(pending), "  sync.barrier"),
        f"  scf.yield %new : {acc}\n  }}",
        wait(0) if behind else "",
        store("%acc", "%vc", array(64, 64, "f32"), "%c0, %c0", ACC_LAYOUT, "f32"),
        symbols=("n",),
        pointers=2,
    )


def stored(pending: int, slots: int = 2, *, fence: bool = True) -> str:
    """Tiles leave through slots by bulk stores."""
    lines = [alloc("%st", slots), HEAD, binary("%r", "remui", "%i", f"%c{slots}"), LOAD, slot("%to", "%st", (slots,), "%r")]
    lines += [f'  sync.wait "bulk_store" pending {pending} : i64 read', "  sync.barrier", local_store("%x", "%to", ROWS_LAYOUT)]
    lines += ['  sync.fence "async_shared"' if fence else "", "  sync.barrier", bulk_store("%to", TILE, "%c0, %c0", "%vc")]
    return made(*lines, '  sync.commit "bulk_store"', "  }", '  sync.wait "bulk_store" pending 0 : i64 read')


def one_barrier(times: int) -> str:
    """The parity of one barrier begins anew in each of n loops of m * `times` tiles."""
    copy = (f"  sync.mbarrier_expect %full bytes {TILE_BYTES} : i64", tma("%va", TILE, "%c0, %c0", "%s", "%full"))
    parity = (binary("%r", "remui", "%i", "%c2"), "  %p = arith.index_cast %r : index to i32", "  sync.wait_phase %full parity %p")
    lines = ["  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier", alloc("%s"), f"  %inner = arith.muli %m, %c{times} : index"]
    lines += ["  scf.for %o = %c0 to %n step %c1 {", "  scf.for %i = %c0 to %inner step %c1 {", *copy, *parity]
    return made(*lines, local_load("%y", "%s", ACC_LAYOUT), STORE, "  sync.barrier", "  }\n  }", symbols=("n", "m"))


def sharing(at: int) -> str:
    """A slot of one buffer is written while another buffer is read, that begins at some byte."""
    lines = [alloc("%b1", 2, at=0), alloc("%b2", at=at), HEAD, LOAD, slot("%s1", "%b1", (2,), "%c1"), local_store("%x", "%b2", ROWS_LAYOUT)]
    lines += ["  sync.barrier", local_load("%y", "%b2", ACC_LAYOUT), STORE, local_store("%x", "%s1", ROWS_LAYOUT), "  sync.barrier"]
    return made(*lines, local_load("%w", "%s1", ACC_LAYOUT), STORE.replace("%y", "%w"), "  sync.barrier", "  }")


pair("queued copies in flight", copied(2), copied(1))
pair("groups closed with copies", copied(1, inside=True), copied(0, inside=True))
pair("copies ahead of reads", copied(1, 2, first=True), copied(1, 3, first=True))
pair("matrix instructions in flight", multiplied(2), multiplied(1))
pair("matrix instructions behind a loop", multiplied(behind=False), multiplied(0, behind=False))
pair("a fence ahead of matrix instructions", multiplied(fence=""), multiplied(0))
pair("bulk stores in flight", stored(2), stored(1))
pair("bulk stores of three slots", stored(3, 3), stored(2, 3))
pair("a fence ahead of bulk stores", stored(1, fence=False), stored(0))
pair("a parity that begins anew", one_barrier(3), one_barrier(4))
pair("buffers that share bytes", sharing(TILE_BYTES + TILE_BYTES // 2), sharing(2 * TILE_BYTES))

# --- named barriers and roles that have nothing to do with one another


def named(barrier: str, buffer: str, last: str, *, twice: bool = True) -> str:
    """Tiles through a buffer, with meetings of four warps."""
    meet = f"  sync.named_barrier {barrier} warps 4 : i64"
    body = [f"  scf.for %i = %c0 to {last} step %c1 {{", LOAD, local_store("%x", buffer, ROWS_LAYOUT), meet]
    return "\n".join([*body, local_load("%y", buffer, ACC_LAYOUT), meet if twice else "", STORE, "  }"])


def of_groups(barrier: str) -> str:
    """Two groups of a role, each with a slot of its own."""
    body = "  %g = pipe.group_id\n" + slot("%s", "%both", (2,), "%g") + "\n" + named(barrier, "%s", "%n")
    return made(alloc("%both", 2), roles(("both",), (4,), (2,), body), warps=8)


def meetings(second: str) -> str:
    """Two roles that meet n times; the second in loops of its own."""
    first = f"{HEAD}\n  sync.barrier\n  }}"
    numbers = "  %half = arith.divui %n, %c2 : index\n  %rest = arith.remui %n, %c2 : index\n  %n1 = arith.maxsi %n, %c1 : index"
    return made(numbers, roles(("left", "right"), (4, 4), (1, 1), first, second), warps=8)


def lengths_of_groups(more: str) -> str:
    body = f"  %g = pipe.group_id\n  %h = arith.addi %n, {more} : index\n  scf.for %i = %c0 to %h step %c1 {{\n"
    return made(roles(("both",), (4,), (2,), body + "  sync.named_barrier 1 : i64 warps 8 : i64\n  }"), warps=8)


TWO = HEAD.replace("%n", "%half") + "\n  sync.barrier\n  sync.barrier\n  }\n" + HEAD.replace("%n", "%rest") + "\n  sync.barrier\n  }"
pair("barriers of groups", of_groups("1 : i64"), of_groups("1 : i64 per_group"))
pair("two meetings an iteration", meetings(f"{HEAD.replace('%n', '%n1')}\n  sync.barrier\n  }}"), meetings(TWO))
pair("groups of one length", lengths_of_groups("%g"), lengths_of_groups("%c1"))


def apart(*, twice: bool) -> str:
    """Two roles of n and of m tiles, which have nothing to do with one another."""
    sides = (named("1 : i64", "%s1", "%n"), named("2 : i64", "%s2", "%m", twice=twice))
    return made(alloc("%s1"), alloc("%s2"), roles(("left", "right"), (4, 4), (1, 1), *sides), warps=8, symbols=("n", "m"))


def beside_ring(*lines: str, last: str = "%n") -> str:
    """A third role beside a producer and a consumer of n tiles (the consumer's are as many as `last`)."""
    producer, consumer = (
        ["  scf.for %i = %c0 to " + end + " step %c1 {", *turn("%i"), *body, "  }"] for body, end in ((FILL, "%n"), (USE, last))
    )
    more = (alloc("%s3"), view("%vc", "%c", 64, 64))
    text = (
        ring(producer, consumer, *more, symbols=("n", "m"))
        .replace("num_warps = 5", "num_warps = 9")
        .replace('"consumer"]', '"consumer", "third"]')
    )
    text = text.replace("i64: 1, 4>", "i64: 1, 4, 4>").replace("i64: 1, 1>", "i64: 1, 1, 1>")
    text = text.replace("registers = array<i64: 0, 0>", "registers = array<i64: 0, 0, 0>")
    at = text.rindex("}) : () -> ()\n  tile.return")
    return text[:at] + "}, {\n" + "\n".join(lines) + "\n  pipe.end_role\n" + text[at:]


def own_rows(layout: str) -> str:
    """Tiles through shared memory, each warp's rows for itself, or for others."""
    return "\n".join(
        ["  scf.for %i = %c0 to %m step %c1 {", LOAD, local_store("%x", "%s3", ROWS_LAYOUT), local_load("%y", "%s3", layout), "  }"]
    )


pair("roles of other lengths", apart(twice=False), apart(twice=True))
pair("a role beside a ring", beside_ring(named("3 : i64", "%s3", "%m", twice=False)), beside_ring(named("3 : i64", "%s3", "%m")))
pair("a role without meetings beside a ring", beside_ring(own_rows(ACC_LAYOUT)), beside_ring(own_rows(ROWS_LAYOUT)))
pair("a role as long as a ring's", beside_ring(named("3 : i64", "%s3", "%n"), last="%m"), beside_ring(named("3 : i64", "%s3", "%n")))

# --- clusters


def read_of_peer(meet: str, *, known: bool) -> str:
    """Each workgroup writes a tile, and reads the second one's where nobody knows whether (or always)."""
    tile, text = array(64, 64, "f32"), "  %u = arith.constant true" if known else f"  {loaded('%u')}"
    read = local_load("%y", "%s", ACC_LAYOUT, "f32").replace("array<i64: 0, 0> :", "array<i64: 0, 0> peer 1 : i64 :")
    return in_cluster(
        kernel(
            "%a: !tile.ptr<f32>, %c: !tile.ptr<f32>, %n: index",
            "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
            *(MEET, view("%va", "%a", 64, 64, "f32"), view("%vc", "%c", 64, 64, "f32"), constants(0, 1), *LOADED),
            *(alloc("%s", element="f32"), HEAD, text, load("%x", "%va", tile, "%c0, %c0", ROWS_LAYOUT, "f32")),
            *(local_store("%x", "%s", ROWS_LAYOUT, "f32"), MEET, "  scf.if %u {", read),
            *(store("%y", "%vc", tile, "%c0, %c0", ACC_LAYOUT, "f32"), "  }", meet, "  }", MEET),
            pointers=2,
            symbols=("n",),
        )
    )


def in_steps(number: str) -> str:
    """A product by two workgroups, each of as many steps as its number and a size say."""
    ids = f"\n  %id = tile.program_id 0 : i64\n  %cluster = arith.divui %id, %c2 : index\n  %last = arith.addi {number}, %steps : index"
    text = shared_operand(3, None).replace("to %steps step", "to %last step").replace('grid = ["2"', 'grid = ["2*n"')
    return text.replace("%rank = pipe.cluster_rank", f"%rank = pipe.cluster_rank{ids}")


pair("a peer's tile where data says so", read_of_peer("  sync.barrier", known=False), read_of_peer(MEET, known=False))
pair("a peer's tile", read_of_peer("  sync.barrier", known=True), read_of_peer(MEET, known=True))
pair("steps of a cluster", in_steps("%id"), in_steps("%cluster"))

# --- global arrays

ID = "  %w = tile.program_id 0 : i64"
ROWS = array(512, 64)


def number(name: str, value: int) -> str:
    return f"  %{name} = arith.constant {value} : index"


def moved(*lines: str, grid: object = 4, at: str = "%o, %c0", back: str = "%q, %c0") -> str:
    """Each workgroup loads the rows from %o on, and stores those from %q on."""
    return on_grid(one(ID, binary("%o", "muli", "%w", "%c64"), view("%v", "%a", 512, 64), *lines, update(at, ROWS, back=back)), grid)


def in_turn(step: str, distance: str = "%c64") -> str:
    """Workgroups take tiles in turns of a size."""
    kind = strided(("%n", 64), (64, 1))
    lines = (binary("%less", "subi", "%g", "%c1"), binary("%some", "maxsi", "%less", "%c1"), binary("%far", "addi", step, "%c0"))
    body = (f"  scf.for %t = %w to %n step %far {{\n  %o = arith.muli %t, {distance} : index", update("%o, %c0", kind), "  }")
    return on_grid(one(ID, view_of("%v", ("%n", 64), (64, 1)), *lines, *body, symbols=("n", "g")), "g")


def phases(between: str, distance: int) -> str:
    """A workgroup updates its tiles in turn, and then loads them, or others, by other warps."""
    kind = array(8192, 64)
    first = ("  scf.for %t = %w to %n step %c4 {", binary("%o", "muli", "%t", "%c64"), update("%o, %c0", kind), "  }", between)
    second = ("  scf.for %t = %w to %n step %c4 {", binary("%t2", "addi", "%t", "%far"), binary("%q", "muli", "%t2", "%c64"))
    last = load("%y", "%v", kind, "%q, %c0", ACC_LAYOUT)
    lines = (ID, view("%v", "%a", 8192, 64), number("far", distance), *first, *second, last, "  }")
    return on_grid(one(*lines, symbols=("n",)), 4)


def sparse(every: int) -> str:
    """Each iteration stores its tile and loads that of three before, by other warps; a barrier in every so many of them."""
    kind = array(8192, 64)
    lines = (view("%v", "%a", 8192, 64), number("three", 3), number("every", every), load("%x", "%v", kind, "%c0, %c0", ROWS_LAYOUT))
    body = (
        "  scf.for %i = %three to %n step %c1 {",
        binary("%o", "muli", "%i", "%c64"),
        store("%x", "%v", kind, "%o, %c0", ROWS_LAYOUT, "f16"),
    )
    more = (binary("%j", "subi", "%i", "%three"), binary("%q", "muli", "%j", "%c64"), load("%y", "%v", kind, "%q, %c0", ACC_LAYOUT))
    last = (binary("%r", "remui", "%i", "%every"), compared("%is", "eq", "%r", "%c0"), "  scf.if %is {\n  sync.barrier\n  }\n  }")
    return one(*lines, *body, *more, *last, symbols=("n",))


def selected(predicate: str) -> str:
    lines = (compared("%is", predicate, "%w", "%c2"), binary("%o2", "addi", "%o", "%c128"), binary("%o1", "addi", "%o", "%c64"))
    return moved(*lines, "  %q = arith.select %is, %o, %o1 : index", at="%q, %c0")


pair(
    "tiles turned round",
    moved(number("k", 192), binary("%q", "subi", "%k", "%o")),
    moved(number("k", 448), binary("%q", "subi", "%k", "%o")),
)
pair(
    "tiles of two workgroups", moved("  %h = arith.divui %w, %c2 : index", binary("%q", "muli", "%h", "%c64"), at="%q, %c0"), in_turn("%g")
)
pair("a row by a selection", selected("sge").replace("%is, %o, %o1", "%is, %o, %o2"), selected("slt"))
pair("tiles in turns of a size", in_turn("%some"), in_turn("%g"))
pair("rows in turns of a size", in_turn("%g", "%c32"), in_turn("%g", "%c128"))
pair("another workgroup's tiles later", phases(BARRIER, 1), phases(BARRIER, 4))
pair("own tiles later", phases("", 0), phases(BARRIER, 0))
pair("a barrier at times", sparse(4), sparse(3))
