"""Attention as tensor text: scores, what is elementwise of them, a softmax along the keys, and the second contraction."""

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SUM = "^bb0(%x: f32, %o: f32):\n %t = arith.addf %x, %o : f32\n linalg.yield %t : f32"


@dataclass(frozen=True)
class AttentionText:
    """A function of Q [batch, rows, width], K [batch, keys, width], V [batch, keys, columns], and a mask [rows, keys] in f32.

    `batch`: leading dimensions. `shared`: how many of the heads (the last of them) have their K and V together. `is_transposed`: K is
    [batch, width, keys]. `is_named`: by `linalg.softmax`. `is_late`: the sum divides the result, not the exponentials. `dynamic`: letters
    whose sizes are the runtime's: "m" (rows), "n" (keys), "a" (the first of the batch). `has_logs`: the logarithms of the sums of
    exponentials are a second result (not by `linalg.softmax`). `window`: keys that a row sees at most, the last of them at its own place
    (with `is_causal`). `divided`: how many neighbours among the last of the batch share K and V, which are read at its quotient.
    """

    batch: tuple[int, ...]
    rows: int
    keys: int
    width: int
    columns: int
    element: str = "f16"
    is_transposed: bool = False
    is_causal: bool = False
    has_mask: bool = False
    is_named: bool = False
    is_late: bool = False
    scale: float | None = None
    dynamic: str = ""
    shared: int = 1
    has_logs: bool = False
    window: int = 0
    divided: int = 1

    @property
    def factor(self) -> float:
        """What scores are multiplied by."""
        return float(np.float32(1 / math.sqrt(self.width) if self.scale is None else self.scale))

    def arrays(self, seed: int = 0) -> list[NDArray[np.generic]]:
        """Q, K, V and the mask where there is one."""
        rng = np.random.default_rng(seed)
        outer = self._outer_of_keys
        keys = (*outer, self.width, self.keys) if self.is_transposed else (*outer, self.keys, self.width)
        shapes = [(*self.batch, self.rows, self.width), keys, (*outer, self.keys, self.columns)]
        kind = np.float16 if self.element == "f16" else np.float32
        found: list[NDArray[np.generic]] = [rng.standard_normal(shape).astype(kind) for shape in shapes]
        if self.element == "bf16":
            found = [_bf16(array) for array in found]
        if self.has_mask:
            hidden = rng.random((self.rows, self.keys)) < 0.3
            hidden[:, 0] = False
            found.append(np.where(hidden, -np.inf, rng.standard_normal(hidden.shape)).astype(np.float32))
        return found

    @property
    def _outer_of_keys(self) -> tuple[int, ...]:
        if self.divided > 1:
            return (*self.batch[:-1], self.batch[-1] // self.divided)
        return self.batch if self.shared == 1 else self.batch[:-1]

    def _type(self, letters: str, element: str, *, is_key: bool = False) -> str:
        batch = self._outer_of_keys if is_key else self.batch
        sizes = dict(zip("abcd", batch, strict=False)) | {"m": self.rows, "n": self.keys, "k": self.width, "e": self.columns}
        return f"tensor<{''.join('?x' if letter in self.dynamic else f'{sizes[letter]}x' for letter in letters)}{element}>"

    def text(self) -> str:
        """The program."""
        outer = "abcd"[: len(self.batch)]
        shared = outer if self.shared == 1 else outer[:-1]
        key = f"{shared}kn" if self.is_transposed else f"{shared}nk"
        e, wide = self.element, "f32"
        q, o = (self._type(letters, e) for letters in (f"{outer}mk", f"{outer}me"))
        k, v = (self._type(letters, e, is_key=True) for letters in (key, f"{shared}ne"))
        values = f"{shared}ne"
        if self.divided > 1:
            key, values = (
                f"{letters[: len(outer) - 1]}({outer[-1]} floordiv {self.divided}){letters[len(outer) :]}" for letters in (key, values)
            )
        s, r, w, mask = (self._type(letters, wide) for letters in (f"{outer}mn", f"{outer}m", f"{outer}me", "mn"))
        p = self._type(f"{outer}mn", e)
        ins = f"%q: {q}, %k: {k}, %v: {v}" + (f", %mask: {mask}" if self.has_mask else "")
        lines = [f"func.func @attention({ins}) -> {o} {{"]
        constants = "".join(f" %i{number} = arith.constant {number} : index\n" for number in range(len(self.batch) + 2))
        numbers = (("zero", "0.0"), ("low", "0xFF800000"), ("c", repr(self.factor)))
        lines.append(constants + "\n".join(f" %{name} = arith.constant {number} : f32" for name, number in numbers))
        lines += self._sizes(outer, shared)

        def empty(name: str, letters: str, element: str) -> None:
            dynamic = ", ".join(f"%size_{letter}" for letter in letters if letter in self.dynamic)
            lines.append(f" {name} = tensor.empty({dynamic}) : {self._type(letters, element)}")

        empty("%es", f"{outer}mn", wide)
        empty("%er", f"{outer}m", wide)
        empty("%ew", f"{outer}me", wide)
        empty("%ep", f"{outer}mn", e)
        empty("%eo", f"{outer}me", e)
        for name, value, into, kind in (
            ("%fs", "%zero", "%es", s),
            ("%fm", "%low", "%er", r),
            ("%ft", "%zero", "%er", r),
            ("%fw", "%zero", "%ew", w),
        ):
            lines.append(f" {name} = linalg.fill ins({value} : f32) outs({into} : {kind}) -> {kind}")
        product = _product(e)
        lines.append(generic("%s0", f"{outer}mk,{key}->{outer}mn", f"%q, %k : {q}, {k}", f"%fs : {s}", product))
        lines.append(generic("%s1", f"{outer}mn->{outer}mn", f"%s0 : {s}", f"%es : {s}", self._scaling(len(outer))))
        scores = "%s1"
        if self.has_mask:
            body = "^bb0(%x: f32, %y: f32, %o: f32):\n %t = arith.addf %x, %y : f32\n linalg.yield %t : f32"
            lines.append(generic("%s2", f"{outer}mn,mn->{outer}mn", f"%s1, %mask : {s}, {mask}", f"%es : {s}", body))
            scores = "%s2"
        lines += self._softmax(outer, scores, s, r, p)
        weights, kind = ("%p", p) if not self.is_late else ("%ph", p)
        lines.append(generic("%w0", f"{outer}mn,{values}->{outer}me", f"{weights}, %v : {kind}, {v}", f"%fw : {w}", product))
        if self.is_late:
            body = _quotient(e)
            lines.append(generic("%r", f"{outer}me,{outer}m->{outer}me", f"%w0, %row_total : {w}, {r}", f"%eo : {o}", body))
        else:
            lines.append(generic("%r", f"{outer}me->{outer}me", f"%w0 : {w}", f"%eo : {o}", _rounding(e)))
        if not self.has_logs:
            return "\n".join([*lines, f" return %r : {o}\n}}\n"])
        body = "^bb0(%x: f32, %y: f32, %o: f32):\n %t = math.log %y : f32\n %u = arith.addf %x, %t : f32\n linalg.yield %u : f32"
        lines.append(generic("%logs", f"{outer}m,{outer}m->{outer}m", f"%row_top, %row_total : {r}, {r}", f"%er : {r}", body))
        lines[0] = lines[0].replace(f"-> {o}", f"-> ({o}, {r})")
        return "\n".join([*lines, f" return %r, %logs : {o}, {r}\n}}\n"])

    def _sizes(self, outer: str, shared: str) -> list[str]:
        lines: list[str] = []
        for letter in self.dynamic:
            array, axis = ("%v", len(shared)) if letter == "n" else ("%q", f"{outer}m".index(letter))
            kind = self._type(f"{shared}ne" if letter == "n" else f"{outer}mk", self.element, is_key=letter == "n")
            lines.append(f" %size_{letter} = tensor.dim {array}, %i{axis} : {kind}")
        return lines

    def _scaling(self, at: int) -> str:
        body = "^bb0(%x: f32, %o: f32):\n %t = arith.mulf %x, %c : f32\n"
        if self.is_causal:
            body += f" %i = linalg.index {at} : index\n %j = linalg.index {at + 1} : index\n %seen = arith.cmpi sle, %j, %i : index\n"
            if self.window:
                body += f" %w = arith.constant {self.window} : index\n %last = arith.addi %j, %w : index\n"
                body += " %near = arith.cmpi slt, %i, %last : index\n %both = arith.andi %seen, %near : i1\n"
                return body + " %u = arith.select %both, %t, %low : f32\n linalg.yield %u : f32"
            return body + " %u = arith.select %seen, %t, %low : f32\n linalg.yield %u : f32"
        return body + " linalg.yield %t : f32"

    def _softmax(self, outer: str, scores: str, s: str, r: str, p: str) -> list[str]:
        e = self.element
        if self.is_named:
            named = f" %ps = linalg.softmax dimension({len(outer) + 1}) ins({scores} : {s}) outs(%es : {s}) -> {s}"
            return [named, generic("%p", f"{outer}mn->{outer}mn", f"%ps : {s}", f"%ep : {p}", _rounding(e))]
        lines = [
            generic("%row_top", f"{outer}mn->{outer}m", f"{scores} : {s}", f"%fm : {r}", SUM.replace("addf", "maximumf")),
            generic("%power", f"{outer}mn,{outer}m->{outer}mn", f"{scores}, %row_top : {s}, {r}", f"%es : {s}", _shifted()),
            generic("%row_total", f"{outer}mn->{outer}m", f"%power : {s}", f"%ft : {r}", SUM),
        ]
        if self.is_late:
            return [*lines, generic("%ph", f"{outer}mn->{outer}mn", f"%power : {s}", f"%ep : {p}", _rounding(e))]
        body = (
            f"^bb0(%x: f32, %y: f32, %o: {e}):\n %t = arith.divf %x, %y : f32\n %u = arith.truncf %t : f32 to {e}\n linalg.yield %u : {e}"
        )
        return [*lines, generic("%p", f"{outer}mn,{outer}m->{outer}mn", f"%power, %row_total : {s}, {r}", f"%ep : {p}", body)]

    def expected(self, arrays: list[NDArray[np.generic]]) -> NDArray[np.float64]:
        """In float64."""
        scores, v = self._expected_scores(arrays)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights @ v / weights.sum(-1, keepdims=True)

    def expected_logs(self, arrays: list[NDArray[np.generic]]) -> NDArray[np.float64]:
        """Logarithms of the sums of exponentials, in float64."""
        scores, _ = self._expected_scores(arrays)
        top = scores.max(-1)
        return top + np.log(np.exp(scores - top[..., None]).sum(-1))

    def _expected_scores(self, arrays: list[NDArray[np.generic]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        q, k, v = (array.astype(np.float64) for array in arrays[:3])
        if self.divided > 1:
            k, v = (array.repeat(self.divided, -3) for array in (k, v))
        if self.shared > 1:
            k, v = k[..., None, :, :], v[..., None, :, :]
        scores = q @ (k if self.is_transposed else k.swapaxes(-1, -2)) * self.factor
        if self.is_causal:
            seen = np.tri(self.rows, self.keys, dtype=bool)
            seen &= ~np.tri(self.rows, self.keys, -self.window, dtype=bool) if self.window else True
            scores = np.where(seen, scores, -np.inf)
        if self.has_mask:
            scores = scores + arrays[3].astype(np.float64)
        return scores, v


def _bf16(array: NDArray[np.generic]) -> NDArray[np.generic]:
    from ml_dtypes import bfloat16

    return array.astype(bfloat16)


def generic(name: str, maps: str, ins: str, out: str, body: str) -> str:
    """`name` = a generic over letters: "mk,nk->mn", or "hmk,(h floordiv 2)nk->hmn"; letters that the result lacks are
    reduced. `ins`, `out`: "%a, %b : types".
    """
    read, written = maps.split("->")
    letters = written + "".join(sorted(set(re.sub(r" (floordiv|mod) \d+", "", read)) - set(written) - {*",()"}))
    places = (", ".join(re.findall(r"\(.*?\)|\w", one)) for one in (*read.split(","), written))
    attributes = ", ".join(f"affine_map<({', '.join(letters)}) -> ({one})>" for one in places)
    kinds = ", ".join('"parallel"' if letter in written else '"reduction"' for letter in letters)
    return (
        f" {name} = linalg.generic {{indexing_maps = [{attributes}], iterator_types = [{kinds}]}} ins({ins}) outs({out}) {{\n"
        f" {body} }} -> {out.split(' : ')[1]}"
    )


def _product(element: str) -> str:
    return (
        f"^bb0(%x: {element}, %y: {element}, %o: f32):\n %xw = arith.extf %x : {element} to f32\n %yw = arith.extf %y : {element} to f32\n"
        " %prod = arith.mulf %xw, %yw : f32\n %w = arith.addf %o, %prod : f32\n linalg.yield %w : f32"
    )


def _shifted() -> str:
    return "^bb0(%x: f32, %top: f32, %o: f32):\n %d = arith.subf %x, %top : f32\n %t = math.exp %d : f32\n linalg.yield %t : f32"


def _quotient(element: str) -> str:
    divided = " %t = arith.divf %x, %y : f32\n"
    return f"^bb0(%x: f32, %y: f32, %o: {element}):\n{divided} %u = arith.truncf %t : f32 to {element}\n linalg.yield %u : {element}"


def _rounding(element: str) -> str:
    return f"^bb0(%x: f32, %o: {element}):\n %t = arith.truncf %x : f32 to {element}\n linalg.yield %t : {element}"
