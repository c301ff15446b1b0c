"""The names of the language, and what they stand for."""

import builtins

from treadle.language import atomics, debugging, intrinsics, random_numbers, reductions, shapes, shared_memory
from treadle.language.intrinsics import Intrinsic

FUNCTIONS: dict[str, Intrinsic] = {
    entry.name: entry
    for entry in (
        Intrinsic(intrinsics.program_id),
        Intrinsic(intrinsics.num_programs),
        Intrinsic(intrinsics.range_),
        Intrinsic(intrinsics.static_range),
        Intrinsic(intrinsics.cdiv),
        Intrinsic(intrinsics.load, takes_blocks=True),
        Intrinsic(intrinsics.store, takes_blocks=True),
        Intrinsic(shared_memory.allocate_shared),
        Intrinsic(shared_memory.warp_pipeline_stage),
        Intrinsic(intrinsics.full),
        Intrinsic(intrinsics.zeros),
        Intrinsic(intrinsics.arange),
        Intrinsic(intrinsics.dot),
        Intrinsic(intrinsics.to),
        Intrinsic(intrinsics.index),
        Intrinsic(intrinsics.broadcast_to),
        *(
            Intrinsic(change)
            for change in (
                shapes.broadcast,
                shapes.cat,
                shapes.expand_dims,
                shapes.join,
                shapes.permute,
                shapes.ravel,
                shapes.reshape,
                shapes.split,
                shapes.trans,
            )
        ),
        *atomics.UPDATES,
        *(
            Intrinsic(draw)
            for draw in (
                random_numbers.philox,
                random_numbers.rand,
                random_numbers.rand4x,
                random_numbers.randint,
                random_numbers.randint4x,
                random_numbers.randn,
            )
        ),
        Intrinsic(debugging.static_assert),
        Intrinsic(debugging.static_print, takes_blocks=True),
        Intrinsic(debugging.device_print, takes_blocks=True),
        Intrinsic(debugging.breakpoint_),
        Intrinsic(debugging.debug_barrier),
        Intrinsic(intrinsics.clamp),
        Intrinsic(intrinsics.fma),
        Intrinsic(intrinsics.pow_),
        Intrinsic(intrinsics.umulhi),
        Intrinsic(intrinsics.swizzle2d),
        reductions.WHERE,
        reductions.MINIMUM,
        reductions.MAXIMUM,
        Intrinsic(intrinsics.abs_),
        Intrinsic(intrinsics.sigmoid),
        Intrinsic(reductions.reduce, takes_blocks=True),
        intrinsics.function("exp", "e to the power of x"),
        intrinsics.function("exp2", "2 to the power of x"),
        intrinsics.function("log", "The natural logarithm"),
        intrinsics.function("log2", "The logarithm to base 2"),
        intrinsics.function("sqrt", "The square root"),
        intrinsics.function("rsqrt", "1 / sqrt(x)"),
        intrinsics.function("sin", "The sine"),
        intrinsics.function("cos", "The cosine"),
        intrinsics.function("tanh", "The hyperbolic tangent"),
        intrinsics.function("erf", "The error function"),
        intrinsics.function("expm1", "e to the power of x, less 1"),
        intrinsics.function("log1p", "The natural logarithm of 1 + x"),
        intrinsics.function("log10", "The logarithm to base 10"),
        intrinsics.function("tan", "The tangent"),
        intrinsics.function("asin", "The angle whose sine is x"),
        intrinsics.function("acos", "The angle whose cosine is x"),
        intrinsics.function("atan", "The angle whose tangent is x"),
        intrinsics.function("sinh", "The hyperbolic sine"),
        intrinsics.function("cosh", "The hyperbolic cosine"),
        intrinsics.function("cbrt", "The cube root"),
        intrinsics.function("trunc", "The integer next to x towards zero"),
        intrinsics.function("round", "The nearest integer, halves away from zero"),
        intrinsics.function("rint", "The nearest integer, halves to even"),
        intrinsics.function("floor", "The largest integer that is not above"),
        intrinsics.function("ceil", "The smallest integer that is not below"),
        reductions.single(
            "sum",
            "The sum along an axis (None: of all elements). 16-bit floats are summed in float32, small integers in int32.",
            reductions.sum_of,
        ),
        reductions.single("prod", "The product along an axis (None: of all elements).", reductions.product_of),
        reductions.single("max", "The largest element along an axis (None: of all); NaN where there is one.", reductions.maximum_of),
        reductions.single("min", "The smallest element along an axis (None: of all); NaN where there is one.", reductions.minimum_of),
        reductions.place(
            "argmax", "Where the largest element along an axis stands first; the first NaN where there is one.", reductions.first_maximum
        ),
        reductions.place(
            "argmin", "Where the smallest element along an axis stands first; the first NaN where there is one.", reductions.first_minimum
        ),
    )
}

PYTHON_NAMES: dict[object, Intrinsic] = {
    builtins.range: FUNCTIONS["range"],
    builtins.min: reductions.MINIMUM,
    builtins.max: reductions.MAXIMUM,
    builtins.abs: FUNCTIONS["abs"],
    builtins.pow: FUNCTIONS["pow"],
    builtins.round: FUNCTIONS["rint"],
    builtins.print: FUNCTIONS["device_print"],
    builtins.breakpoint: FUNCTIONS["breakpoint"],
}
"""Functions of Python that mean one of the language's in a kernel."""

_METHODS = frozenset(
    {"to", "sum", "max", "min", "prod", "argmax", "argmin", "trans", "permute", "reshape", "ravel", "split", "expand_dims", "exp", "abs"}
)


def tile_method(name: str) -> Intrinsic | None:
    """The function that `x.name(..)` calls on a tile x."""
    return FUNCTIONS[name] if name in _METHODS else None
