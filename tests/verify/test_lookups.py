"""`tile.lookup` in proofs: a number of a table at a known place is known, so that roles are compared by what their tables hold."""

import random

import pytest
from generators.grouped_contractions import grouped_text
from transforms.form_programs import lowered

from treadle.dialects import pipe, tile
from treadle.errors import TreadleError
from treadle.ir.dialects import builtin
from treadle.ir.passes import run_passes
from treadle.options import CompileOptions, Persistence
from treadle.pipelines import proof_passes

_random = random.Random(3)
ROWS = tuple(_random.choice((0, 1, 64, 65, 130)) for _ in range(30))


def options(persistent: Persistence = "auto") -> CompileOptions:
    return CompileOptions(form="roles", tile=(64, 64, 64), num_stages=3, cluster=2, group_m=8, persistent=persistent)


def lookups_of_sizes() -> tuple[builtin.ModuleOp, list[tile.LookupOp]]:
    """A kernel whose roles look up in how many rows a tile's steps are made: tiles beyond their group have none."""
    module, _ = lowered(grouped_text(ROWS, 136, 72), "sm_90a", options())
    (roles,) = (op for op in module.walk() if isinstance(op, pipe.RolesOp))
    found = [op for op in roles.walk() if isinstance(op, tile.LookupOp) and op.table == ROWS]
    assert len(found) >= 2
    return module, found


@pytest.mark.parametrize("persistent", ["never", "always"])
def test_roles_that_look_up_the_same_are_proven(persistent: Persistence) -> None:
    lowered(grouped_text(ROWS, 136, 72), "sm_90a", options(persistent))


@pytest.mark.parametrize("role", [0, -1])
def test_a_role_with_another_table_is_not(role: int) -> None:
    """One role walks the steps of tiles that the other one takes to have no rows."""
    module, found = lookups_of_sizes()
    other = [0 if at == ROWS.index(130) else size for at, size in enumerate(ROWS)]
    found[role].properties["values"] = builtin.DenseArrayBase.from_list(builtin.i64, other)
    with pytest.raises(TreadleError, match=r"TR4\d\d"):
        run_passes(module, proof_passes(CompileOptions()))


def test_places_outside_of_a_table_are_no_numbers() -> None:
    module, found = lookups_of_sizes()
    found[0].properties["values"] = builtin.DenseArrayBase.from_list(builtin.i64, list(ROWS[:20]))
    with pytest.raises(TreadleError, match=r"TR415"):
        run_passes(module, proof_passes(CompileOptions()))
