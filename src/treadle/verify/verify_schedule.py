"""verify-schedule: proves that a kernel's accesses are ordered, for every interleaving, every size, every workgroup and every trip count.

Level: schedule. Reads: everything that is there; effects, loops, index arithmetic, synchronisation, the machine's queues. Writes: nothing.
Leaves alone: the module; kernels without shared memory, barriers and queued operations have nothing to prove.
"""

from treadle.dialects import tile
from treadle.ir.builtin import ModuleOp
from treadle.ir.core import Operation
from treadle.ir.locations import location_of
from treadle.ir.passes import Context, ModulePass, register_pass
from treadle.machine import target_spec
from treadle.records import dataclass
from treadle.remarks import emit
from treadle.verify.check import prove
from treadle.verify.reports import Verdict

COMPILED = 16
"""Effort for what the compiler made, of 100 operations and more: it is to be proven, and a long proof is better than a program that is
refused.
"""


def schedule_kernels(module: Operation) -> tuple[tile.KernelOp, ...]:
    """The kernels of a module, in order; none stands in another."""
    if isinstance(module, tile.KernelOp):
        return (module,)
    inner = [op for region in module.regions for block in region.blocks for op in block.ops]
    return tuple([kernel for op in inner if op.regions for kernel in schedule_kernels(op)])


def explained_verdict(kernel: tile.KernelOp, *, fix: bool = True, effort: int = 1, stores: bool = False) -> Verdict:
    """The verdict on a kernel, the first of its faults with the smallest change that fixes it; the rest as for `prove`."""
    spec = target_spec(kernel.target.data)
    verdict = prove(kernel, spec, effort=effort, stores=stores)
    if not verdict.findings or not fix:
        return verdict
    from treadle.verify.fixes import with_suggested_fix  # right programs, which are nearly all, need none of it

    first, *others = verdict.findings
    return Verdict(
        (with_suggested_fix(kernel, first, spec, stores=stores), *others), verdict.undecided, verdict.classes, verdict.assumptions
    )


def _tell(pass_name: str, kernel: str, verdict: Verdict) -> None:
    """Say what is not proven, and what the proof takes for granted: the author of the kernel must know."""
    for found in verdict.undecided:
        emit("note", pass_name, kernel, f"not proven: {found.op.name}: {found.reason}", location_of(found.op))
    for assumed in verdict.assumptions:
        emit("note", pass_name, kernel, f"proven, assuming that {assumed}")


@register_pass
@dataclass(frozen=True)
class VerifySchedulePass(ModulePass):
    """Raises TR411-TR414 and TR416 for the first fault of any kernel, TR415 where one is not proven.

    `lint`: also remarks on synchronisation that nothing needs (slower). `stores`: also hold stores to an array that is only written against
    one another, for kernels that users wrote; else they are taken to go to different elements, which the passes before see to.
    `allow_unproven`: a kernel in which no fault was found but not everything is proven passes, with a remark.
    """

    name = "verify-schedule"
    lint: bool = False
    stores: bool = False
    allow_unproven: bool = False

    def apply(self, ctx: Context, module: ModuleOp, /) -> None:
        """Verify every kernel; the module stays as it is."""
        for kernel in schedule_kernels(module):
            name = kernel.sym_name.data
            verdict = explained_verdict(kernel, effort=COMPILED, stores=self.stores)
            if (error := verdict.first_error(name)) is not None and (verdict.findings or not self.allow_unproven):
                raise error
            if self.stores:
                _tell(self.name, name, verdict)
            if self.lint:
                from treadle.verify.lint import superfluous_sync

                for note in superfluous_sync(kernel):
                    emit("note", self.name, name, note.text, location_of(note.op))
