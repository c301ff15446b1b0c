"""What the steady loop of a kernel's machine code costs: read off the code, for tables that hold schedules and compilers side by side."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from treadle.dialects.tile import ContractOp, KernelOp
from treadle.ir.core import Attribute
from treadle.ir.dialects import builtin, scf
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class LoopReport:
    """The loop of a kernel with the most matrix instructions. Static counts of its code, and figures of a model.

    `instructions`: of which `matrix` multiply and `vector` are other arithmetic. `inner_waits`: what each wait between the first and the
    last matrix instruction of a stage (from barrier to barrier) waits for (kinds of accesses; empty where nothing can be in flight).
    `drains`: waits for all loads and copies from global memory. `loads`, `copies` (to shared memory directly), `shared_loads`,
    `shared_stores`: accesses; `barriers`: meetings. `moves`: of accumulators between register files. `scratch`: accesses to memory of the
    thread's own, in the whole kernel. `conflicts`: shared memory's clocks that bank conflicts add, as a part of all; None where addresses
    could not be followed. `registers`: of a thread; `shared_bytes`: of a workgroup. `workgroups`: that a compute unit holds at a time,
    `waves`: on each of its matrix units.
    `cycles`: modelled clocks in which a matrix unit's waves each make one trip; `matrix_share`: the part of them that it multiplies in.
    `broken`: the rules of the audit that the whole kernel breaks.
    """

    kernel: str
    matrix: int
    instructions: int
    vector: int
    inner_waits: tuple[tuple[str, ...], ...]
    drains: int
    loads: int
    copies: int
    shared_loads: int
    shared_stores: int
    barriers: int
    moves: int
    scratch: int
    conflicts: float | None
    registers: int
    shared_bytes: int
    workgroups: int
    waves: int
    cycles: float
    matrix_share: float
    broken: tuple[str, ...] = ()

    @property
    def density(self) -> float:
        """Matrix instructions for each instruction of the loop."""
        return self.matrix / self.instructions

    @property
    def load_waits(self) -> int:
        """Waits between matrix instructions that wait for global memory."""
        return sum(any(kind in ("load", "copy") for kind in kinds) for kinds in self.inner_waits)


@runtime_checkable
class ReportsLoops(Protocol):
    """A backend that can say what its machine code's loops cost."""

    def report(self, kernel: KernelOp) -> LoopReport | None:
        """Of a kernel after insert-sync, compiled anew and not rejected whatever it breaks; None where no loop multiplies."""
        ...

    def read_reports(self, assembly: str) -> Sequence[LoopReport]:
        """Of each kernel of an assembly or disassembly text from anywhere that has such a loop."""
        ...


def schedule_name(kernel: KernelOp) -> str:
    """What is planned for the loop that multiplies: its mode and stages, or "sequential"."""
    for loop in kernel.body.walk():
        if isinstance(loop, scf.ForOp) and any(isinstance(op, ContractOp) for op in loop.body.walk()):
            found = loop.attributes.get("pipelined")
            entries: Mapping[str, Attribute] = found.data if isinstance(found, builtin.DictionaryAttr) else {}
            mode, stages = entries.get("mode"), entries.get("stages")
            if isinstance(mode, builtin.StringAttr) and isinstance(stages, builtin.IntegerAttr):
                return f"{mode.data}-{stages.value.data}"
    return "sequential"


def tile_shape(kernel: KernelOp) -> tuple[int, ...]:
    """Rows and columns of the largest tile of results that one contraction of a kernel adds to; empty where none multiplies."""
    shapes = [tuple(op.result.type.get_shape()) for op in kernel.body.walk() if isinstance(op, ContractOp)]
    return max(shapes, key=math.prod, default=())
