"""Convolutions as MLIR text, by their parameters or at random, and what they are in NumPy."""

from dataclasses import dataclass
from itertools import product
from math import prod
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i8": np.int8, "i32": np.int32}
# Axes of image, filter and result: n, spatial axes as s, g groups, c and f channels in and out of a group.
LAYOUTS: dict[str, tuple[str, str, str]] = {
    "conv_1d_nwc_wcf": ("nsc", "scf", "nsf"),
    "conv_1d_ncw_fcw": ("ncs", "fcs", "nfs"),
    "conv_2d_nhwc_hwcf": ("nssc", "sscf", "nssf"),
    "conv_2d_nhwc_fhwc": ("nssc", "fssc", "nssf"),
    "conv_2d_nchw_fchw": ("ncss", "fcss", "nfss"),
    "conv_2d_ngchw_fgchw": ("ngcss", "fgcss", "ngfss"),
    "conv_2d_ngchw_gfchw": ("ngcss", "gfcss", "ngfss"),
    "conv_2d_nhwgc_gfhwc": ("nssgc", "gfssc", "nssgf"),
    "conv_3d_ndhwc_dhwcf": ("nsssc", "ssscf", "nsssf"),
    "conv_3d_ncdhw_fcdhw": ("ncsss", "fcsss", "nfsss"),
}


@dataclass(frozen=True)
class Convolution:
    """`sides`: of the image; `kernel`, `strides`, `dilations`, `low`, `high` (zeros around): one each. `tail`: "", "bias", "residual" or
    "silu", computed before the result is narrowed to `result`.
    """

    name: str
    batch: int
    sides: tuple[int, ...]
    channels: int
    filters: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()
    groups: int = 1
    element: str = "f16"
    result: str = "f16"
    tail: str = ""
    is_dynamic: bool = False

    def _each(self, values: tuple[int, ...], default: int) -> tuple[int, ...]:
        return values or (default,) * len(self.sides)

    @property
    def steps(self) -> tuple[int, ...]:
        return self._each(self.strides, 1)

    @property
    def spread(self) -> tuple[int, ...]:
        return self._each(self.dilations, 1)

    @property
    def pads(self) -> list[tuple[int, int]]:
        return list(zip(self._each(self.low, 0), self._each(self.high or self.low, 0), strict=True))

    @property
    def padded(self) -> tuple[int, ...]:
        return tuple(s + a + b for s, (a, b) in zip(self.sides, self.pads, strict=True))

    @property
    def out(self) -> tuple[int, ...]:
        numbers = zip(self.padded, self.kernel, self.steps, self.spread, strict=True)
        return tuple((s - (k - 1) * d - 1) // step + 1 for s, k, step, d in numbers)

    def shape(self, which: int, spatial: tuple[int, ...], *, batch: int | None = None) -> tuple[int, ...]:
        """The shape of image, filter or result with these sizes along the spatial axes."""
        sizes, places = (
            {"n": self.batch if batch is None else batch, "g": self.groups, "c": self.channels, "f": self.filters},
            iter(spatial),
        )
        return tuple(next(places) if axis == "s" else sizes[axis] for axis in LAYOUTS[self.name][which])

    @property
    def accumulator(self) -> str:
        return "i32" if self.element.startswith("i") else "f32"

    def text(self) -> str:
        """The function `conv` of image and filter (and bias or residual)."""
        image, filter_ = self.shape(0, self.sides), self.shape(1, self.kernel)
        result, padded = self.shape(2, self.out), self.shape(0, self.padded)

        def kind(shape: tuple[int, ...], element: str, layout: str = "") -> str:
            dims = ["?" if self.is_dynamic and axis == "n" else str(s) for s, axis in zip(shape, layout or "x" * len(shape), strict=True)]
            return "tensor<" + "x".join([*dims, element]) + ">"

        layout = LAYOUTS[self.name]
        x, w = kind(image, self.element, layout[0]), kind(filter_, self.element)
        p, acc, out = kind(padded, self.element, layout[0]), kind(result, self.accumulator, layout[2]), kind(result, self.result, layout[2])
        zero = "0" if self.element.startswith("i") else "0.0"
        lines = [f"%c = arith.constant {zero} : {self.accumulator}", f"%z = arith.constant {zero} : {self.element}"]
        size = ""
        if self.is_dynamic:
            lines += ["%i0 = arith.constant 0 : index", f"%n = tensor.dim %x, %i0 : {x}"]
            size = "%n"
        source = "%x"
        if any(a or b for a, b in self.pads):
            spatial = iter(self.pads)
            lows, highs = zip(*(next(spatial) if axis == "s" else (0, 0) for axis in layout[0]), strict=True)
            arguments = ", ".join(f"%b{i}: index" for i in range(len(image)))
            lines += [
                f"%p = tensor.pad %x low[{', '.join(map(str, lows))}] high[{', '.join(map(str, highs))}] {{",
                f"^bb0({arguments}):",
                f"  tensor.yield %z : {self.element}",
                f"}} : {x} to {p}",
            ]
            source = "%p"
        rank = len(self.sides)
        lines += [
            f"%e = tensor.empty({size}) : {acc}",
            f"%s = linalg.fill ins(%c : {self.accumulator}) outs(%e : {acc}) -> {acc}",
            f"%r = linalg.{self.name} {{dilations = dense<{list(self.spread)}> : tensor<{rank}xi64>, "
            f"strides = dense<{list(self.steps)}> : tensor<{rank}xi64>}} "
            f"ins({source}, %w : {p if source == '%p' else x}, {w}) outs(%s : {acc}) -> {acc}",
        ]
        extra = self._extra(result, layout[2], kind)
        lines += [f"%o = tensor.empty({size}) : {out}", self._tail(acc, out, layout[2], extra), f"return %y : {out}"]
        arguments = f"%x: {x}, %w: {w}" + (f", %t: {extra}" if extra else "")
        return f"func.func @conv({arguments}) -> {out} {{\n  " + "\n  ".join(lines) + "\n}\n"

    def _extra(self, result: tuple[int, ...], layout: str, kind: Any) -> str:
        if self.tail == "bias":
            return kind((self.filters,), "f32")
        return kind(result, self.result, layout) if self.tail == "residual" else ""

    def _tail(self, acc: str, out: str, layout: str, extra: str) -> str:
        dims = [f"d{i}" for i in range(len(layout))]
        same = f"affine_map<({', '.join(dims)}) -> ({', '.join(dims)})>"
        own = f"affine_map<({', '.join(dims)}) -> ({dims[layout.index('f')]})>" if self.tail == "bias" else same
        narrow = self.result != self.accumulator
        body = {
            "": [],
            "bias": ["%v = arith.addf %a, %b : f32"],
            "residual": [f"%wide = arith.extf %b : {self.result} to f32", "%v = arith.addf %a, %wide : f32"],
            "silu": [
                "%one = arith.constant 1.0 : f32",
                "%m = arith.negf %a : f32",
                "%x1 = math.exp %m : f32",
                "%x2 = arith.addf %x1, %one : f32",
                "%v = arith.divf %a, %x2 : f32",
            ],
        }[self.tail]
        last = "%v" if body else "%a"
        if narrow:
            body.append(f"%q = arith.truncf {last} : {self.accumulator} to {self.result}")
            last = "%q"
        maps = ", ".join([same, *([own] if extra else []), same])
        inputs, types = ("%r, %t", f"{acc}, {extra}") if extra else ("%r", acc)
        kinds = ", ".join(['"parallel"'] * len(layout))
        second = f", %b: {'f32' if self.tail == 'bias' else self.result}" if extra else ""
        return (
            f"%y = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} ins({inputs} : {types}) outs(%o : {out}) {{\n"
            f"  ^bb0(%a: {self.accumulator}{second}, %u: {self.result}):\n    "
            + "\n    ".join([*body, f"linalg.yield {last} : {self.result}"])
            + f"\n  }} -> {out}"
        )

    def arrays(self, seed: int = 0) -> list[Array]:
        """Image, filter and what the tail reads: small whole numbers, whose sums are exact in every type used."""
        generator = np.random.default_rng(seed)
        shapes = [(self.shape(0, self.sides), self.element), (self.shape(1, self.kernel), self.element)]
        if self.tail == "bias":
            shapes.append(((self.filters,), "f32"))
        if self.tail == "residual":
            shapes.append((self.shape(2, self.out), self.result))
        most = 1 if prod(self.kernel) * self.channels > 200 else 3
        return [generator.integers(-most, most + 1, shape).astype(np.float32).astype(DTYPES[kind]) for shape, kind in shapes]

    def expected(self, arrays: list[Array]) -> Array:
        """The result in float64, one place of the window after the other."""
        layout, rank = LAYOUTS[self.name], len(self.sides)
        image, weights, *rest = (a.astype(np.float64) for a in arrays)

        def ordered(array: Array, axes: str, order: str) -> Array:
            numbers = iter(range(rank))
            named = [f"s{next(numbers)}" if axis == "s" else axis for axis in axes]
            if "g" not in named:
                array, named = array[None], ["g", *named]
            wanted = [name for axis in order for name in ([f"s{i}" for i in range(rank)] if axis == "s" else [axis])]
            return array.transpose([named.index(name) for name in wanted])

        x, w = ordered(image, layout[0], "ngcs"), ordered(weights, layout[1], "gfcs")
        x = np.pad(x, [(0, 0)] * 3 + self.pads)
        total = np.zeros((self.batch, self.groups, self.filters, *self.out))
        for place in product(*map(range, self.kernel)):
            starts = [at * d for at, d in zip(place, self.spread, strict=True)]
            part = x[(..., *(slice(s, s + (o - 1) * step + 1, step) for s, o, step in zip(starts, self.out, self.steps, strict=True)))]
            total += np.einsum("ngc...,gfc->ngf...", part, w[(..., *place)])
        spatial = [f"s{i}" for i in range(rank)]
        numbers = iter(spatial)
        wanted = [next(numbers) if axis == "s" else axis for axis in layout[2]]
        named = ["n", "g", "f", *spatial]
        if "g" not in wanted:
            total, named = total[:, 0], ["n", "f", *spatial]
        total = total.transpose([named.index(name) for name in wanted])
        if self.tail == "bias":
            shape = [self.filters if axis == "f" else 1 for axis in layout[2]]
            total = total + rest[0].reshape(shape)
        if self.tail == "residual":
            total = total + rest[0]
        return total / (1 + np.exp(-total)) if self.tail == "silu" else total


def random_convolution(seed: int, *, most_channels: int = 70, most_side: int = 20) -> Convolution:
    """One with channels up to `most_channels`, sides up to `most_side`, kernels up to 5, and strides, dilations and zeros around at
    random.
    """
    random = Random(seed)
    name = random.choice(list(LAYOUTS))
    rank = LAYOUTS[name][0].count("s")
    groups = random.randint(1, 3) if "g" in LAYOUTS[name][0] else 1
    channels = random.choice([random.randint(1, most_channels), random.choice([8, 16, 32, 64])]) // groups or 1
    rows: list[tuple[int, int, int, int, int, int]] = []
    for _ in range(rank):
        side = random.randint(1, most_side if rank < 3 else 7)
        pads = (random.randint(0, 2), random.randint(0, 2)) if random.random() < 0.6 else (0, 0)
        room = side + sum(pads)
        extent = random.randint(1, min(5 if rank < 3 else 3, room))
        spread = random.randint(1, 3)
        while (extent - 1) * spread + 1 > room:
            spread -= 1
        rows.append((side, extent, random.choice([1, 1, 2, 3]), spread, pads[0], pads[1]))
    element, result = random.choice([("f16", "f16"), ("f16", "f16"), ("bf16", "f32"), ("f32", "f32"), ("i8", "i32")])
    tail = random.choice(["", "bias", "residual", "silu"]) if element == "f16" else ""
    sides, kernel, strides, dilations, low, high = (tuple(row[at] for row in rows) for at in range(6))
    is_dynamic = random.random() < 0.25
    batch, filters = random.randint(1, 3), random.randint(1, most_channels)
    windows = (strides, dilations, low, high)
    return Convolution(name, batch, sides, channels, filters, kernel, *windows, groups, element, result, tail, is_dynamic)
