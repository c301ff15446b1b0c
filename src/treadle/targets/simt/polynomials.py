"""Coefficients, lowest first, of near-minimax fits (Chebyshev) made for the intervals on which `math_functions` uses them."""

from collections.abc import Sequence

from treadle.codegen.llvm_text import Builder, Value, floating

EXP2 = (1.0, 0.693147206703, 0.240226509223, 0.0555032722667, 0.00961805667852, 0.00134004281776, 0.000154614446986)
LOG = (
    0.3333333118,
    -0.24999996958,
    0.200007157489,
    -0.166678023195,
    0.142490576457,
    -0.124256873315,
    0.116854199235,
    -0.114797338466,
    0.0697161147145,
)
TANH = (-0.333333284333, 0.133327188456, -0.0538432631753, 0.0209613291086, -0.00604516509652)
ERF = (
    1.12837916706,
    -0.37612638468,
    0.112837824952,
    -0.0268654307277,
    0.00522103180786,
    -0.000848408040554,
    0.000112659590256,
    -9.66704457149e-6,
)
LOG_ERFC = (
    0.000320138049678,
    -1.13023343484,
    -0.631826051559,
    -0.110080082949,
    0.0264211360057,
    -0.00475959629327,
    0.000596805625661,
    -4.60580426892e-5,
    1.63715141459e-6,
)
EXPM1 = (0.166666666667, 0.0416666702358, 0.0083333336568, 0.00138883064403, 0.000198407411114, 2.50389910545e-5, 2.7772954293e-6)
SIN = (-0.166666666638, 0.00833333185231, -0.000198400746657, 2.7248364773e-6)
COS = (0.0416666646287, -0.00138882970581, 2.45466537689e-5)


def polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule, lowest coefficient first."""
    result = floating(x.type, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = b.math("llvm.fma", [result, x, floating(x.type, c)], "")
    return result
