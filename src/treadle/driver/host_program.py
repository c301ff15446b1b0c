"""From a `dispatch.program` and its compiled kernels to the artifact's manifest, the records that docs/artifact.md describes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from treadle import __version__
from treadle.artifact import (
    ArgValue,
    Buffer,
    Check,
    Dim,
    Kernel,
    Launch,
    Manifest,
    PointerValue,
    Relation,
    Role,
    ScalarValue,
    Size,
    TensorMap,
    TensorMapValue,
    TensorRecord,
)
from treadle.dialects import dispatch
from treadle.errors import unreachable
from treadle.ir.core import Operation, SSAValue
from treadle.plan.expr import Expr, as_expr, maximum, product
from treadle.records import dataclass
from treadle.targets.interface import IndexParam, Param, PointerParam, TensorMapParam

_BITS = {"index": 64}


@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """A finished kernel as the host launches it: the manifest's record, and what launches fill in.

    `params`: in the order of the record's arguments. `grid` and the sizes in tensor maps are over the kernel's own `symbols`.
    `pointer_count`: how many of its block arguments are pointers (the index arguments, one for each symbol, follow them).
    """

    record: Kernel
    params: tuple[Param, ...]
    grid: tuple[str, str, str]
    symbols: tuple[str, ...]
    pointer_count: int


def size(value: Expr | str | int) -> Size:
    """A size as the manifest has it: a number where it is known, else the expression."""
    expr = as_expr(value)
    known = expr.as_int()
    return expr if known is None else known


def sizes(values: Sequence[Expr | int]) -> tuple[Size, ...]:
    """`size` of each."""
    return tuple(size(value) for value in values)


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element in memory: i1 and 8-bit types take one."""
    digits = "".join(c for c in dtype.partition("E")[0] if c.isdigit())
    return max(1, _BITS.get(dtype, int(digits or 0)) // 8)


def row_major(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Strides in elements of a dense array."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))


def extent_bytes(shape: Sequence[Expr], strides: Sequence[Expr], dtype: str) -> Expr:
    """Bytes from the first element's start to the last one's end; an upper bound where a size is 0."""
    if tuple(strides) == row_major(shape):
        return product(shape) * dtype_bytes(dtype)
    reach = as_expr(1)
    for extent, stride in zip(shape, strides, strict=True):
        reach = reach + maximum(extent - 1, 0) * stride
    return reach * dtype_bytes(dtype)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a buffer value lies: `offset` in bytes from the start of the named buffer."""

    buffer: str
    dtype: str
    offset: Expr
    shape: tuple[Expr, ...]


def _exprs(attr: Any) -> tuple[Expr, ...]:
    return tuple(as_expr(text) for text in dispatch.texts(attr))


class HostProgram:
    """Walks a `dispatch.program` once and collects the manifest and the constants' contents (`files`)."""

    def __init__(self, program: dispatch.ProgramOp, kernels: Sequence[LaunchedKernel], target: str) -> None:
        self.files: dict[str, bytes] = {}
        self._kernels = {kernel.record.name: kernel for kernel in kernels}
        self._places: dict[SSAValue, _Place] = {}
        self._inputs: list[TensorRecord] = []
        self._outputs: list[TensorRecord] = []
        self._buffers: dict[str, Buffer] = {}
        self._launches: list[Launch] = []
        self._checks: list[Check] = []
        self._written: set[str] = set()
        handlers: dict[type[Operation], Callable[[Any], None]] = {
            dispatch.InputOp: self._input,
            dispatch.ConstantOp: self._constant,
            dispatch.AllocOp: self._alloc,
            dispatch.ViewOp: self._view,
            dispatch.CheckOp: self._check,
            dispatch.LaunchOp: self._launch,
            dispatch.ReturnOp: self._return,
        }
        for op in program.body.block.ops:
            handlers.get(type(op), _unexpected)(op)
        self.manifest = Manifest(
            treadle=__version__,
            target=target,
            function=program.sym_name.data,
            dims={symbol: Dim(index, axis) for symbol, (index, axis) in program.dim_sources().items()},
            inputs=tuple(replace(record, in_place=record.buffer in self._written) for record in self._inputs),
            outputs=tuple(self._outputs),
            buffers=tuple(self._buffers.values()),
            kernels=tuple(kernel.record for kernel in kernels),
            launches=tuple(self._launches),
            checks=tuple(self._checks),
        )

    def _add_buffer(
        self, value: SSAValue, prefix: str, role: Role, shape: tuple[Expr, ...], nbytes: Expr, align: int, file: str | None = None
    ) -> str:
        name = f"{prefix}{sum(key[0] == prefix for key in self._buffers)}"
        self._buffers[name] = Buffer(name, role, size(nbytes), align, file)
        self._places[value] = _Place(name, dtype_of(value), as_expr(0), shape)
        return name

    def _input(self, op: dispatch.InputOp) -> None:
        shape, strides, dtype = _exprs(op.shape), _exprs(op.strides), dtype_of(op.result)
        align = int(op.align.value.data)
        name = self._add_buffer(op.result, "b", "input", shape, extent_bytes(shape, strides, dtype), align)
        self._inputs.append(TensorRecord(op.arg_name.data, dtype, sizes(shape), sizes(strides), name))

    def _constant(self, op: dispatch.ConstantOp) -> None:
        shape = tuple(as_expr(extent) for extent in op.value.get_shape())
        data, dtype = constant_bytes(op), dtype_of(op.result)
        file = f"c{len(self.files)}.bin"
        self.files[file] = data
        self._add_buffer(op.result, "c", "constant", shape, product(shape) * dtype_bytes(dtype), 256, file)

    def _alloc(self, op: dispatch.AllocOp) -> None:
        shape, when = _exprs(op.shape), as_expr(1 if op.when is None else op.when.data)
        name = self._add_buffer(op.result, "b", "temporary", shape, product(shape) * dtype_bytes(dtype_of(op.result)) * when, 256)
        if op.counters is not None:
            self._buffers[name] = replace(self._buffers[name], zero=True, kept=True)

    def _view(self, op: dispatch.ViewOp) -> None:
        source = self._places[op.source]
        offset = source.offset + as_expr(op.offset.data) * dtype_bytes(source.dtype)
        self._places[op.result] = _Place(source.buffer, source.dtype, offset, _exprs(op.shape))

    def _check(self, op: dispatch.CheckOp) -> None:
        relation: Relation = "==" if op.relation.data == "==" else "<="
        message = op.message.data if op.message else ""
        self._checks.append(Check(size(op.left.data), relation, size(op.right.data), message, op.index_range is not None))

    def _launch(self, op: dispatch.LaunchOp) -> None:
        kernel = self._kernels[op.kernel.string_value()]
        values = {name: as_expr(text) for name, text in op.symbol_values().items()}
        pointers = [self._places[value] for value in (*op.inputs, *op.outputs)]
        if len(pointers) != kernel.pointer_count:
            unreachable(f"{kernel.record.name} takes {kernel.pointer_count} pointers, its launch gives {len(pointers)}")
        self._written |= {place.buffer for place in pointers[len(op.inputs) :]}
        first, *others = (as_expr(extent).substitute(values) for extent in kernel.grid)
        x, y, z = (size(extent) for extent in (first if op.when is None else first * as_expr(op.when.data), *others))
        arguments = tuple(_argument(param, kernel, pointers, values) for param in kernel.params)
        self._launches.append(Launch(kernel.record.name, (x, y, z), arguments))

    def _return(self, op: dispatch.ReturnOp) -> None:
        for number, value in enumerate(op.values):
            place = self._places[value]
            self._buffers[place.buffer] = replace(self._buffers[place.buffer], role="output")
            shape, strides = sizes(place.shape), sizes(row_major(place.shape))
            self._outputs.append(TensorRecord(f"r{number}", place.dtype, shape, strides, place.buffer))


def _argument(param: Param, kernel: LaunchedKernel, pointers: Sequence[_Place], values: Mapping[str, Expr]) -> ArgValue:
    """What a launch gives for one of a kernel's parameters."""
    match param:
        case IndexParam(arg):
            return ScalarValue(size(values[kernel.symbols[arg - kernel.pointer_count]]))
        case PointerParam(arg):
            return PointerValue(pointers[arg].buffer, size(pointers[arg].offset))
        case TensorMapParam(arg, seen, byte_offset):
            return TensorMapValue(pointers[arg].buffer, _substituted(seen, values), size(pointers[arg].offset + byte_offset))


def _substituted(seen: TensorMap, values: Mapping[str, Expr]) -> TensorMap:
    """A tensor map over the kernel's symbols as one over the program's."""
    dims, strides = (tuple(size(as_expr(n).substitute(values)) for n in row) for row in (seen.global_dim, seen.global_stride_bytes))
    return seen.with_sizes(dims, strides)


def _unexpected(op: Operation) -> None:
    unreachable(f"{op.name} in a host program")


def dtype_of(value: SSAValue) -> str:
    """The element type's MLIR name of a buffer value."""
    if not isinstance(value.type, dispatch.BufferType):
        unreachable(f"{value.type} is not a buffer")
    return str(value.type.element_type)


def constant_bytes(op: dispatch.ConstantOp) -> bytes:
    """A constant's contents, row-major; an i1 is a byte of 0 or 1."""
    data = op.value.data.data
    if dtype_of(op.result) == "i1":
        data = bytes(byte & 1 for byte in data)
    count = 1
    for extent in op.value.get_shape():
        count *= extent
    whole = count * dtype_bytes(dtype_of(op.result))
    return data if len(data) == whole else data * (whole // max(len(data), 1))
