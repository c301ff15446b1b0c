"""Reductions over a size K that only the runtime knows, as functions of the arrays' other sizes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from analysis.test_coupled_reductions import SOFTMAX, extrema
from transforms.reduction_texts import reduction

SIZES = (1, 2, 63, 64, 4099, 51234, 65537, 1_000_003)
ARGMAX = next(body for kind, ties, nan, body in extrema() if (kind, ties, nan) == ("argmax", "first", "skipped"))
Arguments = Callable[[int, np.random.Generator], list[np.ndarray]]


def _dynamic(body: str, outputs: dict[str, str], rows: int) -> str:
    """Reductions of rows of K elements."""
    return reduction(body, outputs, shape=(rows, 77)).replace(f"<{rows}x77x", f"<{rows}x?x")


def _started(rows: int, *starts: tuple[float, str]) -> Arguments:
    def arguments(k: int, random: np.random.Generator) -> list[np.ndarray]:
        values = random.standard_normal((rows, k)).astype(np.float32)
        return [values, *(np.full(rows, start, dtype) for start, dtype in starts)]

    return arguments


def _operands(m: int, n: int) -> Arguments:
    def arguments(k: int, random: np.random.Generator) -> list[np.ndarray]:
        return [random.standard_normal((k, extent)).astype(np.float32) for extent in (m, n)]

    return arguments


CONTRACTION = """func.func @f(%a: tensor<?x5xf32>, %b: tensor<?x3xf32>) -> tensor<5x3xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x3xf32>
  %s = linalg.fill ins(%z : f32) outs(%e : tensor<5x3xf32>) -> tensor<5x3xf32>
  %r = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%a, %b : tensor<?x5xf32>, tensor<?x3xf32>) outs(%s : tensor<5x3xf32>) -> tensor<5x3xf32>
  return %r : tensor<5x3xf32>
}"""

ROUNDINGS = 1000
"""Of a sum of K terms at most, relative to the sum of their magnitudes: no thread adds up more."""


def _products(given: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    a, b = (one.astype(np.float64) for one in given)
    return [(a.T @ b, np.abs(a).T @ np.abs(b))]


def _sums(given: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    x = given[0].astype(np.float64)
    return [(x.sum(axis=1), np.abs(x).sum(axis=1))]


def _best(given: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    x = given[0]
    return [(x.max(axis=1), np.zeros(len(x))), (x.argmax(axis=1), np.zeros(len(x)))]


def _exponentials(given: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    x = given[0].astype(np.float64)
    top = x.max(axis=1)
    total = np.exp(x - top[:, None]).sum(axis=1)
    return [(top, np.zeros(len(x))), (total, total)]


@dataclass(frozen=True, slots=True)
class Sized:
    """`expected`: results in float64, and the sums of their terms' magnitudes."""

    text: str
    arguments: Arguments
    expected: Callable[[Sequence[np.ndarray]], list[tuple[np.ndarray, np.ndarray]]]

    def check(self, given: Sequence[np.ndarray], results: Sequence[object]) -> None:
        """Assert that results are right."""
        for found, (wanted, size) in zip(results, self.expected(given), strict=True):
            assert (np.abs(np.asarray(found).astype(np.float64) - wanted) <= ROUNDINGS * 2.0**-24 * size).all(), given[0].shape


PROGRAMS = {
    "contraction": Sized(CONTRACTION, _operands(5, 3), _products),
    "row_sums": Sized(_dynamic("%t_next = arith.addf %t, %x0 : f32", {"t": "f32"}, 2), _started(2, (0.0, "float32")), _sums),
    "argmax": Sized(_dynamic(ARGMAX, {"m": "f32", "i": "i32"}, 2), _started(2, (-np.inf, "float32"), (-1, "int32")), _best),
    "online_softmax": Sized(
        _dynamic(SOFTMAX, {"m": "f32", "l": "f32"}, 2), _started(2, (-np.inf, "float32"), (0.0, "float32")), _exponentials
    ),
}
