"""How many workgroups a kernel asks to share a unit: ptxas keeps to as many registers as they leave each thread.

Left to itself ptxas takes what one workgroup may have: it brings all loads of a row forward, and few rows are in flight. Kernels whose
warps wait for each other at barriers while they hold a row's tile live by rows in flight.
"""

from treadle.dialects import pipe, sync, tile
from treadle.dialects.kernel_form import KernelFormAttr
from treadle.dialects.tile import KernelOp
from treadle.dialects.tile_types import is_tile
from treadle.ir.core import Operation, SSAValue
from treadle.machine import TargetSpec
from treadle.targets.simt.types import WORD_BYTES, element_bytes

LEAST_REGISTERS = 48
"""Of a thread: addresses, and what is loaded at a time."""
REGISTERS_FOR_HELD = 2
"""For each register that is held at a barrier: what is computed with it, in pieces."""
THREADS_PER_UNIT = 2048


def resident_workgroups(kernel: KernelOp, spec: TargetSpec | None = None) -> int:
    """What the kernel's config says (`resident`), or, of a kernel without one that reduces across warps, what its tiles leave room for.

    1 where neither is known.
    """
    if isinstance(kernel.config, KernelFormAttr):
        found = kernel.config.data.values.get("resident", 0)
        return found if isinstance(found, int) and found > 1 else 1
    held = held_registers(kernel)
    if spec is None or not held:
        return 1
    threads = kernel.num_warps.value.data * spec.subgroup_size
    registers = -(-max(LEAST_REGISTERS, REGISTERS_FOR_HELD * held) // 8) * 8
    return max(1, min(spec.registers_per_unit // (threads * registers), THREADS_PER_UNIT // threads))


def held_registers(kernel: KernelOp) -> int:
    """Registers of a thread for the tiles that live across barriers of a kernel that reduces; 0 for kernels that contract or have roles."""
    ops = list(kernel.body.block.ops)
    inside = list(kernel.walk())
    if any(isinstance(op, tile.ContractOp | pipe.RolesOp) for op in inside) or not any(isinstance(op, tile.ReduceOp) for op in inside):
        return 0
    places: dict[Operation, int] = {inner: number for number, op in enumerate(ops) for inner in op.walk()}
    barriers = [number for number, op in enumerate(ops) if isinstance(op, sync.BarrierOp)]
    most = 0
    for at in barriers:
        alive = [value for op in ops[:at] for value in op.results if is_tile(value) and _last(value, places) > at]
        most = max(most, sum(_registers(value) for value in alive))
    return most


def _last(value: SSAValue, places: dict[Operation, int]) -> int:
    return max((places[use.operation] for use in value.uses if use.operation in places), default=-1)


def _registers(value: SSAValue) -> int:
    """What each row has one of (a maximum, a sum) is counted with `LEAST_REGISTERS`."""
    layout = tile.layout_of(value)
    if layout is None or layout.num_registers == 1:
        return 0
    return -(-layout.num_registers * element_bytes(tile.tile_type(value).element_type) // WORD_BYTES)
