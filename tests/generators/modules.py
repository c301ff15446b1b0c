"""Random tensor-level modules, each determined by its seed: contractions, reductions, elementwise chains, transposes, and chains of these.

Every module is one function whose text needs no aliases, so that many can be put into one text.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np
from generators.module_chains import chain
from generators.module_text import Body, GeneratedModule, InputSpec, Text, Value

__all__ = ["FAMILIES", "GeneratedModule", "InputSpec", "random_module"]

SIZES = (1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 47, 64, 65, 77, 100, 127, 128, 129, 200)
LOOP_LIMIT = 400_000  # iterations of one operation
LOWEST = {"f32": "0xFF800000", "f16": "0xFC00", "bf16": "0xFF80"}
HIGHEST = {"f32": "0x7F800000", "f16": "0x7C00", "bf16": "0x7F80"}


UNARY = ("relu", "sigmoid", "sqrt", "rsqrt", "log", "square", "scale", "neg", "tanh", "exp", "absf")
BINARY = ("arith.addf", "arith.subf", "arith.mulf", "arith.maximumf", "arith.minimumf")


def _sizes(rng: random.Random, count: int, limit: int = LOOP_LIMIT) -> list[int]:
    sizes = [rng.choice(SIZES) for _ in range(count)]
    while np.prod(sizes) > limit:
        sizes[sizes.index(max(sizes))] = rng.choice(SIZES[:12])
    return sizes


def _shuffled(rng: random.Random, items: Sequence[int]) -> list[int]:
    found = list(items)
    rng.shuffle(found)
    return found


CONTRACTIONS = (("f32", "f32"), ("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("f16", "f16"), ("i8", "i32"))


def _contracted(text: Text, types: tuple[str, str], *, batched: bool, plain_output: bool = False) -> Value:
    rng = text.rng
    operand, accumulator = types
    batch = [0] if batched else []
    m, n, k = (len(batch) + i for i in range(3))
    loops = len(batch) + 3
    sizes = _sizes(rng, loops)
    standard = ([*batch, m, k], [*batch, k, n], [*batch, m, n])
    named = rng.random() < 0.35
    a_dims, b_dims, c_dims = standard
    if not named:
        a_dims, b_dims = _shuffled(rng, a_dims), _shuffled(rng, b_dims)
        if not plain_output and rng.random() < 0.25:
            c_dims = _shuffled(rng, c_dims)
    a, b = (text.argument([sizes[d] for d in dims], operand) for dims in (a_dims, b_dims))
    shape = [sizes[d] for d in c_dims]
    initial = text.argument(shape, accumulator) if rng.random() < 0.2 else text.filled(shape, accumulator, 0)
    if named:
        return text.named("linalg.batch_matmul" if batched else "linalg.matmul", [a, b], initial)
    kind = "i" if accumulator.startswith("i") else "f"

    def body(block: Body, names: list[str], total: str) -> str:
        x, y = (block.cast(v, operand, accumulator) for v in names)
        return block.op(f"arith.add{kind}", total, block.op(f"arith.mul{kind}", x, y, element=accumulator), element=accumulator)

    return text.generic([(a, a_dims), (b, b_dims)], (initial, c_dims), [d == k for d in range(loops)], body)


def _contraction(text: Text) -> Value:
    return _contracted(text, text.rng.choice(CONTRACTIONS), batched=text.rng.random() < 0.35)


def _reduced(text: Text, source: Value, axes: Sequence[int], combiner: str, accumulator: str, before: str | None = None) -> Value:
    """Reduce `source` along `axes`: `sum`, `max`, `min` or `prod`, after one of `UNARY`."""
    kept = [d for d in range(len(source.shape)) if d not in axes]
    start: float | str = {"sum": 0.0, "prod": 1.0, "max": LOWEST[accumulator], "min": HIGHEST[accumulator]}[combiner]
    initial = text.filled([source.shape[d] for d in kept], accumulator, start)
    op = {"sum": "arith.addf", "prod": "arith.mulf", "max": "arith.maximumf", "min": "arith.minimumf"}[combiner]
    if before is None and source.element == accumulator and text.rng.random() < 0.4:
        tail = f" dimensions = [{', '.join(map(str, axes))}]\n"
        combine = f"    %c = {op} %in, %acc : {accumulator}\n    linalg.yield %c : {accumulator}\n"
        region = f"  (%in: {accumulator}, %acc: {accumulator}) {{\n{combine}  }}"
        return text.named("linalg.reduce", [source], initial, tail + region, result_type=False)

    def body(block: Body, names: list[str], total: str) -> str:
        x = block.cast(names[0], source.element, accumulator)
        x = block.unary(before, x, accumulator) if before else x
        return block.op(op, total, x, element=accumulator)

    every = list(range(len(source.shape)))
    return text.generic([(source, every)], (initial, kept), [d in axes for d in every], body)


def _reduction(text: Text) -> Value:
    rng = text.rng
    rank = rng.choice((1, 2, 2, 2, 3))
    combiner = rng.choice(("sum", "sum", "max", "min", "prod"))
    sizes = _sizes(rng, rank)
    axes = sorted(rng.sample(range(rank), rng.randint(1, rank)))
    if combiner == "prod":
        sizes = [min(n, 13) if d in axes else n for d, n in enumerate(sizes)]
    element = rng.choice(("f32", "f32", "f16", "bf16"))
    accumulator = element if combiner in ("max", "min") and rng.random() < 0.5 else "f32"
    before = rng.choice((None, None, "square", "absf", "sigmoid"))
    return _reduced(text, text.argument(sizes, element), axes, combiner, accumulator, before)


def _elementwise_step(text: Text, value: Value, target: str) -> Value:
    """One generic: maybe a second operand (broadcast along some dimensions, maybe transposed), a few operations, a cast."""
    rng = text.rng
    rank = len(value.shape)
    every = list(range(rank))
    inputs: list[tuple[Value, Sequence[int]]] = [(value, every)]
    if rng.random() < 0.7:
        dims = _shuffled(rng, sorted(rng.sample(every, rng.randint(0, rank))))
        inputs.append((text.argument([value.shape[d] for d in dims], rng.choice((value.element, "f32"))), dims))
    compute = "f32" if rng.random() < 0.7 else value.element
    binary = rng.choice(BINARY)
    unary = [rng.choice(UNARY) for _ in range(rng.randint(0 if len(inputs) > 1 else 1, 2))]
    if unary.count("exp") + unary.count("square") > 1:
        unary = unary[:1]

    def body(block: Body, names: list[str], _: str) -> str:
        values = [block.cast(n, v.element, compute) for n, (v, _) in zip(names, inputs, strict=True)]
        x = block.op(binary, *values, element=compute) if len(values) == 2 else values[0]
        for kind in unary:
            x = block.unary(kind, x, compute)
        return block.cast(x, compute, target)

    return text.generic(inputs, (text.empty(value.shape, target), every), [False] * rank, body)


def _elementwise(text: Text) -> Value:
    rng = text.rng
    rank = rng.choice((1, 2, 2, 3))
    value = text.argument(_sizes(rng, rank, 60_000), rng.choice(("f32", "f32", "f16", "bf16")))
    steps = rng.randint(1, 3)
    for step in range(steps):
        value = _elementwise_step(
            text, value, rng.choice(("f32", value.element)) if step + 1 < steps else rng.choice(("f32", "f16", "bf16"))
        )
    return value


def _transpose(text: Text) -> Value:
    rng = text.rng
    rank = rng.choice((2, 2, 3, 4))
    value = text.argument(_sizes(rng, rank, 60_000), rng.choice(("f32", "f16", "bf16", "i32")))
    order = _shuffled(rng, range(rank))
    out = text.empty([value.shape[d] for d in order], value.element)
    if rng.random() < 0.6:
        result = text.named("linalg.transpose", [value], out, f" permutation = [{', '.join(map(str, order))}]", result_type=False)
    else:
        result = text.generic(
            [(value, [order.index(d) for d in range(rank)])], (out, list(range(rank))), [False] * rank, lambda _, n, __: n[0]
        )
    if value.element != "i32" and rng.random() < 0.5:
        result = _elementwise_step(text, result, value.element)
    return result


def _fused(text: Text) -> Value:
    """Contraction, bias, activation, cast."""
    rng = text.rng
    types = rng.choice((("f32", "f32"), ("f16", "f32"), ("bf16", "f32")))
    product = _contracted(text, types, batched=rng.random() < 0.2, plain_output=True)
    last = len(product.shape) - 1
    bias = text.argument([product.shape[last]], rng.choice(("f32", types[0])))
    activation = rng.choice(("relu", "tanh", "sigmoid", None))
    every = list(range(last + 1))
    target = rng.choice(("f32", types[0]))

    def body(block: Body, names: list[str], _: str) -> str:
        x = block.op("arith.addf", names[0], block.cast(names[1], bias.element, "f32"), element="f32")
        return block.cast(block.unary(activation, x, "f32") if activation else x, "f32", target)

    result = text.generic([(product, every), (bias, [last])], (text.empty(product.shape, target), every), [False] * len(every), body)
    return _elementwise_step(text, result, target) if rng.random() < 0.3 else result


def _softmax(text: Text) -> Value:
    """Along the last dimension of a matrix, in four steps; or layer normalisation's mean and spread."""
    rng = text.rng
    rows, columns = _sizes(rng, 2)
    element = rng.choice(("f32", "f32", "bf16", "f16"))
    x = text.argument([rows, columns], element)
    top = _reduced(text, x, [1], "max", "f32")

    def shifted(block: Body, names: list[str], _: str) -> str:
        return block.op("math.exp", block.op("arith.subf", block.cast(names[0], element, "f32"), names[1], element="f32"), element="f32")

    e = text.generic([(x, [0, 1]), (top, [0])], (text.empty(x.shape, "f32"), [0, 1]), [False, False], shifted)
    total = _reduced(text, e, [1], "sum", "f32")

    def quotient(block: Body, names: list[str], _: str) -> str:
        return block.cast(block.op("arith.divf", names[0], names[1], element="f32"), "f32", element)

    return text.generic([(e, [0, 1]), (total, [0])], (text.empty(x.shape, element), [0, 1]), [False, False], quotient)


FAMILIES: tuple[tuple[str, Callable[[Text], Value]], ...] = (
    ("contraction", _contraction),
    ("fused", _fused),
    ("reduction", _reduction),
    ("elementwise", _elementwise),
    ("transpose", _transpose),
    ("contraction", _contraction),
    ("reduction", _reduction),
    ("softmax", _softmax),
    *(("chain", chain),) * 4,
)


def random_module(seed: int) -> GeneratedModule:
    """The module of a seed; seeds 0, 1, 2, ... go through the families in turn."""
    family, generate = FAMILIES[seed % len(FAMILIES)]
    text = Text(random.Random(seed))
    result = generate(text)
    name = f"module_{seed}"
    return GeneratedModule(name, text.function(name, result), tuple(text.inputs), family)
