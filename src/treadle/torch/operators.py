"""Each operator of PyTorch's graphs, written: what it takes from its node, and which loop nests it becomes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from treadle.ir.core import SSAValue
from treadle.ir.dialects import arith, builtin, linalg
from treadle.torch import contractions, pointwise, reductions, views
from treadle.torch.nests import element, number_as
from treadle.torch.scalars import Scalars
from treadle.torch.sizes import Size, size_of
from treadle.torch.unsupported import Unsupported
from treadle.torch.values import Operand, Uniform, Value

if TYPE_CHECKING:
    from treadle.torch.writer import Context

Write = Callable[["Context", fx.Node], Any]


class Operators:
    """The written operators by name, with the overload where overloads differ."""

    def __init__(self) -> None:
        self._by_name: dict[str, Write] = {}

    def __call__(self, *names: str) -> Callable[[Write], Write]:
        """Register the writer of operators."""

        def register(write: Write) -> Write:
            self._by_name.update(dict.fromkeys(names, write))
            return write

        return register

    def find(self, target: Any) -> Write | None:
        """The writer of an operator's overload, None where there is none."""
        full = pointwise.full_name(target)
        found = self._by_name.get(full) or self._by_name.get(full.split(".")[0])
        return write_elementwise if found is None and pointwise.is_elementwise(target) else found

    def names(self) -> tuple[str, ...]:
        """All names, elementwise operators included."""
        return tuple(sorted({*self._by_name, *pointwise.RULES, *pointwise.CASTS}))


OPERATORS = Operators()


def argument(node: fx.Node, place: int, name: str, default: Any = None) -> Any:
    """An argument by place or name."""
    return node.args[place] if place < len(node.args) else node.kwargs.get(name, default)


def result_shape(node: fx.Node) -> tuple[Size, ...]:
    """The shape of the node's tensor."""
    return tuple(size_of(size) for size in node.meta["val"].shape)


def result_dtype(node: fx.Node) -> torch.dtype:
    """The element type of the node's tensor."""
    return node.meta["val"].dtype


def size(given: Any) -> Size:
    """A size among a node's arguments: a number, or a node whose value it is."""
    return size_of(given.meta["val"] if isinstance(given, fx.Node) else given)


def write_elementwise(context: "Context", node: fx.Node) -> Operand:
    """An elementwise operator, by its rule."""
    dtype, shape = result_dtype(node), result_shape(node)
    if pointwise.name_of(node.target) in pointwise.CASTS:
        return _converted(context, context.value(node.args[0]), dtype, node)
    rule = pointwise.rule_of(node.target)
    if rule is None:
        raise Unsupported("no elementwise operator")
    options = _options(node, rule)
    given = [node.args[i] if i < len(node.args) else None for i in range(rule.operands)]
    skipped = 1 if pointwise.name_of(node.target) in pointwise.BOOL_CONDITION else 0
    computation = _computation_type(given[skipped:], rule, options)
    operands = [_operand(context, value, torch.bool if place < skipped else computation) for place, value in enumerate(given)]
    stored = torch.bool if dtype == torch.bool else computation

    def compute(s: Scalars, elements: list[SSAValue]) -> SSAValue:
        kinds = [torch.bool] * skipped + [computation] * (len(elements) - skipped)
        cast = [
            s.cast(e, v.stored if isinstance(v, Value) else v.dtype, kind) for e, v, kind in zip(elements, operands, kinds, strict=True)
        ]
        return rule.compute(s, *cast, **options)

    made = context.nests.elementwise(operands, shape, dtype, compute, stored)
    return made if may_stay_wide(made) else context.nests.cast(made, dtype)


def may_stay_wide(value: Value) -> bool:
    """Whether rounding may wait: f32 for a narrower float."""
    return value.stored == value.dtype or (value.dtype in (torch.float16, torch.bfloat16) and value.stored == torch.float32)


def _converted(context: "Context", value: Operand, dtype: torch.dtype, node: fx.Node) -> Operand:
    """A conversion: one that the user wrote rounds, one that ends an operator's decomposition leaves that to who reads the result."""
    origin = pointwise.name_of(node.meta.get("original_aten"))
    if isinstance(value, Value) and origin and origin not in pointwise.CASTS:
        seen = Value(value.tensor, value.axes, value.shape, dtype, value.stored)
        if may_stay_wide(seen):
            return seen
    return context.nests.cast(value, dtype)


def _options(node: fx.Node, rule: pointwise.Rule) -> dict[str, Any]:
    given = {name: argument(node, rule.operands + place, name) for place, name in enumerate(rule.options)}
    found = {name: value for name, value in given.items() if value is not None}
    if any(isinstance(value, fx.Node) for value in found.values()):
        raise Unsupported("a number that is computed")
    return found


def _computation_type(given: Sequence[Any], rule: pointwise.Rule, options: dict[str, Any]) -> torch.dtype:
    """The type that PyTorch computes in."""
    if rule.promotion == "BOOL":
        return torch.bool
    examples = [value.meta["val"] if isinstance(value, fx.Node) else value for value in given]
    numbers = [options[name] for name in ("exponent", "alpha", "min", "max", "value") if isinstance(options.get(name), float)]
    promotion = "DEFAULT" if options.get("rounding_mode") else rule.promotion
    computation, _ = elementwise_dtypes(*examples, *numbers, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND[promotion])
    return computation


def _operand(context: "Context", given: Any, dtype: torch.dtype) -> Operand:
    """An operand of an elementwise operator: a tensor, or a number in the type of the computation."""
    if isinstance(given, bool | int | float):
        return Uniform(number_as(given, dtype), (), dtype)
    if isinstance(given, fx.Node) and isinstance(given.meta.get("val"), torch.SymInt):
        return Uniform(size(given), (), dtype)
    return context.value(given)


@OPERATORS(*contractions.PRODUCTS)
def write_product(context: "Context", node: fx.Node) -> Operand:
    """A matrix product."""
    spec = contractions.PRODUCTS[pointwise.name_of(node.target)]
    a, b = (context.value(given) for given in node.args[:2])
    dtype = node.kwargs.get("out_dtype") or result_dtype(node)
    made = contractions.contract(context.nests, a, b, spec, dtype)
    return made if may_stay_wide(made) else context.nests.cast(made, result_dtype(node))


@OPERATORS(*contractions.SUMS)
def write_sum_with_product(context: "Context", node: fx.Node) -> Operand:
    """A matrix product with something added."""
    spec = contractions.SUMS[pointwise.name_of(node.target)]
    first, a, b = (context.value(given) for given in node.args[:3])
    made = contractions.contract(context.nests, a, b, spec, result_dtype(node))
    summed = contractions.scaled_sum(context.nests, first, made, node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1))
    return summed if may_stay_wide(summed) else context.nests.cast(summed, result_dtype(node))


@OPERATORS("aten::_scaled_mm")
def write_scaled_product(context: "Context", node: fx.Node) -> Operand:
    """A product of 8-bit floats with scales of the operands: one each, or one for each row and column."""
    a, b, scale_a, scale_b = (context.value(given) for given in node.args[:4])
    bias, scale_result = argument(node, 4, "bias"), argument(node, 5, "scale_result")
    if scale_result is not None:
        raise Unsupported("a scale of the result")
    dtype = result_dtype(node)
    product = contractions.contract(context.nests, a, b, ("mk", "kn", "mn"), torch.float32)
    factors = [scale_a, scale_b, *([] if bias is None else [context.value(bias)])]
    for scale in (scale_a, scale_b):
        if scale.dtype != torch.float32 or any(s != 1 and s not in product.shape for s in scale.shape):
            raise Unsupported("scales of blocks")

    def scale_up(s: Scalars, given: list[SSAValue]) -> SSAValue:
        scaled = s.multiply(s.multiply(given[0], given[1]), given[2])
        return scaled if bias is None else s.add(scaled, s.cast(given[3], factors[2].dtype, torch.float32))

    flat = [views.expand(scale, scale.shape) for scale in factors]
    made = context.nests.elementwise([product, *flat], product.shape, dtype, scale_up, torch.float32)
    return made if may_stay_wide(made) else context.nests.cast(made, dtype)


@OPERATORS(*reductions.FOLDS)
def write_reduction(context: "Context", node: fx.Node) -> Operand:
    """A reduction over dimensions."""
    value = context.value(node.args[0])
    name, schema = pointwise.name_of(node.target), [a.name for a in node.target._schema.arguments]
    given = {**dict(zip(schema, node.args, strict=False)), **node.kwargs}
    dims = reductions.dims_of(given.get("dim"), len(value.shape))
    return reductions.reduce(context.nests, name, value, dims, bool(given.get("keepdim")), result_dtype(node))


@OPERATORS("aten::permute", "aten::transpose", "aten::t", "prims::transpose", "aten::transpose.int")
def write_permutation(context: "Context", node: fx.Node) -> Operand:
    """Dimensions in another order."""
    value = context.value(node.args[0])
    order = list(range(len(value.shape)))
    if pointwise.name_of(node.target) in ("aten::permute", "prims::transpose"):
        order = [dim % len(order) for dim in node.args[1]]
    elif order:
        a, b = node.args[1:3] if len(node.args) > 1 else (0, len(order) - 1)
        order[a], order[b] = order[b], order[a]
    return views.permute(value, order)


@OPERATORS("aten::view", "aten::_unsafe_view", "aten::reshape", "aten::squeeze", "aten::unsqueeze", "prims::squeeze", "aten::flatten")
def write_reshape(context: "Context", node: fx.Node) -> Operand:
    """The same elements in another shape."""
    if "dtype" in str(node.target).split(".")[-1]:
        raise Unsupported("the same bits as another type")
    return views.reshape(context.nests, context.value(node.args[0]), result_shape(node))


@OPERATORS("aten::expand", "prims::broadcast_in_dim")
def write_expansion(context: "Context", node: fx.Node) -> Operand:
    """A tensor repeated along dimensions."""
    if pointwise.name_of(node.target) != "aten::expand":
        raise Unsupported("dimensions by number")
    return views.expand(context.value(node.args[0]), result_shape(node))


@OPERATORS("aten::clone", "aten::alias", "aten::detach", "aten::contiguous", "aten::lift_fresh_copy")
def write_identity(context: "Context", node: fx.Node) -> Operand:
    """The value itself: copies are made where values leave."""
    return context.value(node.args[0])


@OPERATORS("aten::slice")
def write_slice(context: "Context", node: fx.Node) -> Operand:
    """Every so many elements of a dimension."""
    value = context.value(node.args[0])
    dim, start, step = argument(node, 1, "dim", 0), argument(node, 2, "start"), argument(node, 4, "step", 1)
    dim = int(dim) % len(value.shape)
    length = result_shape(node)[dim]
    return views.piece(context.nests, value, dim, _from_start(0 if start is None else size(start), value.shape[dim]), length, step)


def _from_start(start: Size, extent: Size) -> Size:
    """An index as an operator takes it, from the start."""
    if isinstance(start, int) and start < 0:
        return extent + start
    return min(start, extent) if isinstance(start, int) and isinstance(extent, int) else start


@OPERATORS("aten::select")
def write_selection(context: "Context", node: fx.Node) -> Operand:
    """One index of a dimension."""
    value = context.value(node.args[0])
    dim = int(node.args[1]) % len(value.shape)
    part = views.piece(context.nests, value, dim, _from_start(size(node.args[2]), value.shape[dim]), 1)
    return views.reshape(context.nests, part, result_shape(node))


@OPERATORS("aten::split_with_sizes", "aten::split", "aten::chunk", "aten::unbind")
def write_split(context: "Context", node: fx.Node) -> list[Operand]:
    """The parts of a tensor along a dimension."""
    value = context.value(node.args[0])
    dim = int(argument(node, 1 if pointwise.name_of(node.target) == "aten::unbind" else 2, "dim", 0)) % len(value.shape)
    parts: list[Operand] = []
    start: Size = 0
    for result in node.meta["val"]:
        shape = tuple(size_of(extent) for extent in result.shape)
        length = shape[dim] if len(shape) == len(value.shape) else 1
        part = views.piece(context.nests, value, dim, start, length)
        parts.append(views.reshape(context.nests, part, shape))
        start = start + length
    return parts


@OPERATORS("getitem")
def write_item(context: "Context", node: fx.Node) -> Operand:
    """One of several results."""
    return context.values[node.args[0]][node.args[1]]


@OPERATORS("aten::cat")
def write_concatenation(context: "Context", node: fx.Node) -> Operand:
    """Tensors one after the other."""
    parts = [context.value(given) for given in node.args[0]]
    shape, dtype = result_shape(node), result_dtype(node)
    parts = [context.nests.cast(part, dtype) for part in parts if len(part.shape) == len(shape)]
    return views.join(context.nests, parts, argument(node, 1, "dim", 0) % len(shape), shape)


@OPERATORS("aten::slice_scatter", "aten::select_scatter")
def write_scatter(context: "Context", node: fx.Node) -> Operand:
    """A tensor with a slice of it replaced."""
    value, part = (context.value(given) for given in node.args[:2])
    if pointwise.name_of(node.target) == "aten::select_scatter":
        dim = int(node.args[2]) % len(value.shape)
        shape = (*value.shape[:dim], 1, *value.shape[dim + 1 :])
        part = views.reshape(context.nests, part, shape)
        return views.write_into(context.nests, value, part, dim, _from_start(size(node.args[3]), value.shape[dim]))
    dim = int(argument(node, 2, "dim", 0)) % len(value.shape)
    start, step = argument(node, 3, "start"), argument(node, 5, "step", 1)
    return views.write_into(context.nests, value, part, dim, _from_start(0 if start is None else size(start), value.shape[dim]), step)


@OPERATORS("aten::full", "aten::full_like", "aten::scalar_tensor", "aten::zeros", "aten::ones", "aten::zeros_like", "aten::ones_like")
def write_full(context: "Context", node: fx.Node) -> Operand:
    """One number in every element."""
    name = pointwise.name_of(node.target)
    given = 0 if "zeros" in name else 1 if "ones" in name else node.args[0 if name == "aten::scalar_tensor" else 1]
    if not isinstance(given, bool | int | float):
        raise Unsupported("a number that is computed")
    dtype = result_dtype(node)
    element(dtype)
    return Uniform(number_as(given, dtype), result_shape(node), dtype)


@OPERATORS("aten::arange.start_step", "prims::iota")
def write_range(context: "Context", node: fx.Node) -> Operand:
    """Numbers at equal distances."""
    dtype, shape = result_dtype(node), result_shape(node)
    if pointwise.name_of(node.target) == "prims::iota":
        start, step = node.kwargs["start"], node.kwargs["step"]
    else:
        start, step = node.args[0], argument(node, 2, "step", 1)
    if not isinstance(start, int | float) or not isinstance(step, int | float):
        raise Unsupported("a range that begins at a size")
    if not shape[0:1] or shape[0] == 1:
        return Uniform(start, shape, dtype)
    whole = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype

    def count(s: Scalars, _: list[SSAValue]) -> SSAValue:
        number = s.put(arith.IndexCastOp(s.put(linalg.ops.IndexOp(0)), builtin.i64))
        place = s.cast(number, torch.int64, whole)
        return s.add(s.constant(start, element(whole)), s.multiply(place, s.constant(step, element(whole))))

    return context.nests.cast(context.nests.elementwise([], shape, whole, count), dtype)
