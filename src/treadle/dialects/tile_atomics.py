"""Updates of global arrays that other workgroups may make at the same time."""

from collections.abc import Sequence

from treadle.dialects.effects import Effect, HasEffects
from treadle.dialects.tile_types import memref_type, tile_type
from treadle.ir.core import (
    IRDLOperation,
    SSAValue,
    VerifyException,
    irdl_op_definition,
    operand_def,
    prop_def,
    var_operand_def,
)
from treadle.ir.dialects import builtin
from treadle.ir.misuse import Misuse

ATOMIC_KINDS = ("add", "max", "min", "and", "or", "xor")
"""What an update combines an element with a value by; all are associative (sums of floats but for rounding) and commutative."""
_FLOATS = (builtin.f16, builtin.bf16, builtin.f32, builtin.f64)
_INTEGERS = (builtin.i32, builtin.i64)


@irdl_op_definition
class AtomicOp(IRDLOperation, HasEffects):
    """Combines elements of a view with those of a tile, each in one step that no other update comes between.

    `indices` are tiles of integers as wide as an index, one a dimension of the view, of the value's shape and layout. Where an index lies
    outside of the view nothing is done. Places may repeat. Updates of one kind commute, so nothing has to order them; sums of floats are
    rounded in the order in which they happen. What was there before is not told: it would depend on that order. `max` and `min` of a NaN
    and anything are NaN.
    """

    name = "tile.atomic"
    kind = prop_def(builtin.StringAttr)
    value = operand_def(builtin.TensorType)
    view = operand_def(builtin.MemRefType)
    indices = var_operand_def(builtin.TensorType)
    assembly_format = "$kind $value `,` $view `[` $indices `]` attr-dict `:` type($value) `,` type($view) `,` type($indices)"

    def __init__(self, kind: str, value: SSAValue, view: SSAValue, indices: Sequence[SSAValue]) -> None:
        super().__init__(operands=[value, view, list(indices)], properties={"kind": builtin.StringAttr(kind)})

    def verify_(self) -> None:
        value, rank = tile_type(self.value), len(memref_type(self.view).get_shape())
        if len(self.indices) != rank or not rank:
            raise VerifyException(f"tile.atomic needs {rank} index tiles (at least one), got {len(self.indices)}")
        wide, narrow = (builtin.TensorType(kind, value.get_shape(), value.encoding) for kind in (builtin.i64, builtin.i32))
        if any(index.type != self.indices[0].type or index.type not in (wide, narrow) for index in self.indices):
            raise VerifyException(f"tile.atomic: index tiles must all be {narrow}, or all {wide}")
        if memref_type(self.view).element_type != value.element_type:
            raise VerifyException("tile.atomic: element types of view and tile differ")
        self._check_kind(self.kind.data)

    def _check_kind(self, kind: str) -> None:
        element = tile_type(self.value).element_type
        if kind not in ATOMIC_KINDS:
            raise Misuse(f"an atomic update of the kind '{kind}'", f"the kinds are {', '.join(ATOMIC_KINDS)}")
        if element in _INTEGERS or (element in _FLOATS and kind in ("add", "max", "min")):
            return
        raise Misuse(f"an atomic '{kind}' of {element}", "update f16, bf16, f32 and f64 by add, max and min, and i32 and i64 by any kind")

    def effects(self) -> tuple[Effect, ...]:
        return (Effect(self.view, "write", None, update=self.kind.data),)
