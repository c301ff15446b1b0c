"""The float64 evaluation of a module at dispatch level: each kernel's body as the tensor program that it is.

It defines what a `dispatch.kernel` computes, whatever it is formed of: kernels that no form builds yet (chains of roots) are evaluated like
all others.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from treadle.dialects import dispatch
from treadle.errors import unreachable
from treadle.ir.core import Block, Region, SSAValue
from treadle.ir.dialects import builtin, func
from treadle.plan import expr
from treadle.sim.element_types import Array, reference_dtype, storage_dtype
from treadle.sim.program import Buffer, SimProgram
from treadle.sim.reference import ReferenceResult, evaluate_module


def kernel_function(kernel: dispatch.KernelOp) -> builtin.ModuleOp:
    """A module whose one function computes what the kernel does: its tensors, then its index arguments, to its results."""
    block = Block(arg_types=[arg.type for arg in kernel.body.block.args])
    mapping: dict[SSAValue, SSAValue] = dict(zip(kernel.body.block.args, block.args, strict=True))
    for op in kernel.body.block.ops:
        if isinstance(op, dispatch.YieldOp):
            block.add_op(func.ReturnOp(*(mapping[value] for value in op.values)))
        else:
            block.add_op(op.clone(value_mapper=mapping))
    kind = (list(kernel.function_type.inputs), list(kernel.function_type.outputs))
    return builtin.ModuleOp([func.FuncOp(kernel.sym_name.data, kind, Region(block))])


def evaluate_kernel(kernel: dispatch.KernelOp, tensors: Sequence[Array], numbers: Sequence[int] = ()) -> list[ReferenceResult]:
    """Evaluate one block of a kernel on its tensor arguments, and the values of its symbols, of those of blocks and of those that are read.

    Raises `TreadleError` TR320/TR321 for types and operations that cannot be evaluated.
    """
    return evaluate_module(kernel_function(kernel), [*tensors, *map(np.asarray, numbers)], rounded=False)


def _numbers_read(kernel: dispatch.KernelOp, arrays: Sequence[Array], known: dict[str, int]) -> list[int]:
    """The numbers that a block, whose symbols are `known`, reads."""
    found = dict(known)
    for name, read in kernel.reads.items():
        place = tuple(expr.parse(text).evaluate(found) for text in read.place)
        found[name] = min(max(int(arrays[read.argument][place]), 0), expr.parse(read.most).evaluate(found))
    return [found[name] for name in kernel.reads]


class _Program(SimProgram):
    """A host program whose kernels are evaluated, on memory in float64 and in the integers' own widths."""

    def __init__(self, module: builtin.ModuleOp) -> None:
        super().__init__(module, numbers=reference_dtype)
        self._bodies = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)}

    def launch(self, op: dispatch.LaunchOp, environment: dict[str, int], values: dict[SSAValue, Buffer]) -> None:
        """Evaluate one kernel. The buffers have the shapes and strides that its attributes tell, or the module is wrong."""
        kernel = self._bodies[op.kernel.string_value()]
        given = {name: expr.parse(text).evaluate(environment) for name, text in op.symbol_values().items()}
        rows = (
            (op.inputs, dispatch.text_lists(kernel.arg_shapes), dispatch.text_lists(kernel.arg_strides)),
            (op.outputs, dispatch.text_lists(kernel.result_shapes), dispatch.text_lists(kernel.result_strides)),
        )
        for buffers, shapes, strides in rows:
            for value, *told in zip(buffers, shapes, strides, strict=True):
                shape, steps = (tuple(expr.parse(text).evaluate(given) for text in row) for row in told)
                buffer = values[value]
                if shape != buffer.shape or (0 not in shape and steps != buffer.strides):
                    name = kernel.sym_name.data
                    unreachable(f"kernel {name} is told {shape} by {steps} of a buffer of {buffer.shape} by {buffer.strides}")
        symbols = [given[name] for name in dispatch.texts(kernel.symbols)]
        arrays, names = [values[value].array() for value in op.inputs], (*dispatch.texts(kernel.symbols), *kernel.blocks)
        for block in product(*(range(expr.parse(text).evaluate(given)) for text in kernel.blocks.values())):
            numbers = [*symbols, *block]
            numbers += _numbers_read(kernel, arrays, dict(zip(names, numbers, strict=True)))
            for result, value in zip(evaluate_kernel(kernel, arrays, numbers), op.outputs, strict=True):
                own = ... if result.unwritten is None else ~result.unwritten  # a block leaves alone what others write
                values[value].array()[own] = result.value[own]


def evaluate_dispatches(module: builtin.ModuleOp, arrays: Sequence[Array]) -> list[Array]:
    """Run the one program of a module at dispatch level with each kernel evaluated in float64; one array for each result.

    `arrays` are rounded to the types of the inputs first. Fresh memory holds NaN. Raises `TreadleError` TR320/TR321 for what cannot be
    evaluated, TR721, TR723, TR724 for arrays that the program does not take.
    """
    types = {op.index.value.data: op.result.type for op in module.walk() if isinstance(op, dispatch.InputOp)}
    elements = [type_.element_type for _, type_ in sorted(types.items()) if isinstance(type_, dispatch.BufferType)]
    rounded = [np.asarray(a).astype(storage_dtype(e), copy=False) for a, e in zip(arrays, elements, strict=False)]
    return _Program(module)(*rounded, *arrays[len(rounded) :])
