"""The `pipe` dialect: roles of warps, stages of warp pipelines, slots of multi-buffered memory. See docs/schedule.md."""

from collections.abc import Sequence
from functools import lru_cache

from treadle.dialects.effects import Effect, HasEffects
from treadle.dialects.limits import number_in_kernel
from treadle.dialects.role_plan import RolePlanAttr
from treadle.dialects.stages import EndStageOp, StageOp
from treadle.dialects.tile import i64_array, ints, memref_type, shared_buffer_type, shared_layout_of
from treadle.dialects.tile_attributes import is_shared
from treadle.ir.ancestry import ancestors
from treadle.ir.builtin import ArrayAttr, IndexType, IntegerAttr, MemRefType, StringAttr, i64
from treadle.ir.core import (
    Attribute,
    Dialect,
    IRDLOperation,
    IsTerminator,
    NoTerminator,
    Pure,
    Region,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_region_def,
)
from treadle.ir.misuse import Misuse
from treadle.layout.shared_layout import SharedLayout

LEAST_STEPS = "least_steps"
"""Attribute of a loop whose bounds depend on the block: how many steps it makes at least."""

STEPS_IN_FLIGHT = "steps_in_flight"
"""Attribute of a loop within a role: so many steps' matrix instructions (0 or 1) may still run when the next step's are issued."""

ISSUE_TURNS = "issue_turns"
"""Attribute of a kernel whose roles are to be formed, and of a loop within a role of several groups: they issue the matrix instructions of
each step one group after another."""

FILLS_IN_FLIGHT = "fills_in_flight"
"""Attribute of a loop within a role whose threads copy: so many steps' copies may still be in flight when the next step's are issued; the
slots of a step are handed over so many steps later, the last ones behind the loop."""


@irdl_op_definition
class RolesOp(IRDLOperation, HasEffects):
    """Splits the workgroup's warps into roles that run their regions at the same time; the op is complete when all have ended.

    `names[i]`, `warps[i]` (of one group), `groups[i]`, `registers[i]` (a thread; 0: leave as they are) belong to region i. Warps are
    dealt out in order. Each region is one block without arguments, ended by `pipe.end_role`. `ping_pong`: these roles, by number, take what
    they read of the rings that they share in turn: each what the ones before it leave.
    """

    name = "pipe.roles"
    names = prop_def(ArrayAttr)
    warps = prop_def(Attribute)
    groups = prop_def(Attribute)
    registers = prop_def(Attribute)
    ping_pong = opt_prop_def(Attribute)
    roles = var_region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(
        self,
        names: Sequence[str],
        warps: Sequence[int],
        groups: Sequence[int],
        roles: Sequence[Region],
        registers: Sequence[int] | None = None,
        ping_pong: Sequence[int] = (),
    ) -> None:
        super().__init__(
            properties={
                "ping_pong": i64_array(ping_pong) if ping_pong else None,
                "names": ArrayAttr([StringAttr(n) for n in names]),
                "warps": i64_array(warps),
                "groups": i64_array(groups),
                "registers": i64_array(registers or [0] * len(names)),
            },
            regions=[list(roles)],
        )

    def role_names(self) -> tuple[str, ...]:
        """Names of the roles, in order."""
        return tuple(n.data for n in self.names.data if isinstance(n, StringAttr))

    def role_warps(self) -> tuple[int, ...]:
        """Warps of one group of each role."""
        return ints(self.warps)

    def role_groups(self) -> tuple[int, ...]:
        """Groups of each role."""
        return ints(self.groups)

    def alternating(self) -> tuple[int, ...]:
        """The numbers of the roles that take turns; none where all read everything."""
        return () if self.ping_pong is None else ints(self.ping_pong)

    def verify_(self) -> None:
        count = len(self.roles)
        if len(set(self.alternating())) != len(self.alternating()) or any(not 0 <= n < count for n in self.alternating()):
            raise VerifyException(f"pipe.roles: ping_pong lists numbers of its {count} roles, each once")
        if not count or any(len(x) != count for x in (self.role_names(), self.role_warps(), self.role_groups(), ints(self.registers))):
            raise VerifyException("pipe.roles needs one name, warp count, group count and register count for each region")
        if any(w < 1 for w in self.role_warps()) or any(g < 1 for g in self.role_groups()):
            raise VerifyException("pipe.roles: a role has at least one group of at least one warp")
        for region in self.roles:
            if region.block.args or not isinstance(region.block.last_op, EndRoleOp):
                raise VerifyException("pipe.roles: a role is a block without arguments that ends in pipe.end_role")
        self._verify_place()

    def _verify_place(self) -> None:
        inside = next((around.name for around in ancestors(self) if around.name in ("scf.for", "scf.if", "pipe.roles")), None)
        if inside is not None:
            raise Misuse(f"it stands inside {inside}", "move it to the top level of the kernel; loops and branches go inside the roles")
        needed = sum(w * g for w, g in zip(self.role_warps(), self.role_groups(), strict=True))
        warps = number_in_kernel(self, "num_warps", 1)
        if warps is not None and needed > warps:
            raise Misuse(f"roles of {needed} warps in a kernel of {warps}", f"give the kernel {needed} warps, or the roles fewer")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class EndRoleOp(IRDLOperation, HasEffects):
    """Ends a role's region."""

    name = "pipe.end_role"
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict"

    def verify_(self) -> None:
        if self.parent_op() is not None and not isinstance(self.parent_op(), RolesOp):
            raise Misuse("it ends no role", "end a kernel with tile.return, a loop or branch with scf.yield")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class GroupIdOp(IRDLOperation, HasEffects):
    """The executing group's number within its role, from 0."""

    name = "pipe.group_id"
    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType()])

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class ClusterRankOp(IRDLOperation, HasEffects):
    """The executing workgroup's number within its cluster, from 0: its id along the grid's first axis modulo the cluster's size."""

    name = "pipe.cluster_rank"
    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType()])

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class SlotOp(IRDLOperation, HasEffects):
    """One slot of a multi-buffered shared buffer: the leading dimensions taken at `indices`, the rest whole. Moves nothing."""

    name = "pipe.slot"
    source = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "$source `[` $indices `]` attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, indices: Sequence[SSAValue], layout: SharedLayout) -> None:
        buffer = memref_type(source)
        result = shared_buffer_type(buffer.get_shape()[len(indices) :], buffer.element_type, layout)
        super().__init__(operands=[source, list(indices)], result_types=[result])

    def verify_(self) -> None:
        source, result = memref_type(self.source), memref_type(self.result)
        if not is_shared(source) or not is_shared(result):
            raise VerifyException("pipe.slot works on shared buffers")
        if tuple(source.get_shape()[len(self.indices) :]) != tuple(result.get_shape()) or source.element_type != result.element_type:
            raise VerifyException(f"pipe.slot of {source} with {len(self.indices)} indices cannot be {result}")
        if shared_layout_of(self.result).shape != tuple(result.get_shape()):
            raise VerifyException("pipe.slot: the layout covers another shape than the slot's")
        if self.indices and shared_layout_of(self.source).slot(len(self.indices)) != shared_layout_of(self.result):
            raise VerifyException("pipe.slot: the layout is not that of a slot of the source")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class AdvanceOp(IRDLOperation, HasEffects):
    """The slot of a ring of `slots` slots that is used `steps` uses after `slot`.

    A ring's slots are used in turn: whoever fills or reads it carries the number of the slot from 0 on. insert-sync writes the arithmetic,
    and beside it the parity of the rounds, which the phases of the ring's barriers follow.
    """

    name = "pipe.advance"
    slot = operand_def(IndexType)
    steps = operand_def(IndexType)
    slots = prop_def(IntegerAttr)
    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "$slot `by` $steps `of` $slots attr-dict"

    def __init__(self, slot: SSAValue, steps: SSAValue, slots: int) -> None:
        super().__init__(operands=[slot, steps], properties={"slots": IntegerAttr(slots, i64)}, result_types=[IndexType()])

    def verify_(self) -> None:
        if self.slots.value.data < 1:
            raise VerifyException("pipe.advance: a ring has at least one slot")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@lru_cache(maxsize=256)
def _halves_along(layout: SharedLayout, axis: int) -> bool:
    """Whether the last of the basis vectors of a layout's block leads half of the block on along a dimension."""
    block = layout.shape[axis] // layout.repeat[axis]
    return bool(layout.offset) and layout.offset[-1] == tuple(block // 2 if at == axis else 0 for at in range(layout.rank))


def part_layout(layout: SharedLayout, axis: int, count: int) -> SharedLayout | None:
    """The layout of one of `count` equal parts along a dimension, where they follow one another in memory as wholes; else None."""
    if count < 1 or layout.shape[axis] % count:
        return None
    slower = layout.repeat_order[: layout.repeat_order.index(axis)]
    if any(layout.repeat[other] > 1 for other in slower):
        return None
    if layout.repeat[axis] % count == 0:
        return SharedLayout(layout.offset, tuple(n // count if at == axis else n for at, n in enumerate(layout.repeat)))
    bits, lone = count.bit_length() - 1, all(n == 1 for at, n in enumerate(layout.repeat) if at != axis)
    if lone and layout.repeat[axis] > 1 and _halves_along(layout, axis):
        # A block whose halves follow one another along the dimension is two blocks.
        halves = tuple(2 * n if at == axis else n for at, n in enumerate(layout.repeat))
        return part_layout(SharedLayout(layout.offset[:-1], halves), axis, count)
    if 1 << bits != count or any(n > 1 for n in layout.repeat):
        return None
    part = layout.shape[axis] // count
    tops = [tuple(part << bit if at == axis else 0 for at in range(layout.rank)) for bit in range(bits)]
    low = layout.offset[: len(layout.offset) - bits]
    if list(layout.offset[len(low) :]) != tops or any(basis[axis] >= part for basis in low):
        return None
    return SharedLayout(low, layout.repeat)


@irdl_op_definition
class PartOp(IRDLOperation, HasEffects):
    """Part `index` of the `count` equal parts of a shared buffer along dimension `axis`. Moves nothing.

    The parts must follow one another in memory as wholes (`part_layout`): those of a copy that fills its share of a buffer.
    """

    name = "pipe.part"
    source = operand_def(MemRefType)
    index = operand_def(IndexType)
    axis = prop_def(IntegerAttr)
    count = prop_def(IntegerAttr)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "$source `[` $index `]` `of` $count `along` $axis attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, index: SSAValue, axis: int, count: int) -> None:
        buffer = memref_type(source)
        layout = part_layout(shared_layout_of(source), axis, count)
        if layout is None:
            raise VerifyException(f"{count} parts along dimension {axis} of {buffer} do not follow one another in memory")
        result = shared_buffer_type(layout.shape, buffer.element_type, layout)
        super().__init__(
            operands=[source, index],
            properties={"axis": IntegerAttr(axis, i64), "count": IntegerAttr(count, i64)},
            result_types=[result],
        )

    def verify_(self) -> None:
        axis, count = self.axis.value.data, self.count.value.data
        source, result = memref_type(self.source), memref_type(self.result)
        if not is_shared(source) or not is_shared(result) or not 0 <= axis < len(source.get_shape()):
            raise VerifyException("pipe.part works on a dimension of a shared buffer")
        layout = part_layout(shared_layout_of(self.source), axis, count)
        if layout is None:
            raise VerifyException(f"pipe.part: {count} parts along dimension {axis} do not follow one another in memory")
        if layout != shared_layout_of(self.result) or source.element_type != result.element_type:
            raise VerifyException(f"pipe.part {count} along {axis} of {source} cannot be {result}")

    def effects(self) -> tuple[Effect, ...]:
        return ()


PIPE = Dialect("pipe", [RolesOp, EndRoleOp, StageOp, EndStageOp, GroupIdOp, ClusterRankOp, SlotOp, PartOp, AdvanceOp], [RolePlanAttr])
