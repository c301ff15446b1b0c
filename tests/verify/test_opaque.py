"""`tile.opaque`: what a table decides is one thing for both roles, whatever it is, and only where both ask for the same."""

import pytest
from generators.grouped_contractions import routed_text
from transforms.form_programs import lowered

from treadle.dialects import pipe, tile
from treadle.errors import TreadleError
from treadle.ir.dialects import arith, builtin
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.options import CompileOptions
from treadle.pipelines import proof_passes


def proven_apart_from_the_table() -> tuple[builtin.ModuleOp, list[tile.OpaqueOp]]:
    module, _ = lowered(routed_text(340, 7, 72, 80), "sm_90a", CompileOptions())
    (roles,) = (op for op in module.walk() if isinstance(op, pipe.RolesOp))
    return module, [op for op in roles.walk() if isinstance(op, tile.OpaqueOp)]


def test_roles_that_ask_the_same_are_proven() -> None:
    module, found = proven_apart_from_the_table()
    assert len(found) == 2
    run_passes(module, proof_passes(CompileOptions()))
    again = parse_module(print_module(module), "again")
    assert print_module(again) == print_module(module)


@pytest.mark.parametrize("role", [0, 1])
def test_roles_that_ask_for_other_things_are_not(role: int) -> None:
    """One role walks the steps of a tile that the other one takes to have no rows."""
    module, found = proven_apart_from_the_table()
    op = found[role]
    true = arith.ConstantOp(builtin.IntegerAttr(1, builtin.i1))
    block = op.parent_block()
    assert block is not None
    block.insert_op_before(true, op)
    op.operands[0] = true.result
    with pytest.raises(TreadleError, match=r"TR4\d\d"):
        run_passes(module, proof_passes(CompileOptions()))
