"""Stages of a warp pipeline: operations that say where a stage of a loop begins and ends (docs/schedule.md, "Warp pipelines").

They are borders and no regions, so that values flow from stage to stage as in any block and the passes before form-warp-pipeline see a
plain loop. What stands between `pipe.stage` and `pipe.end_stage` is the stage.
"""

from treadle.dialects.effects import Effect, HasEffects
from treadle.dialects.limits import check_number
from treadle.ir.builtin import IntegerAttr, StringAttr, i64
from treadle.ir.core import IRDLOperation, irdl_op_definition, opt_prop_def

WARP_PIPELINE = "warp_pipeline"
"""Attribute of a loop with stages, `{groups = 2 : i64, gap = 1 : i64}`: how many groups of warps run it, and how many stages apart."""
TURNS = "turns"
"""Attribute of a loop over tiles, `2 : i64`: how many sets of warps take its tiles in turn, each of them whole; as it is asked for,
and then as set-turns decides. What fold-turns leaves on a kernel, `"grid_x"`: how many workgroups take the tiles of its grid in turn, as an
expression over its symbols.
"""
AUTO = "auto"
"""Entry of `warp_pipeline` of a loop that the compiler is to cut into stages."""
WARP_PIPELINED = "warp_pipelined"
"""Attribute of the loop that form-warp-pipeline has left: `{groups, gap, stages = ["label", ..], local = array<i64: slots that flush>}`,
and `joins` where the groups come from the loop before as they are.
"""
FREE_LAYOUT = "free_layout"
"""Attribute of a `tile.alloc` with leading slots whose layout the compiler chooses, by how matrix instructions read the slots."""
PRIORITIES = (0, 3)


class _Border(IRDLOperation, HasEffects):
    """Moves and computes nothing; no operation passes it."""

    def effects(self) -> tuple[Effect, ...]:
        return ()


@irdl_op_definition
class StageOp(_Border):
    """A stage of the loop around it begins here. `priority`: that of its warps among those of a scheduler, 0 (lowest) to 3."""

    name = "pipe.stage"
    label = opt_prop_def(StringAttr)
    priority = opt_prop_def(IntegerAttr)
    assembly_format = "($label^)? (`priority` $priority^)? attr-dict"

    def __init__(self, label: str | None = None, priority: int | None = None) -> None:
        super().__init__(
            properties={
                "label": None if label is None else StringAttr(label),
                "priority": None if priority is None else IntegerAttr(priority, i64),
            }
        )

    def verify_(self) -> None:
        if self.priority is not None:
            check_number("the priority", self.priority.value.data, *PRIORITIES, "leave it out for the machine's own")


@irdl_op_definition
class EndStageOp(_Border):
    """The stage that has begun last ends here."""

    name = "pipe.end_stage"
    assembly_format = "attr-dict"
