"""tile.lookup: a number of a table of the program, in the simulator, on the CPU through LLVM, and in the texts of targets."""

import numpy as np
import pytest
from targets.host import run_kernel
from targets.tile_kernels import finish, index, kernel_block

from treadle.dialects import tile
from treadle.ir.core import ImplicitBuilder
from treadle.ir.dialects import arith, builtin
from treadle.layout.tile_layout import blocked
from treadle.machine import target_spec
from treadle.sim.faults import SimulationFault
from treadle.sim.memory import Pointer
from treadle.sim.tile_interpreter import TileKernel
from treadle.targets.registry import backend
from treadle.targets.simt.constants import CONSTANT_BYTES
from treadle.targets.simt.ranges import Range, Ranges
from treadle.verify.affine import Forms

TABLE = (24, 0, 96, 72, 48)


def kernel_of(table: tuple[int, ...], groups: int, bits: int = 32, lanes: int = 32) -> tile.KernelOp:
    """Workgroup i stores 24 numbers i from where the table says, with another table's numbers for what is stored."""
    kind = tile.tile_of([32], builtin.i64 if bits == 64 else builtin.i32, blocked([32], (0,), 1, lanes, 1))
    block = kernel_block([kind.element_type])
    (z,) = block.args
    with ImplicitBuilder(block):
        place = tile.ProgramIdOp(0).result
        at = tile.LookupOp(table, place).result
        again = tile.LookupOp(table, place).result
        number = tile.LookupOp([7 * at - 9 for at in range(len(table))], place).result
        end = arith.AddiOp(again, index(24), result_type=builtin.IndexType()).result
        view = tile.ViewOp(z, [end], [1], align=4).result
        tile.StoreOp(tile.SplatOp(number, kind).result, view, [at], [0])
        tile.ReturnOp()
    kernel = finish("looked_up", block, grid=[str(groups), "1", "1"], warps=1)
    if bits != 32:
        kernel.properties["index_bits"] = builtin.IntegerAttr(bits, builtin.i64)
    return kernel


@pytest.mark.parametrize("bits", [32, 64])
def test_numbers_are_those_of_the_table(bits: int) -> None:
    kernel = kernel_of(TABLE, 5, bits)
    kernel.verify()
    dtype = np.int64 if bits == 64 else np.int32
    want = np.zeros(120, dtype)
    for at, begin in enumerate(TABLE):
        want[begin : begin + 24] = 7 * at - 9
    found = np.zeros(120, dtype)
    run_kernel(kernel, [found], [])
    np.testing.assert_array_equal(found, want)
    simulated = np.zeros(120, dtype)
    TileKernel(kernel).launch([Pointer(simulated)], [])
    np.testing.assert_array_equal(simulated, want)


def test_places_outside_of_a_table_are_faults() -> None:
    with pytest.raises(SimulationFault, match="entry 5 in a table of 5"):
        TileKernel(kernel_of(TABLE, 6)).launch([Pointer(np.zeros(200, np.int32))], [])


def test_a_table_bounds_what_is_looked_up() -> None:
    kernel = kernel_of(TABLE, 5)
    lookups = [op for op in kernel.walk() if isinstance(op, tile.LookupOp)]
    ranges, forms = Ranges(kernel), Forms(kernel)
    assert ranges.of(lookups[0].result) == Range(0, 96, 24)
    assert ranges.of(lookups[2].result) == Range(-9, 19, 1)
    (name,) = forms.of(lookups[2].result).symbols()
    assert forms.symbols[name].facts == (f"-9 <= {{{name}}} <= 19",)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_tables_are_constants_as_long_as_these_have_room(target: str) -> None:
    many = CONSTANT_BYTES // 4 - 5
    for count, space in ((many, 4), (many + 1, 1)):
        kernel = kernel_of(tuple(range(0, 24 * count, 24)), 5, lanes=target_spec(target).subgroup_size)
        (last,) = (op for op in kernel.walk() if isinstance(op, tile.LookupOp) and op.table[0] < 0)
        last.properties["values"] = builtin.DenseArrayBase.from_list(builtin.i64, [0, 1, 2, 3, 5])
        kernel.properties["target"] = builtin.StringAttr(target)
        text = backend(target).emit(kernel).llvm_text
        assert text.count(f"constant [{count} x i32]") == 1, "two lookups share it"
        assert f"addrspace({space}) constant [5 x i32]" in text
