"""What a strategy sees of an operation."""

from collections.abc import Sequence
from functools import cached_property

from treadle.analysis.coupled_reductions import Coupled
from treadle.analysis.divisibility import constant_value
from treadle.analysis.folds import Declared, Part, Separate, parts_of
from treadle.analysis.indexing import Computation, Contraction, Reduction, StructuredOp, loop_sizes, plain_dims, tensor_of
from treadle.analysis.scalar_dependence import depends_on
from treadle.ir.core import AffineMap, Attribute, SSAValue
from treadle.ir.dialects import builtin, linalg
from treadle.records import dataclass


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
        return loop_sizes(self.view)

    @property
    def partial_types(self) -> tuple[Attribute, ...]:
        """The type in which each output's partial results are held."""
        names = self.computation.combiners if isinstance(self.computation, Reduction) else ("arith.addf",) * len(self.view.outputs)
        return tuple(partial_type(name, element_of_operand(value)) for name, value in zip(names, self.view.outputs, strict=True))

    @property
    def reorders_floats(self) -> bool:
        """Whether parts are joined by an operation whose result depends on the order: sums and products of floats."""
        if any(self._is_rounded(part) for part in self.folds or ()):
            return True
        names = self.computation.combiners if isinstance(self.computation, Reduction) else ("arith.addf",)
        return self._is_of_floats and any(name in ("arith.addf", "arith.mulf") for name in names)

    @property
    def _is_of_floats(self) -> bool:
        return any(isinstance(element_of_operand(value), builtin.AnyFloat) for value in self.view.outputs)

    @staticmethod
    def _is_rounded(part: Part) -> bool:
        return isinstance(part, Declared) or (isinstance(part, Coupled) and part.kind not in ("argmax", "argmin"))

    @cached_property
    def folds(self) -> tuple[Part, ...] | None:
        """The outputs that are merged together, and how; None where parts cannot be merged."""
        if isinstance(self.computation, Contraction):
            return None if self.computation.scales else (Separate(0, "arith.addf" if self._is_of_floats else "arith.addi"),)
        if not isinstance(self.computation, Reduction) or (found := parts_of(self.view, self.computation)) is None:
            return None
        return None if any(self._is_unmergeable(part) for part in found if not isinstance(part, Separate)) else found

    def _is_unmergeable(self, part: Coupled | Declared) -> bool:
        """Coupled sums are not widened between the parts; an index begins at 0, so that ties with the initial value are the loop's."""
        if isinstance(part, Coupled) and part.kind in ("argmax", "argmin"):
            start = self.view.outputs[part.outputs[1]].owner
            return not isinstance(start, linalg.ops.FillOp) or constant_value(start.inputs[0]) != 0
        elements = [element_of_operand(self.view.outputs[number]) for number in part.outputs]
        return any(partial_type("arith.addf", element) != element for element in elements)

    @property
    def is_separable(self) -> bool:
        """Whether parts of the reduced loops may be reduced apart, from an identity, and merged."""
        return self.folds is not None

    @cached_property
    def _indices_read(self) -> set[int]:
        """Loops whose index the results are computed from, but for the indices that `argmax` and `argmin` find."""
        places = {part.outputs[1] for part in self.folds or () if isinstance(part, Coupled) and part.kind in ("argmax", "argmin")}
        results = [value for number, value in enumerate(self.view.yielded()) if number not in places]
        indices = [op for op in self.view.body.ops if isinstance(op, linalg.ops.IndexOp)]
        return {op.dim.value.data for op in indices if any(depends_on(value, op.results, self.view.body) for value in results)}

    @cached_property
    def splittable(self) -> tuple[int, ...]:
        """The reduction loops, by their number among those, along which every operand that depends on one has an axis of its own, and whose
        index computes nothing but the place of a found maximum or minimum: a part counts from its own start.
        """
        found: list[int] = []
        for number, dim in enumerate(self.view.reduction_dims):
            if dim in self._indices_read:
                continue
            maps = [map_ for _, map_ in self.view.operands() if dim in map_.used_dims()]
            if all(_depends_by_axis(map_, dim) for map_ in maps) and any(dim in plain_dims(map_) for map_ in maps):
                found.append(number)
        return tuple(found)

    @cached_property
    def shared_operand(self) -> int | None:
        """The input that may be zero outside a share of the terms, all reduction loops taken as one: of a convolution the filter, where
        each of these loops has a known extent and is an axis of it. None for everything else.
        """
        kind, dims = self.computation, self.view.reduction_dims
        if not isinstance(kind, Contraction) or kind.image < 0 or not self.is_separable or self._indices_read:
            return None
        number = kind.lhs if kind.image == kind.rhs else kind.rhs
        plain = plain_dims(self.view.input_maps[number])
        is_known = None not in plain and None not in [self.sizes[dim] for dim in dims]
        return number if is_known and set(dims) <= set(plain) else None


def _depends_by_axis(map_: AffineMap, dim: int) -> bool:
    """Whether the axes of an operand that move with a loop are that loop alone."""
    return all(plain == dim for plain, expr in zip(plain_dims(map_), map_.results, strict=True) if dim in expr.used_dims())


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
