"""Effects: every operation of the kernel dialects states them, and the table of docs/schedule.md is what they say."""

import pytest
from generators.async_kernels import Kernel
from hazards.kernels import kernel_of
from hazards.programs_registers import register_operand

from treadle.dialects import pipe, sync, tile
from treadle.dialects.effects import Effect, HasEffects
from treadle.ir.core import IRDLOperation, Operation, VerifyException, irdl_op_definition
from treadle.ir.text import parse_module

Row = tuple[str, str, bool, str, str]
"""Access, proxy, own part, completion, role of the queue."""


@pytest.mark.parametrize("kind", [k for d in (tile.TILE, pipe.PIPE, sync.SYNC) for k in d.operations if k is not tile.KernelOp])
def test_every_operation_has_the_interface(kind: type[Operation]) -> None:
    assert issubclass(kind, HasEffects)


def test_an_operation_without_effects_is_refused() -> None:
    @irdl_op_definition
    class SilentOp(IRDLOperation):
        name = "tile.silent"

    module = parse_module(Kernel(rows=64).text(), "test")
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.KernelOp))
    kernel.verify()
    kernel.body.block.insert_op_before(SilentOp(), next(iter(kernel.body.block.ops)))
    with pytest.raises(VerifyException, match=r"tile\.silent does not state its effects"):
        kernel.verify()


def row(effect: Effect) -> Row:
    return effect.access, effect.proxy, effect.slice is not None and effect.slice.own_part, effect.completion, effect.queue


def rows(k: Kernel, kind: type[Operation]) -> list[list[Row]]:
    module = parse_module(k.text(), "test")
    return [[row(e) for e in op.effects()] for op in module.walk() if isinstance(op, kind) and isinstance(op, HasEffects)]


def test_copies() -> None:
    k = Kernel(rows=64)
    k.buffers(p=0)
    other = Kernel(rows=64, target="gfx942")
    other.buffers(p=0)
    for path in ("bulk_tensor", "cp_async"):
        k.copy("%p", path=path)
    other.copy("%p", path="direct")
    (bulk, threads), (direct,) = rows(k, tile.CopyOp), rows(other, tile.CopyOp)
    assert bulk == [("read", "async", False, "program_order", ""), ("write", "async", False, "program_order", "")]
    assert threads == direct == [("read", "generic", False, "queue", "copy_in"), ("write", "generic", True, "queue", "copy_in")]


def test_a_copy_that_signals_completes_on_its_barrier() -> None:
    k = Kernel(rows=64)
    k.buffers(p=0)
    k.copy("%p")
    (copy,) = (op for op in k.synchronised().walk() if isinstance(op, tile.CopyOp))
    assert {e.completion for e in copy.effects()} == {"mbarrier"}


def test_local_accesses_stores_and_products() -> None:
    k = Kernel(rows=64)
    k.buffers(p=0, q=0)
    k.buffers("f32", o=2)
    at = k.slot("%o", "%c1")
    k.local_store(at)
    k.local_load(at)
    k.copy_out(at)
    k.mma("%p", "%q")
    assert rows(k, tile.LocalStoreOp) == [[("write", "generic", True, "queue", "local")]]
    assert rows(k, tile.LocalLoadOp) == [[("read", "generic", True, "queue", "local")]]
    assert rows(k, tile.CopyOutOp) == [[("read", "async", False, "queue", "copy_out"), ("write", "async", False, "queue", "copy_out")]]
    reads, result = [("read", "async", False, "queue", "matrix")] * 2, ("write", "async", False, "queue", "matrix")
    assert rows(k, tile.ContractOp) == [[*reads, result]]


def test_a_product_reads_registers_until_its_group_is_retired() -> None:
    kernel = kernel_of(register_operand())
    (product,) = (op for op in kernel.walk() if isinstance(op, tile.ContractOp))
    reads, result = [("read", "async", False, "queue", "matrix")] * 2, ("write", "async", False, "queue", "matrix")
    assert [row(effect) for effect in product.effects()] == [*reads, result]
    assert [effect.resource for effect in product.effects()] == [product.a, product.b, product.result]
