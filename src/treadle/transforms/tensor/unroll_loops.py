"""unroll-loops: every `scf.for` of a constant number of iterations becomes these iterations.

Level: tensor, after inline-calls. Reads: `scf.for` with constant bounds and step, in functions and in bodies of generics.
Writes: copies of its body, each with the number of its iteration.
Leaves alone: loops whose bounds are not constant (form-dispatches refuses them).
Refuses with TR301 loops of more than `MOST_OPERATIONS` operations in all iterations.
"""

from collections.abc import Iterator
from itertools import count
from typing import ClassVar

from treadle.analysis.divisibility import constant_value
from treadle.analysis.sizes import cannot_compile
from treadle.ir.builtin import is_integer
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, scf
from treadle.ir.emitter import before
from treadle.ir.passes import register_pass
from treadle.records import dataclass
from treadle.transforms.tensor.copying import copy_block
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import give_way

MOST_OPERATIONS = 2000


def iterations(loop: scf.ForOp) -> range | None:
    """The numbers of the iterations, None where they are not constant."""
    low, high, step = (constant_value(value) for value in (loop.lb, loop.ub, loop.step))
    return range(low, high, step) if low is not None and high is not None and step is not None and step > 0 else None


def unroll(loop: scf.ForOp, numbers: range, scopes: Iterator[str]) -> None:
    """Put the iterations in place of `loop`; each takes its scope (see `copy_block`) where there are several."""
    size = len(numbers) * sum(1 for _ in loop.body.walk())
    if size > MOST_OPERATIONS:
        hint = "write the loop as a reduction with linalg.generic or linalg.reduce"
        what = f"scf.for of {len(numbers)} iterations ({size} operations when written out, more than {MOST_OPERATIONS})"
        raise cannot_compile(loop, what=what, hint=hint)
    block = loop.body.block
    kind = loop.lb.type if is_integer(loop.lb.type) else builtin.IndexType()
    carried: list[SSAValue] = list(loop.iter_args)
    for number in numbers:
        place = arith.ConstantOp(builtin.IntegerAttr(number, kind))
        before(loop).insert(place)
        scope = next(scopes) if len(numbers) > 1 else ""
        carried = copy_block(block, dict(zip(block.args, (place.result, *carried), strict=True)), loop, scope)
    give_way(loop, carried)


def _next_loop(root: Operation) -> tuple[scf.ForOp, range] | None:
    """The first loop of constant iterations, outer ones first: their numbers may be the bounds of inner ones."""
    for op in root.walk():
        if isinstance(op, scf.ForOp) and (numbers := iterations(op)) is not None:
            return op, numbers
    return None


@register_pass
@dataclass(frozen=True)
class UnrollLoopsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "unroll-loops"

    def run(self, function: func.FuncOp) -> None:
        """Unroll inner and outer loops until none of constant length is left."""
        scopes = (f"i{number}" for number in count())
        while (found := _next_loop(function)) is not None:
            unroll(*found, scopes)
