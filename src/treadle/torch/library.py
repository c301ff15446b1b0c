"""What a region replaces, and how long that is modelled to take: a kernel of a library, and one more for what follows the product.

Compilers of PyTorch's own do all that follows in one kernel, which reads the product and writes the results. Where something elementwise or
a reduction (a norm) reads these, it is in that kernel, too, which runs in any case: the region then replaces memory traffic alone. Sizes
that are not known are not modelled.
"""

from collections.abc import Iterator, Sequence
from math import gcd, prod
from typing import Any, Final

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from treadle.machine.spec import TargetSpec
from treadle.records import Record
from treadle.torch.library_times import ALIGNED, Product
from treadle.torch.pointwise import is_elementwise, name_of
from treadle.torch.regions import GRADIENTS, PERMUTATIONS, VIEWS, Region, is_anchor, operands, values_of
from treadle.torch.sizes import size_of

_NAMES: Final = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
    torch.int8: "i8",
}


BEHIND_US: Final = 2.0
"""What an elementwise kernel behind a product takes beside moving its arrays: the launch overlaps the product. Those of CLIP and BERT on
an H200 took 0.9 to 3.2 us more than their arrays, in a graph or behind a cold product.
"""
LEAST_BEHIND_US: Final = 0.9
"""What counts beside a product that was measured: f32 blocks of 60 to 75 us lost 1.5 to 2.8 % by regions that gained less than the rest."""


REDUCTIONS: Final = frozenset(
    {
        *(f"aten::{name}" for name in ("sum", "mean", "amax", "amin", "prod", "any", "all", "var", "var_mean", "max", "min", "argmax")),
        *(f"prims::{name}" for name in ("sum", "amax", "var")),
    }
)


class Replaced(Record):
    """`products`: each is a kernel; `following_bytes`: what the elementwise kernel behind them moves beyond what it moves where the region
    is taken, 0 where there is none. `runs_anyway`: that kernel does more than the region, and runs in any case.
    """

    products: tuple[Product, ...]
    following_bytes: int
    runs_anyway: bool = False

    def seconds(self, spec: TargetSpec) -> float:
        """The modelled time on a machine."""
        return sum(product.seconds(spec) for product in self.products) + self.following_seconds(spec)

    def following_seconds(self, spec: TargetSpec, *, behind_us: float = BEHIND_US) -> float:
        """The same of what follows the products."""
        started = 0.0 if self.runs_anyway or not self.following_bytes else behind_us * 1e-6
        return started + self.following_bytes / (spec.memory_gbps * 1e9)


def replaced(region: Region) -> Replaced | None:
    """What a region stands for; None where sizes are symbols."""
    anchor = region.anchor
    flop, read = flop_of(anchor), [value for node in anchor.all_input_nodes for value in values_of(node)]
    made = values_of(anchor)
    result = [value for node in region.results for value in values_of(node)]
    all_read = [value for node in operands(region) for value in values_of(node)]
    sizes = [_bytes(values) for values in (read, made, all_read, result)]
    if flop is None or any(size is None for size in sizes):
        return None
    product_in, product_out, region_in, out = (size or 0 for size in sizes)
    products = _products(anchor, flop, read, product_in + product_out)
    if region.results == (anchor,) or len(made) > 1:
        return Replaced(products, 0)
    others = max(0, region_in - product_in)
    readers = [user for node in region.results for user in _readers(node)]
    if not joins(region):
        return Replaced(products, product_out + others + out)
    written = 0 if all(_is_in_kernels(user) and not _reads_product(user) for user in readers) else out
    return Replaced(products, max(0, product_out + others + written - out), runs_anyway=True)


def joins(region: Region) -> bool:
    """Whether what follows the product would be computed in a kernel that does more: that of one that reads the results."""
    return region.results != (region.anchor,) and any(_is_in_kernels(user) for node in region.results for user in _readers(node))


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """The nodes that read a value, views looked through."""
    for user in node.users:
        if name_of(user.target) in VIEWS | PERMUTATIONS:
            yield from _readers(user)
        else:
            yield user


def _is_in_kernels(node: fx.Node) -> bool:
    """Whether a node is part of the kernels that such compilers write."""
    return node.op == "call_function" and (is_elementwise(node.target) or name_of(node.target) in REDUCTIONS)


def _reads_product(node: fx.Node) -> bool:
    """Whether a node reads another product, too: it is not in the kernel behind this one."""
    return any(is_anchor(_source(given)) for given in node.all_input_nodes)


def _source(node: fx.Node) -> fx.Node:
    """What a node is a view of."""
    while name_of(node.target) in VIEWS | PERMUTATIONS and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _products(anchor: fx.Node, flop: int, read: Sequence[Any], moved: int) -> tuple[Product, ...]:
    """Those of an anchor, one for each result that has any; pixels of an image and places of filters count as rows and columns."""
    extents = _extents(anchor)
    dtype = read[-1].dtype
    pitch = _pitch_bytes([*read, *values_of(anchor)]) if "convolution" not in name_of(anchor.target) else ALIGNED
    share = moved // len(extents)

    def product(batch: int, rows: int, columns: int) -> Product:
        depth = max(1, flop // (2 * len(extents) * max(1, batch * rows * columns)))
        return Product(batch, rows, columns, depth, share, _element(dtype), dtype.itemsize, pitch)

    return tuple(product(*each) for each in extents)


def _extents(anchor: fx.Node) -> list[tuple[int, int, int]]:
    """How many products, and the rows and columns of each."""
    name, value = name_of(anchor.target), anchor.meta["val"]
    if name == GRADIENTS:
        image, filters, *_ = value
        pairs = [(made, dim) for made, dim in ((image, 1), (filters, 0)) if isinstance(made, torch.Tensor)]
        return [(1, made.numel() // max(1, made.shape[dim]), made.shape[dim]) for made, dim in pairs] or [(1, 1, 1)]
    shape = [int(size) for size in value.shape]
    if name == "aten::convolution":
        groups = int(anchor.args[8])  # pyright: ignore[reportArgumentType]
        return [(groups, shape[0] * prod(shape[2:]), shape[1] // groups)]
    return [(prod(shape[:-2]), shape[-2] if shape[1:] else 1, shape[-1])]


def _element(dtype: torch.dtype) -> str:
    """The matrix instructions' type for PyTorch's: the library rounds f32 where the user lets it."""
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return _NAMES.get(dtype, "")


def _pitch_bytes(values: Sequence[Any]) -> int:
    """What the rows of all these matrices begin at multiples of, at most 16."""
    found = ALIGNED
    for value in values:
        for size, stride in zip(value.shape, value.stride(), strict=True):
            if value.dim() > 1 and size != 1 and stride > 1:
                found = gcd(found, int(stride) * value.dtype.itemsize)
    return found


def flop_of(node: fx.Node) -> int | None:
    """Floating point operations (or those on integers) of a product or a convolution; None where sizes are symbols."""
    target: Any = node.target
    packet = torch.ops.aten.mm if target is torch.ops.aten._int_mm.default else target.overloadpacket
    if packet not in flop_registry:
        return None
    given = [_value(argument) for argument in node.args]
    found = flop_registry[packet](*given, out_val=node.meta["val"])
    number = size_of(found)
    return number if isinstance(number, int) else None


def _value(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, fx.Node) else argument


def _bytes(values: Sequence[Any]) -> int | None:
    """Of all these tensors; None where a size is a symbol."""
    counts = [[size_of(size) for size in value.shape] for value in values]
    if not all(isinstance(size, int) for shape in counts for size in shape):
        return None
    return sum(prod(map(int, shape)) * value.dtype.itemsize for shape, value in zip(counts, values, strict=True))
