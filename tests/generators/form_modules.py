"""Random modules of the forms that are no plain generics, each determined by its seed: softmax, gathers, pooling, branches.

Like `modules.random_module`; integers of the inputs lie in [-9, 10), so that gathers reach outside their tensors.
"""

import random
from collections.abc import Callable

from generators.module_text import GeneratedModule, Text, Value, map_text
from generators.modules import SIZES

FLOATS = ("f32", "f32", "f16", "bf16")


def _shape(rng: random.Random, rank: int) -> list[int]:
    sizes = [rng.choice(SIZES) for _ in range(rank)]
    return sizes if rank < 3 else [min(size, 17) for size in sizes]


def _softmax(text: Text) -> Value:
    rng = text.rng
    x = text.argument(_shape(rng, rng.choice((1, 2, 2, 3))), rng.choice(FLOATS))
    return text.named(f"linalg.softmax dimension({rng.randrange(len(x.shape))})", [x], text.empty(x.shape, x.element))


def _gather(text: Text) -> Value:
    """Rows of a table, or elements of a vector, at integers of one of three types."""
    rng = text.rng
    rank, element, number = rng.choice((1, 2)), rng.choice((*FLOATS, "i32")), rng.choice(("i32", "i8"))
    table, places = text.argument(_shape(rng, rank), element), text.argument(_shape(rng, 1), number)
    shape = [*places.shape, *table.shape[1:]]
    out, every = text.empty(shape, element), list(range(rank))
    loops = ", ".join(['"parallel"'] * rank)
    header = f"indexing_maps = [{map_text(rank, [0])}, {map_text(rank, every)}], iterator_types = [{loops}]"
    place, i, row, column, found = (text.fresh() for _ in range(5))
    lines = [
        f"linalg.generic {{{header}}} ins({places.name} : {places.type}) outs({out.name} : {out.type}) {{",
        f"  ^bb0({place}: {number}, {i}: {element}):",
        f"    {row} = arith.index_cast {place} : {number} to index",
        *([f"    {column} = linalg.index 1 : index"] if rank == 2 else []),
        f"    {found} = tensor.extract {table.name}[{', '.join([row, column][:rank])}] : {table.type}",
        f"    linalg.yield {found} : {element}",
        f"  }} -> {out.type}",
    ]
    return Value(text.emit("\n".join(lines)), out.shape, element)


def _pooling(text: Text) -> Value:
    rng = text.rng
    kind = rng.choice(("sum", "max", "min"))
    windows, steps = [rng.choice((1, 2, 3)) for _ in range(2)], [rng.choice((1, 2)) for _ in range(2)]
    n, h, w, c = (rng.choice((1, 2, 3, 5, 7)) for _ in range(4))
    x = text.argument([n, *((size - 1) * step + k for size, step, k in zip((h, w), steps, windows, strict=True)), c], "f32")
    window, out = text.empty(windows, "f32"), text.argument([n, h, w, c], "f32")
    return text.named(f"linalg.pooling_nhwc_{kind} {{strides = dense<{steps}> : tensor<2xi64>}}", [x, window], out)


def _branch(text: Text) -> Value:
    rng = text.rng
    x = text.argument(_shape(rng, rng.choice((1, 2))), rng.choice(("f32", "f16")))
    number = text.argument((), "i32")
    scalar = text.emit(f"tensor.extract {number.name}[] : {number.type}")
    condition = text.emit(f"arith.cmpi sgt, {scalar}, {text.constant(rng.randrange(-5, 5), 'i32')} : i32")
    changed, other = text.fresh(), text.fresh()
    unary, binary = rng.choice(("math.absf", "arith.negf")), rng.choice(("arith.addf", "arith.mulf"))
    lines = [
        f"scf.if {condition} -> ({x.type}) {{",
        f"    {changed} = {unary} {x.name} : {x.type}",
        f"    scf.yield {changed} : {x.type}",
        "  } else {",
        f"    {other} = {binary} {x.name}, {x.name} : {x.type}",
        f"    scf.yield {other} : {x.type}",
        "  }",
    ]
    return Value(text.emit("\n".join(lines)), x.shape, x.element)


FAMILIES: tuple[tuple[str, Callable[[Text], Value]], ...] = (
    ("softmax", _softmax),
    ("gather", _gather),
    ("pooling", _pooling),
    ("branch", _branch),
)


def random_form(seed: int) -> GeneratedModule:
    """The module of a seed; seeds 0, 1, 2, ... go through the families in turn."""
    family, generate = FAMILIES[seed % len(FAMILIES)]
    text = Text(random.Random(seed))
    name = f"form_{seed}"
    return GeneratedModule(name, text.function(name, generate(text)), tuple(text.inputs), family)
