"""One view of every structured operation, and what kind of computation it is.

`structured(op)` reads iteration dimensions, indexing maps and scalar body off any linalg operation on tensors, named or generic.
`classify(op)` recognises contractions, reductions, elementwise computations and copies from maps and body, never from an operation's name.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from math import prod
from typing import TypeAlias, cast

from treadle.analysis.convolution import reads_windows
from treadle.analysis.coupled_reductions import Coupled, coupled_outputs
from treadle.analysis.scalar_dependence import depends_on
from treadle.analysis.scaled_products import Factor, factors_of, split_product
from treadle.errors import InternalError
from treadle.ir.core import (
    AffineBinaryOpExpr,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    Attribute,
    Block,
    BlockArgument,
    Operation,
    SSAValue,
)
from treadle.ir.dialects import arith, builtin, linalg, tensor
from treadle.records import dataclass, replace


@dataclass(frozen=True)
class StructuredOp:
    """A loop nest: `iterators[d]` is "parallel" or "reduction"; maps go from iteration dimensions to the dimensions of an operand.

    `body` takes one scalar per input, then one per output (the initial value or accumulator).
    """

    op: Operation
    inputs: tuple[SSAValue, ...]
    outputs: tuple[SSAValue, ...]
    input_maps: tuple[AffineMap, ...]
    output_maps: tuple[AffineMap, ...]
    iterators: tuple[str, ...]
    body: Block

    @property
    def rank(self) -> int:
        """Number of iteration dimensions."""
        return len(self.iterators)

    @property
    def parallel_dims(self) -> tuple[int, ...]:
        """The iteration dimensions that are parallel."""
        return tuple(d for d, kind in enumerate(self.iterators) if kind == "parallel")

    @property
    def reduction_dims(self) -> tuple[int, ...]:
        """The iteration dimensions that are reduced over."""
        return tuple(d for d, kind in enumerate(self.iterators) if kind == "reduction")

    @property
    def is_parallel(self) -> bool:
        """True where no dimension is reduced over."""
        return all(kind == "parallel" for kind in self.iterators)

    @cached_property
    def computation(self) -> "Computation":
        """What it computes (see `classify`)."""
        return _classify_parallel(self) if self.is_parallel else _contraction(self) or _reduction(self)

    @cached_property
    def gathered(self) -> tuple[SSAValue, ...]:
        """The tensors that it reads at computed places."""
        return gathered_tensors(self.op)

    def operands(self) -> Iterator[tuple[SSAValue, AffineMap]]:
        """Inputs, then outputs, each with its map."""
        yield from zip(self.inputs, self.input_maps, strict=True)
        yield from zip(self.outputs, self.output_maps, strict=True)

    def reads_output(self, index: int) -> bool:
        """Whether the body uses the incoming value of an output."""
        return self.body.args[len(self.inputs) + index].first_use is not None

    def yielded(self) -> tuple[SSAValue, ...]:
        """The scalars the body computes, one an output."""
        last = self.body.last_op
        return tuple(last.operands) if last is not None else ()


def gathered_tensors(op: Operation) -> tuple[SSAValue, ...]:
    """The tensors that a structured operation reads at computed places."""
    return tuple(dict.fromkeys(inner.tensor for inner in op.walk() if isinstance(inner, tensor.ExtractOp)))


def tensor_of(value: SSAValue) -> builtin.TensorType[Attribute] | None:
    """The type of a tensor; None for other values."""
    return cast(builtin.TensorType[Attribute], value.type) if isinstance(value.type, builtin.TensorType) else None


def dim_map(rank: int, dims: tuple[int, ...] | list[int] | range) -> AffineMap:
    """The map from `rank` dimensions to the listed ones."""
    return AffineMap(rank, 0, tuple(AffineExpr.dimension(d) for d in dims))


def map_dims(map_: AffineMap) -> tuple[int, ...] | None:
    """The dimensions a map picks, None where one of its results is not a plain dimension."""
    dims = tuple(expr.position for expr in map_.results if isinstance(expr, AffineDimExpr))
    return dims if len(dims) == len(map_.results) else None


def plain_dims(map_: AffineMap) -> tuple[int | None, ...]:
    """For each axis of an operand the loop that it is; None where it is not one loop as it stands."""
    return tuple(expr.position if isinstance(expr, AffineDimExpr) else None for expr in map_.results)


def is_projection(map_: AffineMap) -> bool:
    """True for maps that pick distinct dimensions (a projected permutation)."""
    dims = map_dims(map_)
    return dims is not None and len(set(dims)) == len(dims)


def is_permutation(map_: AffineMap) -> bool:
    """True for maps that pick every dimension exactly once."""
    return is_projection(map_) and len(map_.results) == map_.num_dims


def is_linear(expr: AffineExpr) -> bool:
    """True for sums of dimensions and constants with constant factors: no division, remainder or symbol."""
    if isinstance(expr, AffineBinaryOpExpr):
        scaled = isinstance(expr.lhs, AffineConstantExpr) or isinstance(expr.rhs, AffineConstantExpr)
        return (expr.kind.name == "Add" or (expr.kind.name == "Mul" and scaled)) and is_linear(expr.lhs) and is_linear(expr.rhs)
    return isinstance(expr, AffineDimExpr | AffineConstantExpr)


def compose(outer: AffineMap, inner: AffineMap) -> AffineMap:
    """`outer(inner(dims))`: both without symbols."""
    return outer.compose(inner)


def structured(op: Operation) -> StructuredOp | None:
    """The view of a linalg operation on tensors; None for any other operation."""
    if not isinstance(op, linalg.abstract_ops.LinalgStructuredOperation):
        return None
    maps = tuple(attr.data for attr in op.get_indexing_maps())
    iterators = tuple(str(attr.data) for attr in op.get_iterator_types())
    count = len(op.inputs)
    return StructuredOp(op, tuple(op.inputs), tuple(op.outputs), maps[:count], maps[count:], iterators, op.body.block)


def view_of(op: Operation) -> StructuredOp:
    """The view of an operation known to be a structured one."""
    view = structured(op)
    if view is None:
        raise InternalError(f"{op.name} is not a structured operation")
    return view


@dataclass(frozen=True, slots=True)
class Contraction:
    """`out[b, m, n] += sum_k cast(lhs[b, m, k]) * cast(rhs[b, k, n])`, the dimensions of each group in any order of the operands' axes.

    `batch`, `m`, `n` are in the order of the output, `k` in that of the iteration; m and n are not empty. `lhs` and `rhs` are input
    numbers; `lhs_cast` and `rhs_cast` name the operation that widens an element ("arith.extf", "arith.extsi", ...) or are empty.

    `scales`: further f32 inputs that multiply each term and do not depend on the dimensions `inner` of k. `image`: the operand that is
    read at windows (`analysis/convolution.py`), -1 for none.
    """

    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    lhs: int
    rhs: int
    lhs_cast: str
    rhs_cast: str
    scales: tuple[int, ...] = ()
    inner: tuple[int, ...] = ()
    image: int = -1

    def swapped(self) -> "Contraction":
        """The same with the operands exchanged: m is n and n is m."""
        return replace(self, m=self.n, n=self.m, lhs=self.rhs, rhs=self.lhs, lhs_cast=self.rhs_cast, rhs_cast=self.lhs_cast)


@dataclass(frozen=True, slots=True)
class Reduction:
    """Any other reduction over `dims`.

    `combiners[i]` names the operation that joins the accumulator of output i with `elements[i]`, a scalar of the body that depends on no
    accumulator ("arith.addf", "arith.maximumf", ..); "" with element None where the outputs are combined together or in another way.
    `coupled`: the sets of outputs that are combined together, and as what (`coupled_reductions.py`).
    """

    dims: tuple[int, ...]
    combiners: tuple[str, ...]
    elements: tuple[SSAValue | None, ...]
    coupled: tuple[Coupled, ...] = ()


@dataclass(frozen=True, slots=True)
class Elementwise:
    """All dimensions parallel; `arithmetic` counts the operations of the body, `transcendental` those of them that are expensive."""

    arithmetic: int
    transcendental: int


@dataclass(frozen=True, slots=True)
class Copy:
    """All dimensions parallel, one result, and the body passes input `source` on unchanged: a copy, transpose or broadcast."""

    source: int


@dataclass(frozen=True, slots=True)
class Fill:
    """All dimensions parallel, and every result is the same scalar everywhere, computed from no tensor."""


Computation: TypeAlias = Contraction | Reduction | Elementwise | Copy | Fill

WIDENING = (arith.ExtFOp, arith.ExtSIOp, arith.ExtUIOp)
CASTS = (
    *WIDENING,
    arith.TruncFOp,
    arith.TruncIOp,
    arith.SIToFPOp,
    arith.UIToFPOp,
    arith.FPToSIOp,
    arith.FPToUIOp,
    arith.BitcastOp,
    arith.IndexCastOp,
)
COMBINERS = (
    arith.AddfOp,
    arith.AddiOp,
    arith.MulfOp,
    arith.MuliOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
    arith.MaxnumfOp,
    arith.MinnumfOp,
    arith.MaxSIOp,
    arith.MaxUIOp,
    arith.MinSIOp,
    arith.MinUIOp,
    arith.AndIOp,
    arith.OrIOp,
    arith.XOrIOp,
)
_CHEAP_MATH = (
    "math.absf",
    "math.absi",
    "math.fma",
    "math.copysign",
    "math.floor",
    "math.ceil",
    "math.roundeven",
    "math.trunc",
    "math.round",
)

_EXPENSIVE = ("arith.divf", "arith.divsi", "arith.remsi", "tensor.extract")


def loop_sizes(view: StructuredOp) -> tuple[int | None, ...]:
    """The extent of each loop, as the type of an operand tells it; None where only the runtime knows."""
    found: list[int | None] = [None] * view.rank
    for value, map_ in view.operands():
        shape = () if (type_ := tensor_of(value)) is None else type_.get_shape()
        for dim, size in zip(plain_dims(map_), shape, strict=False):
            if dim is not None and size != builtin.DYNAMIC_INDEX:
                found[dim] = size
    return tuple(found)


def total_size(sizes: Sequence[int | None], dims: Iterable[int]) -> int | None:
    """The product of the extents of some loops; None where only the runtime knows one."""
    known = [sizes[dim] for dim in dims]
    return None if None in known else prod(size for size in known if size is not None)


def classify(op: Operation) -> Computation | None:
    """What a structured operation computes; None for any other operation."""
    view = structured(op)
    return None if view is None else view.computation


def body_cost(body: Block) -> tuple[int, int]:
    """Operations of a scalar body that compute something, and how many of them are transcendental (gathers count as such)."""
    arithmetic = transcendental = 0
    for op in body.ops:
        if isinstance(op, arith.ConstantOp | linalg.ops.YieldOp | linalg.ops.IndexOp):
            continue
        arithmetic += 1
        if (op.name.startswith("math.") and op.name not in _CHEAP_MATH) or op.name in _EXPENSIVE:
            transcendental += 1
    return arithmetic, transcendental


def _classify_parallel(view: StructuredOp) -> Elementwise | Copy | Fill:
    yielded = view.yielded()
    if len(yielded) == 1 and isinstance(source := yielded[0], BlockArgument) and source.block is view.body:
        if source.index < len(view.inputs) and isinstance(view.inputs[source.index].type, builtin.TensorType):
            return Copy(source.index)
    reads_tensor = any(isinstance(value.type, builtin.TensorType) for value in view.inputs)
    reads_tensor = reads_tensor or any(view.reads_output(index) for index in range(len(view.outputs)))
    if not reads_tensor and not any(isinstance(op, linalg.ops.IndexOp | tensor.ExtractOp) for op in view.body.ops):
        return Fill()
    return Elementwise(*body_cost(view.body))


def _reduction(view: StructuredOp) -> Reduction:
    accumulators = view.body.args[len(view.inputs) :]
    combiners: list[str] = []
    elements: list[SSAValue | None] = []
    for value, accumulator in zip(view.yielded(), accumulators, strict=True):
        name, element = "", None
        owner = value.owner
        if isinstance(owner, COMBINERS) and owner.parent_block() is view.body:
            left, right = owner.operands
            other = right if left is accumulator else left if right is accumulator else None
            if other is not None and not depends_on(other, set(accumulators), view.body):
                name, element = owner.name, other
        combiners.append(name)
        elements.append(element)
    coupled = coupled_outputs(view.body, len(view.inputs), view.yielded())
    return Reduction(view.reduction_dims, tuple(combiners), tuple(elements), coupled)


def _accumulated_factors(view: StructuredOp) -> list[Factor] | None:
    """The factors of the product that the body adds to its accumulator, in the order of the inputs; None for any other body."""
    add = view.yielded()[0].owner
    if not isinstance(add, arith.AddfOp | arith.AddiOp):
        return None
    accumulator = view.body.args[len(view.inputs)]
    other = add.rhs if add.lhs is accumulator else add.lhs if add.rhs is accumulator else None
    factors = None if other is None else factors_of(other, view.body, WIDENING)
    if factors is None or sorted(f.argument for f in factors) != list(range(len(view.inputs))):
        return None
    return sorted(factors, key=lambda factor: factor.argument)


def _contraction(view: StructuredOp) -> Contraction | None:
    if len(view.inputs) < 2 or len(view.outputs) != 1:
        return None
    images = [number for number, map_ in enumerate(view.input_maps) if not is_projection(map_)]
    if not is_projection(view.output_maps[0]) or len(images) > 1 or (images and not _is_image(view, images[0])):
        return None
    factors = _accumulated_factors(view)
    if factors is None:
        return None
    read = [map_.used_dims() for map_ in view.input_maps]
    product = split_product(factors, read, view.reduction_dims)
    if product is None or any(factor.cast or not _is_f32(view.inputs[factor.argument]) for factor in product.scales):
        return None
    left, right = product.operands
    lhs, rhs, out = read[left.argument], read[right.argument], set(map_dims(view.output_maps[0]) or ())
    order = map_dims(view.output_maps[0]) or ()
    reduced = set(view.reduction_dims)
    if out & reduced or not reduced <= (lhs & rhs) or not out <= (lhs | rhs):
        return None
    batch = tuple(d for d in order if d in lhs and d in rhs)
    m = tuple(d for d in order if d in lhs and d not in rhs)
    n = tuple(d for d in order if d in rhs and d not in lhs)
    if not m or not n or len(batch) + len(m) + len(n) + len(reduced) != view.rank:
        return None
    scales = tuple(factor.argument for factor in product.scales)
    if scales and not _is_f32(view.outputs[0]):
        return None
    places = (batch, m, n, view.reduction_dims, left.argument, right.argument)
    return Contraction(*places, left.cast, right.cast, scales, product.inner, *images)


def _is_image(view: StructuredOp, number: int) -> bool:
    """Whether an input is read at windows, and sums are over a channel besides them: over windows alone no matrix instruction has work."""
    map_, reduced = view.input_maps[number], set(view.reduction_dims)
    plain = {expr.position for expr in map_.results if isinstance(expr, AffineDimExpr)}
    return len(view.inputs) == 2 and reads_windows(map_) and not plain.isdisjoint(reduced)


def sums_windows_alone(view: StructuredOp) -> bool:
    """Whether a reduction is a convolution whose sums are over windows and no channel: depthwise, or of images of one channel."""
    if len(view.inputs) != 2 or len(view.outputs) != 1 or view.is_parallel or _accumulated_factors(view) is None:
        return False
    return any(reads_windows(map_) and not is_projection(map_) for map_ in view.input_maps)


def _is_f32(value: SSAValue) -> bool:
    type_ = tensor_of(value)
    return type_ is not None and type_.element_type == builtin.f32
