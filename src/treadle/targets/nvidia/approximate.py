"""Functions that one instruction computes with a known error."""

from collections.abc import Sequence

from treadle.codegen.llvm_text import F32, Builder, Value

# Errors as the PTX ISA states them: ex2, lg2, rsqrt 2^-22 or less, rcp 1 unit in the last place, sqrt 2^-23, div.full 2 units, tanh 2^-11.
_APPROXIMATE = {
    "exp2": "ex2.approx.f32",
    "exp2.flush": "ex2.approx.ftz.f32",
    "rsqrt": "rsqrt.approx.f32",
    "rsqrt.approximate": "rsqrt.approx.f32",
    "sqrt.approximate": "sqrt.approx.f32",
    "log2.approximate": "lg2.approx.f32",
    "tanh.approximate": "tanh.approx.f32",
    "reciprocal.flush": "rcp.approx.ftz.f32",
    "divide.approximate": "div.full.f32",
}


def approximate(b: Builder, name: str, args: Sequence[Value]) -> Value | None:
    """A function of f32 values by its instruction; None where there is none."""
    if name not in _APPROXIMATE or args[0].type != F32:
        return None
    operands = ", ".join(f"${i}" for i in range(len(args) + 1))
    return b.asm(f"{_APPROXIMATE[name]} {operands};", "=f" + ",f" * len(args), args, F32, side_effect=False, convergent=False)
