"""MLIR text of workloads, made by a small writer: contractions by index letters, elementwise steps by scalar operations.

Contractions take their operands as they are and sum in f32 (f32 and narrower floats) or i32 (i8); what follows them works on those sums.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_FLOAT_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8E4M3FN": 1, "f8E5M2": 1}
_INTEGER_BYTES = {"i64": 8, "i32": 4, "i16": 2, "i8": 1}


def element_bytes(dtype: str) -> int:
    """Bytes of an element of an MLIR type."""
    return (_FLOAT_BYTES | _INTEGER_BYTES)[dtype]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the function: SSA name, shape, element type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def type(self) -> str:
        """`tensor<4x5xf16>`."""
        return f"tensor<{'x'.join([*map(str, self.shape), self.dtype])}>"


class Body:
    """The block of a `linalg.generic`: scalar operations in order; methods return SSA names."""

    def __init__(self, dtypes: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.types: dict[str, str] = {f"%in{i}": dtype for i, dtype in enumerate(dtypes)}

    def _add(self, text: str, dtype: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"    {name} = {text}")
        self.types[name] = dtype
        return name

    def constant(self, value: float) -> str:
        """A constant of f32."""
        return self._add(f"arith.constant {value:.9e} : f32", "f32")

    def binary(self, op: str, a: str, b: str) -> str:
        """`op a, b` on equal types."""
        return self._add(f"{op} {a}, {b} : {self.types[a]}", self.types[a])

    def unary(self, op: str, a: str) -> str:
        """`op a`."""
        return self._add(f"{op} {a} : {self.types[a]}", self.types[a])

    def compare(self, op: str, a: str, b: str) -> str:
        """`op a, b` on equal types, an i1."""
        return self._add(f"{op}, {a}, {b} : {self.types[a]}", "i1")

    def select(self, condition: str, a: str, b: str) -> str:
        """One of two values of equal types."""
        return self._add(f"arith.select {condition}, {a}, {b} : {self.types[a]}", self.types[a])

    def index_of(self, axis: int) -> str:
        """The number of the loop `axis`, as i32."""
        return self._add(f"arith.index_cast {self._add(f'linalg.index {axis} : index', 'index')} : index to i32", "i32")

    def cast(self, value: str, dtype: str) -> str:
        """The value in another float or integer type; itself where the type is the same."""
        given = self.types[value]
        if given == dtype:
            return value
        if given in _INTEGER_BYTES and dtype in _INTEGER_BYTES:
            op = "arith.extsi" if element_bytes(dtype) > element_bytes(given) else "arith.trunci"
        else:
            op = "arith.extf" if element_bytes(dtype) > element_bytes(given) else "arith.truncf"
        return self._add(f"{op} {value} : {given} to {dtype}", dtype)

    def silu(self, x: str) -> str:
        """X / (1 + exp(-x)) of an f32."""
        e = self.unary("math.exp", self.unary("arith.negf", x))
        return self.binary("arith.divf", x, self.binary("arith.addf", e, self.constant(1.0)))

    def gelu_tanh(self, x: str) -> str:
        """GELU of an f32 in its tanh form."""
        cube = self.binary("arith.mulf", self.binary("arith.mulf", x, x), x)
        inner = self.binary("arith.addf", x, self.binary("arith.mulf", cube, self.constant(0.044715)))
        t = self.unary("math.tanh", self.binary("arith.mulf", inner, self.constant(0.7978845608028654)))
        half = self.binary("arith.mulf", x, self.constant(0.5))
        return self.binary("arith.mulf", half, self.binary("arith.addf", t, self.constant(1.0)))


Scalar = Callable[[Body, list[str]], Sequence[str]]


class Function:
    """A function's text, written step by step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._arguments: list[Value] = []
        self._lines: list[str] = []
        self._count = 0

    def argument(self, name: str, shape: Sequence[int], dtype: str) -> Value:
        """The next argument."""
        made = Value(f"%{name}", tuple(shape), dtype)
        self._arguments.append(made)
        return made

    def _fresh(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Value:
        made = Value(self._fresh(), shape, dtype)
        self._lines.append(f"  {made.name} = tensor.empty() : {made.type}")
        return made

    def _filled(self, shape: tuple[int, ...], dtype: str, value: str) -> Value:
        scalar, empty = self._fresh(), self._empty(shape, dtype)
        made = Value(self._fresh(), shape, dtype)
        self._lines.append(f"  {scalar} = arith.constant {value} : {dtype}")
        self._lines.append(f"  {made.name} = linalg.fill ins({scalar} : {dtype}) outs({empty.name} : {empty.type}) -> {made.type}")
        return made

    def _generic(
        self, maps: str, kinds: str, inputs: Sequence[Value], outs: Sequence[Value], body: Body, yielded: Sequence[str]
    ) -> list[Value]:
        """A `linalg.generic`; `maps` as "mk,nk->mn" (several outputs: "mk->mn,mn"), the loops are `kinds`' letters in order."""
        read, written = maps.split("->")
        order = kinds.replace(" ", "").split("|")
        loops = "".join(order)
        dims = f"({', '.join(loops)})"
        letters = [*read.split(","), *written.split(",")]
        attributes = ", ".join(f"affine_map<{dims} -> ({', '.join(one)})>" for one in letters)
        iterators = ", ".join(['"parallel"'] * len(order[0]) + ['"reduction"'] * len(order[1] if len(order) > 1 else ""))
        results = [Value(self._fresh(), value.shape, value.dtype) for value in outs]
        block = [f"%in{i}: {v.dtype}" for i, v in enumerate(inputs)] + [f"%out{i}: {v.dtype}" for i, v in enumerate(outs)]
        types = ", ".join(v.dtype for v in outs)
        result_types = ", ".join(v.type for v in outs)
        if len(results) > 1:
            whole = self._fresh()
            head = f"{whole}:{len(results)}"
            results = [Value(f"{whole}#{i}", v.shape, v.dtype) for i, v in enumerate(outs)]
        else:
            head = results[0].name
        self._lines += [
            f"  {head} = linalg.generic {{indexing_maps = [{attributes}], iterator_types = [{iterators}]}}",
            f"      ins({', '.join(v.name for v in inputs)} : {', '.join(v.type for v in inputs)})"
            f" outs({', '.join(v.name for v in outs)} : {', '.join(v.type for v in outs)}) {{",
            f"  ^bb0({', '.join(block)}):",
            *body.lines,
            f"    linalg.yield {', '.join(yielded)} : {types}",
            f"  }} -> {result_types if len(outs) == 1 else f'({result_types})'}",
        ]
        return results

    def contract(self, maps: str, a: Value, b: Value) -> Value:
        """Sum of products by index letters, as in "mk,nk->mn"; sums in f32, or i32 for i8."""
        read, written = maps.split("->")
        first, second = read.split(",")
        extents = dict(zip(first + second, a.shape + b.shape, strict=True))
        summed = "".join(sorted((set(first) & set(second)) - set(written)))
        accumulator = "i32" if a.dtype in _INTEGER_BYTES else "f32"
        body = Body([a.dtype, b.dtype])
        left, right = body.cast("%in0", accumulator), body.cast("%in1", accumulator)
        kind = "i" if accumulator == "i32" else "f"
        body.types["%out0"] = accumulator
        total = body.binary(f"arith.add{kind}", "%out0", body.binary(f"arith.mul{kind}", left, right))
        start = self._filled(tuple(extents[letter] for letter in written), accumulator, "0" if kind == "i" else "0.000000e+00")
        return self._generic(maps, f"{written}|{summed}", [a, b], [start], body, [total])[0]

    def expand(self, value: Value, groups: str, shape: Sequence[int]) -> Value:
        """The tensor with axes split, by reassociation as in "[0], [1, 2]"."""
        made = Value(self._fresh(), tuple(shape), value.dtype)
        sizes = ", ".join(map(str, shape))
        self._lines.append(
            f"  {made.name} = tensor.expand_shape {value.name} [{groups}] output_shape [{sizes}] : {value.type} into {made.type}"
        )
        return made

    def collapse(self, value: Value, groups: str, shape: Sequence[int]) -> Value:
        """The tensor with axes merged, by reassociation."""
        made = Value(self._fresh(), tuple(shape), value.dtype)
        self._lines.append(f"  {made.name} = tensor.collapse_shape {value.name} [{groups}] : {value.type} into {made.type}")
        return made

    def contract_scaled(self, maps: str, a: Value, b: Value, scale_a: Value, scale_b: Value) -> Value:
        """Sum of products of a, b and their scales by index letters, as in "mkc,nkc,mk,nk->mn"; operands and sums in f32."""
        read, written = maps.split("->")
        inputs = [a, b, scale_a, scale_b]
        extents = {
            letter: extent for one, v in zip(read.split(","), inputs, strict=True) for letter, extent in zip(one, v.shape, strict=True)
        }
        body = Body([v.dtype for v in inputs])
        left, right = (body.binary("arith.mulf", body.cast(f"%in{i}", "f32"), f"%in{i + 2}") for i in (0, 1))
        body.types["%out0"] = "f32"
        total = body.binary("arith.addf", "%out0", body.binary("arith.mulf", left, right))
        start = self._filled(tuple(extents[letter] for letter in written), "f32", "0.000000e+00")
        summed = "".join(letter for letter in extents if letter not in written)
        return self._generic(maps, f"{written}|{summed}", inputs, [start], body, [total])[0]

    def elementwise(self, maps: str, inputs: Sequence[Value], dtypes: Sequence[str], scalar: Scalar) -> list[Value]:
        """One value of each of `dtypes` from the inputs, all of them in f32 first (integers stay); outputs have the same shape."""
        read, written = maps.split("->")
        extents = {
            letter: extent for one, v in zip(read.split(","), inputs, strict=True) for letter, extent in zip(one, v.shape, strict=True)
        }
        shape = tuple(extents[letter] for letter in written)
        body = Body([v.dtype for v in inputs])
        taken = [f"%in{i}" if v.dtype in _INTEGER_BYTES else body.cast(f"%in{i}", "f32") for i, v in enumerate(inputs)]
        made = scalar(body, taken)
        yielded = [body.cast(value, dtype) for value, dtype in zip(made, dtypes, strict=True)]
        outs = [self._empty(shape, dtype) for dtype in dtypes]
        return self._generic(f"{read}->{','.join([written] * len(dtypes))}", written, inputs, outs, body, yielded)

    def cast(self, value: Value, dtype: str) -> Value:
        """The tensor in another type; itself where the type is the same."""
        if value.dtype == dtype:
            return value
        letters = "abcdef"[: len(value.shape)]
        return self.elementwise(f"{letters}->{letters}", [value], [dtype], lambda _, taken: taken)[0]

    def reduce(self, value: Value, maps: str, op: str, start: str) -> Value:
        """Axes reduced in f32 by `op` from `start`, as in "mn->n"."""
        read, written = maps.split("->")
        body = Body([value.dtype])
        body.types["%out0"] = "f32"
        total = body.binary(op, "%out0", body.cast("%in0", "f32"))
        shape = tuple(extent for letter, extent in zip(read, value.shape, strict=True) if letter in written)
        order = f"{written}|{''.join(letter for letter in read if letter not in written)}"
        return self._generic(maps, order, [value], [self._filled(shape, "f32", start)], body, [total])[0]

    def reduce_rows(self, value: Value, op: str, start: str) -> Value:
        """The last axis reduced in f32 by `op` from `start`."""
        return self.reduce(value, "mn->m", op, start)

    def largest_places(self, value: Value) -> Value:
        """Where along the last of two axes the largest elements are, the first of equal ones, as i32; a NaN is the largest."""
        body = Body([value.dtype])
        body.types |= {"%out0": value.dtype, "%out1": "i32"}
        place = body.index_of(1)
        more = body.compare("arith.cmpf ugt", "%in0", "%out0")
        is_number = body.compare("arith.cmpf ord", "%out0", "%out0")
        takes = body.binary("arith.andi", more, is_number)
        largest, places = body.select(takes, "%in0", "%out0"), body.select(takes, place, "%out1")
        lowest = {"f32": "0xFF800000", "f16": "0xFC00", "bf16": "0xFF80"}[value.dtype]
        outs = [self._filled(value.shape[:1], value.dtype, lowest), self._filled(value.shape[:1], "i32", "0")]
        return self._generic("mn->m,m", "m|n", [value], outs, body, [largest, places])[1]

    def text(self, *results: Value) -> str:
        """The whole function, returning `results`."""
        arguments = ", ".join(f"{a.name}: {a.type}" for a in self._arguments)
        types = ", ".join(v.type for v in results)
        closing = f"  return {', '.join(v.name for v in results)} : {types}"
        signature = types if len(results) == 1 else f"({types})"
        return "\n".join([f"func.func @{self.name}({arguments}) -> {signature} {{", *self._lines, closing, "}", ""])
