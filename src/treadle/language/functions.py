"""The names of the language, and what they stand for."""

import builtins

from treadle.language import intrinsics, reductions, shared_memory
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
        Intrinsic(intrinsics.trans),
        Intrinsic(intrinsics.expand_dims),
        Intrinsic(intrinsics.broadcast_to),
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
}
"""Functions of Python that mean one of the language's in a kernel."""

_METHODS = frozenset({"to", "sum", "max", "min", "prod", "argmax", "argmin", "trans", "exp", "abs"})


def tile_method(name: str) -> Intrinsic | None:
    """The function that `x.name(..)` calls on a tile x."""
    return FUNCTIONS[name] if name in _METHODS else None
