"""Programs of several products that share an operand, in text: one function of sizes, types, layouts and results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

_ACCUMULATORS = {"bf16": "f32", "f16": "f32", "f32": "f32", "i8": "i32", "f8E4M3FN": "f32"}
_STORAGE: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "i8": np.int8,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
}


@dataclass(frozen=True, slots=True)
class Products:
    """x times `len(weights)` matrices, each by its letters ("nk" or "kn"), and what is made of the products.

    `combined`: their product element by element (silu of the first times the others for floats) is a result; `kept`: the products are.
    `dynamic`: no size of m and n is known. `shared_last`: x is the second factor, (k, n), and the weights are (m, k) or (k, m).
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    weights: tuple[str, ...] = ("nk", "nk")
    combined: bool = True
    kept: bool = False
    dynamic: bool = False
    shared_last: bool = False
    result: str = "bf16"

    def _size(self, letter: str) -> str:
        return "?" if self.dynamic and letter in "mn" else str({"m": self.m, "n": self.n, "k": self.k}[letter])

    def _type(self, letters: str, element: str) -> str:
        return f"tensor<{'x'.join([*map(self._size, letters), element])}>"

    def letters(self) -> tuple[str, ...]:
        """The letters of x and of each weight."""
        return ("kn" if self.shared_last else "mk", *(w.replace("n", "m") if self.shared_last else w for w in self.weights))

    def shapes(self) -> list[tuple[int, ...]]:
        """The inputs' shapes."""
        extents = {"m": self.m, "n": self.n, "k": self.k}
        return [tuple(extents[letter] for letter in one) for one in self.letters()]

    def arrays(self, seed: int = 0) -> list[Array]:
        """Inputs."""
        random = np.random.default_rng(seed)
        if self.dtype == "i8":
            return [random.integers(-9, 10, shape).astype(np.int8) for shape in self.shapes()]
        return [random.standard_normal(shape).astype(_STORAGE[self.dtype]) for shape in self.shapes()]

    def text(self) -> str:
        """The MLIR text."""
        shared, *weights = self.letters()
        arguments = ", ".join(
            [f"%x: {self._type(shared, self.dtype)}", *(f"%w{i}: {self._type(w, self.dtype)}" for i, w in enumerate(weights))]
        )
        lines = self._sizes(weights[0])
        lines += [line for i, letters in enumerate(weights) for line in self._product(i, shared, letters)]
        results: list[tuple[str, str]] = []
        accumulator = _ACCUMULATORS[self.dtype]
        if self.kept and not self.combined:
            results += [(f"%p{i}", accumulator) for i in range(len(weights))]
        if self.combined:
            lines += self._combination(len(weights))
            count = 1 + self.kept * len(weights)
            results += [(f"%r#{i}" if count > 1 else "%r", self.result) for i in range(count)]
        types = ", ".join(self._type("mn", element) for _, element in results)
        closing = f"  return {', '.join(name for name, _ in results)} : {types}"
        return "\n".join([f"func.func @products({arguments}) -> ({types}) {{", *lines, closing, "}", ""])

    def _sizes(self, weight: str) -> list[str]:
        if not self.dynamic:
            return []
        rows, columns = ("%w0", "%x") if self.shared_last else ("%x", "%w0")
        lines = ["  %c0 = arith.constant 0 : index", "  %c1 = arith.constant 1 : index"]
        for name, value, letters in (
            ("m", rows, weight if self.shared_last else "mk"),
            ("n", columns, "kn" if self.shared_last else weight),
        ):
            lines.append(f"  %d{name} = tensor.dim {value}, %c{letters.index(name)} : {self._type(letters, self.dtype)}")
        return lines

    def _empty(self, name: str, element: str) -> str:
        return f"  {name} = tensor.empty({'%dm, %dn' if self.dynamic else ''}) : {self._type('mn', element)}"

    def _product(self, i: int, shared: str, weight: str) -> list[str]:
        acc = _ACCUMULATORS[self.dtype]
        kind, zero, widen = ("i", "0", "arith.extsi") if acc == "i32" else ("f", "0.0", "arith.extf")
        operands = [("%x", shared), (f"%w{i}", weight)]
        if self.shared_last:
            operands.reverse()
        maps = ", ".join(f"affine_map<(m, n, k) -> ({', '.join(one)})>" for one in (operands[0][1], operands[1][1], "mn"))
        wide = self.dtype == acc
        return [
            self._empty(f"%e{i}", acc),
            f"  %z{i} = arith.constant {zero} : {acc}",
            f"  %f{i} = linalg.fill ins(%z{i} : {acc}) outs(%e{i} : {self._type('mn', acc)}) -> {self._type('mn', acc)}",
            f'  %p{i} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "reduction"]}}',
            f"      ins({', '.join(name for name, _ in operands)} : {', '.join(self._type(one, self.dtype) for _, one in operands)})"
            f" outs(%f{i} : {self._type('mn', acc)}) {{",
            f"  ^bb0(%a: {self.dtype}, %b: {self.dtype}, %o: {acc}):",
            *([] if wide else [f"    %v{j} = {widen} {v} : {self.dtype} to {acc}" for j, v in enumerate(("%a", "%b"))]),
            f"    %s = arith.mul{kind} {'%a, %b' if wide else '%v0, %v1'} : {acc}",
            f"    %t = arith.add{kind} %o, %s : {acc}",
            f"    linalg.yield %t : {acc}",
            f"  }} -> {self._type('mn', acc)}",
        ]

    def _combination(self, count: int) -> list[str]:
        acc = _ACCUMULATORS[self.dtype]
        outputs = 1 + self.kept * count
        maps = ", ".join(["affine_map<(m, n) -> (m, n)>"] * (count + outputs))
        block = ", ".join([*(f"%a{i}: {acc}" for i in range(count)), *(f"%o{i}: {self.result}" for i in range(outputs))])
        body: list[str] = []
        if acc == "i32":
            last = "%a0"
        else:
            body = [
                "    %negative = arith.negf %a0 : f32",
                "    %exponential = math.exp %negative : f32",
                "    %one = arith.constant 1.0 : f32",
                "    %below = arith.addf %exponential, %one : f32",
                "    %gate = arith.divf %a0, %below : f32",
            ]
            last = "%gate"
        for i in range(1, count):
            body.append(f"    %m{i} = arith.mul{'i' if acc == 'i32' else 'f'} {last}, %a{i} : {acc}")
            last = f"%m{i}"
        yielded: list[str] = []
        for j, value in enumerate([*(f"%a{i}" for i in range(count) if self.kept), last]):
            if self.result != acc:
                body.append(f"    %y{j} = arith.truncf {value} : {acc} to {self.result}")
            yielded.append(value if self.result == acc else f"%y{j}")
        types = ", ".join([self._type("mn", self.result)] * outputs)
        kinds = 'iterator_types = ["parallel", "parallel"]'
        return [
            *(self._empty(f"%u{j}", self.result) for j in range(outputs)),
            f"  %r{f':{outputs}' if outputs > 1 else ''} = linalg.generic {{indexing_maps = [{maps}], {kinds}}}",
            f"      ins({', '.join(f'%p{i}' for i in range(count))} : {', '.join([self._type('mn', acc)] * count)})"
            f" outs({', '.join(f'%u{j}' for j in range(outputs))} : {types}) {{",
            f"  ^bb0({block}):",
            *body,
            f"    linalg.yield {', '.join(yielded)} : {', '.join([self.result] * outputs)}",
            f"  }} -> {types if outputs == 1 else f'({types})'}",
        ]


def swiglu(m: int, n: int, k: int, *, outputs: int = 1, weights: Sequence[str] = ("nk", "nk")) -> Products:
    """silu(x Wg) * (x Wu) in bf16, with three outputs the two products as well."""
    return Products(m, n, k, weights=tuple(weights), kept=outputs == 3)
