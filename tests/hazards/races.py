"""Races that were found in other compilers, rebuilt as schedules."""

from hazards.programs_amd import ARGS, views
from hazards.programs_nvidia import ACC, matmul_views, tma_ring
from hazards.programs_nvidia import ARGS as MATMUL_ARGS
from hazards.schedules import (
    ACC_LAYOUT,
    ROWS_LAYOUT,
    TILE_BYTES,
    WAVE_COLUMNS,
    WAVE_ROWS,
    alloc,
    array,
    constants,
    kernel,
    load,
    local_load,
    local_store,
    store,
    tensor,
    tma,
    view,
    wgmma,
    zeros,
)


def prologue_without_barrier(steps: int = 5) -> str:
    """The first tile is written before the loop, and the loop reads it at once: its barriers stand between read and write only."""
    kind = array(64 * (steps + 1), 64)
    return kernel(
        ARGS,
        *views(steps + 1),
        constants(0, 1, 64),
        f"  %n = arith.constant {steps} : index",
        alloc("%s"),
        load("%x0", "%va", kind, "%c0, %c0", WAVE_ROWS),
        local_store("%x0", "%s", WAVE_ROWS),
        "  scf.for %i = %c0 to %n step %c1 {",
        "  %j = arith.addi %i, %c1 : index\n  %o = arith.muli %i, %c64 : index\n  %oj = arith.muli %j, %c64 : index",
        load("%x", "%va", kind, "%oj, %c0", WAVE_ROWS),
        local_load("%y", "%s", WAVE_COLUMNS),
        "  sync.barrier",
        local_store("%x", "%s", WAVE_ROWS),
        "  sync.barrier",
        store("%y", "%vc", kind, "%o, %c0", WAVE_COLUMNS, "f16"),
        "  }",
        target="gfx942",
        pointers=2,
    )


def read_without_barrier(steps: int = 5) -> str:
    """The barrier between a read and the write of the next round is missing: the read was not seen as one."""
    kind = array(64 * steps, 64)
    return kernel(
        ARGS,
        *views(steps),
        constants(0, 1, 64),
        f"  %n = arith.constant {steps} : index",
        alloc("%s"),
        "  scf.for %i = %c0 to %n step %c1 {",
        "  %o = arith.muli %i, %c64 : index",
        load("%x", "%va", kind, "%o, %c0", WAVE_ROWS),
        local_store("%x", "%s", WAVE_ROWS),
        "  sync.barrier",
        local_load("%y", "%s", WAVE_COLUMNS),
        store("%y", "%vc", kind, "%o, %c0", WAVE_COLUMNS, "f16"),
        "  }",
        target="gfx942",
        pointers=2,
    )


def _one_buffer(order: tuple[str, ...], *, warps: int = 4, steps: int = 5) -> str:
    k = 64 * steps
    return kernel(
        MATMUL_ARGS,
        "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
        *matmul_views(steps),
        constants(0, 64, k),
        "  %even = arith.constant 0 : i32\n  %one = arith.constant 1 : i32",
        zeros("%init"),
        alloc("%sa"),
        alloc("%sb"),
        f"  %acc, %last = scf.for %k = %c0 to %c{k} step %c64 iter_args(%old = %init, %parity = %even) -> ({ACC}, i32) {{",
        f"  sync.mbarrier_expect %full bytes {2 * TILE_BYTES} : i64",
        tma("%va", array(64, k), "%c0, %k", "%sa", "%full"),
        tma("%vb", array(k, 64), "%k, %c0", "%sb", "%full"),
        "  sync.wait_phase %full parity %parity",
        "  %next = arith.xori %parity, %one : i32",
        wgmma("%new", "%sa", "%sb", "%old"),
        '  sync.commit "wgmma"',
        *order,
        f"  scf.yield %new, %next : {ACC}, i32\n  }}",
        '  sync.wait "wgmma" pending 0 : i64',
        store("%acc", "%vc", array(64, 64, "f32"), "%c0, %c0", ACC_LAYOUT, "f32"),
        warps=warps,
    )


def wait_after_barrier() -> str:
    """The barrier stands before the wait of the matrix instructions: other warps' may still read the slot that is filled next."""
    return _one_buffer(("  sync.barrier", '  sync.wait "wgmma" pending 0 : i64'))


def wait_narrower_than_readers() -> str:
    """Two warpgroups read a tile; the one that fills it next waits for its own instructions and, for the phase, for nobody's."""
    return _one_buffer(('  sync.wait "wgmma" pending 0 : i64',), warps=8)


def four_stages_on_three_buffers() -> str:
    """Copies run as far ahead as four slots allow; there are three."""
    return tma_ring(4, 3, slots=3)


def aliased_epilogue_input() -> str:
    """The tile that the epilogue adds lies where its result is staged; nothing stands between the last read and the first write."""
    kind = array(64, 64)
    return kernel(
        "%a: !tile.ptr<f16>, %c: !tile.ptr<f16>",
        view("%va", "%a", 64, 64),
        view("%vc", "%c", 64, 64),
        constants(0),
        alloc("%in", at=0),
        alloc("%out", at=0),
        load("%x", "%va", kind, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%in", ROWS_LAYOUT),
        "  sync.barrier",
        local_load("%y", "%in", ACC_LAYOUT),
        "  %d = arith.addf %x, %x : " + tensor(ROWS_LAYOUT, "f16"),
        local_store("%d", "%out", ROWS_LAYOUT),
        "  sync.barrier",
        local_load("%z", "%out", ACC_LAYOUT),
        "  %sum = arith.addf %y, %z : " + tensor(ACC_LAYOUT, "f16"),
        store("%sum", "%vc", kind, "%c0, %c0", ACC_LAYOUT, "f16"),
        pointers=2,
    )
