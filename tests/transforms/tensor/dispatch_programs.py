"""Lowering tensor text to dispatch level in tests, running the result with NumPy, and checking what every kernel body guarantees."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from treadle.analysis.indexing import Contraction, StructuredOp, classify, is_permutation, is_projection, map_dims
from treadle.dialects import dispatch
from treadle.ir.core import AffineMap, Block, Operation, Region, SSAValue
from treadle.ir.dialects import builtin, func, linalg, tensor
from treadle.ir.passes import run_passes
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.plan.expr import parse
from treadle.remarks import Remark, collect_remarks
from treadle.sim.reference import evaluate_module
from treadle.transforms.tensor.generics import tensor_type, view_of

Array = np.ndarray[Any, Any]


def lower(text: str, target: str = "sm_90a") -> tuple[builtin.ModuleOp, list[Remark]]:
    """The dispatch-level module of a text and the remarks made; its contract and its round trip are checked."""
    module = parse_module(text, "test.mlir")
    with collect_remarks() as log:
        run_passes(module, tensor_passes(target_spec(target), CompileOptions()))
    for kernel in kernels(module):
        check_contract(kernel)
    printed = print_module(module)
    assert print_module(parse_module(printed, "again.mlir")) == printed
    return module, log.remarks


def kernels(module: builtin.ModuleOp) -> list[dispatch.KernelOp]:
    """The kernels of a module."""
    return [op for op in module.body.block.ops if isinstance(op, dispatch.KernelOp)]


def program(module: builtin.ModuleOp, name: str | None = None) -> dispatch.ProgramOp:
    """The (named) program of a module."""
    return next(op for op in module.body.block.ops if isinstance(op, dispatch.ProgramOp) and name in (None, op.sym_name.data))


def host_ops(module: builtin.ModuleOp, kind: type[Operation]) -> list[Any]:
    """Operations of one kind in the program."""
    return [op for op in program(module).body.block.ops if isinstance(op, kind)]


def body_generics(kernel: dispatch.KernelOp) -> list[linalg.ops.GenericOp]:
    """The generics of a kernel."""
    return [op for op in kernel.body.block.ops if isinstance(op, linalg.ops.GenericOp)]


def dims_of(map_: AffineMap) -> tuple[int, ...]:
    """The dimensions a projection picks."""
    dims = map_dims(map_)
    assert dims is not None
    return dims


def check_roots(roots: Sequence[linalg.ops.GenericOp]) -> StructuredOp:
    """Assert what several roots have in common; the first."""
    first, *others = [view_of(op) for op in roots]
    for view in others:
        assert isinstance(classify(view.op), Contraction)
        assert classify(view.op) == classify(first.op)
        assert (view.iterators, view.output_maps) == (first.iterators, first.output_maps)
        assert [tensor_type(v).element_type for v in view.inputs] == [tensor_type(v).element_type for v in first.inputs]
        assert not any(value in op.results for op in roots for value in (*view.inputs, *view.outputs))
    reads = [[*zip(view.inputs, view.input_maps, strict=True)] for view in (first, *others)]
    assert not others or any(all(own[i] == reads[0][i] for own in reads) for i in (0, 1))
    return first


def check_contract(kernel: dispatch.KernelOp) -> None:
    """Assert what docs/architecture.md says of kernel bodies."""
    generics = body_generics(kernel)
    roots = [op for op in generics if "dispatch.root" in op.attributes]
    root = check_roots(roots)
    # The roots' dimension that each axis of what depends on them lies along.
    after: dict[SSAValue, tuple[int, ...]] = {
        r: dims_of(m) for op in roots for r, m in zip(op.results, view_of(op).output_maps, strict=True)
    }
    for op in kernel.body.block.ops:
        assert op.name in ("linalg.generic", "linalg.fill", "tensor.empty", "dispatch.yield") or op.name.startswith("arith."), op.name
        assert not (op.name.startswith("arith.") and any(isinstance(r.type, builtin.TensorType) for r in op.results))
        if isinstance(op, linalg.ops.FillOp):
            assert all(not view_of(use.operation).is_parallel for use in op.results[0].uses)
        if not isinstance(op, linalg.ops.GenericOp):
            continue
        view = view_of(op)
        assert map_dims(view.output_maps[0]) == tuple(range(len(view.output_maps[0].results)))
        assert view.iterators == tuple(sorted(view.iterators))  # parallel < reduction
        assert all(is_projection(map_) for map_ in view.output_maps)
        for index, output in enumerate(view.outputs):
            if view.is_parallel:
                assert isinstance(output.owner, tensor.EmptyOp)
                assert not view.reads_output(index)
        if op in roots:
            continue
        assert view.is_parallel
        places: set[tuple[int, ...]] = set()
        for value, map_ in zip(view.inputs, view.input_maps, strict=True):
            if value in after:
                assert is_permutation(map_)
                assert view.rank == len(root.parallel_dims)
                order = dims_of(map_)
                places.add(tuple(after[value][order.index(d)] for d in range(view.rank)))
            elif isinstance(value.owner, Operation):
                assert is_projection(map_)
        assert len(places) <= 1
        for place in places:
            after.update({r: tuple(place[d] for d in dims_of(m)) for r, m in zip(op.results, view.output_maps, strict=True)})
        for inner in view.body.walk():
            for operand in inner.operands:
                inside = operand.owner is view.body or (isinstance(operand.owner, Operation) and operand.owner.parent_block() is view.body)
                gathered = isinstance(inner, tensor.ExtractOp) and operand is inner.tensor and operand in kernel.body.block.args
                assert inside or gathered or isinstance(operand.type, builtin.IndexType)
    last = kernel.body.block.last_op
    assert isinstance(last, dispatch.YieldOp)
    assert len(set(last.values)) == len(last.values)
    assert all(value in after for value in last.values)


def _as_module(kernel: dispatch.KernelOp) -> builtin.ModuleOp:
    """The kernel's body as a function on tensors."""
    block = Block(arg_types=[arg.type for arg in kernel.body.block.args])
    mapping: dict[SSAValue, SSAValue] = dict(zip(kernel.body.block.args, block.args, strict=True))
    for op in kernel.body.block.ops:
        if isinstance(op, dispatch.YieldOp):
            block.add_op(func.ReturnOp(*(mapping[value] for value in op.values)))
        else:
            block.add_op(op.clone(value_mapper=mapping))
    kind = (list(kernel.function_type.inputs), list(kernel.function_type.outputs))
    return builtin.ModuleOp([func.FuncOp(kernel.sym_name.data, kind, Region(block))])


class Memory:
    """A flat array seen through offset, shape and strides."""

    def __init__(self, data: Array, offset: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.data, self.offset, self.shape, self.strides = data, offset, tuple(shape), tuple(strides)

    def view(self) -> Array:
        """The elements as a NumPy array that writes through."""
        steps = [stride * self.data.itemsize for stride in self.strides]
        reach = self.offset + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        assert 0 in self.shape or (self.offset >= 0 and reach < len(self.data))
        return np.lib.stride_tricks.as_strided(self.data[self.offset :] if 0 not in self.shape else self.data, self.shape, steps)


def run_program(module: builtin.ModuleOp, inputs: Sequence[Array], name: str | None = None) -> list[Array]:
    """Execute a program with each kernel evaluated in float64; fresh memory holds NaN.

    AssertionError where a check or a shape does not hold.
    """
    found = program(module, name)
    by_name = {kernel.sym_name.data: kernel for kernel in kernels(module)}
    env = {
        symbol: inputs[i].shape[a] if a >= 0 else inputs[i].strides[-1 - a] // inputs[i].itemsize
        for symbol, (i, a) in found.dim_sources().items()
    }
    memory: dict[SSAValue, Memory] = {}

    def sizes(attr: Any) -> list[int]:
        return [parse(text).evaluate(env) for text in dispatch.texts(attr)]

    def fresh(shape: Sequence[int], value: SSAValue) -> Memory:
        element = value.type.element_type  # pyright: ignore
        dtype = np.int64 if isinstance(element, builtin.IntegerType | builtin.IndexType) else np.float64
        data = np.full(max(prod(shape), 1), -77 if dtype is np.int64 else np.nan, dtype=dtype)
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return Memory(data, 0, shape, strides)

    for op in found.body.block.ops:
        match op:
            case dispatch.InputOp():
                given = inputs[op.index.value.data]
                shape, strides = sizes(op.shape), sizes(op.strides)
                assert list(given.shape) == shape, f"{op.arg_name.data} has shape {given.shape}, expected {shape}"
                base = fresh([1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))] if prod(shape) else [0], op.result)
                memory[op.result] = Memory(base.data, 0, shape, strides)
                memory[op.result].view()[...] = given
            case dispatch.ConstantOp():
                shape = list(op.value.get_shape() or ())
                memory[op.result] = fresh(shape, op.result)
                memory[op.result].view()[...] = (
                    np.array(list(op.value.get_values())).reshape(shape) if not op.value.is_splat() else op.value.get_values()[0]
                )
            case dispatch.AllocOp():
                memory[op.result] = fresh(sizes(op.shape), op.result)
            case dispatch.ViewOp():
                base = memory[op.source]
                memory[op.result] = Memory(base.data, base.offset + parse(op.offset.data).evaluate(env), sizes(op.shape), sizes(op.strides))
            case dispatch.CheckOp():
                left, right = parse(op.left.data).evaluate(env), parse(op.right.data).evaluate(env)
                assert left == right if op.relation.data == "==" else left <= right, op.message and op.message.data
            case dispatch.LaunchOp():
                kernel = by_name[op.kernel.string_value()]
                values = {symbol: parse(text).evaluate(env) for symbol, text in op.symbol_values().items()}
                for rows, buffers in ((kernel.arg_shapes, op.inputs), (kernel.result_shapes, op.outputs)):
                    for row, buffer in zip(dispatch.text_lists(rows), buffers, strict=True):
                        assert tuple(parse(text).evaluate(values) for text in row) == memory[buffer].shape
                for rows, buffers in ((kernel.arg_strides, op.inputs), (kernel.result_strides, op.outputs)):
                    for row, buffer in zip(dispatch.text_lists(rows), buffers, strict=True):
                        assert tuple(parse(text).evaluate(values) for text in row) == memory[buffer].strides
                arguments = [memory[value].view() for value in op.inputs] + [np.asarray(values[s]) for s in dispatch.texts(kernel.symbols)]
                for result, buffer in zip(evaluate_module(_as_module(kernel), arguments), op.outputs, strict=True):
                    memory[buffer].view()[...] = result.value
            case dispatch.ReturnOp():
                bases = [memory[value].data for value in op.values]
                assert len({id(base) for base in bases}) == len(bases)
                return [memory[value].view() for value in op.values]
            case _:
                raise AssertionError(op.name)
    raise AssertionError("no dispatch.return")


def compare(text: str, *inputs: Array) -> builtin.ModuleOp:
    """Lower the text, run it on the inputs, and compare with the evaluation of the text itself; returns the lowered module."""
    module, _ = lower(text)
    found = run_program(module, inputs)
    expected = evaluate_module(parse_module(text, "test.mlir"), inputs)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        assert got.shape == want.value.shape
        np.testing.assert_allclose(got, want.value, rtol=1e-2 if "16" in str(want.element) else 1e-5, atol=1e-5)
    return module
