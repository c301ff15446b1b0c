"""What a workload is: inputs and outputs, the text for any number of rows and columns, its work, and its peer's name."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from treadle.bench.texts import element_bytes
from treadle.options import CompileOptions

Text = Callable[[int, int], str]
_USUAL = CompileOptions()
MEMORY_BOUND = frozenset({"decode", "reduction"})
"""Groups whose time is that of moving their inputs and outputs."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output. `rows`, `columns`: the axis along which the workload's rows or columns lie, None where there is none."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    rows: int | None = None
    columns: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of the dense array."""
        return prod(self.shape) * element_bytes(self.dtype)


@dataclass(frozen=True, slots=True)
class Window:
    """What a convolution's single results are computed from: `side` by `side` pixels of the first input (channels last), `step` from one
    result to the next, `pad` zeros around. `sides`: of the result. `write`: the text of so many images that are one window each, and so
    many filters.
    """

    side: int
    step: int
    pad: int
    sides: tuple[int, int]
    write: Text


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the suite.

    `text(rows, columns)` is the function for so many rows and columns of its result: the whole of it is compiled, a sample is evaluated in
    float64. `flop`: arithmetic operations counted as is usual (2 M N K). `peer`: a function of `peers.py`. `window`: of a convolution, of
    which single results are a sample.
    """

    name: str
    group: str
    title: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    rows: int
    columns: int
    flop: int
    peer: str
    write: Text
    options: CompileOptions = _USUAL
    window: Window | None = None

    @property
    def text(self) -> str:
        """The MLIR text of the whole workload."""
        return self.write(self.rows, self.columns)

    @property
    def bytes(self) -> int:
        """Bytes of all inputs and outputs, each moved once."""
        return sum(spec.bytes for spec in (*self.inputs, *self.outputs))

    @property
    def is_memory_bound(self) -> bool:
        """Whether a copy of as many bytes is what to compare with."""
        return self.group in MEMORY_BOUND
