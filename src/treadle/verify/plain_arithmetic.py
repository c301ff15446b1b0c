"""Affine maps in loops as the arithmetic that they are, so that there is one argument about where comparisons turn.

The verdict on the plain kernel is that on the kernel itself; what it names is said in the operations of the latter.
"""

from treadle.dialects import tile
from treadle.errors import InternalError
from treadle.ir.core import AffineBinaryOpKind, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, scf
from treadle.verify.affine_maps import affine_map_of, results_of
from treadle.verify.findings import Finding, Place
from treadle.verify.program import Program
from treadle.verify.reports import Open, Verdict
from treadle.verify.signs import never_negative

Origins = dict[Operation, Operation]
"""For each operation of the plain kernel the one that it comes of."""


def with_plain_arithmetic(program: Program) -> tuple[tile.KernelOp, Origins] | None:
    """A clone without affine maps in loops; None where there are none."""
    if not any(_is_mapped(op) for op in program.ops):
        return None
    clone = program.kernel.clone()
    origins: Origins = dict(zip(clone.walk(), program.kernel.walk(), strict=True))
    for op in [op for op in origins if _is_mapped(op)]:
        for made in _Plain(op).operations:
            origins[made] = origins[op]
    return clone, origins


def in_terms_of(kernel: tile.KernelOp, plain: tile.KernelOp, origins: Origins, verdict: Verdict) -> Verdict:
    """The verdict on the plain kernel with the operations of the kernel that it comes of."""
    numbers = {op: at for at, op in enumerate(kernel.body.walk())}
    walked = list(plain.body.walk())

    def placed(place: Place) -> Place:
        op = origins[place.op]
        return Place(op, numbers[op], place.agent, place.iteration)

    def found(finding: Finding) -> Finding:
        first = None if finding.first is None else placed(finding.first)
        f, second = finding, placed(finding.second)
        counts = tuple((numbers[origins[walked[loop]]], count) for loop, count in f.trip_counts)
        return Finding(f.rule, f.message, second, first, f.memory, f.missing, f.steps, counts, f.fix, f.where)

    undecided = tuple(Open(origins[each.op], each.reason) for each in verdict.undecided)
    return Verdict(tuple(map(found, verdict.findings)), undecided, verdict.classes, verdict.assumptions)


def _is_mapped(op: Operation) -> bool:
    return op.name.startswith("affine.") and affine_map_of(op) is not None and _in_loop(op)


def _in_loop(op: Operation) -> bool:
    around = op.parent_op()
    while around is not None and not isinstance(around, scf.ForOp):
        around = around.parent_op()
    return around is not None


class _Plain:
    """One map, replaced. `operations`: what it became."""

    def __init__(self, op: Operation) -> None:
        self.op = op
        self.operations: list[Operation] = []
        affine_map, block = affine_map_of(op), op.parent_block()
        if affine_map is None or block is None:
            raise InternalError(f"{op.name} without a map")
        results = results_of(affine_map, list(op.operands), self._constant, self._binary)
        best = results[0]
        for other in results[1:]:
            if best is not None and other is not None:
                best = self._made(arith.MinSIOp(best, other) if op.name == "affine.min" else arith.MaxSIOp(best, other))
        if best is None or None in results:
            raise InternalError(f"{op.name}: a map with an unknown expression")
        op.results[0].replace_all_uses_with(best)
        block.erase_op(op)

    def _made(self, op: Operation) -> SSAValue:
        block = self.op.parent_block()
        if block is not None:
            block.insert_ops_before([op], self.op)
        self.operations.append(op)
        return op.results[0]

    def _constant(self, number: int) -> SSAValue:
        return self._made(arith.ConstantOp.from_int_and_width(number, builtin.IndexType()))

    def _binary(self, kind: AffineBinaryOpKind, left: SSAValue, right: SSAValue) -> SSAValue:
        match kind:
            case AffineBinaryOpKind.Add:
                return self._made(arith.AddiOp(left, right))
            case AffineBinaryOpKind.Mul:
                return self._made(arith.MuliOp(left, right))
            case AffineBinaryOpKind.FloorDiv:
                return self._made(arith.DivUIOp(left, right) if never_negative(left) else arith.FloorDivSIOp(left, right))
            case AffineBinaryOpKind.CeilDiv:
                return self._made(arith.CeilDivUIOp(left, right) if never_negative(left) else arith.CeilDivSIOp(left, right))
            case AffineBinaryOpKind.Mod if never_negative(left):
                return self._made(arith.RemUIOp(left, right))
            case AffineBinaryOpKind.Mod:
                whole = self._made(arith.MuliOp(self._made(arith.FloorDivSIOp(left, right)), right))
                return self._made(arith.SubiOp(left, whole))
