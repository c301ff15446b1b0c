"""What a region replaces, and how long that is modelled to take: a kernel of a library, and one more for what follows the product.

The library is taken for a good one: its product is at three quarters of what matrix instructions or memory give. Compilers of PyTorch's
own do all that follows in one kernel, which reads the product and writes the results. Sizes that are not known are not modelled.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from treadle.machine.spec import TargetSpec
from treadle.plan.form_times import moving_seconds, seconds
from treadle.records import Record
from treadle.torch.pointwise import name_of
from treadle.torch.regions import Region, operands, values_of
from treadle.torch.sizes import size_of

SHARE: Final = 0.75
"""Of what the machine can do, by the library."""
TILE: Final = (64, 128)
_NAMES: Final = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
    torch.int8: "i8",
}


class Replaced(Record):
    """`flop` of the product, `product_bytes` that it reads and writes, `following_bytes` that the elementwise kernel behind it moves (0
    where there is none). `tiles` of the result: units beyond so many have no work. `element`: the MLIR name of the operands' type where
    matrix instructions are for it as it is, else "".
    """

    flop: int
    product_bytes: int
    following_bytes: int
    tiles: int
    element: str

    def seconds(self, spec: TargetSpec) -> float:
        """The modelled time on a machine."""
        rows = [row for row in spec.matrix_instructions if row.a_type == row.b_type == self.element]
        rate = max((spec.macs_per_clock(row) for row in rows), default=spec.macs_per_clock(None)) * min(self.tiles, spec.compute_units)
        moved = self.product_bytes / (spec.memory_gbps * 1e9)
        product = seconds(spec.rates.streaming.fixed_clocks, spec) + max(seconds(self.flop / 2 / rate, spec), moved) / SHARE
        return product + (moving_seconds(self.following_bytes, spec) if self.following_bytes else 0)


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
    following = 0 if region.results == (anchor,) or len(values_of(anchor)) > 1 else product_out + max(0, region_in - product_in) + out
    return Replaced(flop, product_in + product_out, following, _tiles(anchor), _NAMES.get(read[0].dtype, ""))


def _tiles(anchor: fx.Node) -> int:
    """Of all results of a product, pixels of a convolution being rows."""
    count = 0
    for value in values_of(anchor):
        shape = [int(size) for size in value.shape]
        is_image = name_of(anchor.target) == "aten::convolution"
        batch, rows, columns = (
            (1, shape[0] * prod(shape[2:]), shape[1]) if is_image else (prod(shape[:-2]), shape[-2] if shape[1:] else 1, shape[-1])
        )
        count += batch * -(-rows // TILE[0]) * -(-columns // TILE[1])
    return max(1, count)


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
