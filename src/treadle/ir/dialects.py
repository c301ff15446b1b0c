"""The upstream dialect modules that Treadle uses, under the names the rest of the compiler imports them by."""

from xdsl.dialects import affine, builtin, func, linalg, math, memref, scf, tensor

from treadle.ir import arith

__all__ = ["affine", "arith", "builtin", "func", "linalg", "math", "memref", "scf", "tensor"]
