"""Numbers that nobody computes are one number for all agents only where they do not hang on which agent asks."""

import pytest
from hazards.kernels import kernel_of
from hazards.programs_cluster import MEET
from hazards.schedules import constants, kernel, roles
from verify.class_programs import binary, text

from treadle.verify.check import prove
from treadle.verify.program import Program
from treadle.verify.trace import Tracer

COUNTS = "memref<8xi64, strided<[1]>>"
ONE = "tensor<1xi64, #tile.layout<register = [], lane = [], warp = [], repeat = [1]>>"


def meeting_groups(*count: str) -> str:
    """Two groups of a role meet %count times, each as it says."""
    body = ["  %group = pipe.group_id", *count, "  scf.for %i = %c0 to %count step %c1 {"]
    body += ["  sync.named_barrier 1 : i64 warps 8 : i64", "  }"]
    other = "  scf.for %i = %c0 to %c1 step %c1 {\n  }"
    return kernel(
        "%a: !tile.ptr<i64>, %n: index, %m: index",
        f"  %counts = tile.view %a offset 0 : i64 align 256 : i64 sizes [] strides [] : !tile.ptr<i64> -> {COUNTS}",
        constants(0, 1),
        roles(("one", "two"), (1, 4), (1, 2), other, "\n".join(body)),
        warps=9,
        pointers=1,
        symbols=("n", "m"),
    )


def meeting_workgroups(first: str, *before: str) -> str:
    """Two workgroups of a cluster meet for each tile from `first` on, in steps of a size."""
    loop = [f"  scf.for %i = {first} to %n step %far {{", MEET, "  }"]
    made = text(*before, binary("%far", "addi", "%m", "%m"), *loop, symbols=("n", "m"), grid="2 * m")
    return made.replace("symbols = ", "cluster = 2 : i64, symbols = ")


def loaded(index: str) -> tuple[str, ...]:
    """%count, an element of an array of integers that the group asks for."""
    return (
        f"  %tile = tile.load %counts[{index}] dims array<i64: 0> vector 1 : i64 : {COUNTS} -> {ONE}",
        f"  %count = tile.extract %tile : {ONE}",
    )


EACH = (binary("%more", "addi", "%group", "%c1"), binary("%by", "muli", "%m", "%more"))
WRONG = {
    "groups with quotients of their own": meeting_groups(*EACH, "  %count = arith.ceildivsi %n, %by : index"),
    "workgroups with tiles of their own": meeting_workgroups("%p"),
}
RIGHT = {
    "groups with the same quotient": meeting_groups(binary("%by", "muli", "%m", "%m"), "  %count = arith.ceildivsi %n, %by : index"),
    "workgroups with the tiles of their cluster": meeting_workgroups("%q", binary("%q", "divui", "%p", "%c2")),
    "workgroups with the same tiles": meeting_workgroups("%c0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_agents_of_other_numbers_are_not_proven(name: str) -> None:
    assert not prove(kernel_of(WRONG[name])).is_proven


@pytest.mark.parametrize("name", RIGHT)
def test_agents_of_one_number_are_proven(name: str) -> None:
    verdict = prove(kernel_of(RIGHT[name]))
    assert verdict.is_proven, verdict.first_error("k")


def instances(made: str) -> list[tuple[str, int, int]]:
    """The unknowns of a kernel that are not given: what makes them, in which workgroup and group."""
    unknowns = Tracer(Program(kernel_of(made))).unknowns.all
    return [(u.values[0].owner.name, u.rank, u.group) for u in unknowns if u.values[0].owner.name != "tile.program_id"]  # type: ignore[union-attr]


@pytest.mark.parametrize(("index", "groups"), [("%group", [0, 1]), ("%c1", [-1])])
def test_what_groups_load(index: str, groups: list[int]) -> None:
    """An element of an array that the kernel only reads is the same for all who ask for the same one."""
    made = meeting_groups(*loaded(index))
    assert [group for name, _, group in instances(made) if name == "tile.extract"] == groups
    assert prove(kernel_of(made)).is_proven == (groups == [-1])
