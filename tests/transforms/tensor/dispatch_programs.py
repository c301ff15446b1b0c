"""Lowering tensor text to dispatch level in tests, running the result with NumPy, and checking what every kernel body guarantees."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.analysis.attention_structure import Attention, attention_of, is_chain
from treadle.analysis.indexing import Contraction, StructuredOp, classify, is_permutation, is_projection, map_dims, view_of
from treadle.dialects import dispatch
from treadle.ir.core import AffineMap, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, linalg, tensor
from treadle.ir.passes import run_passes
from treadle.ir.tensors import tensor_type
from treadle.ir.text import parse_module, print_module
from treadle.machine import target_spec
from treadle.options import CompileOptions
from treadle.pipelines import tensor_passes
from treadle.remarks import Remark, collect_remarks
from treadle.sim.dispatch_level import evaluate_dispatches
from treadle.sim.reference import evaluate_module

Array = np.ndarray[Any, Any]


def lower(text: str, target: str = "sm_90a", split: str = "off") -> tuple[builtin.ModuleOp, list[Remark]]:
    """The dispatch-level module of a text and the remarks made; its contract and its round trip are checked. `split`: as the option.
    Operands are read as they lie.
    """
    module = parse_module(text, "test.mlir")
    with collect_remarks() as log:
        run_passes(module, tensor_passes(target_spec(target), CompileOptions(split_reduction=split, turned_operands="off")))
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


def are_rows(roots: Sequence[linalg.ops.GenericOp], generics: Sequence[linalg.ops.GenericOp]) -> bool:
    """Whether a kernel is one of rows: several reductions, or one whose result is read along its rows again."""
    if isinstance(classify(roots[0]), Contraction) or view_of(roots[0]).is_parallel:
        return False
    after, again = set(roots[0].results), False
    for op in generics:
        reads = [map_ for value, map_ in view_of(op).operands() if value in after]
        after.update(op.results if reads else ())
        again = again or not all(is_permutation(map_) for map_ in reads)
    return len(roots) > 1 or again or any(not view_of(op).is_parallel for op in generics if op not in roots)


def check_rows(roots: Sequence[linalg.ops.GenericOp], generics: Sequence[linalg.ops.GenericOp]) -> dict[SSAValue, tuple[int, ...]]:
    """Assert what members of a kernel of rows have in common; the rank of each one's results."""
    first = view_of(roots[0])
    members: dict[SSAValue, tuple[int, ...]] = {}
    for op in generics:
        view = view_of(op)
        if op in roots or any(value in members for value in view.inputs):
            assert view.rank in (first.rank, len(first.parallel_dims))
            assert len(view.reduction_dims) in (0, len(first.reduction_dims))
            assert all(is_projection(map_) for value, map_ in view.operands() if value in members)
            members.update({result: dims_of(map_) for result, map_ in zip(op.results, view.output_maps, strict=True)})
    return members


def check_contract(kernel: dispatch.KernelOp) -> None:
    """Assert what docs/architecture.md says of kernel bodies."""
    generics = body_generics(kernel)
    roots = [op for op in generics if "dispatch.root" in op.attributes]
    if are_rows(roots, generics):
        members = check_rows(roots, generics)
        last = kernel.body.block.last_op
        assert isinstance(last, dispatch.YieldOp)
        assert all(value in members for value in last.values)
        return
    if is_chain(roots):
        attention = attention_of([view_of(op) for op in generics], roots)
        last = kernel.body.block.last_op
        assert isinstance(attention, Attention) and isinstance(last, dispatch.YieldOp)
        assert all(value.owner in (attention.values.op, *attention.behind) for value in last.values)
        return
    root = check_roots(roots)
    # The roots' dimension that each axis of what depends on them lies along.
    after: dict[SSAValue, tuple[int, ...]] = {
        r: dims_of(m) for op in roots for r, m in zip(op.results, view_of(op).output_maps, strict=True)
    }
    for op in kernel.body.block.ops:
        is_slice = isinstance(op, tensor.ExtractSliceOp) and isinstance(op.source, BlockArgument)
        is_stored = isinstance(op, tensor.InsertSliceOp) and isinstance(op.dest.owner, tensor.EmptyOp)
        known = op.name in ("linalg.generic", "linalg.fill", "tensor.empty", "dispatch.yield") or op.name.startswith("arith.")
        assert known or (bool(kernel.blocks) and (is_slice or is_stored)), op.name
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
            elif isinstance(value.owner, Operation) and not isinstance(value.owner, tensor.ExtractSliceOp):
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
    stored = [value.owner.source if isinstance(value.owner, tensor.InsertSliceOp) else value for value in last.values]
    assert all(value in after for value in stored)


def run_program(module: builtin.ModuleOp, inputs: Sequence[Array], name: str | None = None) -> list[Array]:
    """Execute the (named) program with each kernel evaluated in float64; fresh memory holds NaN."""
    chosen = program(module, name)
    kept = [op.clone() for op in module.body.block.ops if op is chosen or not isinstance(op, dispatch.ProgramOp)]
    return evaluate_dispatches(builtin.ModuleOp(kept), inputs)


def compare(text: str, *inputs: Array, split: str = "off") -> builtin.ModuleOp:
    """Lower the text, run it on the inputs, and compare with the evaluation of the text itself; returns the lowered module."""
    module, _ = lower(text, split=split)
    found = run_program(module, inputs)
    expected = evaluate_module(parse_module(text, "test.mlir"), inputs)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        assert got.shape == want.value.shape
        # Both sides compute in float64, so only the order of sums differs.
        np.testing.assert_allclose(got, want.value, rtol=1e-12, atol=1e-12)
    return module
