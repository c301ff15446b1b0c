"""The `pipe` dialect: roles of warps, slots of multi-buffered memory. See docs/schedule.md."""

from collections.abc import Sequence

from treadle.dialects.effects import Effect, HasEffects
from treadle.dialects.tile import i64_array, ints, memref_type, shared_layout_of
from treadle.dialects.tile_attributes import SharedLayoutAttr, SharedSpaceAttr, is_shared
from treadle.ir.builtin import ArrayAttr, IndexType, MemRefType, StringAttr
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
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_region_def,
)
from treadle.layout.shared_layout import SharedLayout


@irdl_op_definition
class RolesOp(IRDLOperation, HasEffects):
    """Splits the workgroup's warps into roles that run their regions at the same time; the op is complete when all have ended.

    `names[i]`, `warps[i]` (of one group), `groups[i]`, `registers[i]` (a thread; 0: leave as they are) belong to region i. Warps are
    dealt out in
    order. Each region is one block without arguments, ended by `pipe.end_role`.
    """

    name = "pipe.roles"
    names = prop_def(ArrayAttr)
    warps = prop_def(Attribute)
    groups = prop_def(Attribute)
    registers = prop_def(Attribute)
    roles = var_region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(
        self,
        names: Sequence[str],
        warps: Sequence[int],
        groups: Sequence[int],
        roles: Sequence[Region],
        registers: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            properties={
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

    def verify_(self) -> None:
        count = len(self.roles)
        if not count or any(len(x) != count for x in (self.role_names(), self.role_warps(), self.role_groups(), ints(self.registers))):
            raise VerifyException("pipe.roles needs one name, warp count, group count and register count for each region")
        if any(w < 1 for w in self.role_warps()) or any(g < 1 for g in self.role_groups()):
            raise VerifyException("pipe.roles: a role has at least one group of at least one warp")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class EndRoleOp(IRDLOperation, HasEffects):
    """Ends a role's region."""

    name = "pipe.end_role"
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict"

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
        result = MemRefType(buffer.element_type, list(buffer.get_shape())[len(indices) :], SharedLayoutAttr(layout), SharedSpaceAttr())
        super().__init__(operands=[source, list(indices)], result_types=[result])

    def verify_(self) -> None:
        source, result = memref_type(self.source), memref_type(self.result)
        if not is_shared(source) or not is_shared(result):
            raise VerifyException("pipe.slot works on shared buffers")
        if tuple(source.get_shape()[len(self.indices) :]) != tuple(result.get_shape()) or source.element_type != result.element_type:
            raise VerifyException(f"pipe.slot of {source} with {len(self.indices)} indices cannot be {result}")
        if shared_layout_of(self.result).shape != tuple(result.get_shape()):
            raise VerifyException("pipe.slot: the layout covers another shape than the slot's")

    def effects(self) -> tuple[Effect, ...]:
        return ()


PIPE = Dialect("pipe", [RolesOp, EndRoleOp, GroupIdOp, SlotOp], [])
