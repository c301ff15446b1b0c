"""`scf.if` with the checks that upstream leaves out: both sides yield values of the types of its results."""

from treadle.ir.core import Region, VerifyException
from treadle.ir.dialects import scf


class IfOp(scf.IfOp):
    """One of two sides, by a condition. With results, both sides are there."""

    def verify_(self) -> None:
        super().verify_()
        wanted = [result.type for result in self.results]
        if wanted and not self.false_region.blocks:
            raise VerifyException("it has results and no else side: both sides must yield them")
        for side, region in (("first", self.true_region), ("else", self.false_region)):
            given = _yielded(region)
            if given != wanted:
                shown = [", ".join(map(str, types)) or "nothing" for types in (given, wanted)]
                raise VerifyException(f"its {side} side yields {shown[0]}, expected {shown[1]}")


def _yielded(region: Region) -> list[object]:
    if not region.blocks or region.block.last_op is None:
        return []
    return [operand.type for operand in region.block.last_op.operands]
