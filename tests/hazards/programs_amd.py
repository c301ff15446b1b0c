"""Right schedules for machines with in-order counters: local memory, direct copies, bare and conditional barriers."""

from hazards.schedules import (
    EIGHT_COLUMNS,
    EIGHT_ROWS,
    WAVE_COLUMNS,
    WAVE_ROWS,
    alloc,
    array,
    constants,
    kernel,
    load,
    local_load,
    local_store,
    queued_copy,
    slot,
    store,
    view,
)

ARGS = "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>"


def views(steps: int) -> list[str]:
    """Views of the input and output: `steps` tiles of 64 rows."""
    return [view("%va", "%a", 64 * steps, 64), view("%vc", "%c", 64 * steps, 64)]


def double_buffer(steps: int = 7, *, slots: int = 2, dynamic: bool = False) -> str:
    """Tiles through two slots of local memory; one flushing barrier a step is enough."""
    kind = array(64 * steps, 64)
    return kernel(
        ARGS + (", %n: index" if dynamic else ""),
        *views(steps),
        constants(0, 1, 64),
        f"  %ring = arith.constant {slots} : index",
        "" if dynamic else f"  %n = arith.constant {steps} : index",
        alloc("%s", slots),
        "  scf.for %i = %c0 to %n step %c1 {",
        "  %r = arith.remui %i, %ring : index\n  %o = arith.muli %i, %c64 : index",
        load("%x", "%va", kind, "%o, %c0", WAVE_ROWS),
        slot("%to", "%s", (slots,), "%r"),
        local_store("%x", "%to", WAVE_ROWS),
        "  sync.barrier",
        local_load("%y", "%to", WAVE_COLUMNS),
        store("%y", "%vc", kind, "%o, %c0", WAVE_COLUMNS, "f16"),
        "  }",
        target="gfx942",
        pointers=2,
        symbols=("n",) if dynamic else (),
    )


def direct_ring(stages: int = 3, ahead: int = 2, steps: int = 9, *, pending: int | None = None) -> str:
    """Direct copies `ahead` steps ahead; the counter says how many may be in flight, a bare barrier tells the others."""
    kind = array(64 * steps, 64)
    head: list[str] = []
    for at in range(ahead):
        head += [
            f"  %p{at} = arith.constant {at} : index\n  %o{at} = arith.constant {64 * at} : index",
            slot(f"%d{at}", "%s", (stages,), f"%p{at}"),
            queued_copy("%va", kind, f"%o{at}, %c0", f"%d{at}", "direct"),
        ]

    def step(index: str, tag: str, keep: int) -> list[str]:
        return [
            f'  sync.wait "vmcnt" pending {keep} : i64',
            "  sync.barrier bare",
            f"  %r{tag} = arith.remui {index}, %ring : index\n  %o_{tag} = arith.muli {index}, %c64 : index",
            slot(f"%from{tag}", "%s", (stages,), f"%r{tag}"),
            local_load(f"%x{tag}", f"%from{tag}", WAVE_COLUMNS),
            store(f"%x{tag}", "%vc", kind, f"%o_{tag}, %c0", WAVE_COLUMNS, "f16"),
        ]

    tail: list[str] = []
    for at in range(ahead):
        tail += [f"  %e{at} = arith.constant {steps - ahead + at} : index", *step(f"%e{at}", f"e{at}", ahead - 1 - at)]
    return kernel(
        ARGS,
        *views(steps),
        constants(0, 1, 64),
        f"  %ring = arith.constant {stages} : index\n  %ahead = arith.constant {ahead} : index",
        f"  %n = arith.constant {steps - ahead} : index",
        alloc("%s", stages),
        *head,
        "  scf.for %i = %c0 to %n step %c1 {",
        *step("%i", "m", ahead - 1 if pending is None else pending),
        '  sync.wait "lgkmcnt" pending 0 : i64',
        "  sync.barrier bare",
        "  %j = arith.addi %i, %ahead : index\n  %t = arith.remui %j, %ring : index\n  %oj = arith.muli %j, %c64 : index",
        slot("%to", "%s", (stages,), "%t"),
        queued_copy("%va", kind, "%oj, %c0", "%to", "direct"),
        "  }",
        *tail,
        target="gfx950",
        pointers=2,
    )


def two_groups(steps: int = 8, *, slots: int = 2, second_bare: bool = True, end: bool = True) -> str:
    """Two groups of four warps, one stage apart: the trailing one meets one barrier before the loop, the leading one one behind it.

    The memory stage reads a slot and writes the next one; the other stage only computes. With one slot a group writes what the other reads.
    """
    kind = array(64 * (steps + 1), 64)
    return kernel(
        ARGS,
        *views(steps + 1),
        constants(0, 1, 64),
        f"  %ring = arith.constant {slots} : index\n  %n = arith.constant {steps} : index",
        alloc("%s", slots),
        load("%x0", "%va", kind, "%c0, %c0", EIGHT_ROWS),
        slot("%first", "%s", (slots,), "%c0"),
        local_store("%x0", "%first", EIGHT_ROWS),
        "  sync.barrier",
        "  sync.barrier groups array<i64: 1>",
        "  scf.for %i = %c0 to %n step %c1 {",
        "  %j = arith.addi %i, %c1 : index\n  %o = arith.muli %i, %c64 : index\n  %oj = arith.muli %j, %c64 : index",
        "  %r = arith.remui %i, %ring : index\n  %t = arith.remui %j, %ring : index",
        load("%x", "%va", kind, "%oj, %c0", EIGHT_ROWS),
        slot("%from", "%s", (slots,), "%r"),
        slot("%to", "%s", (slots,), "%t"),
        local_load("%y", "%from", EIGHT_COLUMNS),
        local_store("%x", "%to", EIGHT_ROWS),
        "  sync.barrier",
        store("%y", "%vc", kind, "%o, %c0", EIGHT_COLUMNS, "f16"),
        "  sync.barrier bare" if second_bare else "  sync.barrier",
        "  }",
        "  sync.barrier groups array<i64: 0>" if end else "",
        warps=8,
        target="gfx942",
        pointers=2,
    )


def rounds(count: int = 3) -> str:
    """Partial results cross warps through one buffer, several times."""
    kind = array(64 * count, 64)
    return kernel(
        ARGS,
        *views(count),
        constants(0, 1, 64),
        f"  %n = arith.constant {count} : index",
        alloc("%s"),
        "  scf.for %i = %c0 to %n step %c1 {",
        "  %o = arith.muli %i, %c64 : index",
        load("%x", "%va", kind, "%o, %c0", WAVE_ROWS),
        "  sync.barrier",
        local_store("%x", "%s", WAVE_ROWS),
        "  sync.barrier",
        local_load("%y", "%s", WAVE_COLUMNS),
        store("%y", "%vc", kind, "%o, %c0", WAVE_COLUMNS, "f16"),
        "  }",
        target="gfx942",
        pointers=2,
    )
