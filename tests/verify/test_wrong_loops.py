"""Wrong kernels whose fault hides where a loop's state, or a class of sizes, seems to come back: none is proven."""

import pytest
from hazards.kernels import kernel_of
from hazards.schedules import ACC_LAYOUT, ROWS_LAYOUT, alloc, load, local_load, local_store, slot, store
from verify.class_programs import TILE, text

from treadle.verify.check import prove

SLOTS = 3


def passed(write: str, read: str, *between: str) -> tuple[str, ...]:
    """A tile into one slot, a barrier, and out of another."""
    return (
        slot("%w", "%ring", (SLOTS,), write),
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%w", ROWS_LAYOUT),
        "  sync.barrier",
        slot("%r", "%ring", (SLOTS,), read),
        local_load("%y", "%r", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        *between,
    )


UNLESS = (
    "  %is_end = arith.cmpi eq, %i, %m : index",
    "  %is_old = arith.cmpi eq, %kept, %c3 : index",
    "  %skip = arith.andi %is_end, %is_old : i1",
    "  scf.if %skip {\n  } else {\n  sync.barrier\n  }",
)
BEHIND = (
    "  %far = arith.addi %m, %c3 : index",
    "  %past = arith.subi %i, %m : index",
    "  %longer = arith.addi %past, %c1 : index",
    "  %is_before = arith.cmpi slt, %i, %m : index",
)
KERNELS = {
    # What is carried is looked at only behind a turning point, and is made of the number before it.
    "carried": (
        BEHIND[0],
        "  %end = scf.for %i = %c0 to %far step %c1 iter_args(%old = %c0) -> (index) {",
        *BEHIND[1:],
        "  %count = arith.select %is_before, %c1, %longer : index",
        "  %kept = arith.select %is_before, %c0, %old : index",
        "  scf.for %j = %c0 to %count step %c1 {",
        *passed("%c0", "%c0", *UNLESS),
        "  }",
        "  %next = arith.remui %i, %c4 : index",
        "  scf.yield %next : index\n  }",
    ),
    "carried twice": (
        BEHIND[0],
        "  %end:2 = scf.for %i = %c0 to %far step %c1 iter_args(%old = %c0, %new = %c0) -> (index, index) {",
        *BEHIND[1:],
        "  %count = arith.maxsi %c1, %longer : index",
        "  %kept = arith.select %is_before, %c0, %old : index",
        "  scf.for %j = %c0 to %count step %c1 {",
        *passed("%c0", "%c0", *UNLESS),
        "  }",
        "  %next = arith.remui %i, %c4 : index",
        "  scf.yield %new, %next : index, index\n  }",
    ),
    # At m = 0 both sides of the maximum are equal; for all others it is m.
    "equal sides": (
        "  scf.for %i = %c0 to %c1 step %c1 {",
        "  %most = arith.maxsi %i, %m : index",
        "  %at = arith.remui %most, %c3 : index",
        *passed("%at", "%c0"),
        "  sync.barrier\n  }",
    ),
    # Only the last iterations of the outer loop divide a number below zero.
    "below zero": (
        "  scf.for %i = %c0 to %c16 step %c1 {",
        "  scf.for %j = %c0 to %c3 step %c1 {",
        "  %up = arith.addi %j, %c12 : index",
        "  %left = arith.subi %up, %i : index",
        "  %at = arith.remui %left, %c3 : index",
        *passed("%at", "%at"),
        "  }",
        "  sync.barrier\n  }",
    ),
    # So does every second one, whose carried values are the same modulo 3.
    "below zero in turn": (
        "  %end:2 = scf.for %i = %c0 to %n step %c1 iter_args(%k = %c2, %q = %c5) -> (index, index) {",
        "  scf.for %j = %c2 to %c6 step %c1 {",
        "  %left = arith.subi %j, %k : index",
        "  %at = arith.remui %left, %c3 : index",
        *passed("%at", "%at"),
        "  }",
        "  sync.barrier",
        "  scf.yield %q, %k : index, index\n  }",
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_none_is_proven(name: str) -> None:
    made = text(alloc("%ring", SLOTS), *KERNELS[name], symbols=("n", "m"), numbers=(4, 5, 6, 12, 16))
    assert prove(kernel_of(made)).status != "proven"
