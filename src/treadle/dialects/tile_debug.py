"""What shows the values of a kernel while it runs on the simulator."""

from collections.abc import Sequence

from treadle.dialects.dispatch_attributes import Strings, strings
from treadle.dialects.effects import Effect, HasEffects
from treadle.ir.core import IRDLOperation, SSAValue, VerifyException, irdl_op_definition, opt_prop_def, prop_def, var_operand_def
from treadle.ir.dialects import builtin


@irdl_op_definition
class PrintOp(IRDLOperation, HasEffects):
    """Shows tiles and scalars by name, for each workgroup that gets there. `stops`: in Python's debugger. The simulator alone has it."""

    name = "tile.print"
    label = prop_def(builtin.StringAttr)
    names = prop_def(Strings)
    stops = opt_prop_def(builtin.UnitAttr)
    values = var_operand_def()
    assembly_format = "$label $names (`stops` $stops^)? `(` $values `)` attr-dict `:` type($values)"

    def __init__(self, label: str, names: Sequence[str], values: Sequence[SSAValue], *, stops: bool = False) -> None:
        super().__init__(
            operands=[list(values)],
            properties={"label": builtin.StringAttr(label), "names": strings(names), "stops": builtin.UnitAttr() if stops else None},
        )

    def verify_(self) -> None:
        if len(self.names) != len(self.values):
            raise VerifyException(f"tile.print has {len(self.names)} names for {len(self.values)} values")

    def effects(self) -> tuple[Effect, ...]:
        return ()
