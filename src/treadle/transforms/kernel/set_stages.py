"""set-stages: cuts loops that ask for it into the stages of a warp pipeline.

Level: tile. Reads: `warp_pipeline = {auto}` of loops, what their operations ask of the matrix units, shared memory, global memory and the
vector units by the machine's rows. Writes: `pipe.stage` and `pipe.end_stage` with labels and priorities, and `warp_pipeline = {groups,
gap}`, as a user would. Leaves alone: loops that do not ask, and those of which no cut keeps the order of the program, with a remark.

The model is `plan/stage_partition.py`. Its partitions are tried from the fastest on; what form-warp-pipeline would refuse is passed over.
"""

from collections.abc import Sequence
from math import prod

from treadle.analysis.element_bytes import element_bytes, tile_bytes
from treadle.dialects import pipe, tile
from treadle.dialects.stages import AUTO, WARP_PIPELINE, StageOp
from treadle.dialects.tile_types import is_tile
from treadle.errors import TreadleError
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin, scf
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.plan.stage_partition import Partition, Waits, Work, partitions
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.kernel_ir import KernelPass, erase, insert_before, num_warps, written
from treadle.transforms.kernel.warp_pipelines.borders import read_pipelines, refuse
from treadle.transforms.kernel.warp_pipelines.orders import plan_slots
from treadle.transforms.kernel.warp_pipelines.rehoming import find_homes

GAPS = (1, 2)
GROUPS = (2, 4)
MEETING_CLOCKS = 32.0
"""Of a barrier, with what drains ahead of it."""
CACHE_BYTES = 64
"""That a compute unit gets in a clock of what others have read, too, as tiles of operands are."""
MOST_TRIES = 64


@register_pass
@dataclass(frozen=True)
class SetStagesPass(KernelPass):
    """Cuts the loops of every kernel that ask for it. Raises TR417 for one that has stages already."""

    name = "set-stages"

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Cut those of one kernel."""
        for loop in [op for op in kernel.body.walk() if isinstance(op, scf.ForOp) and _asks(op)]:
            if any(isinstance(op, StageOp) for op in loop.walk()):
                refuse(loop, "a loop with stages that asks for them, too", "leave one of both out")
            self._cut(loop, kernel, spec)

    def _cut(self, loop: scf.ForOp, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        del loop.attributes[WARP_PIPELINE]
        _load_first(loop, kernel)
        pieces = [(op, found) for op in loop.body.block.ops if (found := work_of(op, spec)) is not None]
        work = [found for _, found in pieces]
        groups = [count for count in GROUPS if num_warps(kernel) % count == 0 and num_warps(kernel) // count >= spec.matrix_units]
        subject, place = f"{kernel.sym_name.data}: loop", location_of(loop)
        reason = "nothing multiplies"
        if not groups:
            reason = f"{num_warps(kernel)} warps make no groups that all matrix units have a warp of"
        elif not any(piece.unit == "matrix" for piece in work) and any(isinstance(op, tile.ContractOp) for op in loop.body.walk()):
            reason = "its products stand in branches or loops of their own, which no border divides"
        waits = Waits(_uses([op for op, _ in pieces]), spec.rates.streaming.latency_clocks)
        for found in partitions(work, groups, GAPS, MEETING_CLOCKS, waits)[:MOST_TRIES]:
            marks = _mark(loop, [pieces[n][0] for n in found.begins], found, work)
            try:
                for pipeline in [each for each in read_pipelines(kernel) if each.loop is loop]:
                    plan_slots(pipeline, find_homes(pipeline, kernel), kernel, spec)
            except TreadleError as error:
                reason = error.message
                erase(*marks)
                del loop.attributes[WARP_PIPELINE]
                continue
            emit("decision", self.name, subject, _timeline(found, work), place)
            return
        emit("refusal", self.name, subject, f"not cut into stages: {reason}", place)


def _asks(loop: scf.ForOp) -> bool:
    asked = loop.attributes.get(WARP_PIPELINE)
    return isinstance(asked, builtin.DictionaryAttr) and AUTO in asked.data


def _load_first(loop: scf.ForOp, kernel: tile.KernelOp) -> None:
    """Move loads from arrays that the kernel does not write to the front of an iteration: a stage of their own may end before their use."""
    changed, block = written(kernel), loop.body.block
    for load in [op for op in block.ops if isinstance(op, tile.LoadOp)]:
        view = load.view.owner
        needed = _index_math(load, loop)
        if needed is None or not isinstance(view, tile.ViewOp) or view.pointer in changed:
            continue
        anchor = next(op for op in block.ops if not isinstance(op, tile.LoadOp) and _does_work(op))
        for op in (*needed, load):
            if anchor.is_before_in_block(op):
                op.detach()
                block.insert_op_before(op, anchor)


def _does_work(op: Operation) -> bool:
    """Whether an operation does more than arithmetic on numbers."""
    return not op.name.startswith("arith.") or any(is_tile(result) for result in op.results)


def _index_math(load: tile.LoadOp, loop: scf.ForOp) -> list[Operation] | None:
    """The arithmetic in a loop that tells where a load reads, in order; None where it is more than arithmetic on numbers."""
    needed: set[Operation] = set()
    pending = [value.owner for value in load.operands]
    while pending:
        op = pending.pop()
        if isinstance(op, Operation) and op.parent is loop.body.block and op not in needed:
            if _does_work(op):
                return None
            needed.add(op)
            pending += [value.owner for value in op.operands]
    return [op for op in loop.body.block.ops if op in needed]


def _uses(pieces: Sequence[Operation]) -> tuple[tuple[int, int], ...]:
    """The pieces that load into registers, each with the first that uses it."""
    found: list[tuple[int, int]] = []
    for at, op in enumerate(pieces):
        if isinstance(op, tile.LoadOp | tile.GatherOp):
            users = [pieces.index(use.operation) for use in op.results[0].uses if use.operation in pieces]
            found += [(at, min(users))] if users else []
    return tuple(found)


def work_of(op: Operation, spec: TargetSpec) -> Work | None:
    """What an operation asks of the machine; None for arithmetic on numbers and addresses."""
    match op:
        case tile.ContractOp():
            (m, k), (_, n) = op.operand_shape(op.a), op.operand_shape(op.b)
            row = None if op.instruction.data in ("", "fma") else spec.instruction(op.instruction.data)
            return Work("matrix", m * n * k / spec.macs_per_clock(row))
        case tile.LocalLoadOp():
            return Work("shared", tile_bytes(op.result) / (spec.banks.count * spec.banks.bytes))
        case tile.LocalStoreOp():
            return Work("shared", tile_bytes(op.value) / (spec.banks.count * spec.banks.bytes))
        case tile.LoadOp() | tile.GatherOp():
            return Work("global", tile_bytes(op.result) / CACHE_BYTES)
        case tile.CopyOp():
            kind = tile.memref_type(op.destination)
            return Work("global", prod(kind.get_shape()) * element_bytes(kind.element_type) / CACHE_BYTES)
        case tile.StoreOp():
            return Work("global", tile_bytes(op.value) / CACHE_BYTES)
        case _ if op.results and is_tile(op.results[0]) and not op.name.endswith("constant"):
            kind = tile.tile_type(op.results[0])
            return Work("vector", tile_bytes(op.results[0]) / element_bytes(kind.element_type) / spec.fma_per_unit_per_clock)
        case _:
            return None


def _mark(loop: scf.ForOp, begins: Sequence[Operation], found: Partition, work: Sequence[Work]) -> list[Operation]:
    """Put the borders into a loop; what stands ahead of the first piece is in the first stage."""
    demands = found.demands(work)
    multiplies = [stage.get("matrix", 0.0) * 2 > sum(stage.values()) for stage in demands]
    priorities = [int(does) if any(multiplies) and not all(multiplies) else None for does in multiplies]
    first, last = loop.body.block.first_op, loop.body.block.last_op
    marks: list[Operation] = []
    for number, begin in enumerate(begins):
        stage = pipe.StageOp(f"{'multiply' if multiplies[number] else 'memory'} {number}", priorities[number])
        ends = [pipe.EndStageOp()] if number else []
        insert_before(first if not number and first is not None else begin, *ends, stage)
        marks += [*ends, stage]
    end = pipe.EndStageOp()
    if last is not None:
        insert_before(last, end)
    numbers = {"groups": found.groups, "gap": found.gap}
    loop.attributes[WARP_PIPELINE] = builtin.DictionaryAttr({name: builtin.IntegerAttr(n, builtin.i64) for name, n in numbers.items()})
    return [*marks, end]


def _timeline(found: Partition, work: Sequence[Work]) -> str:
    """The model's stages in a remark."""
    stages = [", ".join(f"{unit} {clocks:.0f}" for unit, clocks in demand.items()) for demand in found.demands(work)]
    busy = sum(piece.clocks for piece in work if piece.unit == "matrix") / found.clocks
    text = f"cut into {len(stages)} stages ({' | '.join(stages)} clocks) for {found.groups} groups, {found.gap} stage(s) apart: "
    return f"{text}{found.clocks:.0f} clocks an iteration, matrix units busy {busy:.0%} of them"
