"""Loads in loops go through descriptors where whole words are read of arrays whose size is known: no branch, and zero outside."""

import random
import re
from collections.abc import Iterable

import numpy as np
import pytest
from targets.amd import emulator, programs

from treadle.errors import KernelRejected
from treadle.frontends.mlir import load
from treadle.ir.dialects import builtin
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import lower
from treadle.targets.amd.assembly import Listing, parse
from treadle.targets.amd.flow import natural_loops
from treadle.targets.interface import CompiledKernel

TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")


def _lowered(program: programs.Program, target: str, stages: int = -1, candidate: int = 0) -> builtin.ModuleOp:
    module = load(program.text)
    lower(module, target_spec(target), CompileOptions(pipeline_stages=stages), candidates={"program_k0": candidate})
    return module


def _first_that_fits(program: programs.Program, target: str) -> CompiledKernel:
    """The kernel of the first candidate whose code the audit takes, as the driver has it."""
    for candidate in range(4):
        try:
            (kernel,) = emulator.compile_kernels(_lowered(program, target, candidate=candidate), target).values()
        except KernelRejected:
            continue
        return kernel
    raise AssertionError("no candidate fits")


def _products(listing: Listing, body: Iterable[int]) -> int:
    return sum(re.match("v_(mfma|wmma)", listing.instructions[at].mnemonic) is not None for at in body)


def _loop(kernel: CompiledKernel) -> list[str]:
    listing = parse(kernel.assembly, kernel.symbol)
    loop = max(natural_loops(listing), key=lambda body: _products(listing, body))
    return [listing.instructions[at].mnemonic for at in sorted(loop)]


@pytest.mark.parametrize("kind", ["f16", "i8"])
@pytest.mark.parametrize("target", TARGETS)
def test_guarded_loads_do_not_branch(target: str, kind: str) -> None:
    program = programs.matmul(4000, 4072, 4096, kind, "i32" if kind == "i8" else "f32", transposed="b")
    loop = _loop(_first_that_fits(program, target))
    assert "buffer_load_dwordx4" in loop or "buffer_load_b128" in loop
    assert not [name for name in loop if name.startswith(("global_load", "s_cbranch_exec", "v_cmp", "v_cndmask", "v_add"))]


@pytest.mark.parametrize("kind", ["f16", "i8"])
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_the_loads_of_a_trip_share_what_moves(target: str, kind: str) -> None:
    """Two steps of two operands, on RDNA one that is twice as long: what differs between them and stays the same in all trips is in the
    descriptors.
    """
    program = programs.matmul(1024, 1024, 4096, kind, "i32" if kind == "i8" else "f32", transposed="b")
    (kernel,) = emulator.compile_kernels(_lowered(program, target), target).values()
    listing = parse(kernel.assembly, kernel.symbol)
    loop = max(natural_loops(listing), key=lambda body: _products(listing, body))
    loads = [one for one in (listing.instructions[at] for at in sorted(loop)) if one.mnemonic.startswith("buffer_load")]
    descriptors, moving = ({re.split(r",? +", one.operands)[at] for one in loads} for at in (-3, -2))
    assert len(loads) >= 4 and len(descriptors) == (4 if target == "gfx942" else 2) and len(moving) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_elements_of_rows_of_odd_length_do_not_branch(target: str) -> None:
    program = programs.matmul(65, 48, 333, "f16", "f32")
    loop = _loop(_first_that_fits(program, target))
    assert any(name in ("buffer_load_ushort", "buffer_load_u16") or "load_short_d16" in name or "load_d16" in name for name in loop)
    assert not [name for name in loop if name.startswith(("global_load", "s_cbranch_exec"))]


@pytest.mark.parametrize("target", TARGETS)
def test_bytes_are_loaded_by_address(target: str) -> None:
    program = programs.matmul(65, 48, 333, "i8", "i32")
    assert "global_load" in _first_that_fits(program, target).assembly


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_loop_begins_with_is_loaded_without_branches(target: str) -> None:
    """Behind a branch, two steps' loads in flight are waited for ahead of their time: rows that are missing in the tile are outside."""
    program = programs.matmul(16, 72, 1024, "f16", "f32", transposed="b")
    (kernel,) = emulator.compile_kernels(_lowered(program, target), target).values()
    listing = parse(kernel.assembly, kernel.symbol)
    first = min(max(natural_loops(listing), key=lambda body: _products(listing, body)))
    ahead = [one.mnemonic for one in listing.instructions[:first]]
    assert sum(name.startswith("buffer_load") for name in ahead) >= 4


@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "-")
@pytest.mark.parametrize("seed", range(16))
def test_random_sizes_are_right(seed: int) -> None:
    rng = random.Random(f"bounded {seed}")
    target, (kind, result, unit) = (
        rng.choice(TARGETS),
        rng.choice((("f16", "f32", 8), ("bf16", "f32", 1), ("i8", "i32", 16), ("f32", "f32", 1))),
    )
    m, n, k = rng.randint(1, 100), rng.randint(1, 100), unit * rng.randint(1, 300 // unit)
    program = programs.matmul(m, n, k, kind, result, transposed=rng.choice(("b", "b", "", "ab")), bias=rng.random() < 0.4)
    module = _lowered(program, target, rng.choice((-1, 1, 3)))
    compiled = emulator.compile_kernels(module, target)
    expected = program.expected()
    for order in emulator.ORDERS:
        (found,) = emulator.EmulatedProgram(module, target, order, compiled)(*program.arrays())
        assert (np.abs(found.astype(np.float64) - expected) <= program.tolerance * np.abs(expected)).all(), (target, m, n, k, kind)
