"""Chains of constructs: a start (an argument, a product, a convolution, a window) and up to four steps, each of which takes any value.

A construct is one function under `start` or `step`; a step says which values it takes. Sizes may be 0, 1, odd, and known to the
runtime only.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from generators.module_text import WIDTHS, Body, Extent, Text, Value, tensor_type

FLOATS = ("f32", "f32", "f16", "bf16", "f64")
INTEGERS = ("i8", "i16", "i32", "i32", "i64")
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 47, 64, 65, 77, 100, 128, 129)
LIMIT = 30_000
"""Elements of a value and iterations of an operation, so that a case takes no longer than compiling it."""
UNARY = ("relu", "sigmoid", "sqrt", "rsqrt", "log", "scale", "neg", "tanh", "absf")
"""Those of `Body.unary` whose results stay small, whatever comes before."""
INTEGER_BINARY = ("addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "maxui", "minui")


@dataclass(frozen=True, slots=True)
class Step:
    """`takes`: whether a value can go through; `apply` writes the step."""

    takes: Callable[[Value], bool]
    apply: Callable[[Text, Value], Value]


STARTS: list[Callable[[Text], Value]] = []
STEPS: list[Step] = []


def start(write: Callable[[Text], Value]) -> Callable[[Text], Value]:
    """Register a construct that a chain begins with."""
    STARTS.append(write)
    return write


def step(takes: Callable[[Value], bool]) -> Callable[[Callable[[Text, Value], Value]], Callable[[Text, Value], Value]]:
    """Register a construct that continues a chain."""

    def register(write: Callable[[Text, Value], Value]) -> Callable[[Text, Value], Value]:
        STEPS.append(Step(takes, write))
        return write

    return register


def chain(text: Text) -> Value:
    """A start and one to four steps."""
    rng = text.rng
    value = rng.choice(STARTS)(text)
    for _ in range(rng.randint(1, 4)):
        fitting = [one for one in STEPS if one.takes(value)]
        value = rng.choice(fitting).apply(text, value)
    return value if not value.name.startswith("%arg") else _pointwise(text, value)


def is_float(value: Value) -> bool:
    return not value.element.startswith("i")


def is_integer(value: Value) -> bool:
    return value.element.startswith("i")


def has_axes(value: Value) -> bool:
    return len(value.shape) > 0


def _last(value: Value) -> int:
    return value.shape[-1] if value.shape else 0


def is_static(value: Value) -> bool:
    return not any(isinstance(n, Extent) for n in value.shape)


def _room(value: Value) -> int:
    return LIMIT // max(int(np.prod([max(n, 1) for n in value.shape])), 1)


def sizes(rng: random.Random, rank: int, limit: int = LIMIT) -> list[int]:
    """Extents whose product stays in the limit; in one chain of four some of them are known to the runtime only."""
    found = [rng.choice(SIZES if rng.random() < 0.3 else SIZES[2:]) for _ in range(rank)]
    while int(np.prod([max(n, 1) for n in found])) > limit:
        found[found.index(max(found))] = rng.choice(SIZES[2:10])
    dynamic = rng.random() < 0.25
    return [Extent(n) if dynamic and rng.random() < 0.6 else n for n in found]


def _accumulator(element: str) -> str:
    return element if element in ("f64", "i64") else "i32" if element.startswith("i") else "f32"


@start
def _argument(text: Text) -> Value:
    rng = text.rng
    element = rng.choice(FLOATS if rng.random() < 0.65 else INTEGERS)
    return text.argument(sizes(rng, rng.choice((0, 1, 2, 2, 3, 4))), element)


@start
def _product(text: Text) -> Value:
    rng = text.rng
    m, n, k = sizes(rng, 3)
    element = rng.choice((*FLOATS, "i8", "i32"))
    a, b = ((m, k), (0, 2)), ((k, n), (2, 1))
    return _contracted(text, [_either(text, *one, element) for one in (a, b)], (m, n), _accumulator(element))


def _either(text: Text, shape: Sequence[int], dims: Sequence[int], element: str) -> tuple[Value, list[int]]:
    """An argument of these dimensions, stored one way or the other."""
    order = text.rng.choice(([0, 1], [1, 0]))
    return text.argument([shape[i] for i in order], element), [dims[i] for i in order]


def _contracted(text: Text, operands: Sequence[tuple[Value, list[int]]], shape: Sequence[int], accumulator: str) -> Value:
    """The sum over the last loop of the operands' products; the loops before it are the result's dimensions."""
    loops = len(shape) + 1
    kind = "i" if accumulator.startswith("i") else "f"

    def body(block: Body, names: list[str], total: str) -> str:
        x, y = (block.cast(name, value.element, accumulator) for name, (value, _) in zip(names, operands, strict=True))
        return block.op(f"arith.add{kind}", total, block.op(f"arith.mul{kind}", x, y, element=accumulator), element=accumulator)

    out = (text.filled(shape, accumulator, 0), list(range(loops - 1)))
    return text.generic(operands, out, [False] * (loops - 1) + [True], body)


@start
def _convolution(text: Text) -> Value:
    """Images in NHWC, filters in HWCF, with strides."""
    rng = text.rng
    n, height, width, c, f = (rng.choice((1, 1, 2, 3, 5, 8)) for _ in range(5))
    kh, kw, stride = rng.choice((1, 2, 3)), rng.choice((1, 2, 3)), rng.choice((1, 1, 2))
    x = text.argument((n, (height - 1) * stride + kh, (width - 1) * stride + kw, c), "f32")
    w, out = text.argument((kh, kw, c, f), "f32"), text.filled((n, height, width, f), "f32", 0)
    attributes = f"{{dilations = dense<1> : tensor<2xi64>, strides = dense<{stride}> : tensor<2xi64>}}"
    return text.named(f"linalg.conv_2d_nhwc_hwcf {attributes}", [x, w], out)


@step(is_float)
def _pointwise(text: Text, value: Value) -> Value:
    if is_integer(value):
        return _integers(text, value)
    rng, every = text.rng, list(range(len(value.shape)))
    inputs = [(value, every)]
    if rng.random() < 0.6:
        dims = rng.sample(every, rng.randint(0, len(every)))
        inputs.append((text.argument([value.shape[d] for d in dims], rng.choice((value.element, "f32"))), dims))
    compute = "f64" if value.element == "f64" else rng.choice(("f32", "f32", value.element))
    unary, target = rng.choice(UNARY), rng.choice((value.element, *FLOATS))
    binary = rng.choice(("arith.addf", "arith.subf", "arith.maximumf", "arith.minimumf"))

    def body(block: Body, names: list[str], _: str) -> str:
        values = [block.cast(name, one.element, compute) for name, (one, _) in zip(names, inputs, strict=True)]
        x = block.op(binary, *values, element=compute) if len(values) == 2 else values[0]
        return block.cast(block.unary(unary, x, compute), compute, target)

    return text.generic(inputs, (text.empty(value.shape, target), every), [False] * len(every), body)


@step(is_integer)
def _integers(text: Text, value: Value) -> Value:
    rng, every = text.rng, list(range(len(value.shape)))
    dims = rng.sample(every, rng.randint(0, len(every)))
    inputs = [(value, every), (text.argument([value.shape[d] for d in dims], value.element), dims)]
    op, target = rng.choice(INTEGER_BINARY), rng.choice((value.element, *INTEGERS, "f32"))

    def body(block: Body, names: list[str], _: str) -> str:
        return block.cast(block.op(f"arith.{op}", *names, element=value.element), value.element, target)

    return text.generic(inputs, (text.empty(value.shape, target), every), [False] * len(every), body)


@step(lambda value: True)
def _on_tensors(text: Text, value: Value) -> Value:
    """Arithmetic on whole tensors, without a `linalg.generic`."""
    other = text.argument(value.shape, value.element)
    op = text.rng.choice(("addi", "xori", "minsi") if is_integer(value) else ("addf", "subf", "maximumf"))
    return Value(text.emit(f"arith.{op} {value.name}, {other.name} : {value.type}"), value.shape, value.element)


@step(lambda value: True)
def _selected(text: Text, value: Value) -> Value:
    """One of two values, by a comparison."""
    every = list(range(len(value.shape)))
    other, element = text.argument(value.shape, value.element), value.element
    compare = (
        "arith.cmpi " + text.rng.choice(("slt", "eq", "uge")) if is_integer(value) else "arith.cmpf " + text.rng.choice(("olt", "uge"))
    )

    def body(block: Body, names: list[str], _: str) -> str:
        condition = block.op(f"{compare},", *names, element=element)
        return block.op("arith.select", condition, *names, element=element)

    return text.generic([(value, every), (other, every)], (text.empty(value.shape, element), every), [False] * len(every), body)


@step(has_axes)
def _transposed(text: Text, value: Value) -> Value:
    order = text.rng.sample(range(len(value.shape)), len(value.shape))
    out = text.empty([value.shape[d] for d in order], value.element)
    return text.named("linalg.transpose", [value], out, f" permutation = [{', '.join(map(str, order))}]", result_type=False)


@step(lambda value: len(value.shape) < 4 and _room(value) > 1)
def _broadcast(text: Text, value: Value) -> Value:
    axis, extent = text.rng.randint(0, len(value.shape)), text.rng.choice([n for n in SIZES if n <= _room(value)])
    out = text.empty([*value.shape[:axis], extent, *value.shape[axis:]], value.element)
    return text.named("linalg.broadcast", [value], out, f" dimensions = [{axis}]", result_type=False)


@step(has_axes)
def _reduced(text: Text, value: Value) -> Value:
    rng = text.rng
    axes = set(rng.sample(range(len(value.shape)), rng.randint(1, len(value.shape))))
    kept = [d for d in range(len(value.shape)) if d not in axes]
    element = _accumulator(value.element)
    ops = {"addi": 0, "maxsi": -100, "minsi": 100, "xori": 0} if is_integer(value) else {"addf": 0.0, "maximumf": -9.0, "minimumf": 9.0}
    op, initial = rng.choice(list(ops.items()))

    def body(block: Body, names: list[str], total: str) -> str:
        return block.op(f"arith.{op}", total, block.cast(names[0], value.element, element), element=element)

    out = (text.filled([value.shape[d] for d in kept], element, initial), kept)
    return text.generic([(value, list(range(len(value.shape))))], out, [d in axes for d in range(len(value.shape))], body)


@step(lambda value: len(value.shape) < 4 and _last(value) > 0)
def _multiplied(text: Text, value: Value) -> Value:
    """A product with a new matrix, along the last dimension."""
    rank, columns = len(value.shape), text.rng.choice((1, 3, 8, 17, 33))
    other = text.argument((value.shape[-1], columns), value.element)
    operands = [(value, [*range(rank - 1), rank]), (other, [rank, rank - 1])]
    return _contracted(text, operands, [*value.shape[:-1], columns], _accumulator(value.element))


@step(lambda value: has_axes(value) and is_static(value) and _room(value) > 2)
def _padded(text: Text, value: Value) -> Value:
    low, high = ([text.rng.choice((0, 0, 1, 3)) for _ in value.shape] for _ in range(2))
    shape = [a + n + b for a, n, b in zip(low, value.shape, high, strict=True)]
    filler = text.constant(text.rng.choice((0, 1)), value.element)
    indices = ", ".join(f"%i{d}: index" for d in range(len(shape)))
    body = f" {{\n  ^bb0({indices}):\n    tensor.yield {filler} : {value.element}\n  }}"
    return Value(
        text.emit(f"tensor.pad {value.name} low{low} high{high}{body} : {value.type} to {tensor_type(shape, value.element)}"),
        tuple(shape),
        value.element,
    )


@step(lambda value: has_axes(value) and is_static(value))
def _sliced(text: Text, value: Value) -> Value:
    rng = text.rng
    strides = [rng.choice((1, 1, 1, 2, 3)) for _ in value.shape]
    offsets = [rng.randint(0, n // 2) for n in value.shape]
    shape = [rng.randint(0 if n == o else 1, -(-(n - o) // s)) for n, o, s in zip(value.shape, offsets, strides, strict=True)]
    kind = tensor_type(shape, value.element)
    return Value(
        text.emit(f"tensor.extract_slice {value.name}{offsets} {shape} {strides} : {value.type} to {kind}"), tuple(shape), value.element
    )


@step(lambda value: has_axes(value) and is_static(value) and _room(value) > 2)
def _inserted(text: Text, value: Value) -> Value:
    """The value as a part of a larger array."""
    offsets = [text.rng.choice((0, 1, 4)) for _ in value.shape]
    whole = text.argument([n + o + text.rng.choice((0, 2)) for n, o in zip(value.shape, offsets, strict=True)], value.element)
    ones = [1] * len(offsets)
    name = text.emit(
        f"tensor.insert_slice {value.name} into {whole.name}{offsets} {list(value.shape)} {ones} : {value.type} into {whole.type}"
    )
    return Value(name, whole.shape, value.element)


@step(lambda value: has_axes(value) and is_static(value) and _room(value) > 1)
def _concatenated(text: Text, value: Value) -> Value:
    axis = text.rng.randrange(len(value.shape))
    shape = list(value.shape)
    shape[axis] = text.rng.choice((1, 2, 5))
    other = text.argument(shape, value.element)
    pair = (value, other) if text.rng.random() < 0.5 else (other, value)
    shape[axis] += value.shape[axis]
    kinds = ", ".join(one.type for one in pair)
    name = text.emit(f"tensor.concat dim({axis}) {pair[0].name}, {pair[1].name} : ({kinds}) -> {tensor_type(shape, value.element)}")
    return Value(name, tuple(shape), value.element)


@step(lambda value: len(value.shape) >= 2 and is_static(value))
def _collapsed(text: Text, value: Value) -> Value:
    rank, at = len(value.shape), text.rng.randrange(len(value.shape) - 1)
    groups = [[d] for d in range(at)] + [[at, at + 1]] + [[d] for d in range(at + 2, rank)]
    shape = [*value.shape[:at], value.shape[at] * value.shape[at + 1], *value.shape[at + 2 :]]
    kind = tensor_type(shape, value.element)
    return Value(text.emit(f"tensor.collapse_shape {value.name} {groups} : {value.type} into {kind}"), tuple(shape), value.element)


@step(lambda value: has_axes(value) and is_static(value) and len(value.shape) < 4)
def _expanded(text: Text, value: Value) -> Value:
    rank, at = len(value.shape), text.rng.randrange(len(value.shape))
    factor = text.rng.choice([n for n in (1, 2, 3, 4, 8) if value.shape[at] % n == 0])
    groups = [[d] for d in range(at)] + [[at, at + 1]] + [[d + 1] for d in range(at + 1, rank)]
    shape = [*value.shape[:at], factor, value.shape[at] // factor, *value.shape[at + 1 :]]
    kind = tensor_type(shape, value.element)
    name = text.emit(f"tensor.expand_shape {value.name} {groups} output_shape {shape} : {value.type} into {kind}")
    return Value(name, tuple(shape), value.element)


@step(lambda value: is_integer(value) and WIDTHS[value.element] > 8)
def _shifted(text: Text, value: Value) -> Value:
    every, element = list(range(len(value.shape))), value.element
    op, count = text.rng.choice(("shli", "shrsi", "shrui")), text.rng.choice((0, 1, 3, WIDTHS[value.element] - 1))

    def body(block: Body, names: list[str], _: str) -> str:
        return block.op(f"arith.{op}", names[0], block.constant(count, element), element=element)

    return text.generic([(value, every)], (text.empty(value.shape, element), every), [False] * len(every), body)


@step(lambda value: has_axes(value) and is_float(value) and value.element != "f64")
def _numbered(text: Text, value: Value) -> Value:
    """Plus the place along one dimension."""
    every, element, axis = list(range(len(value.shape))), value.element, text.rng.randrange(len(value.shape))

    def body(block: Body, names: list[str], _: str) -> str:
        place = text.fresh()
        block.lines.append(f"    {place} = linalg.index {axis} : index")
        number = block.op("arith.index_cast", place, element="index to i32")
        wide = block.op("arith.sitofp", number, element="i32 to f32")
        return block.cast(block.op("arith.addf", block.cast(names[0], element, "f32"), wide, element="f32"), "f32", element)

    return text.generic([(value, every)], (text.empty(value.shape, element), every), [False] * len(every), body)


@step(lambda value: is_static(value) and is_float(value) and _last(value) > 3)
def _windowed(text: Text, value: Value) -> Value:
    """Sums of neighbours along the last dimension: a map with a sum of loops."""
    rank, width, element = len(value.shape), text.rng.choice((2, 3)), _accumulator(value.element)
    shape = [*value.shape[:-1], value.shape[-1] - width + 1]
    dims, window = [f"d{d}" for d in range(rank)], f"d{rank}"
    filters, out = text.argument((width,), value.element), text.filled(shape, element, 0)
    loops = ", ".join([*dims, window])
    maps = [[*dims[:-1], f"{dims[-1]} + {window}"], [window], dims]
    shown = ", ".join(f"affine_map<({loops}) -> ({', '.join(one)})>" for one in maps)
    block = Body(text)
    x, y, total = (text.fresh() for _ in range(3))
    product = block.op("arith.mulf", *(block.cast(v, value.element, element) for v in (x, y)), element=element)
    result = block.op("arith.addf", total, product, element=element)
    kinds = ", ".join(['"parallel"'] * rank + ['"reduction"'])
    lines = [
        f"linalg.generic {{indexing_maps = [{shown}], iterator_types = [{kinds}]}} "
        f"ins({value.name}, {filters.name} : {value.type}, {filters.type}) outs({out.name} : {out.type}) {{",
        f"  ^bb0({x}: {value.element}, {y}: {value.element}, {total}: {element}):",
        *block.lines,
        f"    linalg.yield {result} : {element}",
        f"  }} -> {out.type}",
    ]
    return Value(text.emit("\n".join(lines)), tuple(shape), element)
