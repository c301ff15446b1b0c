"""Every named linalg operation that is a loop nest with fixed indexing maps: one row each.

`row("n oh ow f kh kw c", "n oh:kh ow:kw c, kh kw c f -> n oh ow f", multiply_add)`: the loops in order; for each input and for the output
the loop of each of its dimensions (`()` for a scalar); what one step computes. `oh:kh` is a window, the index `oh * stride + kh * dilation`
with the operation's attributes `strides` and `dilations`, which have one entry for each window in order; `oh+kh` is one without. Loops that
the output's dimensions do not name are reductions. To add an operation, add its row: text, verification, compiler, reference and the test
against iree-opt follow.
"""

import re

from treadle.dialects.mlir_ext import scalar_bodies as body
from treadle.records import dataclass

Index = tuple[str, ...]
"""One loop; or the loop over places, `:` or `+`, and the loop over the window's elements."""


@dataclass(frozen=True, slots=True)
class NamedRow:
    """`operands`: the indices of each input and then of the output. `windows`: entries of `strides` and `dilations`.

    `casts`: the operation has the attribute `cast`. `free_maps`: it has the attribute `indexing_maps`, which may permute and leave out the
    dimensions of inputs.
    """

    loops: tuple[str, ...]
    operands: tuple[tuple[Index, ...], ...]
    rule: body.Rule
    casts: bool = False
    free_maps: bool = False

    @property
    def windows(self) -> int:
        """How many strides and dilations the operation takes."""
        return sum(":" in index for operand in self.operands for index in operand)


def row(loops: str, operands: str, rule: body.Rule, *, casts: bool = False, free_maps: bool = False) -> NamedRow:
    """See the module's docstring."""
    inputs, output = operands.split("->")
    texts = [*inputs.split(","), output]
    indices = [tuple(tuple(re.split("([:+])", index)) for index in text.split() if index != "()") for text in texts]
    return NamedRow(tuple(loops.split()), tuple(indices), rule, casts, free_maps)


def contraction(loops: str, operands: str) -> NamedRow:
    """A product of two matrices, vectors or batches of them."""
    return row(loops, operands, body.multiply_add, casts=True, free_maps=True)


def _quantized(plain: str) -> str:
    return plain.replace(" ->", ", (), () ->")


_CONVOLUTIONS = {
    "conv_1d": ("ow kw", "ow+kw, kw -> ow"),
    "conv_1d_nwc_wcf": ("n ow f kw c", "n ow:kw c, kw c f -> n ow f"),
    "conv_1d_ncw_fcw": ("n f ow c kw", "n c ow:kw, f c kw -> n f ow"),
    "conv_2d": ("oh ow kh kw", "oh+kh ow+kw, kh kw -> oh ow"),
    "conv_2d_nhwc_hwcf": ("n oh ow f kh kw c", "n oh:kh ow:kw c, kh kw c f -> n oh ow f"),
    "conv_2d_nhwc_fhwc": ("n oh ow f kh kw c", "n oh:kh ow:kw c, f kh kw c -> n oh ow f"),
    "conv_2d_nchw_fchw": ("n f oh ow c kh kw", "n c oh:kh ow:kw, f c kh kw -> n f oh ow"),
    "conv_2d_ngchw_fgchw": ("n g f oh ow c kh kw", "n g c oh:kh ow:kw, f g c kh kw -> n g f oh ow"),
    "conv_2d_ngchw_gfchw": ("n g f oh ow c kh kw", "n g c oh:kh ow:kw, g f c kh kw -> n g f oh ow"),
    "conv_2d_nhwgc_gfhwc": ("n oh ow g f kh kw c", "n oh:kh ow:kw g c, g f kh kw c -> n oh ow g f"),
    "conv_3d": ("od oh ow kd kh kw", "od+kd oh+kh ow+kw, kd kh kw -> od oh ow"),
    "conv_3d_ndhwc_dhwcf": ("n od oh ow f kd kh kw c", "n od:kd oh:kh ow:kw c, kd kh kw c f -> n od oh ow f"),
    "conv_3d_ncdhw_fcdhw": ("n f od oh ow c kd kh kw", "n c od:kd oh:kh ow:kw, f c kd kh kw -> n f od oh ow"),
    "depthwise_conv_1d_ncw_cw": ("n ow c kw", "n c ow:kw, c kw -> n c ow"),
    "depthwise_conv_1d_nwc_wc": ("n ow c kw", "n ow:kw c, kw c -> n ow c"),
    "depthwise_conv_1d_nwc_wcm": ("n ow c m kw", "n ow:kw c, kw c m -> n ow c m"),
    "depthwise_conv_2d_nchw_chw": ("n oh ow c kh kw", "n c oh:kh ow:kw, c kh kw -> n c oh ow"),
    "depthwise_conv_2d_nhwc_hwc": ("n oh ow c kh kw", "n oh:kh ow:kw c, kh kw c -> n oh ow c"),
    "depthwise_conv_2d_nhwc_hwcm": ("n oh ow c m kh kw", "n oh:kh ow:kw c, kh kw c m -> n oh ow c m"),
    "depthwise_conv_3d_ncdhw_cdhw": ("n od oh ow kd kh kw c", "n c od:kd oh:kh ow:kw, c kd kh kw -> n c od oh ow"),
    "depthwise_conv_3d_ndhwc_dhwc": ("n od oh ow kd kh kw c", "n od:kd oh:kh ow:kw c, kd kh kw c -> n od oh ow c"),
    "depthwise_conv_3d_ndhwc_dhwcm": ("n od oh ow m kd kh kw c", "n od:kd oh:kh ow:kw c, kd kh kw c m -> n od oh ow c m"),
}
_QUANTIZED = (
    "conv_2d_nchw_fchw",
    "conv_2d_ngchw_gfchw",
    "conv_2d_nhwc_fhwc",
    "conv_2d_nhwc_hwcf",
    "conv_2d_nhwgc_gfhwc",
    "conv_3d_ndhwc_dhwcf",
    "depthwise_conv_2d_nhwc_hwc",
    "depthwise_conv_2d_nhwc_hwcm",
)

_POOLS = {
    "nchw": ("n c oh ow kh kw", "n c oh:kh ow:kw, kh kw -> n c oh ow"),
    "ncw": ("n c ow kw", "n c ow:kw, kw -> n c ow"),
    "ndhwc": ("n od oh ow c kd kh kw", "n od:kd oh:kh ow:kw c, kd kh kw -> n od oh ow c"),
    "nhwc": ("n oh ow c kh kw", "n oh:kh ow:kw c, kh kw -> n oh ow c"),
    "nwc": ("n ow c kw", "n ow:kw c, kw -> n ow c"),
}
_POOL_RULES: dict[str, tuple[body.Rule, tuple[str, ...]]] = {
    "sum": (body.add_up, ("nchw", "ncw", "ndhwc", "nhwc", "nwc")),
    "max": (body.keep_largest, ("nchw", "ncw", "ndhwc", "nhwc", "nwc")),
    "min": (body.keep_smallest, ("ndhwc", "nhwc", "nwc")),
    "max_unsigned": (body.keep_largest_unsigned, ("nhwc", "nwc")),
    "min_unsigned": (body.keep_smallest_unsigned, ("nhwc", "nwc")),
}

NAMED: dict[str, NamedRow] = {
    "matmul": contraction("m n k", "m k, k n -> m n"),
    "batch_matmul": contraction("b m n k", "b m k, b k n -> b m n"),
    "batch_reduce_matmul": row("b m n k", "b m k, b k n -> m n", body.multiply_add, free_maps=True),
    "matvec": row("m n", "m n, n -> m", body.multiply_add),
    "vecmat": row("n m", "m, m n -> n", body.multiply_add),
    "dot": row("m", "m, m -> ()", body.multiply_add),
    "batch_matvec": row("b m k", "b m k, b k -> b m", body.multiply_add),
    "batch_vecmat": row("b n k", "b k, b k n -> b n", body.multiply_add),
    "mmt4d": row("m n k m0 n0 k0", "m k m0 k0, n k n0 k0 -> m n m0 n0", body.multiply_add),
    "batch_mmt4d": row("b m n k m0 n0 k0", "b m k m0 k0, b n k n0 k0 -> b m n m0 n0", body.multiply_add),
    "quantized_matmul": row("m n k", "m k, k n, (), () -> m n", body.quantized_multiply_add),
    "quantized_batch_matmul": row("b m n k", "b m k, b k n, (), () -> b m n", body.quantized_multiply_add),
    **{name: row(*maps, body.multiply_add) for name, maps in _CONVOLUTIONS.items()},
    **{
        f"{name}_q": row(loops, _quantized(maps), body.quantized_multiply_add)
        for name in _QUANTIZED
        for loops, maps in [_CONVOLUTIONS[name]]
    },
    **{f"pooling_{layout}_{kind}": row(*_POOLS[layout], rule) for kind, (rule, layouts) in _POOL_RULES.items() for layout in layouts},
}
"""By name without `linalg.`."""
