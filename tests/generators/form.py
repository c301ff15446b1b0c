"""One function in a form of the tensor level that is no plain generic: its text and arguments.

Sizes are written `7` or, where the text leaves them to the arguments, `?7`; `:f32` is a scalar argument, `:index=5` one of the value 5.
"""

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np

DTYPES: dict[str, type] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i1": np.bool_,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
}
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1.0)
"""What tells classifications apart; the first elements of every float argument of a form that asks for them."""


@dataclass(frozen=True, slots=True)
class Form:
    """`name`: of the entry function. `arguments`: types with sizes, such as `3x5xf32`.

    `limit`: integers lie from the first to below the second. `special`: float arguments hold `SPECIAL` too. `before`: what the entry calls.
    """

    name: str
    arguments: tuple[str, ...]
    result: str
    body: str
    limit: tuple[int, int] = (-9, 9)
    special: bool = False
    before: str = ""

    def text(self) -> str:
        """The module."""
        listing = ", ".join(f"%a{number}: {type_of(kind)}" for number, kind in enumerate(self.arguments))
        return f"{self.before}func.func @{self.name}({listing}) -> {type_of(self.result)} {{\n{self.body}\n}}\n"

    def arrays(self, seed: int = 0) -> list[np.ndarray | float]:
        """Arguments: N(0, 1) floats, small integers."""
        rng = np.random.default_rng(seed)
        found: list[np.ndarray | float] = []
        for kind in self.arguments:
            if kind.startswith(":"):
                found.append(_number(kind, rng))
                continue
            *sizes, element = kind.replace("?", "").split("x")
            shape = [int(size) for size in sizes]
            if element.startswith("i"):
                low, high = (0, 2) if element == "i1" else self.limit
                found.append(np.asarray(rng.integers(low, high, shape)).astype(DTYPES[element]))
                continue
            values = np.asarray(rng.standard_normal(shape)).astype(np.float32).astype(DTYPES[element])
            if self.special:
                values.reshape(-1)[: len(SPECIAL)] = np.array(SPECIAL[: values.size]).astype(values.dtype)
            found.append(values)
        return found

    def typed_arrays(self, seed: int = 0) -> list[np.ndarray]:
        """The same with scalars as arrays of their types."""
        kinds = {"index": np.int64, **DTYPES}
        pairs = zip(self.arguments, self.arrays(seed), strict=True)
        return [a if isinstance(a, np.ndarray) else np.asarray(a, kinds[type_of(kind)]) for kind, a in pairs]


def _number(kind: str, rng: np.random.Generator) -> float:
    element, _, value = kind[1:].partition("=")
    if element == "f32":
        return float(np.float32(rng.standard_normal()))
    if element == "i1":
        return bool(rng.integers(0, 2))
    return int(value) if value else int(rng.integers(-9, 9))


def type_of(kind: str) -> str:
    """`?7x5xf32` is an argument of 7 x 5 elements whose first size the text leaves open."""
    if kind.startswith(":"):
        return kind[1:].partition("=")[0]
    return f"tensor<{re.sub(r'[?][0-9]+', '?', kind)}>"


def empty(name: str, kind: str, *sources: tuple[str, str, int]) -> str:
    """`%name = tensor.empty(..)`; `sources` are value, type and axis that each open size of `kind` is read off."""
    lines: list[str] = []
    for number, (value, source, axis) in enumerate(sources):
        lines.append(f"  %{name}_c{number} = arith.constant {axis} : index")
        lines.append(f"  %{name}_d{number} = tensor.dim {value}, %{name}_c{number} : {type_of(source)}")
    sizes = ", ".join(f"%{name}_d{number}" for number in range(len(sources)))
    return "\n".join([*lines, f"  %{name} = tensor.empty({sizes}) : {type_of(kind)}"])


def open_axes(kind: str) -> list[int]:
    return [axis for axis, size in enumerate(kind.split("x")[:-1]) if size.startswith("?")]


def empty_like(name: str, kind: str, source: str = "%a0", element: str = "") -> str:
    target = "x".join([*kind.split("x")[:-1], element or kind.rsplit("x", maxsplit=1)[-1]])
    return empty(name, target, *((source, kind, axis) for axis in open_axes(kind)))
