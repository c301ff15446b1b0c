"""Kernels around rings whose waits and releases stand under conditions: right ones, and twins that are wrong in one number."""

from hazards.schedules import ACC_LAYOUT, alloc, local_load, queued_copy, slot
from verify.class_programs import TILE, binary, compared, text
from verify.step_programs import FILL, USE, ring, turn

HEAD = "  scf.for %i = %c0 to %n step %c1 {"


def released_for_a_refill(distance: int) -> str:
    """The consumer releases a slot only where the producer comes to it again, so many iterations later."""
    release = [f"  %l = arith.addi %i, %c{distance} : index", f"  {compared('%again', 'slt', '%l', '%n')}"]
    release += ["  scf.if %again {", USE[-1], "  }"]
    return ring([HEAD, *turn("%i"), *FILL, "  }"], [HEAD, *turn("%i"), *USE[:-1], *release, "  }"])


def waited_from(first: int) -> str:
    """The producer waits for a free slot from some iteration on."""
    wait = [f"  {compared('%later', 'sge', '%i', f'%c{first}')}", "  %inv = arith.xori %p, %one : i32"]
    wait += ["  scf.if %later {", "  sync.wait_phase %e parity %inv", "  }"]
    return ring([HEAD, *turn("%i"), *wait, *FILL[1:], "  }"], [HEAD, *turn("%i"), *USE, "  }"])


def copied_ahead(*, inside: bool, last: str = "%c1") -> str:
    """Copies run three tiles ahead, each a group of its own; the wait keeps as many in flight as are left, one as long as `last` are.

    `inside` False: groups are closed whether there is a copy or not, and as many are left as if there were.
    """
    commit = '  sync.commit "cp_async"'
    after = [commit, "  }"] if inside else ["  }", commit]
    lines = [alloc("%ring", 4)]
    for at in range(3):
        lines += [f"  {compared(f'%h{at}', 'slt', f'%c{at}', '%n')}", f"  scf.if %h{at} {{", slot(f"%d{at}", "%ring", (4,), f"%c{at}")]
        lines += [queued_copy("%va", TILE, "%c0, %c0", f"%d{at}", "cp_async"), *after]
    lines += [HEAD, f"  {binary('%left', 'subi', '%n', '%i')}", f"  {compared('%two', 'sgt', '%left', '%c2')}"]
    lines += [f"  {compared('%one', 'sgt', '%left', last)}", "  scf.if %two {", '  sync.wait "cp_async" pending 2 : i64', "  } else {"]
    lines += [
        "  scf.if %one {",
        '  sync.wait "cp_async" pending 1 : i64',
        "  } else {",
        '  sync.wait "cp_async" pending 0 : i64',
        "  }\n  }",
    ]
    lines += ["  sync.barrier", f"  {binary('%r', 'remui', '%i', '%c4')}", slot("%from", "%ring", (4,), "%r")]
    lines += [local_load("%y", "%from", ACC_LAYOUT), f"  {binary('%j', 'addi', '%i', '%c3')}", f"  {compared('%more', 'slt', '%j', '%n')}"]
    lines += ["  scf.if %more {", f"  {binary('%s0', 'remui', '%j', '%c4')}", slot("%to", "%ring", (4,), "%s0")]
    lines += [queued_copy("%va", TILE, "%c0, %c0", "%to", "cp_async"), *after, "  }"]
    return text(*lines, symbols=("n",), numbers=(4,))


WRONG: dict[str, str] = {
    "a slot released too late": released_for_a_refill(4),
    "a slot filled before it is free": waited_from(4),
    "a wait for one group too few": copied_ahead(inside=True, last="%c0"),
}
RIGHT: dict[str, str] = {
    "slots released for refills alone": released_for_a_refill(3),
    "no wait in the first round": waited_from(3),
    "waits by what is left": copied_ahead(inside=True),
    "empty groups behind the last copies": copied_ahead(inside=False),
}
