"""The neutral elements of combiners."""

import math

from treadle.ir.builtin import integer_width, number_attr
from treadle.ir.core import Attribute

_ZERO = ("arith.addf", "arith.addi", "arith.ori", "arith.xori", "arith.maxui")
_ONE = ("arith.mulf", "arith.muli")


def identity_of(combiner: str, element: Attribute) -> Attribute:
    """The neutral element of a combiner in an element type."""
    width = integer_width(element)
    if width is None:
        low = combiner in ("arith.maximumf", "arith.maxnumf")
        return number_attr(0.0 if combiner in _ZERO else 1.0 if combiner in _ONE else -math.inf if low else math.inf, element)
    if combiner in _ZERO:
        number = 0
    elif combiner in _ONE:
        number = 1
    elif combiner in ("arith.andi", "arith.minui"):
        number = -1
    elif combiner == "arith.maxsi":
        number = -(1 << (width - 1))
    else:
        number = (1 << (width - 1)) - 1
    return number_attr(number & 1 if width == 1 else number, element)


_LARGEST = {"f16": 65504.0, "bf16": (2 - 2**-7) * 2.0**127, "f32": (2 - 2**-23) * 2.0**127, "f64": (2 - 2**-52) * 2.0**1023}


def lowest_finite(element: Attribute) -> Attribute:
    """The lowest number of a float type that is no infinity."""
    return number_attr(-_LARGEST[str(element)], element)
