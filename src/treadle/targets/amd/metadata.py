"""The metadata note at the end of LLVM's AMDGPU assembly: what a kernel needs, and where its arguments lie.

LLVM writes YAML of a fixed shape; reading the few scalar fields needs no YAML library.
"""

import re

from treadle.errors import InternalError
from treadle.records import dataclass
from treadle.targets.amd.assembly import Listing

_FIELDS = {
    "vector_registers": "vgpr_count",
    "accumulation_registers": "agpr_count",
    "scalar_registers": "sgpr_count",
    "vector_spills": "vgpr_spill_count",
    "scalar_spills": "sgpr_spill_count",
    "private_bytes": "private_segment_fixed_size",
    "shared_bytes": "group_segment_fixed_size",
    "argument_bytes": "kernarg_segment_size",
    "threads": "max_flat_workgroup_size",
}


@dataclass(frozen=True, slots=True)
class KernelMetadata:
    """Registers per thread (`vector_registers` counts both files where they are unified), spills in registers, bytes.

    `threads`: of a workgroup, at most. `argument_offsets`: byte offset of every explicit argument in order; `argument_bytes`: size of the
    argument block.
    """

    name: str
    vector_registers: int
    accumulation_registers: int
    scalar_registers: int
    vector_spills: int
    scalar_spills: int
    private_bytes: int
    shared_bytes: int
    argument_bytes: int
    threads: int
    argument_offsets: tuple[int, ...]


USUAL_THREADS = 256


def foreign_metadata(assembly: str, listing: Listing) -> KernelMetadata:
    """The record of a kernel of any text; where it has none (disassembled code objects), registers are counted in the code, workgroups are
    taken to have `USUAL_THREADS` threads, and shared memory does not count.
    """
    if ".amdgpu_metadata" in assembly:
        return read_metadata(assembly, listing.kernel)
    used = {"v": 0, "a": 0, "s": 0}
    for one in listing.instructions:
        for kind, single, last in re.findall(r"\b([avs])(?:(\d+)|\[\d+:(\d+)\])", one.operands):
            used[kind] = max(used[kind], int(single or last) + 1)
    vectors = -(-used["v"] // 4) * 4 + used["a"] if used["a"] else used["v"]
    return KernelMetadata(listing.kernel, vectors, used["a"], used["s"], 0, 0, 0, 0, 0, USUAL_THREADS, ())


def read_metadata(assembly: str, kernel: str) -> KernelMetadata:
    """The record of one kernel; raises InternalError where the assembly has none."""
    note = re.search(r"\.amdgpu_metadata\n(.*?)\.end_amdgpu_metadata", assembly, re.DOTALL)
    if note is None:
        raise InternalError(f"assembly of kernel {kernel} has no metadata")
    for entry in re.split(r"\n  - (?=\.\w)", note.group(1))[1:]:
        name = re.search(r"^ *\.name:\s+'?([^'\s]+)'?\s*$", re.sub(r"^ {6,}.*$", "", entry, flags=re.MULTILINE), re.MULTILINE)
        if name is None or name.group(1) != kernel:
            continue
        numbers = {field: _number(entry, key) for field, key in _FIELDS.items()}
        explicit = [a for a in re.split(r"\n? *- (?=\.(?:address_space|offset|name|access|actual))", entry) if ".value_kind:" in a]
        offsets = tuple(_number(a, "offset") for a in explicit if "hidden_" not in a)
        return KernelMetadata(name=kernel, argument_offsets=offsets, **numbers)
    raise InternalError(f"assembly has no metadata of kernel {kernel}")


def _number(entry: str, key: str) -> int:
    found = re.search(rf"\.{key}:\s+(\d+)", entry)
    return int(found.group(1)) if found else 0
