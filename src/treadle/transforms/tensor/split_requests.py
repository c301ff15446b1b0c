"""What is asked of the splitting of reductions, by users or by strategies: the facts it goes by, and attributes in their one form."""

from treadle import errors
from treadle.analysis.indexing import Contraction, Reduction, map_dims, structured
from treadle.analysis.operation_marks import origin_of
from treadle.dialects.split_attribute import ALL_LOOPS, SPLIT_REDUCTION, SplitAttr, SplitLoop, SplitPlan
from treadle.errors import TreadleError
from treadle.ir.core import Operation
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.strategies.facts import OperationFacts

OFF = "off"
"""What a user writes for a reduction that is to stay whole."""


def _invalid(op: Operation, reason: str) -> TreadleError:
    return TreadleError(errors.SPLIT_REDUCTION, location_of(op), op=origin_of(op), reason=reason)


def facts_of(op: Operation, f32_precision: str = "ieee") -> OperationFacts | None:
    """The facts of a contraction or reduction; None for any other operation, and where an axis of a result is no loop."""
    view = structured(op)
    kind = None if view is None else view.computation
    if view is None or not isinstance(kind, Contraction | Reduction) or any(map_dims(map_) is None for map_ in view.output_maps):
        return None
    return OperationFacts(view, kind, f32_precision)


def even_split(facts: OperationFacts, parts: int, step: int = 1) -> SplitAttr | None:
    """So many parts along the longest loop that can be split, of convolutions along all as one; None where there is none. `step`: what
    they had better be multiples of, where there are as many of it.
    """
    if facts.shared_operand is not None:
        return SplitAttr(SplitPlan((SplitLoop(ALL_LOOPS, str(parts)),)))
    if not facts.is_separable or not facts.splittable:
        return None
    dims = facts.view.reduction_dims
    loop = max(facts.splittable, key=lambda number: facts.sizes[dims[number]] or 1 << 30)
    whole = step if (facts.sizes[dims[loop]] or 0) >= parts * step else 1
    return SplitAttr(SplitPlan((SplitLoop(loop, str(parts), whole),)))


def check_asked(op: Operation, facts: OperationFacts | None, step: int = 1) -> None:
    """Bring what a user wrote into the attribute's form, in steps as of `even_split`. Raises `TreadleError` TR308 for what cannot be
    followed.
    """
    asked = op.attributes[SPLIT_REDUCTION]
    if asked == builtin.StringAttr(OFF):
        return
    if facts is None or not facts.is_separable:
        raise _invalid(op, "it does not join its elements by one associative operation")
    if isinstance(asked, builtin.IntegerAttr):
        found = even_split(facts, asked.value.data, step) if asked.value.data > 0 else None
        if found is None:
            raise _invalid(op, f"it cannot be split into {asked.value.data} parts")
        op.attributes[SPLIT_REDUCTION] = found
    elif not isinstance(asked, SplitAttr):
        raise _invalid(op, f'{asked} is neither a number of parts, nor #dispatch.split, nor "off"')
    elif ALL_LOOPS in (loops := [loop.loop for loop in asked.data.loops]):
        if len(loops) > 1 or facts.shared_operand is None or not asked.data.loops[0].parts.isdigit():
            raise _invalid(op, "all loops as one are split of convolutions with known windows and channels, into a number of parts")
    elif wrong := [loop for loop in loops if loop not in facts.splittable]:
        raise _invalid(op, f"its reduction loop r{wrong[0]} is none that can be split")
