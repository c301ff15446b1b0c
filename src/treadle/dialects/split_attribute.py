"""`#dispatch.split`: into how many parts a reduction is split, as a strategy decides it or a user writes it."""

from typing import Final

from treadle.ir.core import AttrParser, Data, Printer, irdl_attr_definition
from treadle.records import Record, dataclass

SPLIT_REDUCTION: Final = "treadle.split_reduction"
"""Attribute of a reduction or contraction: a `SplitAttr`; or what a user writes for one: a number of parts, or "off"."""
MERGES: Final = ("kernel", "last", "cluster", "turnstile")
"""Who merges the parts: "kernel", a launch of its own; "last", of the workgroups that share a result the last one to have its part;
"cluster", all of these together, each some rows, where they are a cluster, and else the last one; "turnstile", each of these in its turn,
which adds its part to the sum of those before it.
"""
MERGED_BY: Final = "treadle.merged_by"
"""Attribute of a reduction that merges parts: who is to do it."""


ALL_LOOPS: Final = -1
"""Instead of a reduction loop's number: all of them as one, in their order."""


class SplitLoop(Record):
    """Reduction loop number `loop` (ALL_LOOPS: all as one) is split into `parts` of whole `step`s each, the last apart, that differ by at
    most one of them. `parts`: an expression over the loops' extents (r0, r1, .. of reductions, n0, .. of others), a number for all as one.
    """

    loop: int
    parts: str
    step: int = 1


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """The loops that are split, and who merges the parts."""

    loops: tuple[SplitLoop, ...]
    merge: str = "kernel"


@irdl_attr_definition
class SplitAttr(Data[SplitPlan]):
    """`#dispatch.split<r0 = "77" step 64, merge = kernel>`; `r` instead of `r0`: all reduction loops as one."""

    name = "dispatch.split"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> SplitPlan:
        loops: list[SplitLoop] = []
        merge = "kernel"

        def entry() -> None:
            nonlocal merge
            start = parser.pos
            name = parser.parse_identifier()
            parser.parse_punctuation("=")
            if name == "merge":
                merge = parser.parse_identifier()
                if merge not in MERGES:
                    parser.raise_error(f"parts are merged by {', '.join(MERGES)}", start, parser.pos)
                return
            if name != "r" and (name[0] != "r" or not name[1:].isdigit()):
                parser.raise_error("a loop is named r0, r1, ..: the reduction loops in their order; r: all as one", start, parser.pos)
            parts = parser.parse_str_literal()
            step = parser.parse_integer(allow_boolean=False, allow_negative=False) if parser.parse_optional_keyword("step") else 1
            loops.append(SplitLoop(int(name[1:] or ALL_LOOPS), parts, max(1, step)))

        with parser.in_angle_brackets():
            parser.parse_comma_separated_list(AttrParser.Delimiter.NONE, entry)
        return SplitPlan(tuple(loops), merge)

    def print_parameter(self, printer: Printer) -> None:
        def text(loop: SplitLoop) -> str:
            number = "" if loop.loop == ALL_LOOPS else loop.loop
            return f'r{number} = "{loop.parts}"' + (f" step {loop.step}" if loop.step > 1 else "")

        printer.print_string(f"<{', '.join((*map(text, self.data.loops), f'merge = {self.data.merge}'))}>")
