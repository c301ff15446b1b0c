"""insert-sync on hand-written tile kernels that it cannot synchronise: the user's error, with code, line and advice."""

import pytest
from hazards.schedules import ROWS_LAYOUT, alloc, array, buffer, constants, kernel, local_load, roles, slot, store, view

from treadle.errors import TreadleError
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.transforms.kernel.insert_sync import InsertSyncPass
from treadle.transforms.kernel.order_issue import OrderIssuePass

USE = (local_load("%v", "%b", ROWS_LAYOUT), store("%v", "%c", array(448, 64), "%c0, %c0", ROWS_LAYOUT))
IS_SMALL = "  %t = arith.cmpi ult, %x, %c64 : index"
SPLIT = ("  %w = scf.while (%i = %c0) : (index) -> index {", IS_SMALL, "  scf.condition(%t) %i : index", "  } do {", "  ^bb0(%j: index):")
END = ("  scf.yield %j : index", "  }")
SWITCH = ("  scf.index_switch %x", "  case 1 {", "  scf.yield", "  }", "  default {", "  scf.yield", "  }")


def copy(path: str, into: str = "%b", kind: str = "") -> str:
    return f'  tile.copy %a[%c0, %c0] dims array<i64: 0, 1>, {into} path "{path}" : {array(448, 64)}, {kind or buffer()}'


def text(*lines: str, target: str = "sm_90a", warps: int = 4) -> str:
    """A kernel with an array %a to read, one %c to write and a size %x."""
    arguments = "%pa: !tile.ptr<f16>, %pc: !tile.ptr<f16>, %x: index"
    views = (view("%a", "%pa", 448, 64), view("%c", "%pc", 448, 64), constants(0, 1, 2, 64))
    return kernel(arguments, *views, *lines, target=target, warps=warps, pointers=2, symbols=("x",))


def role_of(*lines: str) -> str:
    """One role of these lines, another that reads slot 0 of the ring %p."""
    reading = "\n".join((slot("%b", "%p", (2,), "%c0"), *USE))
    return roles(("a", "b"), (1, 4), (1, 1), "\n".join(lines), reading)


PATHS = "a path of the machine"
REFUSED = {
    "while-queued": (text(alloc("%b"), *SPLIT, copy("cp_async"), *USE, *END), "TR301", "scf.while", "scf.for"),
    "while-bulk": (text(alloc("%b"), *SPLIT, copy("bulk_tensor"), *USE, *END), "TR301", "scf.while", "scf.for"),
    "while-without-copies": (text(alloc("%b"), *SPLIT, *END, copy("cp_async"), *USE), "TR301", "scf.while", "scf.for"),
    "while-in-a-role": (
        text(alloc("%p", 2), role_of(*SPLIT, slot("%b", "%p", (2,), "%j"), copy("bulk_tensor"), *END), warps=5),
        "TR301",
        "scf.while",
        "scf.for",
    ),
    "switch": (
        text(
            alloc("%b"),
            "  scf.index_switch %x",
            "  case 1 {",
            copy("cp_async"),
            "  scf.yield",
            "  }",
            "  default {",
            "  scf.yield",
            "  }",
            *USE,
        ),
        "TR301",
        "scf.index_switch",
        "scf.if",
    ),
    "region": (
        text(alloc("%b"), "  scf.execute_region {", copy("cp_async"), "  scf.yield", "  }", *USE),
        "TR301",
        "scf.execute_region",
        "scf.if",
    ),
    "path-of-another-machine": (text(alloc("%b"), copy("direct"), *USE), "TR416", "sm_90a has no copies by 'direct'", PATHS),
    "bulk-elsewhere": (text(alloc("%b"), copy("bulk_tensor"), *USE, target="gfx942"), "TR416", "no copies by 'bulk_tensor'", PATHS),
    "queued-elsewhere": (text(alloc("%b"), copy("cp_async"), *USE, target="gfx942"), "TR416", "no copies by 'cp_async'", PATHS),
    "many-slots": (
        text(alloc("%p", 33), slot("%b", "%p", (33,), "%x"), copy("bulk_tensor"), *USE),
        "TR301",
        "a buffer of 33 slots",
        "at most 32",
    ),
}


@pytest.mark.parametrize(("program", "code", "what", "advice"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_synchronised_is_the_users_error(program: str, code: str, what: str, advice: str) -> None:
    with pytest.raises(TreadleError) as raised:
        run_passes(parse_module(program, "user.mlir"), [OrderIssuePass(), InsertSyncPass()])
    assert raised.value.code == code
    assert what in raised.value.message
    assert advice in raised.value.fix
    assert raised.value.location is not None
    named = program.splitlines()[raised.value.location.line - 1]
    assert named.strip().startswith(("%w = scf", "scf.", "tile.copy"))


@pytest.mark.parametrize("path", ["cp_async", "bulk_tensor"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_copies_under_conditions_get_their_synchronisation(path: str, depth: int) -> None:
    """However deep they are; whether the buffer holds something on all paths is the proof's question."""
    lines = (IS_SMALL, *["  scf.if %t {"] * depth, copy(path), *["  }"] * depth)
    module = parse_module(text(alloc("%b"), *lines, *USE), "user.mlir")
    run_passes(module, [OrderIssuePass(), InsertSyncPass()])
    names = [op.name for op in module.walk()]
    assert ("sync.wait_phase" if path == "bulk_tensor" else "sync.wait") in names
