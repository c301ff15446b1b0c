"""A machine of NumPy arrays with a clock that runs as the test says, and peers that can be wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treadle.bench.workload import TensorSpec
from treadle.tools.inputs import random_array


@dataclass
class FakeMachine:
    """`now_ms` moves when a contender calls `spend`; `log` holds what was done, in order."""

    now_ms: float = 0.0
    mark_ms: float = 0.0
    log: list[str] = field(default_factory=list[str])

    def spend(self, name: str, milliseconds: float) -> Callable[[], None]:
        """A contender of that name and time."""

        def call() -> None:
            self.log.append(name)
            self.now_ms += milliseconds

        return call

    def flush(self) -> None:
        self.log.append("flush")
        self.now_ms += 0.25

    def mark(self) -> float:
        self.now_ms += self.mark_ms
        return self.now_ms

    def elapsed_ms(self, start: float, end: float) -> float:
        return end - start

    def synchronize(self) -> None:
        self.now_ms += 0.125  # time that no sample may contain

    def tensor(self, spec: TensorSpec, seed: int) -> Any:
        return random_array(spec.shape, spec.dtype, np.random.default_rng(seed))

    def adopt(self, result: Any) -> Any:
        return result

    def sample(self, array: Any, picks: Sequence[tuple[int, Sequence[int]]], dtype: str) -> Any:
        for axis, indices in picks:
            array = np.take(array, list(indices), axis)
        return array

    def difference(self, left: Any, right: Any) -> float:
        a, b = np.asarray(left, np.float32), np.asarray(right, np.float32)
        return float(np.abs(a - b).max() / (np.abs(b).max() or 1.0))

    def bits(self, array: Any) -> Any:
        return np.array(array)

    def equal_bits(self, left: Any, right: Any) -> bool:
        return left.tobytes() == right.tobytes()

    def copy(self, moved_bytes: int) -> Callable[[], None]:
        self.log.append(f"copy of {moved_bytes}")
        return self.spend("copy", 2.0)
