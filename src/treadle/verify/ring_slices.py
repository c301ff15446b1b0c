"""What a role computes slots and parities of: found backwards, once, so that a walk along a counter looks at nothing else."""

from collections.abc import Iterable

from treadle.dialects import pipe, sync, tile
from treadle.ir.builtin import IndexType
from treadle.ir.core import Block, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.ir.operands import operands_of
from treadle.verify.signs import never_negative

Use = tuple[Operation, int]
"""An operand that picks a slot or a parity."""


class RingSlice:
    """The slice of a role's block.

    `slots`: by the number of slots that there are, all values that some operand which picks one comes of; `parities`: the same of parities.
    `ops`: of each block the operations that make any of these, pick slots and parities, or hold such ones.
    """

    def __init__(self, role: Block) -> None:
        self.slots: dict[int, set[SSAValue]] = {}
        self.parities: set[SSAValue] = set()
        picking = [op for op in role.walk() if isinstance(op, pipe.SlotOp | sync.MbarrierSlotOp | sync.WaitPhaseOp)]
        picked: dict[int, list[SSAValue]] = {}
        for op in picking:
            match op:
                case sync.MbarrierSlotOp():
                    alloc = op.source.owner
                    if isinstance(alloc, sync.MbarrierAllocOp):
                        picked.setdefault(alloc.slot_count(), []).append(op.index)
                case pipe.SlotOp():
                    for size, index in zip(tile.memref_type(op.source).get_shape(), op.indices, strict=False):
                        picked.setdefault(size, []).append(index)
                case _:
                    _close(self.parities, op.operands[1:])
        for size, values in sorted(picked.items()):
            _close(self.slots.setdefault(size, set()), values)
        made = set[Operation](picking)
        for value in self.parities.union(*self.slots.values()):
            if isinstance(value.owner, Operation):
                made.add(value.owner)
        holding = set[Operation]()
        for op in made:
            around = op.parent_op()
            while around is not None and around not in holding and around is not role.parent_op():
                holding.add(around)
                around = around.parent_op()
        self._made = made | holding
        self._ops: dict[Block, list[Operation]] = {}

    def size(self) -> SSAValue | None:
        """The one value from outside of all loops that slots go on by; None where there is none, or several."""
        slots = set[SSAValue]().union(*self.slots.values())
        sums = [op for op in self._made if op.name == "arith.addi" and op.results[0] in slots and not _is_size(op.results[0])]
        found = {value for op in sums for value in operands_of(op) if _is_size(value)}
        return found.pop() if len(found) == 1 else None

    def ops(self, block: Block) -> list[Operation]:
        """The operations of a block that are looked at, in order."""
        found = self._ops.get(block)
        if found is None:
            found = self._ops[block] = [op for op in block.ops if op in self._made]
        return found


def _close(found: set[SSAValue], values: Iterable[SSAValue]) -> None:
    """Add what values are made of: not which way branches go, nor how long loops are."""
    work = list(values)
    while work:
        value = work.pop()
        if value in found:
            continue
        found.add(value)
        owner = value.owner
        if isinstance(value, BlockArgument):
            loop = value.block.parent_op()
            if isinstance(loop, scf.ForOp) and value.index:
                end = loop.body.block.last_op
                work += [loop.iter_args[value.index - 1], *(end.operands[value.index - 1 : value.index] if end is not None else ())]
        elif isinstance(owner, scf.ForOp | scf.IfOp):
            at = owner.results.index(value)
            ends = [region.block.last_op for region in owner.regions if region.blocks]
            work += [end.operands[at] for end in ends if end is not None]
            if isinstance(owner, scf.ForOp):
                work.append(owner.iter_args[at])
        elif isinstance(owner, Operation) and owner.name.startswith("arith."):
            work += operands_of(owner)


def _is_size(value: SSAValue) -> bool:
    """Whether a value is an index that is computed outside of all loops, and no constant."""
    owner = value.owner
    if not isinstance(owner, Operation) or owner.name == "arith.constant" or not owner.name.startswith("arith."):
        return False
    around = owner.parent_op()
    while around is not None and not isinstance(around, scf.ForOp):
        around = around.parent_op()
    return around is None and isinstance(value.type, IndexType) and never_negative(value)
