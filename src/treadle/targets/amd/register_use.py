"""Other ways to hold a kernel in registers: for kernels that spill, and where a unit would hold more with a few registers fewer."""

from dataclasses import replace
from math import ceil

from treadle.machine import TargetSpec
from treadle.targets.amd.metadata import KernelMetadata
from treadle.targets.amd.steady_loop import occupancy
from treadle.targets.interface import EmittedKernel

_ACCUMULATORS_ALIKE = '"amdgpu-agpr-alloc"="0" '
_FEWEST_REGISTERS = '"amdgpu-sched-strategy"="iterative-minreg" '
_ONE_FILE = 256
"""Registers of a thread that one file holds."""
_FIRST_ATTRIBUTE = '"amdgpu-flat-work-group-size"'


def held_otherwise(emitted: EmittedKernel, spec: TargetSpec) -> EmittedKernel | None:
    """A kernel that registers may hold where they do not; None where nothing multiplies, or it is that kernel already.

    Where accumulators have a file of their own, registers become one file to the allocator: which way a tile fits depends on what stands
    around the loop: conversions of results want the one, more operands the other. Elsewhere code is scheduled for the fewest registers:
    LLVM's usual way interleaves the conversions of a whole tile, which takes a third more; the fences keep the loop as it is.
    """
    more = _ACCUMULATORS_ALIKE if spec.max_registers_per_thread > _ONE_FILE else _FEWEST_REGISTERS
    text = emitted.llvm_text
    if not emitted.expected.matrix_instructions or more.strip() in text:
        return None
    return replace(emitted, llvm_text=text.replace(_FIRST_ATTRIBUTE, more + _FIRST_ATTRIBUTE))


BUSY = 0.95
"""Modelled part of the time that a matrix unit multiplies in from which on more waves have nothing to gain."""
GAIN = 1.02
"""By how much that part is to grow for a kernel in more waves to be taken."""
_MOST_SAVED = 16
"""Registers of a thread that LLVM may be asked to do without: with more it spills, or waits for each operand."""


def in_more_waves(emitted: EmittedKernel, spec: TargetSpec, metadata: KernelMetadata) -> EmittedKernel | None:
    """The kernel for a unit that holds a workgroup more; None where nothing multiplies, or more than registers is in the way.

    LLVM allocates for the occupancy that it reaches without effort. A loop that a unit holds too few waves of waits for its loads.
    """
    warps = max(1, metadata.threads // spec.subgroup_size)
    workgroups, _ = occupancy(spec, metadata, warps)
    waves = ceil((workgroups + 1) * warps / spec.matrix_units)
    lane_registers = spec.registers_per_unit // (spec.matrix_units * spec.subgroup_size)
    limit = lane_registers // waves // spec.register_granule * spec.register_granule
    fitting = replace(metadata, vector_registers=limit)
    if not emitted.expected.matrix_instructions or metadata.vector_registers > limit + _MOST_SAVED or limit <= 0:
        return None
    if metadata.vector_registers <= limit or occupancy(spec, fitting, warps)[0] <= workgroups:
        return None
    return replace(emitted, llvm_text=emitted.llvm_text.replace(_FIRST_ATTRIBUTE, f'"amdgpu-waves-per-eu"="{waves}" {_FIRST_ATTRIBUTE}'))
