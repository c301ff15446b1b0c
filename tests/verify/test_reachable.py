"""What is right whatever way its conditions go: proven by states where classes are too many, and never what is wrong."""

import pytest
from hazards import programs_cluster as cluster
from hazards import programs_nvidia as nvidia
from hazards.kernels import kernel_of
from hazards.schedules import ACC_LAYOUT, ROWS_LAYOUT, alloc, load, local_load, local_store, slot, store
from verify.class_programs import TILE, binary, compared, text
from verify.random_conditions import drawn, is_right, text_of

from treadle.verify import check, paths, reachable
from treadle.verify.check import prove
from treadle.verify.memory import Geometry
from treadle.verify.program import Program
from treadle.verify.trace import Tracer


def is_right_any_way(kernel: str) -> bool:
    program = Program(kernel_of(kernel))
    return reachable.is_right_any_way(program, Tracer(program), Geometry(program))


def passes(first: str, second: str, last: str = "  sync.barrier") -> str:
    """A tile is written where `first` holds and read where `second` does, in each iteration."""
    return text(
        "  scf.for %i = %c0 to %n step %c1 {",
        compared("%q", "slt", "%i", "%m"),
        compared("%same", "sgt", "%m", "%i"),
        compared("%less", "slt", "%j", "%m"),
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        f"  scf.if {first} {{",
        local_store("%x", "%s", ROWS_LAYOUT),
        "  sync.barrier\n  }",
        f"  scf.if {second} {{",
        local_load("%y", "%s", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        "  }",
        last,
        "  }",
        symbols=("n", "m", "j"),
    )


def ring(read: str, behind: str = "  sync.barrier", count: str = "%c4") -> str:
    """A tile is written to slot i mod 3 and, from iteration 1 on, slot `read` mod 3 is read."""
    return text(
        alloc("%ring", 3),
        f"  %count = arith.addi {count}, %n : index" if count != "%n" else "  %count = arith.addi %n, %c0 : index",
        "  scf.for %i = %c0 to %count step %c1 {",
        binary("%w", "remui", "%i", "%c3"),
        binary("%ahead", "addi", "%i", read),
        binary("%r", "remui", "%ahead", "%c3"),
        slot("%to", "%ring", (3,), "%w"),
        slot("%from", "%ring", (3,), "%r"),
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%to", ROWS_LAYOUT),
        "  sync.barrier",
        compared("%later", "sgt", "%i", "%c0"),
        "  scf.if %later {",
        local_load("%y", "%from", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        "  }",
        behind,
        "  }",
        symbols=("n",),
        numbers=(4,),
    )


def behind_a_loop(limit: str) -> str:
    """A tile is written in each iteration and read behind the loop."""
    return text(
        f"  %count = arith.addi %n, {limit} : index",
        "  scf.for %i = %c0 to %count step %c1 {",
        load("%x", "%va", TILE, "%c0, %c0", ROWS_LAYOUT),
        local_store("%x", "%s", ROWS_LAYOUT),
        "  sync.barrier\n  }",
        local_load("%y", "%s", ACC_LAYOUT),
        store("%y", "%vc", TILE, "%c0, %c0", ACC_LAYOUT, "f16"),
        symbols=("n",),
    )


RIGHT = {
    "written where read": passes("%q", "%q"),
    "written where read, by another comparison": passes("%q", "%same"),
    "the tile of the iteration before": ring("%c2"),
    "the slot that is read is the next one to be written": ring("%c2", "  sync.barrier"),
    "read behind a loop that goes round": behind_a_loop("%c1"),
}
WRONG = {
    "read where another comparison holds": passes("%q", "%less"),
    "overwritten while it is read": passes("%q", "%q", ""),
    "a slot that is written in an iteration to come": ring("%c1"),
    "a slot that the next iteration writes, without a barrier": ring("%c1", "", "%n"),
    "read behind a loop that may not go round": behind_a_loop("%c0"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_any_way(name: str) -> None:
    assert is_right_any_way(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_wrong_on_some_way(name: str) -> None:
    assert not is_right_any_way(WRONG[name])


@pytest.mark.parametrize("block", range(4))
def test_nothing_wrong_is_right_any_way(block: int) -> None:
    """Twins with a slip, which the argument by classes has no part in here; of right kernels nearly all are right any way."""
    found = 0
    for seed in range(300 + 8 * block, 308 + 8 * block):
        for kernel in drawn(seed):
            is_proven = is_right_any_way(text_of(kernel))
            assert is_right(kernel) or not is_proven, seed
            found += is_proven
    assert found >= 4


def test_roles_and_clusters_are_not_followed() -> None:
    """Their warps do different things."""
    for kernel in (nvidia.producer_consumer(3, 1, None), cluster.exchanged()):
        assert not is_right_any_way(kernel)


def test_many_classes_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(text_of(drawn(186)[0]))
    verdict = prove(kernel)
    assert verdict.is_proven and verdict.classes == check.MANY
    monkeypatch.setattr(paths, "MAX_PATHS", 1)
    assert not prove(kernel).is_proven
