"""From the shapes of a call's inputs to everything its launches need: sizes of buffers, shapes of results, grids and argument values.

Pure and cached by shape: the expressions of a manifest become one Python function, which runs once for each tuple of input shapes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from treadle import errors
from treadle.artifact import ArgKind, Dim, Kernel, Manifest, PointerValue, ScalarValue, TensorMap, TensorMapValue, TensorRecord
from treadle.errors import TreadleError
from treadle.plan.expr import ExprLike, as_expr, compile_tuple
from treadle.plan.index_range import INDEX_LIMIT, WIDE_LIMIT

Shape: TypeAlias = tuple[int, ...]

_CACHED_SHAPES: Final = 256
_LARGEST_PITCH: Final = (1 << 40) - 1
_LIMITS: Final[Mapping[ArgKind, int]] = {"i32": INDEX_LIMIT, "i64": WIDE_LIMIT}


@dataclass(frozen=True, slots=True)
class PointerArg:
    """An address: `byte_offset` into the buffer number `buffer`."""

    offset: int
    buffer: int
    byte_offset: int


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A number of a kind, at an offset of the argument block."""

    offset: int
    kind: ArgKind
    value: int | float


@dataclass(frozen=True, slots=True)
class TensorMapArg:
    """A tensor map for one call: `map` with numbers for its sizes, `byte_offset` into the buffer number `buffer`."""

    offset: int
    buffer: int
    byte_offset: int
    global_dim: Shape
    global_stride_bytes: Shape
    map: TensorMap


ResolvedArg: TypeAlias = PointerArg | ScalarArg | TensorMapArg


@dataclass(frozen=True, slots=True)
class ResolvedLaunch:
    """A launch with numbers for sizes; those with an empty grid are left out.

    `early`: it may start before the one ahead of it, of the same program, has ended.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    args: tuple[ResolvedArg, ...]
    early: bool = False


@dataclass(frozen=True, slots=True)
class Invocation:
    """What a call with certain input shapes does. `buffer_bytes` is in the order of the manifest's buffers; strides are in elements.

    `beyond`: which check of 32-bit indices fails (what, the value, its limit); such a call has no launches and must not be run.
    """

    input_strides: tuple[Shape, ...]
    output_shapes: tuple[Shape, ...]
    output_strides: tuple[Shape, ...]
    buffer_bytes: tuple[int, ...]
    launches: tuple[ResolvedLaunch, ...]
    beyond: tuple[str, int, int] | None = None


def _is_open(record: TensorRecord) -> bool:
    extent = as_expr(record.shape[-1]) if record.shape else as_expr(0)
    return not extent.is_constant and extent.divisor() == 1


class InvocationPlan:
    """Resolves shapes for one manifest. `resolve` is cheap for shapes it has seen."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.buffer_index: Mapping[str, int] = {b.name: i for i, b in enumerate(manifest.buffers)}
        self.input_align = tuple(manifest.buffers[self.buffer_index[t.buffer]].align for t in manifest.inputs)
        """What kernels rely on of each input's address, in bytes."""
        self.open_rows = frozenset(i for i, t in enumerate(manifest.inputs) if _is_open(t) and not manifest.is_by_hand)
        """Inputs whose rows may be more aligned than the kernels rely on, which depends on the sizes of a call."""
        self._ranks = tuple(len(t.shape) for t in manifest.inputs)
        self._slots: dict[ExprLike, int] = {}
        self._forms = self._collect()
        self._evaluate: Callable[..., tuple[int, ...]] = compile_tuple(self._slots, manifest.dims)
        self._stride_dims = tuple((d.input, -1 - d.axis) for d in manifest.dims.values() if d.axis < 0)
        self._number_inputs = manifest.number_inputs
        self._cache: dict[tuple[Shape, ...], Invocation] = {}

    def resolve(self, shapes: tuple[Shape, ...], strides: Sequence[Shape], values: Mapping[int, int] | None = None) -> Invocation:
        """The numbers for inputs of these shapes and strides (in elements; they count where the program has symbols for them).

        `values`: what the manifest's `number_inputs` hold.

        Raises TR721 (count), TR722 (rank), TR723 (extent), TR724 (a check of the program), TR733 and TR734 (numbers that are too large).
        """
        if len(shapes) != len(self._ranks):
            raise TreadleError(errors.ARGUMENT_COUNT, function=self.manifest.function, expected=len(self._ranks), given=len(shapes))
        for index, (record, shape, rank) in enumerate(zip(self.manifest.inputs, shapes, self._ranks, strict=True)):
            if len(shape) != rank:
                raise TreadleError(
                    errors.ARGUMENT_RANK, index=index, name=record.name, expected=rank, given=len(shape), shape=_times(shape)
                )
        values = values or {}
        free = (*(strides[number][axis] for number, axis in self._stride_dims), *(values[number] for number in self._number_inputs))
        if (known := self._cache.get((*shapes, free))) is not None:
            return known
        made = self._resolve(shapes, strides, values)
        if len(self._cache) >= _CACHED_SHAPES:
            del self._cache[next(iter(self._cache))]
        self._cache[*shapes, free] = made
        return made

    def _row(self, values: Sequence[ExprLike]) -> tuple[int, ...]:
        return tuple(self._slots.setdefault(as_expr(v), len(self._slots)) for v in values)

    def _collect(self) -> dict[str, Any]:
        """Slot numbers of every size in the manifest, in the manifest's structure."""
        m = self.manifest
        return {
            "shape": [self._row(t.shape) for t in m.inputs],
            "strides": [self._row(t.strides) for t in m.inputs],
            "out_shape": [self._row(t.shape) for t in m.outputs],
            "out_strides": [self._row(t.strides) for t in m.outputs],
            "bytes": self._row([b.bytes for b in m.buffers]),
            "checks": [self._row((c.left, c.right)) for c in m.checks],
            "grids": [self._row(launch.grid) for launch in m.launches],
            "args": [[self._arg_slots(a) for a in launch.args] for launch in m.launches],
        }

    def _arg_slots(self, value: Any) -> tuple[tuple[int, ...], ...]:
        match value:
            case PointerValue():
                return (self._row((value.byte_offset,)),)
            case TensorMapValue():
                return self._row((value.byte_offset,)), self._row(value.map.global_dim), self._row(value.map.global_stride_bytes)
            case ScalarValue(value=float()):
                return ()
            case _:
                return (self._row((value.value,)),)

    def _resolve(self, shapes: tuple[Shape, ...], strides: Sequence[Shape], values: Mapping[int, int]) -> Invocation:
        m, forms = self.manifest, self._forms
        v = self._evaluate(*(self._dim(d, shapes, strides, values) for d in m.dims.values()))

        def at(row: Sequence[int]) -> Shape:
            return tuple(v[i] for i in row)

        for index, (record, shape, row) in enumerate(zip(m.inputs, shapes, forms["shape"], strict=True)):
            if shape != at(row):
                declared = "x".join(str(s) for s in record.shape) or "scalar"
                raise TreadleError(
                    errors.ARGUMENT_SHAPE, index=index, name=record.name, given=_times(shape), expected=_times(at(row)), declared=declared
                )
        beyond: tuple[str, int, int] | None = None
        for check, row in zip(m.checks, forms["checks"], strict=True):
            left, right = at(row)
            if not (left == right if check.relation == "==" else left <= right):
                what = check.message or f"{check.left} {check.relation} {check.right} does not hold"
                if check.index_range:
                    beyond = beyond or (what, left, right)
                    continue
                raise TreadleError(errors.SIZES_RULED_OUT, function=m.function, what=what, left=left, relation=check.relation, right=right)
        launches: list[ResolvedLaunch] = []
        for launch, grid_row, arg_rows in zip(m.launches, forms["grids"], forms["args"], strict=True):
            x, y, z = at(grid_row)
            if x > 0 and y > 0 and z > 0 and beyond is None:
                kernel = m.kernel(launch.kernel)
                pairs = zip(kernel.args, launch.args, arg_rows, strict=True)
                args = tuple(
                    self._argument(kernel.name, arg.offset, arg.kind, value, [at(row) for row in rows]) for arg, value, rows in pairs
                )
                # What is ahead of the first launch may be anybody's: copies, fills, kernels that wait for nothing.
                launches.append(ResolvedLaunch(kernel, (x, y, z), args, early=kernel.overlaps and bool(launches)))
        for buffer, size in zip(m.buffers, at(forms["bytes"]), strict=True):
            if size > WIDE_LIMIT:
                raise TreadleError(errors.ARRAY_TOO_LARGE, name=buffer.name, function=m.function, bytes=size)
        return Invocation(
            input_strides=tuple(at(row) for row in forms["strides"]),
            output_shapes=tuple(at(row) for row in forms["out_shape"]),
            output_strides=tuple(at(row) for row in forms["out_strides"]),
            buffer_bytes=tuple(max(0, size) for size in at(forms["bytes"])),
            launches=tuple(launches),
            beyond=beyond,
        )

    @staticmethod
    def _dim(dim: Dim, shapes: tuple[Shape, ...], strides: Sequence[Shape], values: Mapping[int, int]) -> int:
        if dim.axis < 0:
            return strides[dim.input][-1 - dim.axis]
        return shapes[dim.input][dim.axis] if shapes[dim.input] else values[dim.input]

    def _argument(self, kernel: str, offset: int, kind: ArgKind, value: Any, numbers: list[Shape]) -> ResolvedArg:
        match value:
            case PointerValue():
                return PointerArg(offset, self.buffer_index[value.buffer], numbers[0][0])
            case TensorMapValue():
                (start,), dims, strides = numbers
                # Coordinates are signed 32-bit numbers, strides 40-bit ones.
                _require(kernel, "extents of at most 2^31 - 1 in a tensor map", dims, INDEX_LIMIT)
                _require(kernel, "strides below 2^40 bytes in a tensor map", strides, _LARGEST_PITCH)
                return TensorMapArg(offset, self.buffer_index[value.buffer], start, dims, strides, value.map)
            case _:
                number = numbers[0][0] if numbers else value.value
                if kind in _LIMITS:
                    _require(kernel, kind, (number,), _LIMITS[kind])
                return ScalarArg(offset, kind, number)


def _require(kernel: str, kind: str, values: Sequence[int], limit: int) -> None:
    """Raises TR733 for a value beyond what a kernel's argument holds: it would be cut, or read as another."""
    for value in values:
        if not -limit - 1 <= value <= limit:
            raise TreadleError(errors.ARGUMENT_RANGE, kernel=kernel, kind=kind, value=value)


def _times(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"
