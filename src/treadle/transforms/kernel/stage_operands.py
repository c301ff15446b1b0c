"""stage-operands: brings contraction operands into shared memory, and from there into fragments where the instruction reads registers.

Level: tile. Reads: attribute `staging` of tile.contract (see set-operand-staging). Writes: tile.alloc before the outermost loop, tile.copy
where the operand was loaded or tile.local_store before the contraction, local loads of fragments step by step along k.
Leaves alone: contractions without `staging`.
"""

from dataclasses import dataclass
from typing import cast

from treadle.dialects import tile
from treadle.dialects.tile_attributes import SharedLayoutAttr
from treadle.errors import InternalError
from treadle.ir.core import Operation, OpResult, SSAValue
from treadle.ir.dialects import builtin
from treadle.ir.passes import register_pass
from treadle.layout.shared_layout import SharedLayout
from treadle.machine import TargetSpec
from treadle.transforms.kernel.kernel_ir import KernelPass, erase_if_unused, insert_before, outermost_in_kernel
from treadle.transforms.kernel.set_operand_staging import STAGING, contract_layouts


@dataclass(frozen=True, slots=True)
class _Choice:
    path: str
    layout: SharedLayout


def _choice(op: tile.ContractOp, name: str) -> _Choice:
    staging = op.attributes[STAGING]
    entry = staging.data.get(name) if isinstance(staging, builtin.DictionaryAttr) else None
    if isinstance(entry, builtin.DictionaryAttr):
        path, layout = entry.data.get("path"), entry.data.get("layout")
        if isinstance(path, builtin.StringAttr) and isinstance(layout, SharedLayoutAttr):
            return _Choice(path.data, layout.data)
    raise InternalError(f"tile.contract with a malformed staging attribute: {staging}")


def _stage(value: SSAValue, choice: _Choice, contract: tile.ContractOp) -> SSAValue:
    """Put one operand into a new shared buffer; returns the buffer."""
    value_type = tile.tile_type(value)
    alloc = tile.AllocOp(tile.shared_buffer_type(value_type.get_shape(), value_type.element_type, choice.layout))
    if choice.path == "bulk_tensor":
        load = value.owner
        if not isinstance(load, tile.LoadOp):
            raise InternalError("descriptor copy of an operand that is not a load")
        insert_before(outermost_in_kernel(load), alloc)
        insert_before(load, tile.CopyOp(load.view, list(load.offsets), tile.ints(load.dims), alloc.result, path=choice.path))
        return alloc.result
    insert_before(outermost_in_kernel(contract), alloc)
    store = tile.LocalStoreOp(value, alloc.result, (0,) * len(value_type.get_shape()))
    # Next to the contraction: all global loads of the step are then under way before the threads wait for the buffers.
    insert_before(contract, store)
    return alloc.result


def _contract_in_steps(op: tile.ContractOp, a: SSAValue, b: SSAValue, k_step: int) -> SSAValue:
    """Contract fragments of `k_step` along k one after the other; returns the last accumulator."""
    (m, k), n = op.operand_shape(op.a), op.operand_shape(op.b)[1]
    if k % k_step:
        raise InternalError(f"k extent {k} is no multiple of the instruction's {k_step}")
    accumulator = op.accumulator
    for at in range(0, k, k_step):
        left = tile.LocalLoadOp(a, (0, at), tile.tile_of((m, k_step), tile.memref_type(a).element_type))
        right = tile.LocalLoadOp(b, (at, 0), tile.tile_of((k_step, n), tile.memref_type(b).element_type))
        step = tile.ContractOp(left.result, right.result, accumulator, op.instruction.data)
        insert_before(op, left, right, step)
        accumulator = step.result
    return accumulator


def stage_contract(op: tile.ContractOp, kernel: tile.KernelOp, spec: TargetSpec) -> None:
    """Carry out the staging decisions of one contraction."""
    layouts = contract_layouts(op, kernel, spec)
    sources = (op.a, op.b)
    a, b = (_stage(value, _choice(op, name), op) for value, name in zip(sources, ("a", "b"), strict=True))
    if layouts.a is None:
        staged = tile.ContractOp(a, b, op.accumulator, op.instruction.data)
        insert_before(op, staged)
        result: SSAValue = staged.result
    else:
        result = _contract_in_steps(op, a, b, layouts.k_step)
    op.result.replace_all_uses_with(result)
    op.detach()
    op.erase()
    for value in dict.fromkeys(sources):
        if isinstance(value, OpResult) and isinstance(value.op, tile.LoadOp):
            erase_if_unused(cast(Operation, value.op))


@register_pass
@dataclass(frozen=True)
class StageOperandsPass(KernelPass):
    """Stages the operands of all contractions that carry `staging`."""

    name = "stage-operands"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite the contractions of one kernel."""
        for op in tuple(kernel.body.walk()):
            if isinstance(op, tile.ContractOp) and STAGING in op.attributes:
                stage_contract(op, kernel, spec)
