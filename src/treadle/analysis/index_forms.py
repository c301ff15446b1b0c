"""Index values of a kernel as sums of products of values that nothing more is known about: what they leave modulo a number, and whether a
tile that starts at them lies within an axis.
"""

from collections.abc import Sequence
from typing import TypeAlias

from treadle.dialects import pipe, tile
from treadle.ir.ancestry import ancestors
from treadle.ir.core import BlockArgument, SSAValue
from treadle.ir.dialects import arith, scf
from treadle.ir.simplify import constant_index

Term: TypeAlias = tuple[SSAValue, ...]
Form: TypeAlias = dict[Term, int]
"""Coefficients of products of values; of the empty product, the constant."""

MOST_TERMS = 32
"""A product of longer forms is one unknown."""


def _sum(a: Form, b: Form, factor: int = 1) -> Form:
    found = dict(a)
    for term, count in b.items():
        found[term] = found.get(term, 0) + factor * count
    return {term: count for term, count in found.items() if count}


def _product(a: Form, b: Form) -> Form:
    found: Form = {}
    for left, count in a.items():
        for right, times in b.items():
            found = _sum(found, {tuple(sorted((*left, *right), key=id)): count * times})
    return found


def _remainder(value: SSAValue) -> tuple[SSAValue, int] | None:
    """(dividend, divisor) of a remainder by a positive number."""
    if isinstance(op := value.owner, arith.RemUIOp | arith.RemSIOp) and (divisor := constant_index(op.rhs) or 0) > 0:
        return op.lhs, divisor
    return None


def _loop_of(value: SSAValue) -> scf.ForOp | None:
    """The loop whose place a value is."""
    owner = value.block.parent_op() if isinstance(value, BlockArgument) and value.index == 0 else None
    return owner if isinstance(owner, scf.ForOp) else None


def form_of(value: SSAValue, modulus: int = 0) -> Form:
    """An index value; where a `modulus` is given, something that leaves the same remainder."""
    if (number := constant_index(value)) is not None:
        return {(): number} if number else {}
    op = value.owner
    if isinstance(op, arith.AddiOp | arith.SubiOp):
        return _sum(form_of(op.lhs, modulus), form_of(op.rhs, modulus), 1 if isinstance(op, arith.AddiOp) else -1)
    if isinstance(op, arith.MuliOp):
        left, right = form_of(op.lhs, modulus), form_of(op.rhs, modulus)
        return _product(left, right) if len(left) * len(right) <= MOST_TERMS else {(value,): 1}
    if modulus:
        if (found := _remainder(value)) is not None and found[1] % modulus == 0:
            return form_of(found[0], modulus)
        if (loop := _loop_of(value)) is not None and (constant_index(loop.step) or 1) % modulus == 0:
            return form_of(loop.lb, modulus)
    return {(value,): 1}


def base_and_constant(value: SSAValue) -> tuple[SSAValue, int]:
    """The value that constants are added to, and their sum."""
    total = 0
    while isinstance(op := value.owner, arith.AddiOp):
        (number, rest), (other, left) = (constant_index(op.rhs), op.lhs), (constant_index(op.lhs), op.rhs)
        if number is None:
            number, rest = other, left
        if number is None:
            break
        value, total = rest, total + number
    return value, total


def divides(modulus: int, places: Sequence[SSAValue], strides: Sequence[int | SSAValue]) -> bool:
    """Whether the products of places and strides add up to a multiple of a power of two, indices wrapping or not."""
    total: Form = {}
    for place, stride in zip(places, strides, strict=True):
        step = {(): stride} if isinstance(stride, int) else form_of(stride, modulus)
        total = _sum(total, _product(form_of(place, modulus), step))
    return all(count % modulus == 0 for count in total.values())


def lies_within(place: SSAValue, extent: int, size: int | SSAValue) -> bool:
    """Whether `place .. place + extent` lies in `0 .. size`, as far as loops and remainders tell."""
    room = _sum({(): size} if isinstance(size, int) else form_of(size), {(): extent}, -1)
    return _is_natural(_at_end(form_of(place), last=False)) and _is_natural(_sum(room, _at_end(form_of(place), last=True), -1))


def _at_end(form: Form, *, last: bool) -> Form:
    """The form with the first or last place of each loop and the largest id of a workgroup that it names alone."""
    for term, count in tuple(form.items()):
        if len(term) == 1 and (loop := _loop_of(term[0])) is not None and count > 0:
            end = _sum(form_of(loop.ub), {(): -1}) if last else form_of(loop.lb)
            moved = _sum(_sum(form, {term: -count}), end, count)
            return _at_end(moved, last=last)
        if last and len(term) == 1 and count > 0 and (extent := _grid_extent(term[0])) is not None:
            return _at_end(_sum(_sum(form, {term: -count}), _sum(extent, {(): -1}), count), last=last)
    return form


def _grid_extent(value: SSAValue) -> Form | None:
    """How many values a workgroup's id has, where that is a number or one of the kernel's sizes."""
    op = value.owner
    if not isinstance(op, tile.ProgramIdOp):
        return None
    kernel = next((above for above in ancestors(op) if isinstance(above, tile.KernelOp)), None)
    if kernel is None:
        return None
    text, names = kernel.grid_text()[op.axis.value.data], kernel.symbol_names()
    if text in names:
        return {(kernel.body.block.args[len(kernel.body.block.args) - len(names) + names.index(text)],): 1}
    return {(): int(text)} if text.isdigit() else None


def _is_natural(form: Form) -> bool:
    """Whether a form is not negative: its constant is worth more than all that is taken away."""
    least = form.get((), 0)
    for term, count in form.items():
        if term and count > 0 and all(map(_is_count, term)):
            continue
        if term:
            found = _remainder(term[0]) if len(term) == 1 and count < 0 else None
            if found is None or not _is_count(found[0]):
                return False
            least += count * (found[1] - 1)
    return least >= 0


def _is_count(value: SSAValue) -> bool:
    """Whether a value is never negative: a size, a workgroup's id, and what is computed of such without subtractions."""
    if (number := constant_index(value)) is not None:
        return number >= 0
    if isinstance(value, BlockArgument):
        loop = _loop_of(value)
        return isinstance(value.block.parent_op(), tile.KernelOp) if loop is None else _is_count(loop.lb)
    op = value.owner
    if isinstance(op, arith.AddiOp | arith.MuliOp | arith.DivUIOp | arith.RemUIOp | arith.MinSIOp):
        return all(map(_is_count, op.operands))
    if isinstance(op, arith.MaxSIOp):
        return any(map(_is_count, op.operands))
    if isinstance(op, tile.LookupOp):
        return min(op.table) >= 0
    return isinstance(op, tile.ProgramIdOp | pipe.GroupIdOp)
