"""Functions around one named linalg operation, of random sizes, strides and element types."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from treadle.dialects.mlir_ext.named_table import NAMED, Index, NamedRow

NUMPY = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
}
FLOATS, INTEGERS = ("f64", "f32", "f16", "bf16"), ("i64", "i32", "i16", "i8")


def _number(value: np.ndarray) -> str:
    return f"{float(value):e}" if value.dtype.kind not in "iu" else str(int(value))


@dataclass(frozen=True)
class NamedCase:
    """The operation `linalg.{name}` in a function: shapes and elements are those of the inputs and then of the output."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    elements: tuple[str, ...]
    attributes: str = ""
    tensors: bool = False
    """Whether inputs without dimensions are tensors too."""

    def kind(self, number: int) -> str:
        """The type of an operand; a scalar for an input without dimensions that is no tensor."""
        shape, element = self.shapes[number], self.elements[number]
        last = number == len(self.shapes) - 1
        return "tensor<" + "".join(f"{n}x" for n in shape) + f"{element}>" if shape or last or self.tensors else element

    def operation(self, *, outs: str = "%out") -> str:
        """The operation's text without its result."""
        inputs = range(len(self.shapes) - 1)
        names, kinds = ", ".join(f"%x{i}" for i in inputs), ", ".join(self.kind(i) for i in inputs)
        out = self.kind(len(self.shapes) - 1)
        front = f"{self.attributes} " if self.attributes else ""
        return f"linalg.{self.name} {front}ins({names} : {kinds}) outs({outs} : {out}) -> {out}"

    def function(self, symbol: str) -> str:
        """A function of the operands, the last one the initial value."""
        last = len(self.shapes) - 1
        arguments = ", ".join([*(f"%x{i}: {self.kind(i)}" for i in range(last)), f"%out: {self.kind(last)}"])
        return f"func.func @{symbol}({arguments}) -> {self.kind(last)} {{\n  %r = {self.operation()}\n  return %r : {self.kind(last)}\n}}\n"

    def is_scalar(self, number: int) -> bool:
        """Whether an operand is a scalar rather than a tensor."""
        return not self.kind(number).startswith("tensor")

    def with_constants(self, symbol: str, arrays: Sequence[np.ndarray]) -> tuple[str, list[np.ndarray]]:
        """The function with the scalars among its operands as constants, and the operands that are left."""
        kept = [i for i in range(len(self.shapes)) if not self.is_scalar(i)]
        last = len(self.shapes) - 1
        arguments = ", ".join(f"{'%out' if i == last else f'%x{i}'}: {self.kind(i)}" for i in kept)
        scalars = [i for i in range(last) if i not in kept]
        constants = "".join(f"  %x{i} = arith.constant {_number(arrays[i])} : {self.kind(i)}\n" for i in scalars)
        body = f"{constants}  %r = {self.operation()}\n  return %r : {self.kind(last)}\n"
        return f"func.func @{symbol}({arguments}) -> {self.kind(last)} {{\n{body}}}\n", [arrays[i] for i in kept]

    def arrays(self, seed: int) -> list[np.ndarray]:
        """Operands; integers over the whole range of narrow types, so that the way they are widened shows."""
        rng = np.random.default_rng(seed)
        found: list[np.ndarray] = []
        for shape, element in zip(self.shapes, self.elements, strict=True):
            if element == "i1":
                found.append(np.asarray(rng.integers(0, 2, shape)).astype(np.bool_))
            elif element.startswith("i"):
                limit = 1 << min(int(element[1:]) - 1, 20)
                found.append(np.asarray(rng.integers(-limit, limit, shape)).astype(NUMPY[element]))
            else:
                found.append(np.asarray(4 * rng.standard_normal(shape)).astype(NUMPY[element]))
        return found


def widenings(rng: random.Random, *, mixed: bool) -> tuple[str, str, str]:
    """Elements of two inputs and of an output that they are cast to."""
    out = rng.choice((*FLOATS, *INTEGERS))
    if not mixed:
        return out, out, out
    if rng.random() < 0.15:  # narrowed, or between floats and integers
        return rng.choice((*FLOATS, *INTEGERS)), rng.choice((*FLOATS, *INTEGERS)), out
    family = FLOATS if out in FLOATS else INTEGERS
    narrower = family[family.index(out) :] if out in INTEGERS else {"f64": FLOATS, "f32": FLOATS[1:]}.get(out, (out,))
    return rng.choice(narrower), rng.choice(narrower), out


def _shapes(row: NamedRow, rng: random.Random, strides: list[int], dilations: list[int]) -> tuple[tuple[int, ...], ...]:
    extents = {loop: rng.choice((1, 2, 3, 4, 5)) for loop in row.loops}
    stride, dilation = iter(strides), iter(dilations)

    def extent(index: Index) -> int:
        if len(index) == 1:
            return extents[index[0]]
        place, kind, element = index
        steps = (next(stride), next(dilation)) if kind == ":" else (1, 1)
        last = (extents[place] - 1) * steps[0] + (extents[element] - 1) * steps[1]
        return last + 1 + rng.choice((0, 0, 1))

    return tuple(tuple(extent(index) for index in operand) for operand in row.operands)


def random_case(name: str, seed: int) -> NamedCase:
    """A case of an operation of the table; seed 0 leaves all attributes out and has one element type."""
    rng = random.Random(f"{name} {seed}")
    row = NAMED[name]
    count = row.windows
    strides, dilations = ([rng.choice((1, 1, 2, 3)) for _ in range(count)] for _ in range(2))
    given: list[str] = []
    if seed == 0:
        strides, dilations = [1] * count, [1] * count
    elif count:
        texts = {"strides": strides, "dilations": dilations}
        for attribute, values in texts.items():
            if set(values) != {1} or rng.random() < 0.5:
                shown = f"{values[0]}" if len(set(values)) == 1 else f"{values}"
                given.append(f"{attribute} = dense<{shown}> : {rng.choice(('tensor', 'vector'))}<{count}xi64>")
    if seed and rng.random() < (0.6 if row.casts else 0.1):  # where the operation has no such attribute it means nothing
        given.append(f"cast = #linalg.type_fn<{rng.choice(('cast_signed', 'cast_unsigned', 'cast_unsigned'))}>")
    a, b, out = widenings(rng, mixed=seed > 0)
    if "unsigned" in name:
        a = b = out = rng.choice(INTEGERS) if seed else "i8"
    if name.startswith("pooling"):
        b = rng.choice((*FLOATS, *INTEGERS))
    elements = (a, b, out)
    if len(row.operands) == 5:
        a, b, out = rng.choice((("i8", "i8", "i32"), ("i8", "i16", "i32"), ("i16", "i8", "i64"), ("f32", "f32", "f32")))
        elements = (a, b, "i32" if out[0] == "i" else "f32", "i32" if out[0] == "i" else "f32", out)
    return NamedCase(name, _shapes(row, rng, strides, dilations), elements, f"{{{', '.join(given)}}}" if given else "")
