"""The short ways through walking, copying, asking and verifying operations give what the general ones give."""

from collections.abc import Callable

import pytest
from hazards.programs import PROGRAMS

from treadle.dialects import sync, tile
from treadle.ir.core import IRDLOperation, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.text import find_invalid, parse_module, print_module

TEXTS = {name: program.text for name, program in list(PROGRAMS.items())[:12]}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_walk_is_the_general_one_backwards(text: str) -> None:
    module = parse_module(text, "quick.mlir")
    forward = list(module.walk())
    assert forward == list(module.walk(reverse=True, region_first=True))[::-1]
    inside = [op for op in forward if op is not module]
    assert [op for region in module.regions for op in region.walk()] == inside
    assert [op for region in module.regions for block in region.blocks for op in block.walk()] == inside


def test_what_a_walk_gives_may_be_erased() -> None:
    module = parse_module(next(iter(TEXTS.values())), "quick.mlir")
    kept = [op for op in module.walk() if not isinstance(op, sync.BarrierOp | sync.FenceOp)]
    for op in module.walk():
        if isinstance(op, sync.BarrierOp | sync.FenceOp):
            op.detach()
            op.erase()
    assert list(module.walk()) == kept


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_copies_print_as_what_they_are_of(text: str) -> None:
    module = parse_module(text, "quick.mlir")
    assert print_module(module.clone(), locations=True) == print_module(module, locations=True)
    for op in module.walk():
        if not op.regions:
            copy = op.clone()
            assert copy.operands == op.operands
            assert copy.result_types == op.result_types
            assert (copy.properties, copy.attributes, copy.location) == (op.properties, op.attributes, op.location)
            assert [r.name_hint for r in copy.results] == [r.name_hint for r in op.results]
            assert copy.properties is not op.properties
            copy.erase()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_questions_about_operations_are_answered_as_by_a_search(text: str) -> None:
    module = parse_module(text, "quick.mlir")
    kinds, traits = {type(op) for op in module.walk()}, {type(trait) for op in module.walk() for trait in op.traits}
    for op in module.walk():
        assert {kind for kind in kinds if isinstance(op, kind)} == {kind for kind in kinds if issubclass(type(op), kind)}
        for trait in traits:
            assert op.has_trait(trait) == any(isinstance(own, trait) for own in op.traits)
        for inner in module.walk():
            around = inner
            while around is not None and around is not op:
                around = around.parent_op()
            assert op.is_ancestor(inner) == (around is op)


def test_copies_take_the_mapped_operands_and_map_their_results() -> None:
    one, other = (arith.ConstantOp(builtin.IntegerAttr(value, builtin.IndexType())) for value in (1, 2))
    total = arith.AddiOp(one.result, one.result)
    mapping: dict[SSAValue, SSAValue] = {one.result: other.result}
    copy = total.clone(mapping)
    assert list(copy.operands) == [other.result, other.result]
    assert mapping[total.result] is copy.results[0]


def wrong_type(op: Operation) -> None:
    op.operands = (op.operands[0], arith.ConstantOp(builtin.IntegerAttr(1, builtin.i64)).result)


def no_property(op: Operation) -> None:
    del op.properties["predicate"]


def unknown_property(op: Operation) -> None:
    op.properties["colour"] = builtin.StringAttr("red")


def wrong_result(op: Operation) -> None:
    block = op.parent
    assert block is not None
    made = type(op).create(operands=list(op.operands), result_types=[builtin.i64], properties=dict(op.properties))
    block.insert_op_before(made, op)


@pytest.mark.parametrize("broken", [wrong_type, no_property, unknown_property, wrong_result])
def test_one_that_is_right_vouches_for_no_other(broken: Callable[[Operation], None]) -> None:
    """Verified again and again: the same operation, then one of the same kind that is wrong."""
    one = arith.ConstantOp(builtin.IntegerAttr(1, builtin.IndexType()))
    compared = [arith.CmpiOp(one.result, one.result, "eq") for _ in range(3)]
    module = builtin.ModuleOp([one, *compared])
    assert find_invalid(module) is None
    assert find_invalid(module) is None
    broken(compared[-1])
    invalid = find_invalid(module)
    assert invalid is not None
    assert isinstance(invalid[0], arith.CmpiOp)
    assert invalid[0] not in compared[:-1]


def test_what_depends_on_the_place_is_verified_everywhere() -> None:
    """A yield is right in a loop and wrong in a module, whatever was verified before."""
    zero = arith.ConstantOp(builtin.IntegerAttr(0, builtin.IndexType()))
    loop = scf.ForOp(zero.result, zero.result, zero.result, [], [tile_yield := scf.YieldOp()])
    loop.body.block.insert_arg(builtin.IndexType(), 0)
    module = builtin.ModuleOp([zero, loop])
    assert find_invalid(module) is None
    stray = builtin.ModuleOp([tile_yield.clone()])
    assert find_invalid(stray) is not None


def test_parts_of_the_wrong_number_are_refused() -> None:
    made = sync.CommitOp.__new__(sync.CommitOp)
    with pytest.raises(ValueError, match="operand"):
        IRDLOperation.__init__(made, operands=[tile.ProgramIdOp(0).result])
