"""Reductions that may be folded in parts: every output is in a part that is merged by a rule of its own.

A fold starts each place of a tile from the identity of its merge, takes elements in by the operation's own body, and merges what the
places have found, in any order; the initial values of the operation come in once, at the end. So a merge must be associative and
commutative, up to rounding for floats. What has no such rule keeps the order of its loops (`parts_of` is None).
"""

from collections.abc import Sequence
from typing import TypeAlias, cast

from treadle.analysis.coupled_reductions import Coupled
from treadle.analysis.identities import identity_of
from treadle.analysis.indexing import Reduction, StructuredOp, tensor_of
from treadle.analysis.operation_marks import ASSOCIATIVE
from treadle.ir.builtin import AnyFloat, FloatAttr, IntegerAttr, attr_number, integer_width, is_array_of, number_attr
from treadle.ir.core import Attribute
from treadle.ir.dialects import arith, builtin, linalg, tensor
from treadle.records import dataclass

MIN_INDEX_BITS = 32
"""Positions up to 2^32 along an axis are told apart."""


@dataclass(frozen=True, slots=True)
class Separate:
    """An output that one operation joins with an element that depends on no accumulator."""

    output: int
    combiner: str


@dataclass(frozen=True, slots=True)
class Declared:
    """All outputs of an operation whose author says that its body merges two values of one kind; `identity`: one number an output."""

    outputs: tuple[int, ...]
    identity: tuple[Attribute, ...]


Part: TypeAlias = Separate | Coupled | Declared


def outputs_of(part: Part) -> tuple[int, ...]:
    """The numbers of the outputs of a part, in the order in which it merges them."""
    return (part.output,) if isinstance(part, Separate) else part.outputs


def neutral_numbers(parts: Sequence[Part], types: Sequence[Attribute]) -> list[Attribute]:
    """For each output, of these element types, what merges with anything to that."""
    found: dict[int, Attribute] = {}
    for part in parts:
        numbers = outputs_of(part)
        found.update(zip(numbers, _neutral(part, [types[i] for i in numbers]), strict=True))
    return [found[number] for number in range(len(types))]


def _neutral(part: Part, types: Sequence[Attribute]) -> list[Attribute]:
    match part:
        case Separate():
            return [identity_of(part.combiner, types[0])]
        case Declared():
            return [number_attr(attr_number(number) or 0, element) for number, element in zip(part.identity, types, strict=True)]
        case Coupled(kind="mean_variance"):
            return [number_attr(0, element) for element in types]
        case Coupled(kind="online_softmax"):
            return [identity_of("arith.maximumf", types[0]), *(number_attr(0, element) for element in types[1:])]
        case Coupled():
            extremum = "arith.max" if part.kind == "argmax" else "arith.min"
            combiner = extremum + ("imumf" if part.nan else "ui" if part.unsigned else "si")
            return [identity_of(combiner, types[0]), identity_of("arith.minui", types[1])]


def declared_identity(view: StructuredOp) -> tuple[Attribute, ...] | str | None:
    """What `treadle.associative` of a reduction gives; the reason where it cannot be what its author says; None without the attribute."""
    attr = view.op.attributes.get(ASSOCIATIVE)
    if attr is None:
        return None
    numbers: tuple[Attribute, ...] = attr.data if is_array_of(attr, Attribute) else ()
    results = [None if (type_ := tensor_of(value)) is None else type_.element_type for value in view.op.results]
    inputs = [None if (type_ := tensor_of(value)) is None else type_.element_type for value in view.inputs]
    if view.is_parallel:
        return "it reduces nothing"
    if [_type_of(number) for number in numbers] != results:
        return f"it has {len(results)} results, and its identity is one number of each one's type"
    if inputs != results:
        return "its body takes one element for each accumulator, of the same type, so that it merges two of either"
    if any(isinstance(inner, linalg.ops.IndexOp | tensor.ExtractOp) for inner in view.body.ops):
        return "its body reads more than its elements and accumulators"
    return numbers


def _type_of(number: Attribute) -> Attribute | None:
    if isinstance(number, FloatAttr | IntegerAttr):
        return cast("IntegerAttr[builtin.IntegerType] | FloatAttr[AnyFloat]", number).type
    return None


def parts_of(view: StructuredOp, reduction: Reduction) -> tuple[Part, ...] | None:
    """The parts of all outputs of a reduction that may be folded in parts, None for one that may not."""
    declared = declared_identity(view)
    if isinstance(declared, tuple):
        return (Declared(tuple(range(len(view.outputs))), declared),)
    coupled = {number: one for one in reduction.coupled for number in one.outputs}
    parts: dict[Part, None] = {}
    for number, combiner in enumerate(reduction.combiners):
        one = coupled.get(number)
        if one is not None and not _is_mergeable(one, reduction):
            return None
        if one is None and not combiner:
            return None
        parts[one or Separate(number, combiner)] = None
    return tuple(parts)


def is_separable(view: StructuredOp, reduction: Reduction) -> bool:
    """Whether parts of the reduced dimensions may be reduced apart and merged."""
    return parts_of(view, reduction) is not None


def _is_mergeable(coupled: Coupled, reduction: Reduction) -> bool:
    match coupled.kind:
        case "argmax" | "argmin":
            return len(reduction.dims) == 1 and coupled.ties == "first" and coupled.nan != "order" and _is_place(coupled, reduction.dims[0])
        case "mean_variance":
            return len(coupled.outputs) == 3  # where the count is an element, parts do not know theirs
        case "online_softmax":
            return True
        case _:
            return False


def _is_place(coupled: Coupled, dim: int) -> bool:
    """Whether the index that is kept is the loop's own, of enough bits."""
    place = coupled.elements[1]
    while isinstance(place.owner, arith.IndexCastOp | arith.ExtSIOp):
        if (integer_width(place.type) or MIN_INDEX_BITS) < MIN_INDEX_BITS:
            return False
        place = place.owner.operands[0]
    return isinstance(place.owner, linalg.ops.IndexOp) and place.owner.dim.value.data == dim
