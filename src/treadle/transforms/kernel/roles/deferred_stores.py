"""Deferred stores: a tile's boxes are kept in registers and stored under the matrix instructions of the next tile's first steps.

The persistent loop carries the boxes and where they belong. Before the first tile it carries zeros that belong behind the end of the
array, where descriptor copies write nothing, so that no step asks whether there was a tile before.
"""

from treadle.analysis.divisibility import constant_value
from treadle.analysis.element_bytes import tile_bytes
from treadle.analysis.view_access import chosen_size, view_op
from treadle.dialects import tile
from treadle.dialects.tile_types import is_tile
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.carried_values import zero_of
from treadle.transforms.kernel.roles.parts import Parts, parts_of
from treadle.transforms.kernel.tiling.index_math import IndexBuilder

MOST_CARRIED_BYTES = 256
"""Of boxes, a thread: 64 registers beside the accumulators."""
MAX_ACCUMULATOR_REGISTERS = 128
"""Registers of accumulators a thread may hold beside them."""


@dataclass(frozen=True, slots=True)
class Box:
    """One box of a result: the tile's program stores it locally and sends it."""

    store: tile.LocalStoreOp
    copy: tile.CopyOutOp


@dataclass(frozen=True, slots=True)
class DeferredStores:
    """`boxes` in order; `roots`: the tile's scalars that say where they belong, with what each is before the first tile."""

    boxes: tuple[Box, ...]
    roots: tuple[SSAValue, ...]
    before: tuple[int, ...]

    def operations(self) -> set[Operation]:
        """The operations that leave the tile's program."""
        return {op for box in self.boxes for op in (box.store, box.copy)}

    def values(self) -> tuple[SSAValue, ...]:
        """What the loop over tiles carries, by the tile's program's names."""
        return (*(box.store.value for box in self.boxes), *self.roots)

    def start(self, index: IndexBuilder) -> list[SSAValue]:
        """What it carries before the first tile."""
        return [*(index.insert(zero_of(box.store.value)) for box in self.boxes), *(index.constant(at) for at in self.before)]

    def emit(self, index: IndexBuilder, box: Box, mapping: dict[SSAValue, SSAValue]) -> None:
        """Store and send one box; `mapping` holds what `values` names."""
        for op in (box.store.destination.owner, box.store):
            _clone_with_sources(index, op, mapping)
        for offset in box.copy.offsets:
            _clone_with_sources(index, offset.owner, mapping)
        if _last_tile_tests(box.copy):
            for size in view_op(box.copy.view).size_values():
                _clone_with_sources(index, size.owner if isinstance(size, SSAValue) else None, mapping)
            _clone_with_sources(index, box.copy.view.owner, mapping)
        _clone_with_sources(index, box.copy, mapping)

    def chunks(self, steps: int) -> list[tuple[Box, ...]]:
        """The boxes that each of the first steps stores: one a step, more where there are fewer than `steps`."""
        count = max(1, min(-(-len(self.boxes) // 2), steps))
        each = -(-len(self.boxes) // count)
        return [self.boxes[at : at + each] for at in range(0, len(self.boxes), each)]


def _clone_with_sources(index: IndexBuilder, op: object, mapping: dict[SSAValue, SSAValue]) -> None:
    """Copy an operation, and first the scalar arithmetic it needs that is not there yet."""
    if not isinstance(op, Operation) or (op.results and all(result in mapping for result in op.results)) or isinstance(op, tile.AllocOp):
        return
    for operand in op.operands:
        source = operand.owner
        if operand not in mapping and isinstance(source, Operation) and source.name.startswith("arith.") and not is_tile(operand):
            _clone_with_sources(index, source, mapping)
    index.builder.insert(op.clone(mapping))


def deferred_stores(parts: Parts, threads: int) -> DeferredStores | str:
    """The boxes of a kernel whose stores can be deferred, or why they cannot. `threads`: of a consumer warpgroup."""
    after = list(parts.body[parts.body.index(parts.loop) + 1 :])
    boxes: list[Box] = []
    pending: tile.LocalStoreOp | None = None
    for op in after:
        if isinstance(op, tile.LocalStoreOp):
            if pending is not None:
                return "what is stored locally is not sent at once"
            pending = op
        elif isinstance(op, tile.CopyOutOp):
            if pending is None or pending.destination is not op.source:
                return "what is sent was not just stored"
            boxes.append(Box(pending, op))
            pending = None
        elif isinstance(op, tile.StoreOp | scf.ForOp | scf.IfOp) or (isinstance(op, tile.LocalLoadOp) and not _is_copied(op.source)):
            return f"there is {op.name} behind the loop"
    if not boxes or pending is not None:
        return "nothing is sent in boxes"
    carried = sum(tile_bytes(box.store.value) for box in boxes) // threads
    accumulators = sum(tile_bytes(contract.result) for contract in parts.contracts) // threads
    if carried > MOST_CARRIED_BYTES or accumulators > 4 * MAX_ACCUMULATOR_REGISTERS:
        return f"a thread would hold {carried} bytes of results beside {accumulators} of accumulators"
    return _placed(parts, tuple(boxes))


def _is_copied(buffer: SSAValue) -> bool:
    """Whether hardware copies fill a buffer: it is read before a tile ends, and local stores are to others."""
    return any(isinstance(use.operation, tile.CopyOp) for use in buffer.uses)


def deferral_refusal(kernel: tile.KernelOp, turns: int, workgroups: int, spec: TargetSpec) -> str | None:
    """Why stores of a kernel that roles are formed of cannot be deferred, None where they can."""
    if turns > 1 or not workgroups:
        return "each workgroup has one tile" if not workgroups else "groups take tiles in turn"
    parts = parts_of(kernel)
    low, high, step = map(constant_value, (parts.loop.lb, parts.loop.ub, parts.loop.step))
    if low is None or high is None or step is None:
        return "the number of steps is not known"
    if low >= high:
        return "there are no steps"
    found = deferred_stores(parts, kernel.num_warps.value.data * spec.subgroup_size)
    return found if isinstance(found, str) else None


def _placed(parts: Parts, boxes: tuple[Box, ...]) -> DeferredStores | str:
    fixed = set(parts.fixed)
    before: dict[SSAValue, int] = {}
    for box in boxes:
        roots = [_root(offset, fixed) for offset in box.copy.offsets]
        before.update({root: 0 for root in roots if root is not None and root not in before})
        outside = next(((root, size) for root, size in zip(roots, _sizes(box.copy), strict=True) if root is not None and size), None)
        if outside is None:
            return "no place behind the end of the array is known"
        before[outside[0]] = max(before[outside[0]], outside[1])
        tests = (_root(value, fixed) for value in _last_tile_tests(box.copy))
        before.update({root: 0 for root in tests if root is not None and root not in before})
    return DeferredStores(boxes, tuple(before), tuple(before.values()))


def _root(offset: SSAValue, fixed: set[Operation]) -> SSAValue | None:
    """The scalar of the tile that an offset is a constant away from; None where it is the same for all tiles."""
    op = offset.owner
    if not isinstance(op, Operation) or op in fixed or isinstance(op, arith.ConstantOp):
        return None if isinstance(op, Operation) else offset
    if isinstance(op, arith.AddiOp):
        inner = [value for value in op.operands if _root(value, fixed) is not None]
        if len(inner) == 1:
            return _root(inner[0], fixed)
        if not inner:
            return None
    return offset


def _sizes(copy: tile.CopyOutOp) -> list[int]:
    """Static extents of the array, where it has two the larger; 0 for others."""
    chosen = ((size, chosen_size(size)) for size in view_op(copy.view).size_values())
    return [size if isinstance(size, int) else 0 if found is None else max(found.one, found.other) for size, found in chosen]


def _last_tile_tests(copy: tile.CopyOutOp) -> list[SSAValue]:
    """What the array's ends are chosen by, where it ends elsewhere for the last tiles."""
    ends = map(chosen_size, view_op(copy.view).size_values())
    tests = [end.condition.owner for end in ends if end is not None]
    return [test.lhs for test in tests if isinstance(test, arith.CmpiOp)]
