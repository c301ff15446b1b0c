"""What the passes over `tile.kernel` share: finding kernels and their machine, inserting and erasing operations."""

from abc import abstractmethod
from typing import ClassVar, cast

from treadle.dialects import tile
from treadle.dialects.effects import HasEffects
from treadle.errors import InternalError
from treadle.ir.core import Block, Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.ir.locations import set_location
from treadle.ir.passes import Context, Pass
from treadle.machine import TargetSpec, target_spec
from treadle.records import dataclass


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


def written(kernel: tile.KernelOp) -> frozenset[SSAValue]:
    """The pointers through which a kernel writes."""
    effects = [effect for op in kernel.walk() if isinstance(op, HasEffects) for effect in op.effects() if effect.access == "write"]
    views = [effect.resource.owner for effect in effects]
    return frozenset(view.pointer for view in views if isinstance(view, tile.ViewOp))


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


def erase(*ops: Operation) -> None:
    """Take operations out of their blocks for good."""
    for op in ops:
        op.detach()
        op.erase()


def erase_if_unused(op: Operation) -> None:
    """Erase an operation none of whose results has a use."""
    if all(not tuple(result.uses) for result in op.results):
        erase(op)


def outermost_in_kernel(op: Operation) -> Operation:
    """The operation of the kernel's top block that `op` is or lies in."""
    current = op
    while not isinstance(parent := current.parent_op(), tile.KernelOp):
        if parent is None:
            raise InternalError(f"{op.name} is in no kernel")
        current = parent
    return current
