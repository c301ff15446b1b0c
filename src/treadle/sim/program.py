"""Executes a lowered module, its host program and its tile kernels, on NumPy arrays: the device `sim`."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from treadle.dialects import dispatch, tile
from treadle.errors import ARGUMENT_COUNT, ARGUMENT_SHAPE, NOT_EXECUTABLE, SIZES_RULED_OUT, TreadleError, unreachable
from treadle.ir.core import Attribute, Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.ir.locations import location_of
from treadle.plan import expr
from treadle.sim.element_types import Array, storage_dtype
from treadle.sim.elementwise import attribute_value
from treadle.sim.faults import SimulationFault
from treadle.sim.memory import Pointer, allocate, strided
from treadle.sim.tile_interpreter import TileKernel


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major array."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class Buffer:
    """Device memory through a shape and strides (elements)."""

    __slots__ = ("data", "offset", "shape", "strides")

    def __init__(self, data: Array, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.data, self.offset, self.shape, self.strides = data, offset, shape, strides

    def array(self) -> Array:
        return strided(self.data, self.offset, self.shape, self.strides, "a buffer")


class Launchable(Protocol):
    """A kernel that a host program launches. `symbols`: names of its index arguments."""

    symbols: tuple[str, ...]

    def grid(self, symbols: Sequence[int]) -> tuple[int, int, int]:
        """Workgroups along x, y and z for values of the symbols."""
        ...

    def launch(self, pointers: Sequence[Pointer], symbols: Sequence[int]) -> None:
        """Run every workgroup; outputs are written through their pointers."""
        ...


class SimProgram:
    """A module with one `dispatch.program` and its `tile.kernel`s, ready to run; `make_kernel` says how its kernels are executed.

    `numbers`: the NumPy type in which memory holds elements of an element type.
    """

    def __init__(
        self,
        module: builtin.ModuleOp,
        make_kernel: Callable[[tile.KernelOp], Launchable] = TileKernel,
        *,
        numbers: Callable[[Attribute], np.dtype[Any]] = storage_dtype,
    ) -> None:
        programs = [op for op in module.body.block.ops if isinstance(op, dispatch.ProgramOp)]
        if len(programs) != 1:
            unreachable(f"a lowered module has one host program, this one has {len(programs)}")
        self._program = programs[0]
        self.name = self._program.sym_name.data
        self._kernels = {op.sym_name.data: make_kernel(op) for op in module.body.block.ops if isinstance(op, tile.KernelOp)}
        self._numbers = numbers

    def __call__(self, *arrays: Array) -> list[Array]:
        """Run on arrays of the inputs' storage types; returns one array an output. Raises TreadleError TR721, TR723, TR724."""
        ops = list(self._program.body.block.ops)
        inputs = [op for op in ops if isinstance(op, dispatch.InputOp)]
        if len(arrays) != len(inputs):
            raise TreadleError(ARGUMENT_COUNT, function=self.name, expected=len(inputs), given=len(arrays))
        environment = self._symbols(inputs, arrays)
        values: dict[SSAValue, Buffer] = {}
        for op in ops:
            if isinstance(op, dispatch.ReturnOp):
                _check_counters(values)
                return [values[v].array().copy() for v in op.values]
            self._execute(op, environment, values, arrays)
        return unreachable("a host program ends in dispatch.return")

    def _symbols(self, inputs: Sequence[dispatch.InputOp], arrays: Sequence[Array]) -> dict[str, int]:
        found: dict[str, int] = {}
        for symbol, (number, axis) in self._program.dim_sources().items():
            array = arrays[number]
            if array.ndim != len(inputs[number].shape):
                raise self._wrong_shape(inputs[number], array)
            if not array.ndim:
                found[symbol] = int(array)
                continue
            found[symbol] = array.shape[axis] if axis >= 0 else array.strides[-1 - axis] // array.itemsize
        return found

    @staticmethod
    def _wrong_shape(op: dispatch.InputOp, array: Array) -> TreadleError:
        declared = "x".join(dispatch.texts(op.shape)) or "scalar"
        given = "x".join(map(str, array.shape)) or "scalar"
        index = int(op.index.value.data)
        return TreadleError(
            ARGUMENT_SHAPE, location_of(op), index=index, name=op.arg_name.data, given=given, expected=declared, declared=declared
        )

    def _execute(self, op: Operation, environment: dict[str, int], values: dict[SSAValue, Buffer], arrays: Sequence[Array]) -> None:
        match op:
            case dispatch.InputOp():
                values[op.result] = self._input(op, environment, np.asarray(arrays[op.index.value.data]))
            case dispatch.ConstantOp():
                contents = attribute_value(op.value, self._numbers)
                values[op.result] = Buffer(contents.reshape(-1), 0, contents.shape, row_major(contents.shape))
            case dispatch.AllocOp() | dispatch.LaunchOp() if op.when is not None and not expr.parse(op.when.data).evaluate(environment):
                if isinstance(op, dispatch.AllocOp):
                    values[op.result] = Buffer(allocate(0, self._dtype(op.result)), 0, (0,), (1,))
            case dispatch.AllocOp():
                shape = _evaluate(op.shape, environment)
                data = allocate(int(np.prod(shape, dtype=np.int64)), self._dtype(op.result))
                if op.counters is not None:
                    data[...] = 0
                values[op.result] = Buffer(data, 0, shape, row_major(shape))
            case dispatch.ViewOp():
                source = values[op.source]
                offset = source.offset + expr.parse(op.offset.data).evaluate(environment)
                values[op.result] = Buffer(source.data, offset, _evaluate(op.shape, environment), _evaluate(op.strides, environment))
            case dispatch.LaunchOp():
                self.launch(op, environment, values)
            case dispatch.CheckOp():
                self._check(op, environment)
            case _:
                raise TreadleError(NOT_EXECUTABLE, location_of(op), name=op.name, reason="the simulator does not define it")

    def _input(self, op: dispatch.InputOp, environment: dict[str, int], array: Array) -> Buffer:
        """Copy an argument into device memory with the strides the program declares."""
        shape, strides = _evaluate(op.shape, environment), _evaluate(op.strides, environment)
        if array.shape != shape:
            raise self._wrong_shape(op, array)
        extent = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        data = allocate(extent, self._dtype(op.result))
        buffer = Buffer(data, 0, shape, strides)
        buffer.array()[...] = array.astype(data.dtype, copy=False)
        return buffer

    def launch(self, op: dispatch.LaunchOp, environment: dict[str, int], values: dict[SSAValue, Buffer]) -> None:
        """Run one kernel on its buffers."""
        kernel = self._kernels[op.kernel.string_value()]
        given = {name: expr.parse(text).evaluate(environment) for name, text in op.symbol_values().items()}
        symbols = [given[name] for name in kernel.symbols]
        if 0 not in kernel.grid(symbols):
            kernel.launch([Pointer(values[v].data, values[v].offset) for v in (*op.inputs, *op.outputs)], symbols)

    def _dtype(self, value: SSAValue) -> np.dtype[Any]:
        if not isinstance(value.type, dispatch.BufferType):
            return unreachable(f"{value.type} is no buffer")
        return self._numbers(value.type.element_type)

    def _check(self, op: dispatch.CheckOp, environment: dict[str, int]) -> None:
        left, right = (expr.parse(side.data).evaluate(environment) for side in (op.left, op.right))
        if not (left == right if op.relation.data == "==" else left <= right):
            what = op.message.data if op.message is not None else "sizes disagree"
            fields: dict[str, Any] = {"left": left, "relation": op.relation.data, "right": right}
            raise TreadleError(SIZES_RULED_OUT, location_of(op), function=self.name, what=what, **fields)


def _check_counters(values: dict[SSAValue, Buffer]) -> None:
    """Raises SimulationFault where the launches leave counters that are not zero: the next call would count wrong."""
    for value, buffer in values.items():
        if isinstance(value.owner, dispatch.AllocOp) and value.owner.counters is not None and buffer.data.any():
            raise SimulationFault("the launches leave counters that are not zero")


def _evaluate(texts: builtin.ArrayAttr[builtin.StringAttr], environment: dict[str, int]) -> tuple[int, ...]:
    return tuple(expr.parse(text).evaluate(environment) for text in dispatch.texts(texts))


def run_program(module: builtin.ModuleOp, arrays: Sequence[Array]) -> list[Array]:
    """Run a lowered module once; see `SimProgram`."""
    return SimProgram(module)(*arrays)
