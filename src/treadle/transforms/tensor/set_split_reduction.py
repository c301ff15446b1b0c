"""set-split-reduction: into how many parts a reduction is split whose results are too few to fill the machine.

Level: tensor, after fold-data-movement. Reads: contractions and reductions, the machine, the registered strategies.
Writes: `treadle.split_reduction = #dispatch.split<..>` where a strategy decides to split, with a remark; a number of parts that a user
wrote becomes that attribute.
Leaves alone: operations that have the attribute, those of a group that the user has named, and those of a block of `scf.forall`;
reductions that will share a kernel of rows with others; where floats may not be reordered all that join sums or products of floats, with a
remark.
Refuses with TR308 attributes that cannot be followed.
"""

from typing import ClassVar, Final

from treadle.analysis.data_flow import DataFlow
from treadle.analysis.indexing import Reduction, classify
from treadle.analysis.operation_marks import origin_of
from treadle.analysis.row_sizes import row_sizes
from treadle.dialects import dispatch
from treadle.dialects.split_attribute import SPLIT_REDUCTION
from treadle.ir.core import Operation
from treadle.ir.dialects import func
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec, target_spec
from treadle.plan.row_tiles import is_worth_it
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.strategies import strategies_for
from treadle.strategies.facts import OperationFacts, shape_of
from treadle.strategies.split_sizes import whole_step
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import generics
from treadle.transforms.tensor.split_requests import OFF, check_asked, even_split, facts_of

NAME: Final = "set-split-reduction"
AUTO: Final = "auto"


def shares_rows(facts: OperationFacts, spec: TargetSpec) -> bool:
    """Whether a reduction will be one of several operations that walk the same rows in one kernel (`row_groups.py`)."""
    view = facts.view
    rows, length, contiguous = row_sizes(view)
    if not isinstance(facts.computation, Reduction) or not is_worth_it(rows, length, contiguous=contiguous, spec=spec):
        return False
    read = {value for value in view.inputs if len(shape_of(value)) == view.rank}
    beside = {use.operation for value in read for use in value.uses} - {view.op}
    return any(isinstance(classify(op), Reduction) for op in beside) or not beside.isdisjoint(_behind(view.op))


def _behind(op: Operation) -> set[Operation]:
    """What is computed from an operation's results."""
    found: set[Operation] = set()
    left = [op]
    while left:
        users = {use.operation for result in left.pop().results for use in result.uses} - found
        found |= users
        left += users
    return found


@register_pass
@dataclass(frozen=True)
class SetSplitReductionPass(FunctionPass):
    """`target`: the machine. `split`: "auto", "off", or a number of parts for every reduction. `reassociate`: whether sums and products of
    floats may be joined in another order. `f32_precision`: as in `CompileOptions`.
    """

    name: ClassVar[str] = NAME
    target: str
    split: str = AUTO
    reassociate: bool = True
    f32_precision: str = "ieee"

    def run(self, function: func.FuncOp) -> None:
        """Decide for one function."""
        spec, flow = target_spec(self.target), DataFlow(function.body.block)
        for op in generics(function):
            facts = facts_of(op, self.f32_precision)
            if SPLIT_REDUCTION in op.attributes:
                check_asked(op, facts, 1 if facts is None else whole_step(facts, spec))
            elif facts is not None and self.split != OFF and dispatch.GROUP not in op.attributes and not flow.blocks_of(op):
                self._decide(op, facts, spec)

    def _decide(self, op: Operation, facts: OperationFacts, spec: TargetSpec) -> None:
        if self.split != AUTO:
            found, who = even_split(facts, int(self.split), whole_step(facts, spec)), "as asked"
        else:
            answers = ((strategy.decide(facts, spec), strategy.name) for strategy in strategies_for(SPLIT_REDUCTION))
            found, who = next((answer for answer in answers if answer[0] is not None), (None, ""))
            if found is not None and shares_rows(facts, spec):
                emit("refusal", NAME, origin_of(op), f"not split as {found}: others walk the same rows", location_of(op))
                return
        if found is None:
            return
        if facts.reorders_floats and not self.reassociate:
            emit("refusal", NAME, origin_of(op), f"not split as {found}: floats may not be reordered", location_of(op))
            return
        op.attributes[SPLIT_REDUCTION] = found
        emit("decision", NAME, origin_of(op), f"{found} ({who})", location_of(op))
