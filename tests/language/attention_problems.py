"""Random problems for the attention of the examples: shapes, arrays, what is right, and the kernel at the levels below."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from attention import attention

from treadle.dialects import tile
from treadle.driver.lowering import scheduled
from treadle.driver.sources import read_source
from treadle.ir.dialects import builtin
from treadle.language.build import build
from treadle.options import CompileOptions


@dataclass(frozen=True)
class Problem:
    """Sizes of one call; `shared`: heads of K and V, `first`: keys that the first query sees beside its own, `width`: D."""

    batch: int
    shared: int
    group: int
    queries: int
    keys: int
    width: int
    causal: bool = False
    first: int = 0
    dtype: Any = np.float16

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.width)

    def arrays(self, seed: int = 0) -> tuple[Any, Any, Any]:
        """Q, K and V."""
        rng = np.random.default_rng(seed)
        shapes = [(self.shared * self.group, self.queries), (self.shared, self.keys), (self.shared, self.keys)]
        return tuple(rng.standard_normal((self.batch, *shape, self.width)).astype(self.dtype) for shape in shapes)  # pyright: ignore

    def outputs(self) -> tuple[Any, Any]:
        """Arrays for the result and the logarithms of the sums, full of NaN."""
        shape = (self.batch, self.shared * self.group, self.queries)
        return np.full((*shape, self.width), np.nan, self.dtype), np.full(shape, np.nan, np.float32)

    def expected(self, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
        """Both results in float64."""
        wide_k, wide_v = (x.astype(np.float64).repeat(self.group, 1) for x in (k, v))
        scores = q.astype(np.float64) @ wide_k.swapaxes(2, 3) * self.scale
        if self.causal:
            scores = np.where(np.tri(self.queries, self.keys, self.first, dtype=bool), scores, -np.inf)
        top = scores.max(3, keepdims=True)
        p = np.exp(scores - top)
        return p @ wide_v / p.sum(3, keepdims=True), (top + np.log(p.sum(3, keepdims=True)))[..., 0]

    def check(self, results: tuple[Any, Any], q: Any, k: Any, v: Any) -> None:
        """P is rounded to 16 bits, as the result is: half a unit each, of the largest |v|. Sums are of float32."""
        want, logs = self.expected(q, k, v)
        unit = 2.0**-11 if np.dtype(self.dtype) == np.float16 else 2.0**-8
        assert np.abs(results[0].astype(np.float64) - want).max() <= 2.1 * unit * np.abs(v.astype(np.float64)).max()
        assert np.abs(results[1] - logs).max() <= 4e-6 * (1 + np.abs(logs).max())

    def module(self, BM: int, BN: int, num_warps: int, num_stages: int, cut: str | None = None) -> builtin.ModuleOp:
        """The kernel at tile level, as a call compiles it; with `cut` "auto" the compiler is to cut its loop into stages."""
        q, k, v = self.arrays()
        constants = (self.scale, self.causal, self.width, BM, BN, cut)
        launch = attention[self.grid(BM)]
        form, _, _ = launch._resolved((q, k, v, *self.outputs(), self.first, *constants), {}, num_warps, num_stages)
        return build(attention.function, form).module

    def lowered(
        self, target: str, BM: int, BN: int, num_warps: int, num_stages: int = 2, cut: str | None = None, **options: Any
    ) -> builtin.ModuleOp:
        """The kernel at schedule level, proven."""
        return scheduled(read_source(self.module(BM, BN, num_warps, num_stages, cut), "tile"), target, CompileOptions(**options), None)

    def grid(self, BM: int) -> tuple[int, int, int]:
        """Workgroups."""
        return -(-self.queries // BM), self.shared * self.group, self.batch


def symbols_of(kernel: tile.KernelOp, problem: Problem, rows: int) -> list[int]:
    """What the kernel's symbols are for a problem in tiles of so many rows."""
    arrays = dict(zip("qkv", problem.arrays(), strict=True)) | dict(zip(("o", "lse"), problem.outputs(), strict=True))
    values = {f"{name}_size{axis}": size for name, array in arrays.items() for axis, size in enumerate(array.shape)}
    for name, array in arrays.items():
        values |= {f"{name}_stride{axis}": stride // array.itemsize for axis, stride in enumerate(array.strides)}
    values |= dict(zip(("grid_x", "grid_y", "grid_z"), problem.grid(rows), strict=True)) | {"first": problem.first}
    return [values[name] for name in kernel.symbol_names()]
