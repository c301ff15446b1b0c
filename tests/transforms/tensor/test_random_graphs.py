"""Random graphs of contractions, reductions, broadcasts, transposes, slices and elementwise operations keep their values."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from transforms.tensor.dispatch_programs import compare

SIZES = (1, 2, 3, 5)


class Graph:
    """Text of a function under construction; `values` are (name, shape)."""

    def __init__(self, seed: int, dynamic: bool) -> None:
        self.random = Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.dynamic = dynamic
        self.sizes = self.random.sample(SIZES, 3)
        shapes = [tuple(self.random.choice(self.sizes) for _ in range(self.random.choice((1, 2, 2, 3)))) for _ in range(3)]
        self.arguments = [(f"%arg{i}", shape) for i, shape in enumerate(shapes)]
        self.values = list(self.arguments)

    def type(self, shape: tuple[int, ...]) -> str:
        return "tensor<" + "".join(f"{size}x" for size in shape) + "f32>"

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def pick(self, rank: int | None = None) -> tuple[str, tuple[int, ...]] | None:
        found = [value for value in self.values if rank is None or len(value[1]) == rank]
        # Recent values more often, so that the graph grows deep as well as wide.
        return self.random.choice(found[-4:] if self.random.random() < 0.7 else found) if found else None

    def empty(self, shape: tuple[int, ...]) -> str:
        name = self.name()
        self.lines.append(f"{name} = tensor.empty() : {self.type(shape)}")
        return name

    def fill(self, shape: tuple[int, ...], value: str = "0.0") -> str:
        constant, empty, name = self.name(), self.empty(shape), self.name()
        self.lines.append(f"{constant} = arith.constant {value} : f32")
        self.lines.append(f"{name} = linalg.fill ins({constant} : f32) outs({empty} : {self.type(shape)}) -> {self.type(shape)}")
        return name

    def emit(self, shape: tuple[int, ...], text: str) -> None:
        name = self.name()
        self.lines.append(f"{name} = {text}")
        self.values.append((name, shape))

    def unary(self) -> None:
        source, shape = self.pick() or self.values[0]
        op = self.random.choice(("exp", "negf", "square"))
        if op == "square":
            self.emit(shape, f"arith.mulf {source}, {source} : {self.type(shape)}")
        else:
            dialect = "math.tanh" if op == "exp" else "arith.negf"
            self.emit(shape, f"{dialect} {source} : {self.type(shape)}")

    def binary(self) -> None:
        left, shape = self.pick() or self.values[0]
        right = self.random.choice([name for name, other in self.values if other == shape])
        op = self.random.choice(("addf", "mulf", "subf", "maximumf"))
        self.emit(shape, f"arith.{op} {left}, {right} : {self.type(shape)}")

    def transpose(self) -> None:
        if (found := self.pick(2)) is None:
            return
        source, shape = found
        target = (shape[1], shape[0])
        text = f"linalg.transpose ins({source} : {self.type(shape)}) outs({self.empty(target)} : {self.type(target)}) permutation = [1, 0]"
        self.emit(target, text)

    def broadcast(self) -> None:
        if (found := self.pick(1)) is None:
            return
        source, shape = found
        axis, size = self.random.choice((0, 1)), self.random.choice(self.sizes)
        target = (size, *shape) if axis == 0 else (*shape, size)
        text = f"linalg.broadcast ins({source} : {self.type(shape)}) outs({self.empty(target)} : {self.type(target)}) dimensions = [{axis}]"
        self.emit(target, text)

    def reduce(self) -> None:
        source, shape = self.pick() or self.values[0]
        if not shape:
            return
        axis = self.random.randrange(len(shape))
        target = shape[:axis] + shape[axis + 1 :]
        op, start = self.random.choice((("addf", "0.0"), ("maximumf", "-3.0e+38")))
        initial = self.fill(target, start)
        matching = [name for name, other in self.values if other == target]
        if op == "addf" and matching and self.random.random() < 0.4:
            initial = self.random.choice(matching)
        text = (
            f"linalg.reduce {{ arith.{op} }} ins({source} : {self.type(shape)}) outs({initial} : {self.type(target)}) dimensions = [{axis}]"
        )
        self.emit(target, text)

    def matmul(self) -> None:
        pairs = [(a, b) for a in self.values for b in self.values if len(a[1]) == 2 and len(b[1]) == 2 and a[1][1] == b[1][0]]
        if not pairs:
            return
        (left, a), (right, b) = self.random.choice(pairs)
        target = (a[0], b[1])
        initial = self.fill(target)
        operands = f"ins({left}, {right} : {self.type(a)}, {self.type(b)})"
        self.emit(target, f"linalg.matmul {operands} outs({initial} : {self.type(target)}) -> {self.type(target)}")

    def slice(self) -> None:
        source, shape = self.pick() or self.values[0]
        offsets = [self.random.randrange(size) for size in shape]
        sizes = [self.random.randint(1, size - offset) for size, offset in zip(shape, offsets, strict=True)]
        ones = [1] * len(shape)
        self.emit(tuple(sizes), f"tensor.extract_slice {source}{offsets} {sizes} {ones} : {self.type(shape)} to {self.type(tuple(sizes))}")

    def insert(self) -> None:
        source, shape = self.pick() or self.values[0]
        fitting = [
            (name, other)
            for name, other in self.values
            if len(other) == len(shape) and all(o >= s for o, s in zip(other, shape, strict=True))
        ]
        dest, other = self.random.choice(fitting)
        offsets = [self.random.randint(0, o - s) for o, s in zip(other, shape, strict=True)]
        place = f"{offsets} {list(shape)} {[1] * len(shape)}"
        self.emit(other, f"tensor.insert_slice {source} into {dest}{place} : {self.type(shape)} into {self.type(other)}")

    def collapse(self) -> None:
        if (found := self.pick(2)) is None:
            return
        source, shape = found
        target = (shape[0] * shape[1],)
        self.emit(target, f"tensor.collapse_shape {source} [[0, 1]] : {self.type(shape)} into {self.type(target)}")

    def text(self, steps: int) -> str:
        kinds: list[Callable[[], None]] = [
            *[self.unary, self.binary] * 3,
            *[self.transpose, self.broadcast, self.reduce, self.matmul] * 2,
            self.slice,
            self.insert,
            self.collapse,
        ]
        for _ in range(steps):
            self.random.choice(kinds)()
        results = [self.values[-1], *self.random.choices(self.values, k=self.random.randint(0, 2))]
        arguments = ", ".join(f"{name}: {self.type(shape)}" for name, shape in self.arguments)
        types = ", ".join(self.type(shape) for _, shape in results)
        names = ", ".join(name for name, _ in results)
        body = "\n  ".join(self.lines)
        return f"func.func @f({arguments}) -> ({types}) {{\n  {body}\n  return {names} : {types}\n}}"


@pytest.mark.parametrize("seed", range(60))
def test_random_graph(seed: int) -> None:
    graph = Graph(seed, dynamic=False)
    text = graph.text(steps=4 + seed % 13)
    inputs = [np.random.default_rng(seed + i).standard_normal(shape) * 0.5 for i, (_, shape) in enumerate(graph.arguments)]
    compare(text, *inputs)


@pytest.mark.parametrize("seed", range(30))
def test_random_graph_of_split_reductions(seed: int) -> None:
    """Every reduction that can be is computed in two or three parts."""
    graph = Graph(seed, dynamic=False)
    text = graph.text(steps=4 + seed % 13)
    inputs = [np.random.default_rng(seed + i).standard_normal(shape) * 0.5 for i, (_, shape) in enumerate(graph.arguments)]
    compare(text, *inputs, split=str(2 + seed % 2))
