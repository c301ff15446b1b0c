"""What the passes over `tile.kernel` share: finding kernels and their machine, inserting, facts about views."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, cast

from treadle.analysis.divisibility import EVERYTHING, divisor
from treadle.analysis.element_bytes import element_bytes
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.ir.locations import set_location
from treadle.ir.passes import Context, Pass
from treadle.machine import TargetSpec, target_spec
from treadle.plan.access import AccessFacts, DimFacts


@dataclass(frozen=True)
class KernelPass(Pass):
    """A pass that works on one `tile.kernel` at a time."""

    name: ClassVar[str]

    def apply(self, ctx: Context, module: builtin.ModuleOp, /) -> None:
        """Run on every kernel of the module."""
        for kernel in kernels(module):
            self.run(kernel, target_spec(kernel.target.data))

    @abstractmethod
    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite one kernel in place."""


def kernels(module: builtin.ModuleOp) -> tuple[tile.KernelOp, ...]:
    """All tile kernels of a module, in order."""
    return tuple(op for op in module.body.block.ops if isinstance(op, tile.KernelOp))


def num_warps(kernel: tile.KernelOp) -> int:
    """Warps of the workgroup."""
    return kernel.num_warps.value.data


def insert_before(anchor: Operation, *ops: Operation) -> None:
    """Insert `ops` in order before `anchor`, with its location."""
    block = cast(Block, anchor.parent)
    for op in ops:
        set_location(op, anchor)
        block.insert_op_before(op, anchor)


def insert_after(anchor: Operation, *ops: Operation) -> None:
    """Insert `ops` in order after `anchor`, with its location."""
    block = cast(Block, anchor.parent)
    for op in reversed(ops):
        set_location(op, anchor)
        block.insert_op_after(op, anchor)


def erase_if_unused(op: Operation) -> None:
    """Erase an operation none of whose results has a use."""
    if all(not tuple(result.uses) for result in op.results):
        op.detach()
        op.erase()


def outermost_in_kernel(op: Operation) -> Operation:
    """The operation of the kernel's top block that `op` is or lies in."""
    current = op
    while not isinstance(parent := current.parent_op(), tile.KernelOp):
        if parent is None:
            raise InternalError(f"{op.name} is in no kernel")
        current = parent
    return current


def is_tile(value: SSAValue) -> bool:
    """Whether a value is a register tile."""
    return isinstance(value.type, builtin.TensorType)


def tile_bytes(value: SSAValue) -> int:
    """Bytes of a register tile's elements."""
    value_type = tile.tile_type(value)
    return prod(value_type.get_shape()) * element_bytes(value_type.element_type)


def view_op(view: SSAValue) -> tile.ViewOp:
    """The operation that makes a view."""
    owner = view.owner
    if not isinstance(owner, tile.ViewOp):
        raise InternalError("a view that tile.view does not define")
    return owner


def access_facts(view: SSAValue, offsets: Sequence[SSAValue], dims: Sequence[int], shape: Sequence[int]) -> AccessFacts:
    """What is known about an access of a tile of `shape` along view dimensions `dims` at `offsets`."""
    op = view_op(view)
    extents = [1] * len(offsets)
    for dim, extent in zip(dims, shape, strict=True):
        extents[dim] = extent
    found: list[DimFacts] = []
    for size, stride, offset, extent in zip(op.size_values(), op.stride_values(), offsets, extents, strict=True):
        found.append(
            DimFacts(
                stride if isinstance(stride, int) else None,
                size if isinstance(size, int) else None,
                divisor(abs(stride) if isinstance(stride, int) else stride),
                divisor(size) if not (isinstance(size, int) and size == 0) else EVERYTHING,
                divisor(offset),
                extent,
            )
        )
    kernel = outermost_in_kernel(op).parent_op()
    bits = kernel.index_width() if isinstance(kernel, tile.KernelOp) else 32
    varies = not all(isinstance(each, int) or _is_of_launch(each) for each in (*op.size_values(), *op.stride_values()))
    return AccessFacts(tuple(found), element_bytes(tile.memref_type(view).element_type), op.align.value.data, bits, varies)


def _is_of_launch(value: SSAValue) -> bool:
    """Whether an index value is the same in all workgroups: it is computed from the kernel's arguments alone."""
    owner = value.owner
    if isinstance(owner, Block):
        return isinstance(owner.parent_op(), tile.KernelOp)
    return owner.name.startswith("arith.") and all(_is_of_launch(operand) for operand in owner.operands)
