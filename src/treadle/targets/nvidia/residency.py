"""How many workgroups a kernel asks to share a unit: ptxas keeps to as many registers as they leave each thread."""

from treadle.dialects.kernel_form import KernelFormAttr
from treadle.dialects.tile import KernelOp


def resident_workgroups(kernel: KernelOp) -> int:
    """What the kernel's config says (`resident`); 1 where it says nothing."""
    if not isinstance(kernel.config, KernelFormAttr):
        return 1
    found = kernel.config.data.values.get("resident", 0)
    return found if isinstance(found, int) and found > 1 else 1
