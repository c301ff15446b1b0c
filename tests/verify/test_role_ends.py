"""Branches with which a role ends: which groups take them is asked once for all only where no other agent can tell."""

from typing import Any

import pytest
from generators.arrivals import product_kernel, shared_products, split_product

from treadle.dialects import sync, tile
from treadle.ir.core import Operation
from treadle.ir.dialects import scf
from treadle.verify import instances
from treadle.verify.check import prove
from treadle.verify.faults import faults
from treadle.verify.program import Program
from treadle.verify.role_ends import is_of_an_end

TWO_GROUPS: dict[str, Any] = {"tile": (64, 64, 64), "num_stages": 3, "consumer_warpgroups": 2}


def kernel() -> tuple[tile.KernelOp, tile.LocalFlagOp, scf.IfOp]:
    """Two groups of consumers, each of which may be the last for its rows."""
    _, made = product_kernel(split_product(128, 64, 768, 3), **TWO_GROUPS)
    (flag,) = (op for op in made.walk() if isinstance(op, tile.LocalFlagOp))
    branch = flag.next_op
    assert isinstance(branch, scf.IfOp)
    return made, flag, branch


def with_first(branch: scf.IfOp, *ops: Operation) -> None:
    block = branch.true_region.block
    assert block.first_op is not None
    for op in ops:
        block.insert_op_before(op, block.first_op)


def test_what_a_group_does_by_itself() -> None:
    made, flag, branch = kernel()
    assert is_of_an_end(Program(made), flag.result)
    with_first(branch, sync.NamedBarrierOp(1, 4, per_group=True), sync.WaitOp("wgmma", 0), sync.FenceOp("async_shared"))
    assert is_of_an_end(Program(made), flag.result)
    assert prove(made).is_proven


def test_who_meets_another_group_may_not_be_the_only_one() -> None:
    """Where both groups come it is right, and where none does: the proof has to look at one alone."""
    made, flag, branch = kernel()
    with_first(branch, sync.NamedBarrierOp(5, 8))
    assert not is_of_an_end(Program(made), flag.result)
    assert not prove(made).is_proven


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("number", [1, 2])
def test_barriers_that_others_come_to(number: int, warps: int) -> None:
    """A number of the group's barriers that another operation names too."""
    made, flag, branch = kernel()
    with_first(branch, sync.NamedBarrierOp(number, warps))
    assert not is_of_an_end(Program(made), flag.result)
    made, flag, branch = kernel()
    with_first(branch, sync.NamedBarrierOp(1, 4, per_group=True))
    barrier = sync.NamedBarrierOp(number, warps)
    assert flag.parent is not None and flag.parent.first_op is not None
    flag.parent.insert_op_before(barrier, flag.parent.first_op)
    assert not is_of_an_end(Program(made), flag.result)


@pytest.mark.parametrize("kind", [sync.ArriveOp, sync.WaitPhaseOp, tile.CountInOp, tile.CopyOp, sync.MbarrierExpectOp])
def test_what_others_wait_for(kind: type[Operation]) -> None:
    """Operations of the rings and the count, once more within the branch."""
    made, flag, branch = kernel()
    with_first(branch, next(op for op in made.walk() if isinstance(op, kind)).clone())
    assert not is_of_an_end(Program(made), flag.result)


def test_what_stands_behind() -> None:
    made, flag, branch = kernel()
    assert branch.parent is not None and branch.next_op is not None
    branch.parent.insert_op_before(sync.NamedBarrierOp(1, 4, per_group=True), branch.next_op)
    assert not is_of_an_end(Program(made), flag.result)


def test_reads_of_other_workgroups() -> None:
    _, made = product_kernel(split_product(64, 96, 1024, 4, merge="cluster"), tile=(64, 32, 64), num_stages=2)
    load = next(op for op in made.walk() if isinstance(op, tile.LocalLoadOp) and op.peer is not None)
    mine, flag, branch = kernel()
    with_first(branch, load.clone())
    assert not is_of_an_end(Program(mine), flag.result)


@pytest.mark.parametrize("name", ["two groups", "columns"])
def test_each_group_by_itself_finds_no_other_faults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, knobs = (split_product(128, 64, 768, 3), TWO_GROUPS) if name == "two groups" else shared_products("last")[name]
    _, made = product_kernel(text, **knobs)
    wrong = [fault.kernel for fault in faults(made, ("remove", "weaken"))]
    together = [prove(each).status for each in (made, *wrong)]

    def never(program: Program, value: object) -> bool:
        return False

    monkeypatch.setattr(instances, "is_of_an_end", never)
    assert [prove(each).status for each in (made, *wrong)] == together
    assert together[0] == "proven" and "proven" not in together[1:]


def test_clusters_of_four_with_two_groups_are_proven() -> None:
    """Eight groups would be 256 classes of who is last."""
    text = split_product(264, 128, 4096, 3)
    _, made = product_kernel(text, tile=(64, 64, 64), num_stages=4, consumer_warpgroups=2, cluster=4, group_m=4)
    assert made.cluster_size() == 4
    verdict = prove(made)
    assert verdict.is_proven and verdict.classes < 32
