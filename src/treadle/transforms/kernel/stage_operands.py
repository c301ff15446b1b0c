"""stage-operands: brings contraction operands into shared memory, and from there into fragments where the instruction reads registers.

Level: tile. Reads: attribute `staging` of tile.contract (see set-operand-staging). Writes: tile.alloc before the outermost loop, tile.copy
where the operand was loaded or tile.local_store before the contraction, local loads of fragments step by step along k; of an operand
that is loaded from shared memory anyway (path "fragments"), in place of that load; the slot itself for path "slot"; of one that names the
path of its `source`, a copy of what it is computed from, and a local load of that. Contractions side
by side share the buffer and the fragments of an operand that both read. An operand that is the same in every iteration (the queries of an
attention) is stored ahead of the loop, and its fragments stay in registers, where they are few enough.
Leaves alone: contractions without `staging`.
"""

from collections.abc import Sequence
from typing import cast

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.operand_sources import source_load
from treadle.analysis.side_by_side import goes_on, side_by_side
from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.core import Operation, OpResult, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.passes import register_pass
from treadle.layout.shared_layout import SharedLayout
from treadle.machine import TargetSpec
from treadle.plan.contract_layouts import ContractLayouts
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import KernelPass, erase, erase_if_unused, insert_before, outermost_in_kernel
from treadle.transforms.kernel.operand_layouts import STAGING, THREADS, contract_layouts, source_of, staging_of

Staged = dict[tuple[SSAValue, str, SharedLayout], SSAValue]
"""The buffer of each operand: what several contractions read in one layout is staged once."""
Ahead = dict[SSAValue, Operation]
"""Operands, then their buffers, that are the same in all iterations of a loop: the loop."""
MOST_REGISTERS = 64
"""Of a thread for the fragments of such an operand."""


def _stage(op: tile.ContractOp, name: str, first: tile.ContractOp, staged: Staged, ahead: Ahead) -> SSAValue:
    """Put one operand into a shared buffer, in front of `first` or of the loop that `ahead` has for it; returns the buffer, or the operand
    where it stays in registers.
    """
    value, (path, layout) = op.a if name == "a" else op.b, staging_of(op, name)
    if path in ("registers", "fragments"):
        return value
    if path == "slot":
        return cast(tile.LocalLoadOp, value.owner).source
    if layout is None:
        raise InternalError(f"tile.contract with a malformed staging attribute: {op.attributes[STAGING]}")
    if (value, path, layout) not in staged:
        place = ahead.get(value, first) if path == THREADS else first
        staged[value, path, layout] = _staged(value, path, layout, place)
        if place is not first:
            ahead[staged[value, path, layout]] = place
    return staged[value, path, layout]


def _staged(value: SSAValue, path: str, layout: SharedLayout, place: Operation) -> SSAValue:
    value_type = tile.tile_type(value)
    alloc = tile.AllocOp(tile.shared_buffer_type(value_type.get_shape(), value_type.element_type, layout))
    if path != THREADS:
        load = value.owner
        if not isinstance(load, tile.LoadOp):
            raise InternalError("hardware copy of an operand that is not a load")
        insert_before(outermost_in_kernel(load), alloc)
        vector = 0 if path == tile.BULK_TENSOR else load.vector.value.data
        insert_before(load, tile.CopyOp(load.view, list(load.offsets), tile.ints(load.dims), alloc.result, path=path, vector=vector))
        return alloc.result
    insert_before(outermost_in_kernel(place), alloc)
    store = tile.LocalStoreOp(value, alloc.result, (0,) * len(value_type.get_shape()))
    # Next to the contraction: all global loads of the step are then in flight before the threads wait for the buffers.
    insert_before(place, store)
    return alloc.result


def _same_in_loops(ops: Sequence[tile.ContractOp], layouts: ContractLayouts) -> Ahead:
    """The operands that no loop around the contractions changes, with the outermost of these, if registers hold their fragments."""
    found: Ahead = {}
    for op in ops:
        for value, layout, k in ((op.a, layouts.a, op.operand_shape(op.a)[1]), (op.b, layouts.b, op.operand_shape(op.b)[0])):
            loops: list[scf.ForOp] = []
            while isinstance(loop := (loops[-1] if loops else op).parent_op(), scf.ForOp) and not _is_inside(value, loop):
                loops.append(loop)
            size = 0 if layout is None else layout.num_registers * (k // layouts.k_step) * element_bytes(tile.tile_type(value).element_type)
            if loops and 0 < size <= 4 * MOST_REGISTERS:
                found[value] = loops[-1]
    return found


def _is_inside(value: SSAValue, loop: scf.ForOp) -> bool:
    """Whether a value is made in a loop."""
    owner = value.owner
    block = owner.parent if isinstance(owner, Operation) else owner
    while block is not None and block is not loop.body.block:
        outer = block.parent_op()
        block = outer.parent if outer is not None else None
    return block is not None


def stage_source(op: tile.ContractOp, name: str) -> None:
    """Let hardware copies bring, as it is, what an operand is computed from element by element."""
    load, (path, layout) = source_load(op.a if name == "a" else op.b), source_of(op, name)
    if load is None or layout is None:
        return
    kind = tile.tile_type(load.result)
    alloc = tile.AllocOp(tile.shared_buffer_type(kind.get_shape(), kind.element_type, layout))
    insert_before(outermost_in_kernel(load), alloc)
    vector = 0 if path == tile.BULK_TENSOR else load.vector.value.data
    copy = tile.CopyOp(load.view, list(load.offsets), tile.ints(load.dims), alloc.result, path=path, vector=vector)
    read = tile.LocalLoadOp(alloc.result, (0,) * len(kind.get_shape()), tile.tile_of(kind.get_shape(), kind.element_type))
    insert_before(load, copy, read)
    load.result.replace_all_uses_with(read.result)
    erase(load)


def _fragment(buffer: SSAValue, at: tuple[int, int], shape: tuple[int, int], place: Operation) -> SSAValue:
    whole = buffer.owner
    if isinstance(whole, tile.LocalLoadOp):  # where the tile is loaded, which may be an earlier stage
        row, column = tile.ints(whole.offsets)
        kind, peer = tile.tile_of(shape, tile.tile_type(buffer).element_type), next(iter(whole.peer_ranks()), None)
        load = tile.LocalLoadOp(whole.source, (row + at[0], column + at[1]), kind, peer=peer)
        insert_before(whole, load)
        return load.result
    load = tile.LocalLoadOp(buffer, at, tile.tile_of(shape, tile.memref_type(buffer).element_type))
    insert_before(place, load)
    return load.result


def _contract_in_steps(
    ops: Sequence[tile.ContractOp], buffers: Sequence[tuple[SSAValue, SSAValue]], k_step: int, ahead: Ahead
) -> list[SSAValue]:
    """Contract fragments of `k_step` along k one after the other, all contractions in each step; returns the last accumulators.

    A fragment that several contractions read is loaded once a step.
    """
    first = ops[0]
    (m, k), n = first.operand_shape(first.a), first.operand_shape(first.b)[1]
    if k % k_step:
        raise InternalError(f"k extent {k} is no multiple of the instruction's {k_step}")
    # What a contraction goes on with is where the first of its chain has its accumulators.
    heads: list[int] = []
    for number, op in enumerate(ops):
        heads.append(heads[-1] if number and goes_on(op, ops[number - 1]) else number)
    accumulators: list[SSAValue] = [op.accumulator for op in ops]
    for at in range(0, k, k_step):
        left = {a: _fragment(a, (0, at), (m, k_step), ahead.get(a, first)) for a in dict.fromkeys(a for a, _ in buffers)}
        right = {b: _fragment(b, (at, 0), (k_step, n), ahead.get(b, first)) for b in dict.fromkeys(b for _, b in buffers)}
        for head, op, (a, b) in zip(heads, ops, buffers, strict=True):
            step = tile.ContractOp(left[a], right[b], accumulators[head], op.instruction.data)
            insert_before(first, step)
            accumulators[head] = step.result
    return [accumulators[head] for head in heads]


def _copied_across(op: tile.ContractOp, buffers: Sequence[tuple[SSAValue, SSAValue]]) -> bool:
    """Whether copies bring what multiply-adds read, to rows along m or n: one k is then as wide a read as several."""

    def is_across(buffer: SSAValue, k_dim: int) -> bool:
        copied = any(isinstance(use.operation, tile.CopyOp) for use in buffer.uses)
        return copied and not tile.shared_layout_of(buffer).offset[0][k_dim]

    return op.instruction.data == "fma" and all(is_across(a, 1) and is_across(b, 0) for a, b in buffers)


def stage_contracts(ops: Sequence[tile.ContractOp], kernel: tile.KernelOp, spec: TargetSpec) -> None:
    """Carry out the staging decisions of contractions that stand side by side."""
    layouts = contract_layouts(ops[0], kernel, spec)
    sources = [(op.a, op.b) for op in ops]
    staged: Staged = {}
    in_registers = ops[0].instruction.data != "fma" and not spec.instruction(ops[0].instruction.data).reads_shared
    ahead = _same_in_loops(ops, layouts) if in_registers else {}
    buffers = [(_stage(op, "a", ops[0], staged, ahead), _stage(op, "b", ops[0], staged, ahead)) for op in ops]
    if ops[0].instruction.data != "fma" and not in_registers:
        results: list[SSAValue] = []
        for number, (op, (a, b)) in enumerate(zip(ops, buffers, strict=True)):
            accumulator = results[-1] if number and goes_on(op, ops[number - 1]) else op.accumulator
            new = tile.ContractOp(a, b, accumulator, op.instruction.data)
            insert_before(ops[0], new)
            results.append(new.result)
    else:
        results = _contract_in_steps(ops, buffers, 1 if _copied_across(ops[0], buffers) else layouts.k_step, ahead)
    for op, result in reversed(list(zip(ops, results, strict=True))):
        op.result.replace_all_uses_with(result)
        erase(op)
    for value in dict.fromkeys(value for pair in sources for value in pair):
        if isinstance(value, OpResult) and isinstance(value.op, tile.LoadOp | tile.LocalLoadOp):
            erase_if_unused(cast(Operation, value.op))


@register_pass
@dataclass(frozen=True)
class StageOperandsPass(KernelPass):
    """Stages the operands of all contractions that carry `staging`."""

    name = "stage-operands"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Rewrite the contractions of one kernel."""
        contracts = [op for op in kernel.body.walk() if isinstance(op, tile.ContractOp) and STAGING in op.attributes]
        for op in contracts:
            for name in "ab":
                stage_source(op, name)
        for ops in side_by_side(contracts):
            stage_contracts(ops, kernel, spec)
