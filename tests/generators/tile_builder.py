"""Hand-built tile kernels for the tests of the simulator."""

from collections.abc import Callable, Sequence
from typing import Any

from treadle.dialects import tile
from treadle.ir.core import Attribute, Block, Builder, InsertPoint, Operation, Region, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.layout.shared_layout import SharedLayout

INDEX = builtin.IndexType()


class KernelBuilder:
    """Collects the operations of one tile kernel; `kernel()` gives it."""

    def __init__(self, pointers: Sequence[Attribute], symbols: Sequence[str]) -> None:
        self.symbols = tuple(symbols)
        self.block = Block(arg_types=[*(tile.PointerType(p) for p in pointers), *(INDEX for _ in symbols)])
        self._builders = [Builder(InsertPoint.at_end(self.block))]
        self.pointers = list(self.block.args[: len(pointers)])
        self.indices = list(self.block.args[len(pointers) :])

    def add(self, op: Operation) -> SSAValue:
        """Insert an operation; its first result (or the operation's own absence of one)."""
        self._builders[-1].insert(op)
        return op.results[0] if op.results else self.block.args[0]

    def index(self, value: int) -> SSAValue:
        return self.add(arith.ConstantOp(builtin.IntegerAttr(value, INDEX)))

    def constant(self, value: float, shape: Sequence[int], element: Attribute) -> SSAValue:
        kind: Any = builtin.TensorType(element, list(shape))
        return self.add(arith.ConstantOp(builtin.DenseIntOrFPElementsAttr.from_list(kind, [value])))

    def program_id(self, axis: int) -> SSAValue:
        return self.add(tile.ProgramIdOp(axis))

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.add(arith.MuliOp(a, b))

    def loop(
        self, upper: SSAValue, step: int, initial: Sequence[SSAValue], body: Callable[[SSAValue, Sequence[SSAValue]], Sequence[SSAValue]]
    ) -> Sequence[SSAValue]:
        """`for i = 0 to upper step step` carrying `initial`."""
        zero, step_value = self.index(0), self.index(step)
        block = Block(arg_types=[INDEX, *(v.type for v in initial)])
        self._builders.append(Builder(InsertPoint.at_end(block)))
        results = body(block.args[0], block.args[1:])
        self.add(scf.YieldOp(*results))
        self._builders.pop()
        op = scf.ForOp(zero, upper, step_value, initial, Region(block))
        self.add(op)
        return op.results

    def kernel(self, name: str, grid: Sequence[str], outputs: int) -> tile.KernelOp:
        self.add(tile.ReturnOp())
        return tile.KernelOp(
            name,
            self.block,
            symbols=self.symbols,
            grid=grid,
            num_warps=4,
            target="sm_90a",
            arg_align=[16] * len(self.pointers),
            output_count=outputs,
        )


def shared_type(shape: tuple[int, int], element: Attribute) -> builtin.MemRefType[Attribute]:
    """A row-major shared buffer; the sides must be powers of two."""
    columns = [(0, 1 << b) for b in range(shape[1].bit_length() - 1)]
    rows = [(1 << b, 0) for b in range(shape[0].bit_length() - 1)]
    return tile.shared_buffer_type(shape, element, SharedLayout((*columns, *rows), (1, 1)))


def matmul_kernel(
    operand: Attribute,
    accumulator: Attribute,
    tiles: tuple[int, int, int],
    *,
    transposed_b: bool = False,
    vector: int = 1,
    through_shared: bool = False,
    other: Attribute | None = None,
    align: int = 16,
) -> tile.KernelOp:
    """c[m, n] = sum over k of a[m, k] * b[k, n] (b stored as [n, k] where `transposed_b`); sizes are the symbols m, n, k."""
    tm, tn, tk = tiles
    k = KernelBuilder([operand, operand, accumulator], ["m", "n", "k"])
    m_size, n_size, k_size = k.indices
    a = k.add(tile.ViewOp(k.pointers[0], [m_size, k_size], [k_size, 1], align=align))
    b_strides: list[SSAValue | int] = [1, k_size] if transposed_b else [n_size, 1]
    b = k.add(tile.ViewOp(k.pointers[1], [k_size, n_size], b_strides, align=align))
    c = k.add(tile.ViewOp(k.pointers[2], [m_size, n_size], [n_size, 1], align=align))
    m0, n0 = k.mul(k.program_id(1), k.index(tm)), k.mul(k.program_id(0), k.index(tn))
    zero = k.constant(0, [tm, tn], accumulator)
    a_type, b_type = tile.tile_of([tm, tk], operand), tile.tile_of([tk, tn], operand)
    buffers = [k.add(tile.AllocOp(shared_type(s, operand))) for s in ((tm, tk), (tk, tn))] if through_shared else []

    def body(k0: SSAValue, carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
        if through_shared:
            k.add(tile.CopyOp(a, [m0, k0], [0, 1], buffers[0], path="bulk_tensor"))
            loaded = k.add(tile.LoadOp(b, [k0, n0], [0, 1], b_type, vector=vector))
            k.add(tile.LocalStoreOp(loaded, buffers[1], [0, 0]))
            return [k.add(tile.ContractOp(buffers[0], buffers[1], carried[0]))]
        left = k.add(tile.LoadOp(a, [m0, k0], [0, 1], a_type, other=other))
        right = k.add(tile.LoadOp(b, [k0, n0], [0, 1], b_type, vector=vector, other=other))
        return [k.add(tile.ContractOp(left, right, carried[0]))]

    total = k.loop(k_size, tk, [zero], body)[0]
    k.add(tile.StoreOp(total, c, [m0, n0], [0, 1]))
    return k.kernel("matmul", [f"(n + {tn - 1}) // {tn}", f"(m + {tm - 1}) // {tm}", "1"], 1)
