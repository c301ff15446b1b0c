"""verify-schedule: proves that a kernel's accesses are ordered, for every interleaving, every size, every workgroup and every trip count.

Level: schedule. Reads: everything that is there; effects, loops, index arithmetic, synchronisation, the machine's queues. Writes: nothing.
Leaves alone: the module; kernels without shared memory, barriers and queued operations have nothing to prove.
"""

from dataclasses import dataclass

from treadle.dialects import tile
from treadle.ir.builtin import ModuleOp
from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.ir.passes import Context, ModulePass, register_pass
from treadle.machine import target_spec
from treadle.remarks import emit
from treadle.verify.check import prove
from treadle.verify.verdict import Verdict

COMPILED = 16
"""Effort for what the compiler made: it is to be proven, and a long proof is better than a program that is refused."""


def schedule_kernels(module: Operation) -> tuple[tile.KernelOp, ...]:
    """The kernels of a module, in order."""
    return tuple(op for op in module.walk() if isinstance(op, tile.KernelOp))


def explained_verdict(kernel: tile.KernelOp, *, mend: bool = True, effort: int = 1, stores: bool = False) -> Verdict:
    """The verdict on a kernel, the first of its faults with the smallest change that mends it; the rest as for `prove`."""
    spec = target_spec(kernel.target.data)
    verdict = prove(kernel, spec, effort=effort, stores=stores)
    if not verdict.findings or not mend:
        return verdict
    from treadle.verify.mends import with_mend  # right programs, which are nearly all, need none of it

    first, *others = verdict.findings
    return Verdict((with_mend(kernel, first, spec, stores=stores), *others), verdict.undecided, verdict.classes, verdict.assumptions)


@register_pass
@dataclass(frozen=True)
class VerifySchedulePass(ModulePass):
    """Raises TR411-TR414 and TR416 for the first fault of any kernel, TR415 where one is not proven.

    `lint`: also remarks on synchronisation that nothing needs (slower). Stores to arrays that are only written are taken to go to different
    elements: the passes before see to that.
    """

    name = "verify-schedule"
    lint: bool = False

    def apply(self, ctx: Context, module: ModuleOp, /) -> None:
        """Verify every kernel; the module stays as it is."""
        for kernel in schedule_kernels(module):
            name = kernel.sym_name.data
            if (error := explained_verdict(kernel, effort=COMPILED).first_error(name)) is not None:
                raise error
            if self.lint:
                from treadle.verify.lint import superfluous_sync

                for note in superfluous_sync(kernel):
                    emit("note", self.name, name, note.text, location_of(note.op))
