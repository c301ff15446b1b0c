"""set-dispatch-groups: which computations of a function become one kernel.

Level: tensor, after normalize-generics and fold-data-movement. Reads: generics, the machine's facts. Writes: `dispatch.group` on every
generic: the kernels that compute it and what it is to each. Leaves alone: operations that have the attribute (the user's choice); what they
leave open is decided around them, and may join their groups. Remarks tell of every fusion made and refused.
Refuses with TR301 and TR302 what no kernel can hold (`analysis/supported.py`), with TR305 attributes in wrong places and groups without
a root.
"""

from typing import ClassVar

from treadle.analysis.supported import check_supported
from treadle.ir.dialects import func
from treadle.ir.passes import register_pass
from treadle.machine import target_spec
from treadle.records import dataclass
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.group_attributes import check_places, named_groups, write_groups
from treadle.transforms.tensor.grouping import decide_groups
from treadle.transforms.tensor.groups import NAME, line_of


@register_pass
@dataclass(frozen=True)
class SetDispatchGroupsPass(FunctionPass):
    """`target`: the machine the kernels are for; without one, fusions that only save memory traffic are not made. `f32_precision`: as in
    `CompileOptions`, since it decides how fast contractions are.
    """

    name: ClassVar[str] = NAME
    target: str | None = None
    f32_precision: str = "ieee"

    def run(self, function: func.FuncOp) -> None:
        """Decide for one function."""
        check_supported(function)
        check_places(function)
        grouping = named_groups(function.body.block)
        for group in grouping.groups:
            for op in group.operations():
                grouping.say("decision", group, op, f"{line_of(op)} is in the kernel '{group.name}', as its dispatch.group says")
        spec = None if self.target is None else target_spec(self.target)
        decide_groups(grouping, spec, tf32=self.f32_precision == "tf32")
        write_groups(grouping)
