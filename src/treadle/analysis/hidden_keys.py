"""Which keys no row of attention sees: scores that are minus infinity wherever the key's place is beyond the row's by more than a number,
or in front of it by more than another (a sliding window).

Read off the bodies between the first contraction and the maximum, and of what they read: selections by comparisons of `linalg.index`, and
sums with such. Anything else hides nothing.
"""

from collections.abc import Iterator
from math import inf

from treadle.analysis.attention_structure import Attention
from treadle.analysis.indexing import StructuredOp, map_dims, structured
from treadle.ir.builtin import attr_number
from treadle.ir.core import Attribute, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import arith, builtin, linalg
from treadle.records import dataclass

PREDICATES = {2: "lt", 3: "le", 4: "gt", 5: "ge"}
"""Of arith.cmpi with signs, by number."""
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
FARTHEST = 1 << 30
"""What may be added to a place in a row of scores."""
Form = tuple[int, dict[int, int]]
"""A number, and how often each loop's place is added to it."""


Limit = tuple[bool, int]
"""Whether keys beyond a place are hidden (else those in front of it), and the place, counted from the row's."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """A row at place r sees no key beyond r + `beyond`, and none in front of r + `first`; None: no such limit. `selections`: the value that
    each selection has where keys are within both, where that is what it selects by and nothing else.
    """

    beyond: int | None
    first: int | None
    selections: dict[SSAValue, SSAValue]


def hidden_keys(found: Attention, row: int) -> Hidden | None:
    """What rows of attention never see; `row`: the loop whose place is held against the keys'. None where they may see all."""
    seen = _Reader(found, row)
    maximum = found.softmax.maximum
    limits = list(seen.limits_of_tensor(maximum.inputs[0], _loops(found, maximum, 0)))
    if not limits:
        return None
    beyond = min((place for is_beyond, place in limits if is_beyond), default=None)
    first = max((place for is_beyond, place in limits if not is_beyond), default=None)
    return Hidden(beyond, first, seen.selections)


def _loops(found: Attention, view: StructuredOp, number: int) -> tuple[int, ...]:
    own = found.members[view.op]
    return tuple(own[d] for d in map_dims(view.input_maps[number]) or ())


class _Reader:
    """Reads limits off scalars of bodies: `place` names the loop of each dimension of a body's operation."""

    def __init__(self, found: Attention, row: int) -> None:
        self.found, self.row = found, row
        self.selections: dict[SSAValue, SSAValue] = {}

    def limits_of_tensor(self, value: SSAValue, loops: tuple[int, ...]) -> Iterator[Limit]:
        """Limits, each of which holds, of a tensor that is read at these loops."""
        view = structured(value.owner) if isinstance(value.owner, linalg.ops.GenericOp) else None
        if view is None or not view.is_parallel or len(view.outputs) != 1:
            return
        own = dict(zip(map_dims(view.output_maps[0]) or (), loops, strict=False))
        place = tuple(own.get(d, -1) for d in range(view.rank))
        if -1 not in place:
            yield from self._limits(view.yielded()[0], view, place)

    def _limits(self, value: SSAValue, view: StructuredOp, place: tuple[int, ...]) -> Iterator[Limit]:
        """Of a score: where it is minus infinity."""
        op = value.owner
        if isinstance(value, BlockArgument):
            yield from self._read(value, view, place)
        elif isinstance(op, arith.SelectOp):
            for sees, other, hides in ((op.lhs, op.rhs, False), (op.rhs, op.lhs, True)):
                if _number(other) == -inf:
                    limits, is_all = self._conditions(op.cond, view, place, hides=hides)
                    if is_all:
                        self.selections[op.result] = sees
                    yield from limits
                    yield from self._limits(sees, view, place)
        elif isinstance(op, arith.ExtFOp | arith.TruncFOp):
            yield from self._limits(op.operands[0], view, place)
        elif isinstance(op, arith.AddfOp):
            for operand in op.operands:
                yield from self._limits(operand, view, place)
        elif isinstance(op, arith.MulfOp):
            for operand, other in (op.operands, reversed(op.operands)):
                if (_number(other) or 0) > 0:
                    yield from self._limits(operand, view, place)

    def _read(self, value: BlockArgument, view: StructuredOp, place: tuple[int, ...]) -> Iterator[Limit]:
        if value.block is view.body and value.index < len(view.inputs):
            dims = map_dims(view.input_maps[value.index])
            if dims is not None:
                yield from self.limits_of_tensor(view.inputs[value.index], tuple(place[d] for d in dims))

    def _conditions(self, value: SSAValue, view: StructuredOp, place: tuple[int, ...], *, hides: bool) -> tuple[list[Limit], bool]:
        """The limits behind which a condition is `hides`, and whether it is so nowhere else."""
        op = value.owner
        if isinstance(value, BlockArgument):
            return self._of_tensor(value, view, place, hides=hides)
        if isinstance(op, arith.OrIOp if hides else arith.AndIOp):
            parts = [self._conditions(operand, view, place, hides=hides) for operand in op.operands]
            return [limit for limits, _ in parts for limit in limits], all(is_all for _, is_all in parts)
        limit = self._differs(op, place, hides=hides) if isinstance(op, arith.CmpiOp) else None
        return ([], False) if limit is None else ([limit], True)

    def _differs(self, op: arith.CmpiOp, place: tuple[int, ...], *, hides: bool) -> Limit | None:
        """The limit behind which a comparison is `hides`, and up to which it is not, for all keys and rows; None for any other."""
        left, right = (self._form(operand, place) for operand in op.operands)
        if left is None or right is None:
            return None
        number = left[0] - right[0]
        loops = {loop: left[1].get(loop, 0) - right[1].get(loop, 0) for loop in {*left[1], *right[1]}}
        loops = {loop: factor for loop, factor in loops.items() if factor}
        predicate = PREDICATES.get(op.predicate.value.data, "")
        if loops == {self.found.keys: -1, self.row: 1}:
            number, predicate = -number, _TURNED.get(predicate, "")
        elif loops != {self.found.keys: 1, self.row: -1}:
            return None
        # key - row + number is compared with 0: what is hidden is where the comparison is `hides`.
        hidden = predicate if hides else _OPPOSITE.get(predicate, "")
        limits = {"gt": (True, -number), "ge": (True, -number - 1), "lt": (False, -number), "le": (False, -number + 1)}
        return limits.get(hidden)

    def _of_tensor(self, value: BlockArgument, view: StructuredOp, place: tuple[int, ...], *, hides: bool) -> tuple[list[Limit], bool]:
        """The same of a condition that another operation of the kernel computes."""
        if value.block is not view.body or value.index >= len(view.inputs):
            return [], False
        dims, made = map_dims(view.input_maps[value.index]), view.inputs[value.index].owner
        maker = structured(made) if isinstance(made, linalg.ops.GenericOp) else None
        if dims is None or maker is None or not maker.is_parallel or len(maker.outputs) != 1:
            return [], False
        own = dict(zip(map_dims(maker.output_maps[0]) or (), (place[d] for d in dims), strict=False))
        inner = tuple(own.get(d, -1) for d in range(maker.rank))
        return ([], False) if -1 in inner else self._conditions(maker.yielded()[0], maker, inner, hides=hides)

    def _form(self, value: SSAValue, place: tuple[int, ...]) -> Form | None:
        """An integer as a sum of places and a number."""
        op = value.owner
        if isinstance(op, linalg.ops.IndexOp):
            return 0, {place[op.dim.value.data]: 1}
        if isinstance(op, arith.IndexCastOp | arith.ExtSIOp):
            return self._form(op.operands[0], place) if _holds_places(op.results[0].type) else None
        if isinstance(op, arith.ConstantOp):
            number = attr_number(op.value)
            return None if number is None or abs(number) > FARTHEST else (int(number), {})
        if not isinstance(op, arith.AddiOp | arith.SubiOp):
            return None
        left, right = (self._form(operand, place) for operand in op.operands)
        if left is None or right is None:
            return None
        sign = 1 if isinstance(op, arith.AddiOp) else -1
        loops = {loop: left[1].get(loop, 0) + sign * right[1].get(loop, 0) for loop in {*left[1], *right[1]}}
        return left[0] + sign * right[0], loops


def _holds_places(kind: Attribute) -> bool:
    """Whether places, and sums of them with what is no farther than `FARTHEST`, are held whole: narrow integers cut them."""
    return isinstance(kind, builtin.IndexType) or kind in (builtin.i32, builtin.i64)


def _number(value: SSAValue) -> float | None:
    made: object = value.owner
    if not isinstance(made, Operation) or not isinstance(made, arith.ConstantOp):
        return None
    number = attr_number(made.value)
    return None if number is None else float(number)
