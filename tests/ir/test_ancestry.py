"""What is around operations and blocks, on programs with roles, loops and branches."""

import pytest
from hazards.programs import PROGRAMS

from treadle.dialects import all_dialects_context
from treadle.ir.ancestry import ancestors, blocks_around, in_block
from treadle.ir.text import parse_module

TEXTS = {name: program.text for name, program in list(PROGRAMS.items())[:12]}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_is_around_an_operation_holds_it(text: str) -> None:
    module = parse_module(text, "around.mlir", ctx=all_dialects_context())
    for op in module.walk():
        assert {*ancestors(op)} == {outer for outer in module.walk() if outer is not op and op in outer.walk()}
        for block in blocks_around(op.parent) if op.parent is not None else ():
            inside = in_block(op, block)
            assert inside is not None
            assert inside.parent is block
            assert op in inside.walk()
        assert all(in_block(op, region.block) is None for region in op.regions if region.blocks)
