"""The generated modules to audited machine code: each for one target, the targets in turn."""

import re

import pytest
from generators.modules import GeneratedModule, random_module
from numeric.differential import COUNT

import treadle
from treadle.errors import TreadleError
from treadle.options import CompileOptions

TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90a")


def _refusal(module: GeneratedModule, target: str) -> str:
    try:
        treadle.compile(module.text, target=target, options=CompileOptions(tuned=False))
    except TreadleError as error:
        return f"{module.name} for {target}: {error}"
    return ""


@pytest.mark.parametrize("number", range(len(TARGETS)), ids=TARGETS)
def test_every_one_compiles(number: int) -> None:
    modules = map(random_module, range(number, COUNT, len(TARGETS)))
    refused = [refusal for module in modules if (refusal := _refusal(module, TARGETS[number]))]
    assert not refused, "\n".join(refused)


@pytest.mark.parametrize("target", TARGETS)
def test_what_no_thread_accesses_is_not_emitted(target: str) -> None:
    """A part of this tile lies outside the array for all threads: the tools would drop its stores, and the audits miss them."""
    module = random_module(171)
    assert not _refusal(module, target)
    program = treadle.compile(module.text, target=target, options=CompileOptions(tuned=False))
    stores = re.findall(r"\bst\.global|^ *store .*addrspace\(1\)", program.stages["llvm"], re.MULTILINE)
    assert len(stores) == 3, "of the four that a thread's part of the tile has"
