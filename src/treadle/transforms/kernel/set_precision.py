"""set-precision: how large the relative error of each float operation may be.

Level: tile. Reads: what the uses of every value need (analysis/needed_precision.py).
Writes: `error_bits = b` on `arith` and `math` operations whose results may err by 2^-b relative to their size.
Leaves alone: operations whose results decide something or are f64, values that nothing uses, and kernels in which it is said already.
"""

from collections import Counter
from collections.abc import Iterable

from treadle import remarks
from treadle.analysis.needed_precision import computes, element_of, needed_bits, rounding_need
from treadle.dialects import tile
from treadle.dialects.precision import EXACT, FULL, error_bits, set_error_bits
from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.ir.passes import register_pass
from treadle.machine import TargetSpec
from treadle.records import dataclass
from treadle.transforms.kernel.kernel_ir import KernelPass

NAME = "set-precision"
_CHEAP = ("arith.addf", "arith.subf", "arith.mulf", "arith.negf", "arith.extf", "arith.truncf", "arith.constant", "math.fma", "math.absf")


def _report(kernel: tile.KernelOp, operations: Iterable[Operation]) -> None:
    """One remark for each precision, naming the operations that it makes cheaper."""
    found: dict[int, Counter[str]] = {}
    first: dict[int, Operation] = {}
    for op in operations:
        bits = error_bits(op)
        if bits < EXACT and op.name not in _CHEAP:
            found.setdefault(bits, Counter())[op.name] += 1
            first.setdefault(bits, op)
    for bits, names in sorted(found.items()):
        listed = ", ".join(f"{count} {name}" for name, count in names.items())
        why = "f32 is the result, or digits could cancel in a sum" if bits >= FULL else "the results are rounded to fewer bits"
        text = f"{listed}: relative error up to 2^-{bits}, for {why}"
        remarks.emit("decision", NAME, kernel.sym_name.data, text, location_of(first[bits]))


@register_pass
@dataclass(frozen=True)
class SetPrecisionPass(KernelPass):
    """Works on tiles without layouts."""

    name = NAME

    def run(self, kernel: tile.KernelOp, spec: TargetSpec) -> None:
        """Annotate the operations of one kernel."""
        if any(error_bits(op) < EXACT for op in kernel.body.walk()):
            return
        needs = needed_bits(kernel)
        operations = [op for op in kernel.body.walk() if computes(op)]
        for op in operations:
            need = needs.get(op.results[0], 0)
            if 0 < need <= FULL:
                set_error_bits(op, min(need, rounding_need(element_of(op.results[0]))))
        _report(kernel, operations)
