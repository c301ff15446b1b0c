"""Copies to shared memory in stages: they are waited for at a slot that all their readers come behind, or where the user waits."""

import pytest
from hazards.programs_amd import ARGS, views
from hazards.schedules import EIGHT_COLUMNS, alloc, array, constants, kernel, local_load, queued_copy, slot, store

from treadle.dialects import sync, tile
from treadle.ir.dialects import scf
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.transforms.kernel.form_warp_pipeline import FormWarpPipelinePass
from treadle.verify.check import prove
from treadle.verify.faults import faults

STEPS = 7


def copies(ahead: int, slots: int, *between: str, rings: int = 1) -> str:
    """Tiles of 64 rows, copied `ahead` iterations ahead into one ring or two; a stage copies, another one reads and stores the last."""
    kind = array(64 * (STEPS + ahead), 64)
    head: list[str] = []
    for n in range(ahead):
        for ring in range(rings):
            place = slot(f"%h{n}{ring}", f"%ring{ring}", (slots,), f"%n{n}")
            head += [place, queued_copy("%va", kind, f"%o{n}, %c0", f"%h{n}{ring}", "direct")]
    issued: list[str] = []
    read: list[str] = []
    for ring in range(rings):
        issued += [slot(f"%to{ring}", f"%ring{ring}", (slots,), "%t"), queued_copy("%va", kind, "%oj, %c0", f"%to{ring}", "direct")]
        read += [slot(f"%from{ring}", f"%ring{ring}", (slots,), "%r"), local_load(f"%x{ring}", f"%from{ring}", EIGHT_COLUMNS)]
    return kernel(
        ARGS,
        *views(STEPS + ahead),
        constants(0, 1, 64),
        *(f"  %n{n} = arith.constant {n} : index\n  %o{n} = arith.constant {64 * n} : index" for n in range(ahead)),
        f"  %slots = arith.constant {slots} : index\n  %ahead = arith.constant {ahead} : index\n  %end = arith.constant {STEPS} : index",
        *(alloc(f"%ring{ring}", slots) for ring in range(rings)),
        *head,
        "  scf.for %i = %c0 to %end step %c1 {",
        '  pipe.stage "copy"',
        "  %j = arith.addi %i, %ahead : index\n  %t = arith.remui %j, %slots : index\n  %oj = arith.muli %j, %c64 : index",
        *issued,
        "  pipe.end_stage",
        *between,
        '  pipe.stage "use"',
        "  %r = arith.remui %i, %slots : index\n  %o = arith.muli %i, %c64 : index",
        *read,
        store(f"%x{rings - 1}", "%vc", kind, "%o, %c0", EIGHT_COLUMNS, "f16"),
        "  pipe.end_stage",
        "  }",
        warps=8,
        target="gfx950",
        pointers=2,
    )


def formed(text: str) -> tile.KernelOp:
    module = parse_module(text, "copies.mlir")
    run_passes(module, [FormWarpPipelinePass()])
    return next(op for op in module.walk() if isinstance(op, tile.KernelOp))


def slots_of(found: tile.KernelOp) -> list[str]:
    loop = next(op for op in found.walk() if isinstance(op, scf.ForOp))
    return [str(op) for op in loop.body.block.ops if isinstance(op, sync.WaitOp | sync.BarrierOp)]


@pytest.mark.parametrize(("ahead", "slots", "rings", "pending"), [(1, 3, 1, 0), (2, 4, 1, 1), (3, 6, 1, 2), (2, 4, 2, 2)])
def test_copies_are_waited_for_at_the_last_slot_that_serves(ahead: int, slots: int, rings: int, pending: int) -> None:
    """Of several copies in a stage the last one says how many may be pending."""
    found = formed(copies(ahead, slots, rings=rings))
    wait = f'sync.wait "vmcnt" pending {pending} : i64'
    assert wait in slots_of(found)
    assert prove(found).is_proven
    for fault in faults(found, ("remove", "weaken")):
        if isinstance(op := list(found.walk())[fault.index], sync.WaitOp) and isinstance(op.parent_op(), scf.ForOp):
            assert prove(fault.kernel).findings, fault.description


def test_a_wait_that_is_there_stays() -> None:
    """Ahead of the barrier of its border. What was copied ahead of the loop is complete before a group begins."""
    found = formed(copies(2, 4, '  sync.wait "vmcnt" pending 1 : i64'))
    assert slots_of(found)[:2] == ['sync.wait "vmcnt" pending 1 : i64', "sync.barrier"]
    assert [str(op) for op in found.body.block.ops if isinstance(op, sync.WaitOp)] == 2 * ['sync.wait "vmcnt" pending 0 : i64']
    assert prove(found).is_proven
