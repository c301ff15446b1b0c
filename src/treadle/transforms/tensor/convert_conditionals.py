"""convert-conditionals: `scf.if` becomes its two sides, one after the other, and a selection of their results.

Level: tensor, after inline-calls. Reads: `scf.if` in functions and in bodies of generics. Writes: `arith.select` with a scalar condition.
Both sides are values without effects, so that computing the one not taken changes nothing; what both sides require of sizes is checked.
Leaves alone: everything else, other control flow included (form-dispatches refuses it).
Refuses with TR301 sides that hold anything with an effect or a loop.
"""

from typing import ClassVar

from treadle.analysis.sizes import cannot_compile
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, func, scf
from treadle.ir.emitter import before
from treadle.ir.passes import register_pass
from treadle.records import dataclass
from treadle.transforms.tensor.copying import copy_block
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import give_way

PURE_DIALECTS = ("arith", "math", "affine", "tensor", "linalg")


def _check_pure(conditional: scf.IfOp) -> None:
    for op in conditional.walk():
        if op is not conditional and op.name.split(".")[0] not in PURE_DIALECTS and not isinstance(op, scf.YieldOp):
            hint = "let both sides be tensor operations without loops, so that both can be computed and one selected"
            raise cannot_compile(op, what=f"'{op.name}' in a side of scf.if", hint=hint)


def convert_conditional(conditional: scf.IfOp) -> None:
    """Put both sides and the selections in place of `conditional`, whose sides hold no other one."""
    _check_pure(conditional)
    selected: list[SSAValue] = []
    if conditional.results:
        mapping: dict[SSAValue, SSAValue] = {}
        taken, other = (copy_block(side.block, mapping, conditional) for side in (conditional.true_region, conditional.false_region))
        insert = before(conditional).insert
        selected = [insert(arith.SelectOp(conditional.cond, left, right)) for left, right in zip(taken, other, strict=True)]
    give_way(conditional, selected)


def _conditionals(root: Operation) -> list[scf.IfOp]:
    return [op for op in root.walk(region_first=True) if isinstance(op, scf.IfOp)]


@register_pass
@dataclass(frozen=True)
class ConvertConditionalsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "convert-conditionals"

    def run(self, function: func.FuncOp) -> None:
        """Convert every conditional, inner ones first."""
        for conditional in _conditionals(function):
            convert_conditional(conditional)
