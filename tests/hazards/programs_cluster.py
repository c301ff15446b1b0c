"""Right schedules for clusters of two workgroups: each brings half of what both read."""

from hazards.programs_nvidia import ACC, ARGS
from hazards.schedules import (
    ACC_LAYOUT,
    ROWS_LAYOUT,
    TILE_BYTES,
    alloc,
    array,
    buffer,
    constants,
    kernel,
    local_load,
    roles,
    slot,
    store,
    tma,
    view,
    wgmma,
    zeros,
)

BOTH = "array<i64: 0, 1>"
MEET = "  sync.cluster_barrier"


def in_cluster(text: str, grid: int = 2) -> str:
    """A kernel's text with clusters of two."""
    return text.replace("symbols = ", "cluster = 2 : i64, symbols = ").replace('grid = ["1", ', f'grid = ["{grid}", ')


def multicast(source: str, kind: str, at: str, destination: str, barrier: str, rows: int = 32, ranks: str = BOTH) -> str:
    """A bulk tensor copy of some rows of a tile to several workgroups."""
    return tma(source, kind, at, destination, barrier, rows=rows).replace('path "bulk_tensor"', f'path "bulk_tensor" multicast {ranks}')


def half(name: str, source: str, rank: str = "%rank") -> str:
    """The workgroup's half of a tile's rows."""
    return f"  {name} = pipe.part {source}[{rank}] of 2 : i64 along 0 : i64 : {buffer()} -> {buffer(rows=32)}"


def shared_operand(
    stages: int = 3, steps: int | None = 7, *, drained: bool = False, start: str = MEET, end: str = MEET, peers: str = BOTH
) -> str:
    """A product of 128 rows by two workgroups: each copies its rows of A for itself and half of B for both.

    `steps` None: the trip count is the index argument. `drained`: no barrier at the end; the producers wait until all slots are free.
    """
    k = 64 * (steps or 64)
    compute = [
        "  %s = arith.remui %i, %ring : index\n  %q = arith.divui %i, %ring : index",
        "  %q2 = arith.remui %q, %c2 : index\n  %p = arith.index_cast %q2 : index to i32",
        "  %f = sync.mbarrier_slot %full[%s] : !sync.mbarrier\n  %e = sync.mbarrier_slot %empty[%s] : !sync.mbarrier",
    ]
    last: list[str] = []
    for at in range(stages if drained else 0):
        uses = ((steps or 0) - at + stages - 1) // stages
        if uses:
            last += [
                f"  %x{at} = arith.constant {at} : index\n  %l{at} = sync.mbarrier_slot %empty[%x{at}] : !sync.mbarrier",
                f"  sync.wait_phase %l{at} parity {'%one' if uses % 2 == 0 else '%even'}",
            ]
    producer = "\n".join(
        [
            "  scf.for %i = %c0 to %steps step %c1 {",
            *compute,
            "  %inv = arith.xori %p, %one : i32",
            "  sync.wait_phase %e parity %inv",
            f"  sync.mbarrier_expect %f bytes {2 * TILE_BYTES} : i64",
            "  %o = arith.muli %i, %c64 : index\n  %oh = arith.addi %o, %mine : index",
            slot("%da", "%sa", (stages,), "%s"),
            slot("%db", "%sb", (stages,), "%s"),
            half("%dh", "%db"),
            tma("%va", array(128, k), "%row, %o", "%da", "%f"),
            multicast("%vb", array(k, 64), "%oh, %c0", "%dh", "%f"),
            "  }",
            *last,
        ]
    )
    consumer = "\n".join(
        [
            f"  %acc = scf.for %i = %c0 to %steps step %c1 iter_args(%old = %init) -> ({ACC}) {{",
            *compute,
            "  sync.wait_phase %f parity %p",
            slot("%ra", "%sa", (stages,), "%s"),
            slot("%rb", "%sb", (stages,), "%s"),
            wgmma("%new", "%ra", "%rb", "%old"),
            '  sync.commit "wgmma"\n  sync.wait "wgmma" pending 0 : i64',
            f"  sync.arrive %e peers {peers}",
            f"  scf.yield %new : {ACC}\n  }}",
            store("%acc", "%vc", array(128, 64, "f32"), "%row, %c0", ACC_LAYOUT, "f32"),
        ]
    )
    text = kernel(
        ARGS + (", %steps: index" if steps is None else ""),
        f"  %full = sync.mbarrier_alloc 1 : i64 slots {stages} : i64 : !sync.mbarrier",
        f"  %empty = sync.mbarrier_alloc 2 : i64 slots {stages} : i64 : !sync.mbarrier",
        start,
        view("%va", "%a", 128, k),
        view("%vb", "%b", k, 64),
        view("%vc", "%c", 128, 64, "f32"),
        constants(0, 1, 2, 32, 64),
        f"  %ring = arith.constant {stages} : index",
        "" if steps is None else f"  %steps = arith.constant {steps} : index",
        "  %rank = pipe.cluster_rank\n  %row = arith.muli %rank, %c64 : index\n  %mine = arith.muli %rank, %c32 : index",
        "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32",
        zeros("%init"),
        alloc("%sa", stages),
        alloc("%sb", stages),
        roles(("producer", "consumer"), (1, 4), (1, 1), producer, consumer),
        "" if drained else end,
        warps=5,
        symbols=("n",) if steps is None else (),
    )
    return in_cluster(text)


def exchanged(steps: int = 4, *, peers: str = BOTH) -> str:
    """All warps alike: each workgroup brings half of a tile for both, all warps of both say when they have read it."""
    kind, out = array(64 * steps, 64), array(128 * steps, 64)
    text = kernel(
        "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>",
        "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
        "  %empty = sync.mbarrier_alloc 8 : i64 : !sync.mbarrier",
        MEET,
        view("%va", "%a", 64 * steps, 64),
        view("%vc", "%c", 128 * steps, 64),
        constants(0, 1, 2, 32, 64),
        f"  %steps = arith.constant {steps} : index",
        "  %rank = pipe.cluster_rank\n  %mine = arith.muli %rank, %c32 : index",
        "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32",
        alloc("%s"),
        half("%h", "%s"),
        "  %last = scf.for %i = %c0 to %steps step %c1 iter_args(%p = %even) -> (i32) {",
        "  %inv = arith.xori %p, %one : i32\n  sync.wait_phase %empty parity %inv",
        f"  sync.mbarrier_expect %full bytes {TILE_BYTES} : i64",
        "  %o = arith.muli %i, %c64 : index\n  %oh = arith.addi %o, %mine : index",
        multicast("%va", kind, "%oh, %c0", "%h", "%full"),
        "  sync.wait_phase %full parity %p",
        local_load("%x", "%s", ROWS_LAYOUT),
        f"  sync.arrive %empty peers {peers}",
        "  %t = arith.muli %i, %c2 : index\n  %t2 = arith.addi %t, %rank : index\n  %to = arith.muli %t2, %c64 : index",
        store("%x", "%vc", out, "%to, %c0", ROWS_LAYOUT, "f16"),
        "  scf.yield %inv : i32\n  }",
        MEET,
        pointers=2,
    )
    return in_cluster(text)
