"""From a `dispatch.program` and its compiled kernels to the artifact's manifest, as the JSON value that docs/artifact.md specifies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from treadle import __version__
from treadle.dialects import dispatch
from treadle.errors import unreachable
from treadle.ir.core import Operation, SSAValue
from treadle.plan.expr import Expr, as_expr, maximum, product

Json = dict[str, Any]
Size = int | str

FORMAT = 1
_BITS = {"index": 64}


@dataclass(frozen=True, slots=True)
class Argument:
    """What a kernel wants in one place of its argument block; see `targets/interface.py` for the meaning of the fields."""

    kind: Literal["pointer", "i32", "i64", "tensor_map"]
    arg: int
    offset: int
    tensor_map: Json = field(default_factory=dict[str, Any])
    byte_offset: int = 0


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A finished kernel as the manifest sees it. `grid` and expressions in tensor maps are over the kernel's own `symbols`.

    `pointer_count`: how many of its block arguments are pointers (the index arguments, one for each symbol, follow them).
    """

    name: str
    symbol: str
    binary: str
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    kernarg_bytes: int
    arguments: tuple[Argument, ...]
    grid: tuple[str, str, str]
    symbols: tuple[str, ...]
    pointer_count: int
    facts: Json = field(default_factory=dict[str, Any])
    overlaps: bool = False

    def to_json(self) -> Json:
        """The record of the manifest's `kernels`."""
        return {
            "name": self.name,
            "symbol": self.symbol,
            "binary": self.binary,
            "block": list(self.block),
            "cluster": list(self.cluster),
            "shared_bytes": self.shared_bytes,
            "kernarg_bytes": self.kernarg_bytes,
            "args": [{"kind": argument.kind, "offset": argument.offset} for argument in self.arguments],
            **({"overlaps": True} if self.overlaps else {}),
            **({"facts": self.facts} if self.facts else {}),
        }


def size(value: Expr | str | int) -> Size:
    """A size as the manifest writes it: a number where it is known, else the expression's text."""
    expr = as_expr(value)
    known = expr.as_int()
    return str(expr) if known is None else known


def sizes(values: Iterable[Expr | str | int]) -> list[Size]:
    """`size` of each."""
    return [size(value) for value in values]


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

    def __init__(self, program: dispatch.ProgramOp, kernels: Mapping[str, KernelRecord], target: str) -> None:
        self.files: dict[str, bytes] = {}
        self._kernels = kernels
        self._places: dict[SSAValue, _Place] = {}
        self._inputs: list[Json] = []
        self._outputs: list[Json] = []
        self._buffers: dict[str, Json] = {}
        self._launches: list[Json] = []
        self._checks: list[Json] = []
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
        self.manifest: Json = {
            "format": FORMAT,
            "treadle": __version__,
            "target": target,
            "function": program.sym_name.data,
            "dims": {symbol: {"input": index, "axis": axis} for symbol, (index, axis) in program.dim_sources().items()},
            "inputs": self._inputs,
            "outputs": self._outputs,
            "buffers": list(self._buffers.values()),
            "checks": self._checks,
            "kernels": [kernel.to_json() for kernel in kernels.values()],
            "launches": self._launches,
        }

    def _add_buffer(self, value: SSAValue, prefix: str, role: str, shape: tuple[Expr, ...], nbytes: Expr, align: int, **more: str) -> str:
        name = f"{prefix}{sum(key[0] == prefix for key in self._buffers)}"
        dtype = dtype_of(value)
        self._buffers[name] = {"name": name, "role": role, "bytes": size(nbytes), "align": align, **more}
        self._places[value] = _Place(name, dtype, as_expr(0), shape)
        return name

    def _input(self, op: dispatch.InputOp) -> None:
        shape, strides, dtype = _exprs(op.shape), _exprs(op.strides), dtype_of(op.result)
        align = int(op.align.value.data)
        name = self._add_buffer(op.result, "b", "input", shape, extent_bytes(shape, strides, dtype), align)
        self._inputs.append({"name": op.arg_name.data, "dtype": dtype, "shape": sizes(shape), "strides": sizes(strides), "buffer": name})

    def _constant(self, op: dispatch.ConstantOp) -> None:
        shape = tuple(as_expr(extent) for extent in op.value.get_shape())
        data, dtype = constant_bytes(op), dtype_of(op.result)
        file = f"c{len(self.files)}.bin"
        self.files[file] = data
        self._add_buffer(op.result, "c", "constant", shape, product(shape) * dtype_bytes(dtype), 256, file=file)

    def _alloc(self, op: dispatch.AllocOp) -> None:
        shape = _exprs(op.shape)
        self._add_buffer(op.result, "b", "temporary", shape, product(shape) * dtype_bytes(dtype_of(op.result)), 256)

    def _view(self, op: dispatch.ViewOp) -> None:
        source = self._places[op.source]
        offset = source.offset + as_expr(op.offset.data) * dtype_bytes(source.dtype)
        self._places[op.result] = _Place(source.buffer, source.dtype, offset, _exprs(op.shape))

    def _check(self, op: dispatch.CheckOp) -> None:
        message = op.message.data if op.message else ""
        check: Json = {"left": size(op.left.data), "relation": op.relation.data, "right": size(op.right.data), "message": message}
        self._checks.append(check | ({"index_range": True} if op.index_range is not None else {}))

    def _launch(self, op: dispatch.LaunchOp) -> None:
        kernel = self._kernels[op.kernel.string_value()]
        values = {name: as_expr(text) for name, text in op.symbol_values().items()}
        pointers = [self._places[value] for value in (*op.inputs, *op.outputs)]
        if len(pointers) != kernel.pointer_count:
            unreachable(f"{kernel.name} takes {kernel.pointer_count} pointers, its launch gives {len(pointers)}")
        arguments = [_launch_argument(argument, kernel, pointers, values) for argument in kernel.arguments]
        grid = [size(as_expr(extent).substitute(values)) for extent in kernel.grid]
        self._launches.append({"kernel": kernel.name, "grid": grid, "args": arguments})

    def _return(self, op: dispatch.ReturnOp) -> None:
        for number, value in enumerate(op.values):
            place = self._places[value]
            self._buffers[place.buffer]["role"] = "output"
            self._outputs.append(
                {
                    "name": f"r{number}",
                    "dtype": place.dtype,
                    "shape": sizes(place.shape),
                    "strides": sizes(row_major(place.shape)),
                    "buffer": place.buffer,
                }
            )


def _launch_argument(argument: Argument, kernel: KernelRecord, pointers: Sequence[_Place], values: Mapping[str, Expr]) -> Json:
    if argument.kind in ("i32", "i64"):
        return {"value": size(values[kernel.symbols[argument.arg - kernel.pointer_count]])}
    place = pointers[argument.arg]
    offset = size(place.offset + argument.byte_offset)
    if argument.kind == "pointer":
        return {"buffer": place.buffer, "byte_offset": offset}
    described = {
        key: [size(as_expr(item).substitute(values)) for item in value] if key in ("global_dim", "global_stride_bytes") else value
        for key, value in argument.tensor_map.items()
    }
    return {"tensor_map": {"buffer": place.buffer, "byte_offset": offset, **described}}


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
