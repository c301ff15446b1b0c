"""Kernels with loops whose step is a size, and with affine maps or rounded-up quotients in loops; right ones beside wrong ones."""

from hazards.schedules import (
    ACC_LAYOUT,
    ROWS_LAYOUT,
    TILE_BYTES,
    alloc,
    constants,
    kernel,
    load,
    local_load,
    local_store,
    roles,
    slot,
    store,
    tma,
    view,
)
from verify.class_programs import TILE, arguments, binary, compared, looped, text

_LEFT = binary("%left", "subi", "%n", "%i")


def turn(counter: str) -> list[str]:
    """Slot %s and parity %p of the use `counter` of a ring of three, and its barriers."""
    return [
        f"  %s = arith.remui {counter}, %c3 : index\n  %q = arith.divui {counter}, %c3 : index",
        "  %h = arith.remui %q, %c2 : index\n  %p = arith.index_cast %h : index to i32",
        "  %f = sync.mbarrier_slot %full[%s] : !sync.mbarrier\n  %e = sync.mbarrier_slot %empty[%s] : !sync.mbarrier",
        slot("%t", "%ring", (3,), "%s"),
    ]


FILL = (
    "  %inv = arith.xori %p, %one : i32\n  sync.wait_phase %e parity %inv",
    f"  sync.mbarrier_expect %f bytes {TILE_BYTES} : i64",
    tma("%va", TILE, "%c0, %c0", "%t", "%f"),
)
USE = ("  sync.wait_phase %f parity %p", local_load("%y", "%t", ACC_LAYOUT), "  sync.arrive %e")


def ring(producer: list[str], consumer: list[str], *before: str, symbols: tuple[str, ...] = ("n",), grid: str = "1") -> str:
    """A producer and a consumer around a ring of three tiles."""
    made = kernel(
        arguments(symbols),
        view("%va", "%a", 64, 64),
        constants(0, 1, 2, 3, 4, 5),
        "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32",
        "  %full = sync.mbarrier_alloc 1 : i64 slots 3 : i64 : !sync.mbarrier",
        "  %empty = sync.mbarrier_alloc 1 : i64 slots 3 : i64 : !sync.mbarrier",
        alloc("%ring", 3),
        "  %w = tile.program_id 0 : i64",
        *before,
        roles(("producer", "consumer"), (1, 4), (1, 1), "\n".join(producer), "\n".join(consumer)),
        warps=5,
        pointers=2,
        symbols=symbols,
    )
    return made.replace('grid = ["1"', f'grid = ["{grid}"')


def _persistent(bound: str) -> str:
    """Workgroup w of g takes tiles w, w + g, ..; the consumer's end before `bound`."""

    def side(end: str, body: tuple[str, ...]) -> list[str]:
        head = f"  %z = scf.for %tile = %w to {end} step %g iter_args(%b = %c0) -> (index) {{"
        return [head, *turn("%b"), *body, "  %b2 = arith.addi %b, %c1 : index\n  scf.yield %b2 : index\n  }"]

    less = "  %less = arith.subi %n, %c1 : index"
    return ring(side("%n", FILL), side(bound, USE), less, symbols=("n", "g"), grid="g")


def _persistent_steps(steps: str) -> str:
    """The same with a loop of five steps for each tile, of as many tiles as two sizes make; the consumer's has `steps`."""

    def side(count: str, body: tuple[str, ...]) -> list[str]:
        return [
            "  %z = scf.for %tile = %w to %tiles step %g iter_args(%b0 = %c0) -> (index) {",
            f"  %y = scf.for %k = %c0 to {count} step %c1 iter_args(%b = %b0) -> (index) {{",
            *turn("%b"),
            *body,
            "  %b2 = arith.addi %b, %c1 : index\n  scf.yield %b2 : index\n  }\n  scf.yield %y : index\n  }",
        ]

    return ring(side("%c5", FILL), side(steps, USE), "  %tiles = arith.muli %n, %m : index", symbols=("n", "m", "g"), grid="g")


def _persistent_sizes(steps: str, grid: str = "g") -> str:
    """The same where the steps of a tile are a size, too: the ring's counter is a multiple of one; the consumer's has `steps`."""

    def side(count: str, body: tuple[str, ...]) -> list[str]:
        return [
            f"  %z = scf.for %tile = %w to %n step %{'g' if grid == 'g' else f'c{grid}'} iter_args(%b0 = %c0) -> (index) {{",
            f"  %y = scf.for %k = %c0 to {count} step %c1 iter_args(%b = %b0) -> (index) {{",
            *turn("%b"),
            *body,
            "  %b2 = arith.addi %b, %c1 : index\n  scf.yield %b2 : index\n  }\n  scf.yield %y : index\n  }",
        ]

    before = "  %less = arith.subi %m, %c1 : index\n  %most = arith.minsi %m, %c5 : index"
    return ring(side("%m", FILL), side(steps, USE), before, symbols=("n", "m", "g"), grid=grid)


def _by_maps(divisor: int) -> str:
    """The consumer takes slot and parity by affine maps."""
    head = "  scf.for %i = %c0 to %n step %c1 {"
    by_maps = turn("%i")
    by_maps[0] = "  %s = affine.apply affine_map<(d0) -> (d0 mod 3)>(%i)"
    by_maps[1] = f"  %h = affine.apply affine_map<(d0) -> ((d0 floordiv {divisor}) mod 2)>(%i)\n  %p = arith.index_cast %h : index to i32"
    return ring([head, *turn("%i"), *FILL, "  }"], [head, *by_maps, *USE, "  }"])


def _limited(limit: str) -> str:
    """The barrier is left out where the least of 64 and what is left of n is not more than a limit."""
    return looped("%r = affine.min affine_map<(d0)[s0] -> (64, s0 - d0)>(%i)[%n]", compared("%skip", "sle", "%r", limit))


def _far(predicate: str) -> str:
    """The barrier is left out in early iterations, where the largest of two is another number than the iteration's."""
    return looped(
        "%r = affine.max affine_map<(d0)[s0] -> (d0, s0 - 100000)>(%i)[%n]",
        compared("%x0", "sgt", "%r", "%i"),
        compared("%x1", predicate, "%n", "%c5"),
        binary("%skip", "andi", "%x0", "%x1", "i1"),
        numbers=(5,),
    )


def _rounded_up(predicate: str, limit: str) -> str:
    """The barrier is left out where half of what is left, rounded up, is some number."""
    return looped(_LEFT, "%t = arith.ceildivsi %left, %c2 : index", compared("%skip", predicate, "%t", limit))


def _next_multiple(predicate: str) -> str:
    """The barrier is left out where a multiple of three is far above the iteration's number."""
    return looped(
        "%t = arith.ceildivui %i, %c3 : index",
        binary("%u", "muli", "%t", "%c3"),
        binary("%d", "subi", "%u", "%i"),
        compared("%skip", predicate, "%d", "%c2"),
    )


def _by_number(more: str) -> str:
    """Slots by the numbers of tiles, in steps of 3 g and `more`. No barrier stands behind a read: another slot has to come next."""
    lines = [
        binary("%three", "muli", "%g", "%c3"),
        binary("%far", "addi", "%three", more),
        "  scf.for %i = %p to %n step %far {",
        binary("%s0", "remui", "%i", "%c3"),
        slot("%t", "%ring", (3,), "%s0"),
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%t", ROWS_LAYOUT),
        "  sync.barrier",
        local_load("%y", "%t", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        "  }",
    ]
    return text(alloc("%ring", 3), *lines, symbols=("n", "g"), grid="g")


def _brought(by: str) -> str:
    """A tile is brought behind the use of the one before, to the slot of the number that is `by` more."""

    def brought(name: str) -> list[str]:
        at = [binary(f"%s{name}", "remui", f"%{name}", "%c3"), slot(f"%t{name}", "%ring", (3,), f"%s{name}")]
        return [*at, load(f"%x{name}", "%va", TILE, "%c0, %c0", ROWS_LAYOUT), local_store(f"%x{name}", f"%t{name}", ROWS_LAYOUT)]

    lines = [
        *brought("p"),
        "  scf.for %i = %p to %n step %g {",
        "  sync.barrier",
        binary("%w", "remui", "%i", "%c3"),
        slot("%from", "%ring", (3,), "%w"),
        local_load("%y", "%from", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        "  sync.barrier",
        binary("%j", "addi", "%i", by),
        *brought("j"),
        "  }",
    ]
    return text(alloc("%ring", 3), *lines, symbols=("n", "g"), grid="g")


WRONG: dict[str, str] = {
    "a consumer of one tile less, in steps of a size": _persistent("%less"),
    "a consumer of fewer steps for each tile": _persistent_steps("%c4"),
    "a consumer of a step less than a size": _persistent_sizes("%less"),
    "a consumer of five steps at most": _persistent_sizes("%most", "5"),
    "a parity by another quotient": _by_maps(4),
    "a least of what is left": _limited("%c1"),
    "a largest of two, in a long loop": _far("sgt"),
    "a rounded up quotient": _rounded_up("eq", "%c3"),
    "the next multiple": _next_multiple("sge"),
    "a slot by the number, in steps of a multiple of the slots": _by_number("%c0"),
    "a tile is brought to the slot of the next number": _brought("%c1"),
}
RIGHT: dict[str, str] = {
    "tiles in steps of a size": _persistent("%n"),
    "steps for each of tiles in steps of a size": _persistent_steps("%c5"),
    "slot and parity by maps": _by_maps(3),
    "a least of what is left": _limited("%c0"),
    "a largest of two, in a short loop": _far("slt"),
    "a rounded up quotient": _rounded_up("sle", "%c0"),
    "the next multiple": _next_multiple("sgt"),
    "a slot by the number, in steps of a size": _by_number("%c1"),
    "a tile is brought to the slot of the next one's number": _brought("%g"),
}
LONG: dict[str, str] = {
    "steps of a size for each of tiles in steps of a size": _persistent_sizes("%m"),
    "steps of a size for each of tiles in steps of five": _persistent_sizes("%m", "5"),
}
"""Right ones of more classes than a proof looks at with the least effort."""
