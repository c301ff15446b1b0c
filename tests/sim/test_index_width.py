"""An index that leaves its kernel's width is a fault of the simulator; hardware would go on with another number."""

import numpy as np
import pytest
from targets.tile_kernels import finish, index, kernel_block

from treadle.dialects import tile
from treadle.ir.core import ImplicitBuilder, SSAValue, VerifyException
from treadle.ir.dialects import arith, builtin
from treadle.sim.faults import SimulationFault
from treadle.sim.memory import Pointer
from treadle.sim.tile_interpreter import TileKernel
from treadle.sim.values import operation_function
from treadle.verify.scalars import index_width_around, scalar_function, width_of

INDEX = builtin.IndexType()


def multiplied(bits: int, factor: int = 1 << 16) -> tuple[tile.KernelOp, SSAValue]:
    """A kernel that stores one element at n * factor // 2^16, and the product."""
    block = kernel_block([builtin.i32], 1)
    pointer, n = block.args
    with ImplicitBuilder(block):
        product = arith.MuliOp(n, index(factor), result_type=INDEX).result
        back = arith.DivUIOp(product, index(1 << 16)).result
        one = arith.ConstantOp(builtin.DenseIntOrFPElementsAttr.from_list(builtin.TensorType(builtin.i32, [1]), [1])).result
        tile.StoreOp(one, tile.ViewOp(pointer, [1 << 20], [1], align=4).result, [back], [0])
        tile.ReturnOp()
    kernel = finish("multiplied", block, grid=["1", "1", "1"], warps=1, symbols=["n"])
    if bits != 32:
        kernel.properties["index_bits"] = builtin.IntegerAttr(bits, builtin.i64)
    return kernel, product


def test_an_index_that_leaves_its_width() -> None:
    memory = np.zeros(1 << 20, np.int32)
    narrow, wide = TileKernel(multiplied(32)[0]), TileKernel(multiplied(64)[0])
    narrow.launch([Pointer(memory)], [(1 << 15) - 1])
    assert memory[(1 << 15) - 1] == 1
    with pytest.raises(SimulationFault, match="32 bits do not hold"):
        narrow.launch([Pointer(memory)], [1 << 15])
    wide.launch([Pointer(memory)], [1 << 19])
    assert memory[1 << 19] == 1
    with pytest.raises(SimulationFault, match="64 bits do not hold"):
        wide.launch([Pointer(memory)], [1 << 47])


@pytest.mark.parametrize("bits", [32, 64])
def test_arguments_must_fit(bits: int) -> None:
    ready = TileKernel(multiplied(bits, 0)[0])
    ready.launch([Pointer(np.zeros(1 << 20, np.int32))], [(1 << (bits - 1)) - 1])
    with pytest.raises(SimulationFault, match=f"indices of {bits} bits"):
        ready.launch([Pointer(np.zeros(1 << 20, np.int32))], [1 << (bits - 1)])


def test_the_verifier_wraps_as_wide() -> None:
    for bits in (32, 64):
        _, product = multiplied(bits)
        op = product.owner
        assert isinstance(op, arith.MuliOp)
        function = scalar_function(op)
        assert function is not None
        assert (index_width_around(op), width_of(INDEX, op)) == (bits, bits)
        assert function(1 << 15, 1 << 16) == (-(1 << 31) if bits == 32 else 1 << 31)
        assert function(1 << 47, 1 << 16) == (0 if bits == 32 else -(1 << 63))


def test_two_widths_exist() -> None:
    kernel, _ = multiplied(48)
    with pytest.raises(VerifyException, match="32 or 64 bits"):
        kernel.verify()


@pytest.mark.parametrize("bits", [32, 64])
def test_unsigned_arithmetic_on_an_index_below_zero(bits: int) -> None:
    """The simulator and the verifier agree on what machines do."""
    kernel, product = multiplied(bits)
    owner = product.owner
    assert isinstance(owner, arith.MuliOp)
    block = kernel.body.block
    kinds = (arith.DivUIOp, arith.CeilDivUIOp, arith.RemUIOp, arith.MinUIOp, arith.MaxUIOp, arith.ShRUIOp)
    made = [kind(owner.lhs, owner.rhs) for kind in kinds]
    made += [arith.CmpiOp(owner.lhs, owner.rhs, predicate) for predicate in ("ult", "ule", "ugt", "uge")]
    block.insert_ops_after(made, owner)
    for op in made:
        verified, simulated = scalar_function(op), operation_function(op)
        assert verified is not None
        for left, right in ((-7, 3), (-8, 1), (-1, 4), (5, 3), (3, 5)):
            assert int(simulated(left, right)) == int(verified(left, right)), (op.name, left, right)
