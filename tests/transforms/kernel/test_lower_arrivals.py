"""lower-arrivals: one thread arrives, and tells the others through shared memory."""

from generators.arrivals import split_sum

from treadle.dialects import tile
from treadle.ir.locations import location_of
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module
from treadle.transforms.kernel.lower_arrivals import LowerArrivalsPass
from treadle.transforms.kernel.set_target import SetTargetPass


def test_an_arrival() -> None:
    module = parse_module(split_sum(), "arrivals.mlir")
    (before,) = (op for op in module.walk() if isinstance(op, tile.ArriveLastOp))
    place = location_of(before)
    run_passes(module, [SetTargetPass("gfx942"), LowerArrivalsPass()])
    ops = list(module.walk())
    assert not any(isinstance(op, tile.ArriveLastOp) for op in ops)
    (count,) = (op for op in ops if isinstance(op, tile.CountInOp))
    (flag,) = (op for op in ops if isinstance(op, tile.LocalFlagOp))
    assert isinstance(count.flag.owner, tile.AllocOp) and flag.flag is count.flag
    assert (count.order.data, location_of(count), location_of(flag)) == ("relaxed", place, place)
    assert [use.operation.name for use in flag.result.uses] == ["scf.if"]


def test_other_kernels_are_left_alone() -> None:
    text = split_sum(extra="  %yes = arith.constant true", guard="%yes")
    arrival = next(line for line in text.splitlines() if "arrive_last" in line)
    module = parse_module(text.replace(arrival, ""), "plain.mlir")
    run_passes(module, [SetTargetPass("gfx942")])
    before = str(module)
    run_passes(module, [LowerArrivalsPass()])
    assert str(module) == before
