"""Right schedules of the queues that a commit closes, without mbarriers: copies by every thread, bulk stores."""

from hazards.schedules import (
    ACC_LAYOUT,
    ROWS_LAYOUT,
    alloc,
    array,
    bulk_store,
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


def cp_async_ring(stages: int, ahead: int, steps: int = 13, *, pending: int | None = None, barrier: bool = True) -> str:
    """Rows through a ring of shared tiles, copied `ahead` steps ahead by queued copies."""
    kind = array(64 * steps, 64)
    head: list[str] = []
    for at in range(ahead):
        if at < steps:
            head += [
                f"  %p{at} = arith.constant {at} : index\n  %o{at} = arith.constant {64 * at} : index",
                slot(f"%d{at}", "%s", (stages,), f"%p{at}"),
                queued_copy("%va", kind, f"%o{at}, %c0", f"%d{at}", "cp_async"),
            ]
        head.append('  sync.commit "cp_async"')
    return kernel(
        "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>",
        view("%va", "%a", 64 * steps, 64),
        view("%vc", "%c", 64 * steps, 64),
        constants(0, 1, 64),
        f"  %ring = arith.constant {stages} : index\n  %ahead = arith.constant {ahead} : index\n  %steps = arith.constant {steps} : index",
        alloc("%s", stages),
        *head,
        "  scf.for %i = %c0 to %steps step %c1 {",
        f'  sync.wait "cp_async" pending {ahead - 1 if pending is None else pending} : i64',
        "  sync.barrier" if barrier else "",
        "  %r = arith.remui %i, %ring : index\n  %o = arith.muli %i, %c64 : index",
        slot("%from", "%s", (stages,), "%r"),
        local_load("%x", "%from", ACC_LAYOUT),
        store("%x", "%vc", kind, "%o, %c0", ACC_LAYOUT, "f16"),
        "  %j = arith.addi %i, %ahead : index\n  %more = arith.cmpi slt, %j, %steps : index",
        "  scf.if %more {",
        "  %t = arith.remui %j, %ring : index\n  %oj = arith.muli %j, %c64 : index",
        slot("%to", "%s", (stages,), "%t"),
        queued_copy("%va", kind, "%oj, %c0", "%to", "cp_async"),
        "  }",
        '  sync.commit "cp_async"',
        "  }",
        pointers=2,
    )


def bulk_store_ring(steps: int = 7) -> str:
    """Tiles go out through two slots by bulk stores; a slot is written again once its store has read it."""
    kind = array(64 * steps, 64)
    return kernel(
        "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>",
        view("%va", "%a", 64 * steps, 64),
        view("%vc", "%c", 64 * steps, 64),
        constants(0, 1, 2, 64),
        f"  %steps = arith.constant {steps} : index",
        alloc("%s", 2),
        "  scf.for %i = %c0 to %steps step %c1 {",
        "  %r = arith.remui %i, %c2 : index\n  %o = arith.muli %i, %c64 : index",
        load("%x", "%va", kind, "%o, %c0", ROWS_LAYOUT),
        slot("%to", "%s", (2,), "%r"),
        local_store("%x", "%to", ROWS_LAYOUT),
        '  sync.fence "async_shared"',
        "  sync.barrier",
        bulk_store("%to", kind, "%o, %c0", "%vc"),
        '  sync.commit "bulk_store"',
        '  sync.wait "bulk_store" pending 1 : i64 read',
        "  sync.barrier",
        "  }",
        '  sync.wait "bulk_store" pending 0 : i64 read',
        pointers=2,
    )
