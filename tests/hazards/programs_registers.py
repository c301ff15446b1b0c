"""Schedules whose matrix instructions read registers."""

from hazards.programs_nvidia import ACC, ARGS
from hazards.schedules import ACC_LAYOUT, TILE_BYTES, alloc, array, constants, kernel, load, store, tma, view, wgmma_registers, zeros


def register_operand(steps: int = 5, *, in_time: bool = True) -> str:
    """A comes through registers, which every step loads again. `in_time`: each step waits for its group; else the next one does."""
    wait = '    sync.wait "wgmma" pending 0 : i64'
    return kernel(
        ARGS,
        "  %full = sync.mbarrier_alloc 1 : i64 : !sync.mbarrier",
        view("%va", "%a", 64 * steps, 64),
        view("%vb", "%b", 64, 64),
        view("%vc", "%c", 64, 64, "f32"),
        constants(0, 1, 64),
        f"  %steps = arith.constant {steps} : index",
        "  %even = arith.constant 0 : i32",
        zeros("%init"),
        alloc("%sb"),
        f"  sync.mbarrier_expect %full bytes {TILE_BYTES} : i64",
        tma("%vb", array(64, 64), "%c0, %c0", "%sb", "%full"),
        "  sync.wait_phase %full parity %even",
        f"  %acc = scf.for %i = %c0 to %steps step %c1 iter_args(%old = %init) -> ({ACC}) {{",
        "    %row = arith.muli %i, %c64 : index",
        load("%x", "%va", array(64 * steps, 64), "%row, %c0", ACC_LAYOUT),
        "" if in_time else wait,
        wgmma_registers("%d", "%x", "%sb", "%old"),
        '    sync.commit "wgmma"',
        wait if in_time else "",
        f"    scf.yield %d : {ACC}",
        "  }",
        "" if in_time else wait,
        store("%acc", "%vc", array(64, 64, "f32"), "%c0, %c0", ACC_LAYOUT, "f32"),
    )
