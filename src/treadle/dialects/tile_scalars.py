"""Scalars of a workgroup in the `tile` dialect: an index that is read from memory, a number of a table, and numbers that proofs do not look
into.
"""

from collections.abc import Sequence
from math import prod

from treadle.dialects.effects import Effect, HasEffects
from treadle.dialects.tile_types import ints, tile_type
from treadle.ir.core import (
    IRDLOperation,
    Pure,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from treadle.ir.dialects import builtin


@irdl_op_definition
class ExtractOp(IRDLOperation, HasEffects):
    """The element of a tile of one integer as an index, the same for all threads: the nearest that the kernel's indices hold."""

    name = "tile.extract"
    source = operand_def(builtin.TensorType)
    result = result_def(builtin.IndexType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source)"

    def __init__(self, source: SSAValue) -> None:
        super().__init__(operands=[source], result_types=[builtin.IndexType()])

    def verify_(self) -> None:
        source = tile_type(self.source)
        if prod(source.get_shape()) != 1 or source.element_type not in (builtin.i32, builtin.i64):
            raise VerifyException(f"tile.extract takes a tile of one i32 or i64, not {source}")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class LookupOp(IRDLOperation, HasEffects):
    """The number of a table that is part of the program, at an index inside of it."""

    name = "tile.lookup"
    index = operand_def(builtin.IndexType)
    values = prop_def()
    result = result_def(builtin.IndexType)
    traits = traits_def(Pure())
    assembly_format = "$index `in` $values attr-dict"

    def __init__(self, values: Sequence[int], index: SSAValue) -> None:
        table = builtin.DenseArrayBase.from_list(builtin.i64, list(values))
        super().__init__(operands=[index], result_types=[builtin.IndexType()], properties={"values": table})

    @property
    def table(self) -> tuple[int, ...]:
        """The numbers."""
        return ints(self.values)

    def verify_(self) -> None:
        if not self.table:
            raise VerifyException("tile.lookup has a table of one number at least")

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class OpaqueOp(IRDLOperation, HasEffects):
    """An index or a condition as it is. To proofs it is any one, the same wherever its operand is: what it is made of they do not see."""

    name = "tile.opaque"
    source = operand_def(builtin.IndexType | builtin.IntegerType)
    result = result_def(builtin.IndexType | builtin.IntegerType)
    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue) -> None:
        super().__init__(operands=[source], result_types=[source.type])

    def verify_(self) -> None:
        if self.source.type != self.result.type:
            raise VerifyException(f"tile.opaque leaves {self.source.type} as it is, and is no {self.result.type}")

    def effects(self) -> tuple[Effect, ...]:
        return ()
