"""The text of generated modules: values, functions, and bodies of `linalg.generic`, one function a module."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import numpy.typing as npt

DTYPES: dict[str, type] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
}
WIDTHS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "i8": 8, "i16": 16, "i32": 32, "i64": 64}


class Extent(int):
    """A size that the text calls `?`: the number is that of a call. The same object is the same size wherever it stands."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """Shape and element type of one argument."""

    shape: tuple[int, ...]
    element: str


@dataclass(frozen=True, slots=True)
class GeneratedModule:
    """`name`: of the one function. `text`: that function. `family`: what was generated."""

    name: str
    text: str
    inputs: tuple[InputSpec, ...]
    family: str

    def arrays(self, seed: int = 0) -> list[npt.NDArray[np.generic]]:
        """Arguments: N(0, 1) floats, small integers."""
        rng = np.random.default_rng(seed)
        found: list[npt.NDArray[np.generic]] = []
        for spec in self.inputs:
            if spec.element.startswith("i"):
                found.append(rng.integers(-9, 10, spec.shape).astype(DTYPES[spec.element]))
            else:
                found.append(rng.standard_normal(spec.shape).astype(np.float32).astype(DTYPES[spec.element]))
        return found


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA tensor."""

    name: str
    shape: tuple[int, ...]
    element: str

    @property
    def type(self) -> str:
        """`tensor<3x5xf32>`."""
        return tensor_type(self.shape, self.element)


def tensor_type(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join('?x' if isinstance(n, Extent) else f'{n}x' for n in shape)}{element}>"


def map_text(loops: int, results: Sequence[int]) -> str:
    dims = ", ".join(f"d{i}" for i in range(loops))
    return f"affine_map<({dims}) -> ({', '.join(f'd{r}' for r in results)})>"


@dataclass(slots=True)
class Text:
    """Collects the lines of one function."""

    rng: random.Random
    inputs: list[InputSpec] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    count: int = 0

    sizes: dict[int, str | tuple[Value, int]] = field(default_factory=dict[int, "str | tuple[Value, int]"])
    """By the identity of an extent: the value that holds it, or the argument and axis that it can be had from."""

    def argument(self, shape: Sequence[int], element: str) -> Value:
        self.inputs.append(InputSpec(tuple(shape), element))
        value = Value(f"%arg{len(self.inputs) - 1}", tuple(shape), element)
        for axis, extent in enumerate(shape):
            if isinstance(extent, Extent):
                self.sizes.setdefault(id(extent), (value, axis))
        return value

    def size(self, extent: Extent) -> str:
        """The value of a size that only the runtime knows; an argument has it."""
        found = self.sizes[id(extent)]
        if not isinstance(found, str):
            value, axis = found
            found = self.emit(f"tensor.dim {value.name}, {self.emit(f'arith.constant {axis} : index')} : {value.type}")
            self.sizes[id(extent)] = found
        return found

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def emit(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def constant(self, value: float | str, element: str) -> str:
        text = value if isinstance(value, str) else str(int(value)) if element.startswith("i") else f"{value:e}"
        return self.emit(f"arith.constant {text} : {element}")

    def empty(self, shape: Sequence[int], element: str) -> Value:
        kind = tensor_type(shape, element)
        sizes = ", ".join(self.size(n) for n in shape if isinstance(n, Extent))
        return Value(self.emit(f"tensor.empty({sizes}) : {kind}"), tuple(shape), element)

    def filled(self, shape: Sequence[int], element: str, value: float | str) -> Value:
        scalar, out = self.constant(value, element), self.empty(shape, element)
        name = self.emit(f"linalg.fill ins({scalar} : {element}) outs({out.name} : {out.type}) -> {out.type}")
        return Value(name, out.shape, element)

    def named(self, op: str, inputs: Sequence[Value], out: Value, tail: str = "", *, result_type: bool = True) -> Value:
        names, types = ", ".join(v.name for v in inputs), ", ".join(v.type for v in inputs)
        arrow = f" -> {out.type}" if result_type else ""
        return Value(self.emit(f"{op} ins({names} : {types}) outs({out.name} : {out.type}){tail}{arrow}"), out.shape, out.element)

    def generic(
        self,
        inputs: Sequence[tuple[Value, Sequence[int]]],
        out: tuple[Value, Sequence[int]],
        reduction: Sequence[bool],
        body: Callable[["Body", list[str], str], str],
    ) -> Value:
        """A `linalg.generic`; maps are the loops of each dimension. `body(block, inputs' names, accumulator)` gives the yielded name."""
        loops = len(reduction)
        maps = ", ".join(map_text(loops, dims) for _, dims in (*inputs, out))
        kinds = ", ".join('"reduction"' if r else '"parallel"' for r in reduction)
        block = Body(self)
        names = [self.fresh() for _ in inputs]
        accumulator = self.fresh()
        yielded = body(block, names, accumulator)
        elements = [*(v.element for v, _ in inputs), out[0].element]
        arguments = ", ".join(f"{n}: {e}" for n, e in zip((*names, accumulator), elements, strict=True))
        header = f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
        ins = f"ins({', '.join(v.name for v, _ in inputs)} : {', '.join(v.type for v, _ in inputs)}) " if inputs else ""
        lines = [f"{header} {ins}outs({out[0].name} : {out[0].type}) {{", f"  ^bb0({arguments}):", *block.lines]
        lines += [f"    linalg.yield {yielded} : {out[0].element}", f"  }} -> {out[0].type}"]
        return Value(self.emit("\n".join(lines)), out[0].shape, out[0].element)

    def function(self, name: str, result: Value) -> str:
        arguments = ", ".join(f"%arg{i}: {tensor_type(s.shape, s.element)}" for i, s in enumerate(self.inputs))
        body = "\n".join([*self.lines, f"  return {result.name} : {result.type}"])
        return f"func.func @{name}({arguments}) -> {result.type} {{\n{body}\n}}\n"


class Body:
    """Collects the scalar operations of a generic's body."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self.lines: list[str] = []

    def op(self, name: str, *operands: str, element: str) -> str:
        result = self._text.fresh()
        self.lines.append(f"    {result} = {name} {', '.join(operands)} : {element}")
        return result

    def constant(self, value: float, element: str) -> str:
        result = self._text.fresh()
        self.lines.append(f"    {result} = arith.constant {int(value) if element.startswith('i') else format(value, 'e')} : {element}")
        return result

    def cast(self, value: str, source: str, target: str) -> str:
        if source == target:
            return value
        wider = WIDTHS[target] > WIDTHS[source]
        if source.startswith("i"):
            op = "arith.sitofp" if target.startswith("f") or target == "bf16" else "arith.extsi" if wider else "arith.trunci"
        elif {source, target} == {"f16", "bf16"}:
            return self.cast(self.cast(value, source, "f32"), "f32", target)
        else:
            op = "arith.extf" if wider else "arith.truncf"
        return self.op(op, value, element=f"{source} to {target}")

    def unary(self, kind: str, x: str, element: str) -> str:
        """One of `UNARY`, made safe for every input."""
        match kind:
            case "relu":
                return self.op("arith.maximumf", x, self.constant(0, element), element=element)
            case "sigmoid":
                e = self.op("math.exp", self.op("arith.negf", x, element=element), element=element)
                one = self.constant(1, element)
                return self.op("arith.divf", one, self.op("arith.addf", e, one, element=element), element=element)
            case "sqrt" | "log" | "rsqrt":
                positive = self.op("arith.addf", self.op("math.absf", x, element=element), self.constant(0.5, element), element=element)
                return self.op(f"math.{kind}", positive, element=element)
            case "square":
                return self.op("arith.mulf", x, x, element=element)
            case "scale":
                return self.op("arith.mulf", x, self.constant(0.375, element), element=element)
            case "neg":
                return self.op("arith.negf", x, element=element)
            case _:
                return self.op(f"math.{kind}", x, element=element)
