"""How much a machine computes while it moves a byte: below that, a kernel waits for memory."""

from treadle.machine.spec import TargetSpec
from treadle.plan.f32_split import macs_per_second


def operations_per_byte(spec: TargetSpec, a_type: str, b_type: str) -> float:
    """Peak operations (two for each multiply-add) on operands of these types for each byte of memory bandwidth.

    `a_type`, `b_type`: MLIR element type names, "tf32" for f32 operands that matrix instructions round; the vector units multiply what no
    matrix instruction takes.
    """
    row = next((row for row in spec.matrix_instructions if (row.a_type, row.b_type) == (a_type, b_type)), None)
    return 2 * macs_per_second(spec, row) / (spec.memory_gbps * 1e9)
