"""Right schedules for machines with bulk copies and asynchronous matrix instructions."""

from hazards.schedules import (
    ACC_LAYOUT,
    ROWS_LAYOUT,
    TILE_BYTES,
    alloc,
    array,
    constants,
    kernel,
    load,
    local_load,
    local_store,
    roles,
    slot,
    store,
    tensor,
    tma,
    view,
    wgmma,
    zeros,
)

ACC = tensor(ACC_LAYOUT)
ARGS = "%a: !tile.ptr<f16>, %b: !tile.ptr<f16>, %c: !tile.ptr<f32>"


def matmul_views(steps: int, rows: int = 64) -> list[str]:
    """Views of the operands and the result of a product with `steps` tiles along k."""
    k = 64 * steps
    return [view("%va", "%a", rows, k), view("%vb", "%b", k, 64), view("%vc", "%c", rows, 64, "f32")]


def tma_unpipelined(steps: int = 5) -> str:
    """One buffer an operand; every step waits for its copies and its matrix instruction."""
    k = 64 * steps
    return kernel(
        ARGS,
        "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
        *matmul_views(steps),
        constants(0, 64, k),
        "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32",
        zeros("%init"),
        alloc("%sa", at=0),
        alloc("%sb", at=TILE_BYTES),
        f"  %acc, %last = scf.for %k = %c0 to %c{k} step %c64 iter_args(%old = %init, %parity = %even) -> ({ACC}, i32) {{",
        "  sync.barrier",
        f"  sync.mbarrier_expect %full bytes {2 * TILE_BYTES} : i64",
        tma("%va", array(64, k), "%c0, %k", "%sa", "%full"),
        tma("%vb", array(k, 64), "%k, %c0", "%sb", "%full"),
        "  sync.wait_phase %full parity %parity",
        "  %next = arith.xori %parity, %one : i32",
        wgmma("%new", "%sa", "%sb", "%old"),
        '  sync.commit "wgmma"',
        '  sync.wait "wgmma" pending 0 : i64',
        f"  scf.yield %new, %next : {ACC}, i32\n  }}",
        store("%acc", "%vc", array(64, 64, "f32"), "%c0, %c0", ACC_LAYOUT, "f32"),
    )


def tma_ring(stages: int, ahead: int, steps: int = 11, *, slots: int | None = None, pending: int | None = None, warps: int = 4) -> str:
    """All warps alike; copies run `ahead` steps ahead in a ring of `stages` slots, matrix instructions overlap as far as that leaves."""
    k, ring = 64 * steps, slots or stages
    keep = stages - ahead if pending is None else pending
    head: list[str] = []
    for at in range(min(ahead, steps)):
        head += [
            f"  %p{at} = arith.constant {at} : index\n  %o{at} = arith.constant {64 * at} : index",
            *_issue(f"%p{at}", f"%o{at}", f"h{at}", ring, k),
        ]
    return kernel(
        ARGS,
        f"  %full = sync.mbarrier_alloc 1 : i64 slots {ring} : i64 : !sync.mbarrier",
        *matmul_views(steps),
        constants(0, 1, 2, 64, ring, ahead, steps),
        zeros("%init"),
        alloc("%sa", ring),
        alloc("%sb", ring),
        *head,
        f"  %acc = scf.for %i = %c0 to %c{steps} step %c1 iter_args(%old = %init) -> ({ACC}) {{",
        f"  %s = arith.remui %i, %c{ring} : index",
        f"  %q = arith.divui %i, %c{ring} : index",
        "  %q2 = arith.remui %q, %c2 : index\n  %parity = arith.index_cast %q2 : index to i32",
        "  %bar = sync.mbarrier_slot %full[%s] : !sync.mbarrier",
        "  sync.wait_phase %bar parity %parity",
        slot("%ra", "%sa", (ring,), "%s"),
        slot("%rb", "%sb", (ring,), "%s"),
        wgmma("%new", "%ra", "%rb", "%old"),
        '  sync.commit "wgmma"',
        f'  sync.wait "wgmma" pending {keep} : i64',
        "  sync.barrier",
        f"  %j = arith.addi %i, %c{ahead} : index",
        f"  %more = arith.cmpi slt, %j, %c{steps} : index",
        "  scf.if %more {",
        f"  %t = arith.remui %j, %c{ring} : index",
        "  %o = arith.muli %j, %c64 : index",
        *_issue("%t", "%o", "x", ring, k),
        "  }",
        f"  scf.yield %new : {ACC}\n  }}",
        '  sync.wait "wgmma" pending 0 : i64',
        store("%acc", "%vc", array(64, 64, "f32"), "%c0, %c0", ACC_LAYOUT, "f32"),
        warps=warps,
    )


def _issue(at: str, offset: str, tag: str, ring: int, k: int) -> list[str]:
    return [
        f"  %w{tag} = sync.mbarrier_slot %full[{at}] : !sync.mbarrier",
        slot(f"%da{tag}", "%sa", (ring,), at),
        slot(f"%db{tag}", "%sb", (ring,), at),
        f"  sync.mbarrier_expect %w{tag} bytes {2 * TILE_BYTES} : i64",
        tma("%va", array(64, k), f"%c0, {offset}", f"%da{tag}", f"%w{tag}"),
        tma("%vb", array(k, 64), f"{offset}, %c0", f"%db{tag}", f"%w{tag}"),
    ]


def producer_consumer(
    stages: int = 3, groups: int = 1, steps: int | None = 7, *, carried: bool = False, wait_first: bool = True, second_wait: bool = False
) -> str:
    """A producer warp and `groups` consumer groups around a ring. `steps` None: the trip count is the index argument.

    `carried`: slot and parity are carried values that wrap by comparison. `wait_first` False: the consumer frees its slot before its matrix
    instruction is done. `second_wait`: consumers wait for the second slot before they start, whatever the trip count.
    """
    k = 64 * (steps or 64)
    rows = 64 * groups
    bound = "%n" if steps is None else "%steps"

    def ring(loop: str, carries: str, kind: str) -> tuple[str, str, list[str], str]:
        """Loop head, slot and parity values, what computes them, loop end."""
        more, types = (f"%old = %init{', ' if carried else ''}", f"{ACC}{', ' if carried else ''}") if carries else ("", "")
        if not carried:
            head = f"  {loop}scf.for %i = %c0 to {bound} step %c1" + (f" iter_args({more}) -> ({types}) {{" if carries else " {")
            compute = [
                "  %s = arith.remui %i, %ring : index\n  %q = arith.divui %i, %ring : index",
                "  %q2 = arith.remui %q, %c2 : index\n  %p = arith.index_cast %q2 : index to i32",
            ]
            end = f"  scf.yield %new : {ACC}\n  }}" if carries else "  }"
            return head, kind, compute, end
        head = (
            f"  {loop if carries else f'%e{kind}0, %e{kind}1 = '}scf.for %i = %c0 to {bound} step %c1 "
            f"iter_args({more}%s = %c0, %p = %even) -> ({types}index, i32) {{"
        )
        compute = [
            "  %s1 = arith.addi %s, %c1 : index\n  %wrap = arith.cmpi eq, %s1, %ring : index",
            "  %s2 = arith.select %wrap, %c0, %s1 : index\n  %flip = arith.xori %p, %one : i32",
            "  %p2 = arith.select %wrap, %flip, %p : i32",
        ]
        new = f"%new, %s2, %p2 : {ACC}, index, i32" if carries else "%s2, %p2 : index, i32"
        return head, kind, compute, f"  scf.yield {new}\n  }}"

    head, _, compute, end = ring("", "", "p")
    copies: list[str] = []
    for group in range(groups):
        copies += [
            f"  %g{group} = arith.constant {group} : index\n  %row{group} = arith.constant {64 * group} : index",
            slot(f"%da{group}", "%sa", (stages, groups), "%s", f"%g{group}"),
            tma("%va", array(rows, k), f"%row{group}, %o", f"%da{group}", "%f"),
        ]
    producer = "\n".join(
        [
            head,
            *compute,
            "  %inv = arith.xori %p, %one : i32",
            "  %f = sync.mbarrier_slot %full[%s] : !sync.mbarrier\n  %e = sync.mbarrier_slot %empty[%s] : !sync.mbarrier",
            "  sync.wait_phase %e parity %inv",
            f"  sync.mbarrier_expect %f bytes {(groups + 1) * TILE_BYTES} : i64",
            "  %o = arith.muli %i, %c64 : index",
            *copies,
            slot("%db", "%sb", (stages,), "%s"),
            tma("%vb", array(k, 64), "%o, %c0", "%db", "%f"),
            end,
        ]
    )
    results = "%acc, %e0, %e1 = " if carried else "%acc = "
    head, _, compute, end = ring(results, "acc", "c")
    wait = '  sync.wait "wgmma" pending 0 : i64'
    consumer = "\n".join(
        [
            "  %g = pipe.group_id",
            "  %row = arith.muli %g, %c64 : index",
            *(["  %f1 = sync.mbarrier_slot %full[%c1] : !sync.mbarrier\n  sync.wait_phase %f1 parity %even"] if second_wait else []),
            head,
            *compute,
            "  %f = sync.mbarrier_slot %full[%s] : !sync.mbarrier\n  %e = sync.mbarrier_slot %empty[%s] : !sync.mbarrier",
            "  sync.wait_phase %f parity %p",
            slot("%ra", "%sa", (stages, groups), "%s", "%g"),
            slot("%rb", "%sb", (stages,), "%s"),
            wgmma("%new", "%ra", "%rb", "%old"),
            '  sync.commit "wgmma"',
            *([wait, "  sync.arrive %e"] if wait_first else ["  sync.arrive %e", wait]),
            end,
            store("%acc", "%vc", array(rows, 64, "f32"), "%row, %c0", ACC_LAYOUT, "f32"),
        ]
    )
    return kernel(
        ARGS + (", %n: index" if steps is None else ""),
        f"  %full = sync.mbarrier_alloc 1 : i64 slots {stages} : i64 : !sync.mbarrier",
        f"  %empty = sync.mbarrier_alloc {groups} : i64 slots {stages} : i64 : !sync.mbarrier",
        view("%va", "%a", rows, k),
        view("%vb", "%b", k, 64),
        view("%vc", "%c", rows, 64, "f32"),
        constants(0, 1, 2, 64),
        f"  %ring = arith.constant {stages} : index",
        "" if steps is None else f"  %steps = arith.constant {steps} : index",
        "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32",
        zeros("%init"),
        alloc("%sa", stages, groups),
        alloc("%sb", stages),
        roles(("producer", "consumer"), (1, 4), (1, groups), producer, consumer),
        warps=1 + 4 * groups,
        symbols=("n",) if steps is None else (),
    )


def ping_pong(steps: int = 6) -> str:
    """Two consumer groups take turns by named barriers, and share the buffer through which they write their tiles."""

    def consumer(own: int, other: int, start: int, own_pair: int) -> str:
        first = f"  sync.named_barrier {other} : i64 warps 8 : i64 arrive\n" if start else ""
        return first + "\n".join(
            [
                f"  %from = arith.constant {start} : index",
                "  scf.for %i = %from to %steps step %c2 {",
                "  %o = arith.muli %i, %c64 : index",
                load("%x", "%va", array(64 * steps, 64), "%o, %c0", ROWS_LAYOUT),
                f"  sync.named_barrier {own} : i64 warps 8 : i64",
                local_store("%x", "%s", ROWS_LAYOUT),
                f"  sync.named_barrier {own_pair} : i64 warps 4 : i64",
                local_load("%y", "%s", ACC_LAYOUT),
                f"  sync.named_barrier {own_pair} : i64 warps 4 : i64",
                f"  sync.named_barrier {other} : i64 warps 8 : i64 arrive",
                store("%y", "%vc", array(64 * steps, 64), "%o, %c0", ACC_LAYOUT, "f16"),
                "  }",
                *([f"  sync.named_barrier {own} : i64 warps 8 : i64"] if not start else []),
            ]
        )

    return kernel(
        "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>",
        view("%va", "%a", 64 * steps, 64),
        view("%vc", "%c", 64 * steps, 64),
        constants(0, 2, 64),
        f"  %steps = arith.constant {steps} : index",
        alloc("%s"),
        roles(("left", "right"), (4, 4), (1, 1), consumer(1, 2, 0, 3), consumer(2, 1, 1, 4)),
        warps=8,
        pointers=2,
    )


def groups_apart(steps: int = 3) -> str:
    """One body for two groups of a role: each turns tiles of its own around through its own slot, at a barrier of its own."""
    rows = 64 * 2 * steps
    meet = "  sync.named_barrier 3 : i64 per_group warps 4 : i64"
    worker = "\n".join(
        [
            "  %group = pipe.group_id",
            slot("%s", "%both", (2,), "%group"),
            "  scf.for %i = %group to %steps step %c2 {",
            "  %o = arith.muli %i, %c64 : index",
            load("%x", "%va", array(rows, 64), "%o, %c0", ROWS_LAYOUT),
            local_store("%x", "%s", ROWS_LAYOUT),
            meet,
            local_load("%y", "%s", ACC_LAYOUT),
            meet,
            store("%y", "%vc", array(rows, 64), "%o, %c0", ACC_LAYOUT, "f16"),
            "  }",
        ]
    )
    return kernel(
        "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>",
        view("%va", "%a", rows, 64),
        view("%vc", "%c", rows, 64),
        constants(0, 2, 64),
        f"  %steps = arith.constant {2 * steps} : index",
        alloc("%both", 2),
        roles(("worker",), (4,), (2,), worker),
        warps=8,
        pointers=2,
    )


def two_products() -> str:
    """Two independent products; the first one's result is stored while the second is computed."""
    return kernel(
        ARGS,
        "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
        view("%va", "%a", 128, 64),
        view("%vb", "%b", 64, 64),
        view("%vc", "%c", 128, 64, "f32"),
        constants(0, 64),
        "  %even = arith.constant 0 : i32",
        zeros("%init"),
        alloc("%s0"),
        alloc("%s1"),
        alloc("%sb"),
        f"  sync.mbarrier_expect %full bytes {3 * TILE_BYTES} : i64",
        tma("%va", array(128, 64), "%c0, %c0", "%s0", "%full"),
        tma("%va", array(128, 64), "%c64, %c0", "%s1", "%full"),
        tma("%vb", array(64, 64), "%c0, %c0", "%sb", "%full"),
        "  sync.wait_phase %full parity %even",
        wgmma("%d0", "%s0", "%sb", "%init"),
        '  sync.commit "wgmma"',
        wgmma("%d1", "%s1", "%sb", "%init"),
        '  sync.commit "wgmma"',
        '  sync.wait "wgmma" pending 1 : i64',
        store("%d0", "%vc", array(128, 64, "f32"), "%c0, %c0", ACC_LAYOUT, "f32"),
        '  sync.wait "wgmma" pending 0 : i64',
        store("%d1", "%vc", array(128, 64, "f32"), "%c64, %c0", ACC_LAYOUT, "f32"),
    )


def nested(stages: int = 3, tiles: int | None = 5, steps: int = 4, *, meetings: int = 0) -> str:
    """A persistent producer and consumer: the ring's slot and parity are carried from tile to tile. `tiles` None: the index argument.

    `meetings`: so often the consumer's warps meet behind each tile.
    """
    bound = "%n" if tiles is None else "%tiles"
    k, rows = 64 * steps, 64 * (tiles or 64)

    def both(body: list[str], acc: bool) -> str:
        inner, types = ("%old = %init, ", f"{ACC}, ") if acc else ("", "")
        return "\n".join(
            [
                f"  %x0, %x1 = scf.for %tile = %c0 to {bound} step %c1 iter_args(%s0 = %c0, %p0 = %even) -> (index, i32) {{",
                "  %row = arith.muli %tile, %c64 : index",
                f"  {'%acc, ' if acc else ''}%y0, %y1 = scf.for %i = %c0 to %steps step %c1 "
                f"iter_args({inner}%s = %s0, %p = %p0) -> ({types}index, i32) {{",
                "  %f = sync.mbarrier_slot %full[%s] : !sync.mbarrier\n  %e = sync.mbarrier_slot %empty[%s] : !sync.mbarrier",
                *body,
                "  %s1 = arith.addi %s, %c1 : index\n  %s2 = arith.remui %s1, %ring : index",
                "  %wrap = arith.cmpi eq, %s2, %c0 : index\n  %turn = arith.extui %wrap : i1 to i32\n  %p2 = arith.xori %p, %turn : i32",
                f"  scf.yield {'%new, ' if acc else ''}%s2, %p2 : {types}index, i32\n  }}",
                store("%acc", "%vc", array(rows, 64, "f32"), "%row, %c0", ACC_LAYOUT, "f32") if acc else "",
                *(["  sync.named_barrier 1 : i64 warps 4 : i64"] * meetings if acc else []),
                "  scf.yield %y0, %y1 : index, i32\n  }",
            ]
        )

    producer = both(
        [
            "  %inv = arith.xori %p, %one : i32\n  sync.wait_phase %e parity %inv",
            f"  sync.mbarrier_expect %f bytes {2 * TILE_BYTES} : i64",
            "  %o = arith.muli %i, %c64 : index",
            slot("%da", "%sa", (stages,), "%s"),
            slot("%db", "%sb", (stages,), "%s"),
            tma("%va", array(rows, k), "%row, %o", "%da", "%f"),
            tma("%vb", array(k, 64), "%o, %c0", "%db", "%f"),
        ],
        acc=False,
    )
    consumer = both(
        [
            "  sync.wait_phase %f parity %p",
            slot("%ra", "%sa", (stages,), "%s"),
            slot("%rb", "%sb", (stages,), "%s"),
            wgmma("%new", "%ra", "%rb", "%old"),
            '  sync.commit "wgmma"\n  sync.wait "wgmma" pending 0 : i64\n  sync.arrive %e',
        ],
        acc=True,
    )
    return kernel(
        ARGS + (", %n: index" if tiles is None else ""),
        f"  %full = sync.mbarrier_alloc 1 : i64 slots {stages} : i64 : !sync.mbarrier",
        f"  %empty = sync.mbarrier_alloc 1 : i64 slots {stages} : i64 : !sync.mbarrier",
        view("%va", "%a", rows, k),
        view("%vb", "%b", k, 64),
        view("%vc", "%c", rows, 64, "f32"),
        constants(0, 1, 64),
        f"  %ring = arith.constant {stages} : index\n  %steps = arith.constant {steps} : index",
        "" if tiles is None else f"  %tiles = arith.constant {tiles} : index",
        "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32",
        zeros("%init"),
        alloc("%sa", stages),
        alloc("%sb", stages),
        roles(("producer", "consumer"), (1, 4), (1, 1), producer, consumer),
        warps=5,
        symbols=("n",) if tiles is None else (),
    )
