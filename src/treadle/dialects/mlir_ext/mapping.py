"""Mapping attributes of `scf.forall`: `#gpu.block<x>`, `#gpu.thread<y>`, `#gpu.warp<linear_dim_0>`, ...

MLIR's text form is kept exactly; the `gpu` dialect here holds nothing but these attributes.
"""

from typing import ClassVar

from treadle.ir.core import Attribute, AttrParser, Data, Dialect, Printer, irdl_attr_definition

MAPPING_IDS = ("x", "y", "z", *(f"linear_dim_{i}" for i in range(10)))


class MappingAttr(Data[str]):
    """One hardware axis that a dimension of `scf.forall` is spread over; `data` is one of `MAPPING_IDS`."""

    level: ClassVar[str]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        with parser.in_angle_brackets():
            start = parser.pos
            axis = parser.parse_identifier()
            if axis not in MAPPING_IDS:
                parser.raise_error(f"#gpu.{cls.level}<{axis}>: expected one of {', '.join(MAPPING_IDS)}", start, parser.pos)
        return axis

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data)

    @property
    def is_linear(self) -> bool:
        """Whether the axis is a linearised one (`linear_dim_N`) rather than x, y or z."""
        return self.data.startswith("linear")


@irdl_attr_definition
class BlockMappingAttr(MappingAttr):
    """`#gpu.block<x>`: workgroups."""

    name = "gpu.block"
    level = "block"


@irdl_attr_definition
class ThreadMappingAttr(MappingAttr):
    """`#gpu.thread<x>`: threads of a workgroup."""

    name = "gpu.thread"
    level = "thread"


@irdl_attr_definition
class WarpMappingAttr(MappingAttr):
    """`#gpu.warp<x>`: warps of a workgroup."""

    name = "gpu.warp"
    level = "warp"


@irdl_attr_definition
class WarpgroupMappingAttr(MappingAttr):
    """`#gpu.warpgroup<x>`: warpgroups of a workgroup."""

    name = "gpu.warpgroup"
    level = "warpgroup"


GPU = Dialect("gpu", [], [BlockMappingAttr, ThreadMappingAttr, WarpMappingAttr, WarpgroupMappingAttr])


def mapping_error(mapping: tuple[Attribute, ...], rank: int) -> str | None:
    """Why `mapping` does not fit a `scf.forall` of `rank` dimensions, or None where it does."""
    if not mapping:
        return None
    if len(mapping) != rank:
        return f"mapping has {len(mapping)} entries for {rank} dimension(s)"
    entries = [entry for entry in mapping if isinstance(entry, MappingAttr)]
    if len(entries) != len(mapping):
        return "every mapping entry must be one of #gpu.block, #gpu.thread, #gpu.warp, #gpu.warpgroup"
    if len({entry.level for entry in entries}) > 1:
        return "mapping entries are of different kinds (" + ", ".join(f"#gpu.{entry.level}" for entry in entries) + ")"
    if len({entry.is_linear for entry in entries}) > 1:
        return "mapping mixes linear_dim ids with x, y, z"
    if len({entry.data for entry in entries}) != len(entries):
        return "mapping uses one id for two dimensions"
    return None
