"""What a strategy sees of an operation."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from treadle.analysis.indexing import Computation, Contraction, Reduction, StructuredOp, map_dims, tensor_of
from treadle.ir.core import DYNAMIC_INDEX, AffineMap, Attribute, SSAValue
from treadle.ir.dialects import builtin


@dataclass(frozen=True)
class OperationFacts:
    """A structured operation: its loops with their maps and body, what it computes, and what follows from types.

    `f32_precision`: as in `CompileOptions`.
    """

    view: StructuredOp
    computation: Computation
    f32_precision: str = "ieee"

    @cached_property
    def sizes(self) -> tuple[int | None, ...]:
        """Extent of each loop; None where only the runtime knows."""
        found: list[int | None] = [None] * self.view.rank
        for value, map_ in self.view.operands():
            for axis, dim in enumerate(plain_dims(map_)):
                size = shape_of(value)[axis] if dim is not None else DYNAMIC_INDEX
                if dim is not None and size != DYNAMIC_INDEX:
                    found[dim] = size
        return tuple(found)

    @property
    def partial_types(self) -> tuple[Attribute, ...]:
        """The type in which each output's partial results are held."""
        names = self.computation.combiners if isinstance(self.computation, Reduction) else ("arith.addf",) * len(self.view.outputs)
        return tuple(partial_type(name, element_of_operand(value)) for name, value in zip(names, self.view.outputs, strict=True))

    @property
    def reorders_floats(self) -> bool:
        """Whether parts are joined by an operation whose result depends on the order: sums and products of floats."""
        names = self.computation.combiners if isinstance(self.computation, Reduction) else ("arith.addf",)
        floats = any(isinstance(element_of_operand(value), builtin.AnyFloat) for value in self.view.outputs)
        return floats and any(name in ("arith.addf", "arith.mulf") for name in names)

    @property
    def is_separable(self) -> bool:
        """Whether every output joins its elements by one associative operation that has an identity."""
        if isinstance(self.computation, Contraction):
            return not self.computation.scales
        return isinstance(self.computation, Reduction) and all(self.computation.combiners)

    @cached_property
    def splittable(self) -> tuple[int, ...]:
        """The reduction loops, by their number among those, along which every operand that depends on one has an axis of its own."""
        found: list[int] = []
        for number, dim in enumerate(self.view.reduction_dims):
            maps = [map_ for _, map_ in self.view.operands() if dim in map_.used_dims()]
            if all(_depends_by_axis(map_, dim) for map_ in maps) and any(dim in plain_dims(map_) for map_ in maps):
                found.append(number)
        return tuple(found)


def _depends_by_axis(map_: AffineMap, dim: int) -> bool:
    """Whether the axes of an operand that move with a loop are that loop alone."""
    return all(plain == dim for plain, expr in zip(plain_dims(map_), map_.results, strict=True) if dim in expr.used_dims())


def plain_dims(map_: AffineMap) -> tuple[int | None, ...]:
    """For each axis of an operand the loop that it is; None where it is more than one loop."""
    found: list[int | None] = []
    for expr in map_.results:
        dims = map_dims(AffineMap(map_.num_dims, map_.num_symbols, (expr,)))
        found.append(dims[0] if dims else None)
    return tuple(found)


def shape_of(value: SSAValue) -> Sequence[int]:
    """Sizes of a tensor, DYNAMIC_INDEX where dynamic; none of a scalar."""
    type_ = tensor_of(value)
    return () if type_ is None else type_.get_shape()


def element_of_operand(value: SSAValue) -> Attribute:
    """The element type of a tensor, the type of a scalar."""
    type_ = tensor_of(value)
    return value.type if type_ is None else type_.element_type


def partial_type(combiner: str, element: Attribute) -> Attribute:
    """Sums and products of narrow floats are held in f32 between the parts and their merge."""
    narrow = isinstance(element, builtin.AnyFloat) and element not in (builtin.f32, builtin.f64)
    return builtin.f32 if narrow and combiner in ("arith.addf", "arith.mulf") else element
