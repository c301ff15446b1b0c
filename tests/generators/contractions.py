"""Random matrix products, each determined by its seed: sizes from 1 to 20000 (log-uniform, odd ones among them), the four layouts of the
operands, all element types, what frameworks do with a product before they store it, sizes that are static or known to the runtime only, the
five targets, and now and then an option.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import Any, Literal

from generators.modules import InputSpec

TARGETS = ("sm_90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
Layout = Literal["nn", "nt", "tn", "tt"]
LAYOUTS: tuple[Layout, ...] = ("nn", "nt", "tn", "tt")
"""Whether A is stored as m x k ("n") or k x m ("t"), and B as k x n or n x k."""
Epilogue = Literal["none", "bias", "residual", "relu", "multiply", "silu_multiply", "gated"]
EPILOGUES: tuple[Epilogue, ...] = ("none", "none", "bias", "residual", "relu", "multiply", "silu_multiply", "gated")
"""What follows a product p: p + a row; p + a matrix; max(p, 0); p * a matrix; p * silu(a matrix); silu(p) * (a second product of A)."""

FP8 = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ")
ELEMENTS = ("f16", "f16", "bf16", "bf16", "f32", "f64", "i8", "i64", *FP8)
_SUMS = {"f64": "f64", "i64": "i64", "i8": "i32"}
_RESULTS = {"f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "f32": ("f32",), "f64": ("f64",), "i8": ("i32",), "i64": ("i64",)}
_FP8_RESULTS = ("f32", "bf16", "f16")
LONGEST = 20000
_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}


@dataclass(frozen=True, slots=True)
class ContractionCase:
    """One program: `text`, its one function's `name`, and what to compile it for.

    `dynamic`: which of "mnk" only the runtime knows (the sizes below are then those of a call). `early`: the product is rounded to `result`
    ahead of the epilogue, as frameworks do that work operation by operation. `options`: fields of `CompileOptions`.
    """

    m: int
    n: int
    k: int
    element: str
    layout: Layout = "nn"
    result: str = "f32"
    epilogue: Epilogue = "none"
    early: bool = True
    dynamic: str = ""
    target: str = "sm_90a"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        """The function, named by what it is."""
        kinds = [self.element, self.layout, self.epilogue, self.result, *(["early"] if self.early else [])]
        return "_".join([f"product_{self.m}x{self.n}x{self.k}", *kinds, *([f"dynamic_{self.dynamic}"] if self.dynamic else [])])

    @property
    def label(self) -> str:
        """Everything that tells the case, for reports."""
        return " ".join([self.target, self.name, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """Shapes (of a call, where they are dynamic) and element types of the arguments."""
        return tuple(InputSpec(tuple(getattr(self, d) for d in dims), element) for _, dims, element in _arguments(self))

    @property
    def text(self) -> str:
        """The function."""
        return _Writer(self).function()


def _arguments(case: ContractionCase) -> list[tuple[str, str, str]]:
    """Name, dimensions and element type of each argument."""
    b = "kn" if case.layout[1] == "n" else "nk"
    found = [("%a", "mk" if case.layout[0] == "n" else "km", case.element), ("%b", b, case.element)]
    match case.epilogue:
        case "bias":
            found.append(("%c", "n", case.result))
        case "residual" | "multiply" | "silu_multiply":
            found.append(("%c", "mn", case.result))
        case "gated":
            found.append(("%c", b, case.element))
        case "none" | "relu":
            pass
    return found


_Body = Callable[["_Writer"], str]
"""Writes a block's operations and gives the name of what it yields."""


class _Writer:
    """Lines of one function."""

    def __init__(self, case: ContractionCase) -> None:
        self.case = case
        self.sums = _SUMS.get(case.element, "f32")
        self.is_float = not case.result.startswith("i")
        self.lines: list[str] = []
        self.count = 0

    def add(self, text: str, indent: int = 2) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"{' ' * indent}{name} = {text}")
        return name

    def op(self, name: str, *operands: str, element: str) -> str:
        return self.add(f"{name} {', '.join(operands)} : {element}", 4)

    def type(self, dims: str, element: str) -> str:
        sizes = ["?" if d in self.case.dynamic else str(getattr(self.case, d)) for d in dims]
        return f"tensor<{'x'.join([*sizes, element])}>"

    def empty(self, element: str, sizes: Mapping[str, str]) -> str:
        dims = ", ".join(sizes[d] for d in "mn" if d in self.case.dynamic)
        return self.add(f"tensor.empty({dims}) : {self.type('mn', element)}")

    def cast(self, value: str, source: str, target: str) -> str:
        if source == target:
            return value
        if source.startswith("i"):
            return self.op("arith.extsi", value, element=f"{source} to {target}")
        name = "arith.truncf" if _BITS.get(target, 8) < _BITS.get(source, 8) else "arith.extf"
        return self.op(name, value, element=f"{source} to {target}")

    def sizes(self, arguments: Sequence[tuple[str, str, str]]) -> dict[str, str]:
        """The values of the dynamic sizes of the result."""
        found: dict[str, str] = {}
        for d in "mn":
            if d in self.case.dynamic:
                name, dims, element = next(a for a in arguments if d in a[1])
                axis = self.add(f"arith.constant {dims.index(d)} : index")
                found[d] = self.add(f"tensor.dim {name}, {axis} : {self.type(dims, element)}")
        return found

    def generic(self, inputs: Sequence[tuple[str, str, str]], out: str, element: str, body: _Body, *, sums: bool) -> str:
        loops = "m, n, k" if sums else "m, n"
        maps = [f"affine_map<({loops}) -> ({', '.join(dims)})>" for dims in (*(i[1] for i in inputs), "mn")]
        kinds = '"parallel", "parallel"' + (', "reduction"' if sums else "")
        types = ", ".join(self.type(dims, kind) for _, dims, kind in inputs)
        self.count += 1
        name, whole = f"%v{self.count}", self.type("mn", element)
        block = [f"%in{i}: {kind}" for i, (_, _, kind) in enumerate(inputs)] + [f"%out: {element}"]
        self.lines += [
            f"  {name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}}",
            f"      ins({', '.join(i[0] for i in inputs)} : {types}) outs({out} : {whole}) {{",
            f"  ^bb0({', '.join(block)}):",
        ]
        yielded = body(self)
        self.lines += [f"    linalg.yield {yielded} : {element}", f"  }} -> {whole}"]
        return name

    def product(self, a: tuple[str, str, str], b: tuple[str, str, str], sizes: Mapping[str, str]) -> str:
        zero = self.add(f"arith.constant {'0.0' if self.is_float else '0'} : {self.sums}")
        empty, whole = self.empty(self.sums, sizes), self.type("mn", self.sums)
        start = self.add(f"linalg.fill ins({zero} : {self.sums}) outs({empty} : {whole}) -> {whole}")
        if self.case.layout == "nn" and self.case.element in ("f32", "f64", "i64"):
            kinds = f"{self.type('mk', a[2])}, {self.type('kn', b[2])}"
            return self.add(f"linalg.matmul ins({a[0]}, {b[0]} : {kinds}) outs({start} : {whole}) -> {whole}")
        return self.generic([a, b], start, self.sums, _multiply_add, sums=True)

    def function(self) -> str:
        case = self.case
        arguments = _arguments(case)
        sizes = self.sizes(arguments)
        total, kind = self.product(arguments[0], arguments[1], sizes), self.sums
        second = self.product(arguments[0], arguments[2], sizes) if case.epilogue == "gated" else ""
        if case.early and case.result != kind:
            rounded = [
                self.generic([(v, "mn", kind)], self.empty(case.result, sizes), case.result, _round, sums=False)
                for v in (total, second)
                if v
            ]
            total, second, kind = rounded[0], rounded[-1], case.result
        if case.epilogue != "none" or kind != case.result:
            inputs = [(total, "mn", kind)]
            if case.epilogue == "gated":
                inputs.append((second, "mn", kind))
            elif len(arguments) > 2:
                inputs.append(arguments[2])
            total = self.generic(inputs, self.empty(case.result, sizes), case.result, _epilogue, sums=False)
        signature = ", ".join(f"{name}: {self.type(dims, element)}" for name, dims, element in arguments)
        whole = self.type("mn", case.result)
        body = "\n".join(self.lines)
        return f"func.func @{case.name}({signature}) -> {whole} {{\n{body}\n  return {total} : {whole}\n}}\n"


def _multiply_add(writer: _Writer) -> str:
    kind, sums = "f" if writer.is_float else "i", writer.sums
    a, b = (writer.cast(name, writer.case.element, sums) for name in ("%in0", "%in1"))
    return writer.op(f"arith.add{kind}", "%out", writer.op(f"arith.mul{kind}", a, b, element=sums), element=sums)


def _round(writer: _Writer) -> str:
    return writer.cast("%in0", writer.sums, writer.case.result)


def _silu(writer: _Writer, value: str, element: str) -> str:
    """The value / (1 + exp(-value)); of integers the value."""
    if not writer.is_float:
        return value
    one = writer.add(f"arith.constant 1.0 : {element}", 4)
    e = writer.op("math.exp", writer.op("arith.negf", value, element=element), element=element)
    return writer.op("arith.divf", value, writer.op("arith.addf", e, one, element=element), element=element)


def _epilogue(writer: _Writer) -> str:
    """The scalar operations behind the product (`%in0`), in f32 where that is wider than what they take."""
    case, kind = writer.case, "f" if writer.is_float else "i"
    rounded = case.early and case.result != writer.sums
    wide = writer.sums
    value = writer.cast("%in0", case.result if rounded else wide, wide)
    if case.epilogue not in ("none", "relu"):
        is_product = case.epilogue == "gated" and not rounded
        other = writer.cast("%in1", wide if is_product else case.result, wide)
        match case.epilogue:
            case "bias" | "residual":
                value = writer.op(f"arith.add{kind}", value, other, element=wide)
            case "multiply":
                value = writer.op(f"arith.mul{kind}", value, other, element=wide)
            case "silu_multiply":
                value = writer.op(f"arith.mul{kind}", value, _silu(writer, other, wide), element=wide)
            case _:
                value = writer.op(f"arith.mul{kind}", _silu(writer, value, wide), other, element=wide)
    elif case.epilogue == "relu":
        zero = writer.add(f"arith.constant {'0.0' if writer.is_float else '0'} : {wide}", 4)
        value = writer.op("arith.maximumf" if writer.is_float else "arith.maxsi", value, zero, element=wide)
    return writer.cast(value, wide, case.result)


def _size(rng: random.Random, longest: int) -> int:
    """Log-uniform; two in five are rounded to a multiple of a power of two, as sizes of models are."""
    size = round(exp(rng.uniform(0, log(longest))))
    step = rng.choice((1, 1, 1, 8, 64))
    return size if size < step else size // step * step


_OPTIONS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("pipeline_stages", (0, 2, 3)),
    ("persistent", ("always", "never")),
    ("roles", (False,)),
    ("split_reduction", ("off", "2", "3", "5", "16")),
    ("form", ("roles", "swapped", "streaming", "tiles")),
)
_DYNAMIC = ("", "", "", "m", "mnk", "mnk", "n", "k", "mn")


def random_contraction(seed: int, *, longest: int = LONGEST, targets: Sequence[str] = TARGETS) -> ContractionCase:
    """The case of a seed. `longest`: of the three sizes, for who runs the programs."""
    rng = random.Random(f"contraction {seed}")
    m, n, k = (_size(rng, longest) for _ in range(3))
    element = rng.choice(ELEMENTS)
    result = rng.choice(_FP8_RESULTS if element in FP8 else _RESULTS[element])
    options: dict[str, Any] = {}
    if rng.random() < 0.25:
        name, values = rng.choice(_OPTIONS)
        options[name] = rng.choice(values)
    return ContractionCase(
        m,
        n,
        k,
        element,
        rng.choice(LAYOUTS),
        result,
        rng.choice(EPILOGUES),
        rng.random() < 0.7,
        rng.choice(_DYNAMIC),
        targets[seed % len(targets)],
        options,
    )
