"""set-instruction: the matrix instruction of contractions that name none.

Level: tile. Reads: extents and element types of `tile.contract`, warps of the kernel, the machine's instructions. Writes: its `instruction`
("fma", the vector units, where no matrix instruction fits). Leaves alone: contractions that name one, which must be the machine's and fit.
"""

from treadle.dialects import tile
from treadle.dialects.tile_attributes import is_shared
from treadle.errors import SCHEDULE_FORM, TreadleError
from treadle.ir.core import Attribute, SSAValue
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import MatrixInstruction, TargetSpec
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.transforms.kernel.kernel_ir import KernelPass
from treadle.transforms.kernel.operand_layouts import warp_grid

NAME = "set-instruction"
VECTOR_UNITS = "fma"


def _element(value: SSAValue) -> Attribute:
    return (tile.memref_type(value) if is_shared(value.type) else tile.tile_type(value)).element_type


def misfit(row: MatrixInstruction, op: tile.ContractOp, warps_m: int, warps_n: int) -> str | None:
    """Why an instruction does not compute a contraction with these warps along m and n; None where it does."""
    types = (str(_element(op.a)).replace("f32", "tf32"), str(_element(op.b)).replace("f32", "tf32"), str(_element(op.accumulator)))
    if types != (row.a_type, row.b_type, row.accumulator_type):
        return f"it multiplies {row.a_type} and {row.b_type} into {row.accumulator_type}"
    m, n = tile.tile_type(op.accumulator).get_shape()
    k = op.operand_shape(op.a)[1]
    if warps_m % row.warps:
        return f"{row.warps} warps issue it together, and {warps_m} stand along m"
    rows = row.m * (warps_m // row.warps)
    columns = (row.n_step or row.n) * warps_n
    for what, extent, step in (("rows", m, rows), ("columns", n, columns), ("steps of k", k, row.k)):
        if extent % step:
            return f"{extent} {what} are no multiple of {step}"
    return None


@register_pass
@dataclass(frozen=True)
class SetInstructionPass(KernelPass):
    """Decides for every contraction of a kernel."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Name the first instruction that fits. Raises TR416 for a named one that the machine does not have, or that does not fit."""
        warps_m, warps_n = warp_grid(kernel)
        for op in kernel.body.walk():
            if not isinstance(op, tile.ContractOp):
                continue
            named = op.instruction.data
            if named and named != VECTOR_UNITS:
                _check(op, named, spec, warps_m, warps_n)
            elif not named:
                types = (str(_element(op.a)), str(_element(op.b)), str(_element(op.accumulator)))
                fitting = [row for row in spec.instructions_for(*types) if misfit(row, op, warps_m, warps_n) is None]
                op.properties["instruction"] = type(op.instruction)(fitting[0].name if fitting else VECTOR_UNITS)
                emit("decision", NAME, kernel.sym_name.data, f"instruction {op.instruction.data}", location_of(op))


def _check(op: tile.ContractOp, named: str, spec: TargetSpec, warps_m: int, warps_n: int) -> None:
    rows = {row.name: row for row in spec.matrix_instructions}
    fix = 'leave the instruction to the compiler (""), or use the vector units ("fma")'
    reason = f"{spec.name} has no instruction '{named}'" if named not in rows else misfit(rows[named], op, warps_m, warps_n)
    if reason is not None:
        raise TreadleError(SCHEDULE_FORM, location_of(op), op=op.name, reason=reason, fix=fix)
