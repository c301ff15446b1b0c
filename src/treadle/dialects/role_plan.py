"""What set-roles decides and form-roles does, as one attribute of a kernel: `#pipe.role_plan<..>`."""

from typing import NamedTuple

from treadle.ir.core import AttrParser, Data, Printer, irdl_attr_definition


class RolePlan(NamedTuple):
    """Roles of a kernel: one producer issues the bulk copies, consumers do the rest, but for an operand that a role of its own splits.

    `num_stages`: slots of the rings that loops fill. `ping_pong`: how many sets of consumer warpgroups take tiles in turn, so that one's
    epilogue runs under another's main loop. `steps_in_flight`: groups of matrix instructions left in flight when a slot is waited for (0
    or 1). `producer_registers`, `consumer_registers`: of a thread, 0 where they do not move.
    `workgroups`: how many take all tiles in turn, 0 for one a tile.
    `deferred_stores`: 1 where a tile's boxes are stored under the main loop of the next. `cluster`: workgroups that fetch once what
    they share, `cluster_n` of them neighbours along n, which share the operand of their tiles' rows, the others along m, which share
    that of their columns. `epilogue_slots`: slots of the rings of what a tile's epilogue reads, at most two for each of its boxes.
    `fills_in_flight`: slots whose copies by all threads of the producer are still in flight when the next one's are issued.
    `by_grid`: 1 where as many workgroups take all tiles in turn as the kernel's `turns` says, instead of `workgroups`.
    `issue_turns`: 1 where the groups of consumers issue the matrix instructions of a step one after another.
    `split_slots`: slots of the ring of what a role splits, 0 for no such role. `splitter_registers`: of a thread of it.
    `copying_groups`: groups of the producer's warps, each of as many as registers move together.
    """

    num_stages: int
    ping_pong: int = 1
    steps_in_flight: int = 0
    producer_registers: int = 40
    consumer_registers: int = 232
    workgroups: int = 0
    deferred_stores: int = 0
    cluster: int = 1
    epilogue_slots: int = 1
    fills_in_flight: int = 0
    split_slots: int = 0
    splitter_registers: int = 0
    cluster_n: int = 1
    issue_turns: int = 0
    by_grid: int = 0
    copying_groups: int = 1

    @property
    def takes_turns(self) -> bool:
        """Whether workgroups take several tiles, one after another."""
        return bool(self.workgroups or self.by_grid)


@irdl_attr_definition
class RolePlanAttr(Data[RolePlan]):
    """`#pipe.role_plan<num_stages = 4, workgroups = 132>`: fields that have their default are left out."""

    name = "pipe.role_plan"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> RolePlan:
        found: dict[str, int] = {}

        def field() -> None:
            name = parser.parse_identifier()
            if name not in RolePlan._fields or name in found:
                parser.raise_error(f"a role plan has each of {', '.join(RolePlan._fields)} at most once")
            parser.parse_punctuation("=")
            found[name] = parser.parse_integer(allow_boolean=False, allow_negative=False)

        with parser.in_angle_brackets():
            parser.parse_comma_separated_list(AttrParser.Delimiter.NONE, field)
        if not found.get("num_stages"):
            parser.raise_error("a role plan has at least one stage (num_stages)")
        return RolePlan(**found)

    def print_parameter(self, printer: Printer) -> None:
        defaults = RolePlan._field_defaults
        shown = [f"{name} = {value}" for name, value in self.data._asdict().items() if defaults.get(name) != value]
        printer.print_string(f"<{', '.join(shown)}>")
