"""The float64 evaluation of a tensor-level module: what a compiled program must agree with.

Integers wrap as declared; every float is float64; beside each value stands a bound on the error of a machine that computes in the declared
types (see `error_analysis.py`), so that a result can be judged element by element.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from treadle.dialects.mlir_ext.forall import ForallOp, InParallelOp
from treadle.dialects.mlir_ext.shapes import BitcastOp
from treadle.dialects.mlir_ext.slices import ParallelInsertSliceOp
from treadle.dialects.mlir_ext.softmax import SoftmaxOp
from treadle.errors import NOT_EXECUTABLE, TreadleError
from treadle.ir.core import AffineMap, Attribute, Block, Operation, SSAValue
from treadle.ir.dialects import builtin, func, linalg, scf, tensor
from treadle.ir.locations import location_of
from treadle.options import Precision
from treadle.sim.element_types import Array, element_type, is_float, reference_dtype, storage_dtype
from treadle.sim.elementwise import Function, elementwise_function
from treadle.sim.error_analysis import Tracked, operation_error, precision_of_type, unwritten_of
from treadle.sim.extended_arithmetic import EXTENDED
from treadle.sim.slices import evaluate_tensor, index, insert, scalar
from treadle.sim.softmax import softmax
from treadle.sim.structured import loops_of, run_structured

Structured = linalg.abstract_ops.LinalgStructuredOperation


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """One result of a function.

    `value`: float64 (floats) or int64 (integers, i1 and index). `bound`: on the absolute error, None where it must be exact.

    `element`: the declared element type. `unwritten`: true where the program's text computes the element from uninitialised memory (the
    contents of `tensor.empty`), so that there is no right value; None where that is nowhere.
    """

    value: Array
    bound: Array | None
    element: Attribute
    unwritten: Array | None = None


def function_named(module: builtin.ModuleOp, name: str | None) -> func.FuncOp:
    """The function of that name, or the first public one with a body. Raises TR321 where there is none."""
    functions = [op for op in module.body.block.ops if isinstance(op, func.FuncOp) and op.body.blocks]
    public = [f for f in functions if f.sym_visibility is None or f.sym_visibility.data != "private"]
    for candidate in functions if name is not None else public:
        if name is None or candidate.sym_name.data == name:
            return candidate
    raise TreadleError(NOT_EXECUTABLE, location_of(module), name="builtin.module", reason=f"it has no function {name or ''}".rstrip())


def evaluate_module(
    module: builtin.ModuleOp,
    inputs: Sequence[Array],
    function: str | None = None,
    *,
    f32_precision: Precision = "ieee",
    rounded: bool = True,
) -> list[ReferenceResult]:
    """Evaluate a function of a tensor-level module on arrays of its arguments' types (scalars as 0-d arrays or Python numbers).

    `f32_precision`: the bounds allow what contractions of f32 operands may do (`CompileOptions.f32_precision`).
    `rounded`: the arrays are rounded to the arguments' types first, as whoever stores them does; else their float64 values are taken.
    Raises `TreadleError` TR320/TR321 for types and operations that cannot be evaluated.
    """
    entry = function_named(module, function)
    evaluator = _Evaluator(module, f32_precision)
    types = [element_type(arg.type) for arg in entry.body.block.args]
    converted = _converted if rounded else _widened
    arguments = [Tracked(converted(value, scalar)) for value, scalar in zip(inputs, types, strict=True)]
    with np.errstate(all="ignore"):
        found = evaluator.run_function(entry, arguments)
    types = [element_type(t) for t in entry.function_type.outputs]
    return [_result(tracked, t) for tracked, t in zip(found, types, strict=True)]


def _converted(value: Array, scalar: Attribute) -> Array:
    return np.asarray(value).astype(storage_dtype(scalar), copy=False).astype(reference_dtype(scalar), copy=False)


def _widened(value: Array, scalar: Attribute) -> Array:
    return np.asarray(value).astype(reference_dtype(scalar), copy=False)


def _result(tracked: Tracked, scalar: Attribute) -> ReferenceResult:
    tracked = tracked.spread()
    dtype = np.float64 if is_float(scalar) else np.int64
    value = np.ascontiguousarray(tracked.value).astype(dtype, copy=False).reshape(np.shape(tracked.value))
    return ReferenceResult(value, tracked.error, scalar, tracked.unwritten)


class _Evaluator:
    """Executes blocks; values live in one dictionary (SSA values are unique in a module, loops overwrite their bodies')."""

    def __init__(self, module: builtin.ModuleOp, f32_precision: Precision) -> None:
        self.module = module
        self.f32_precision: Precision = f32_precision
        self.values: dict[SSAValue, Tracked] = {}
        self.functions: dict[Operation, Function | None] = {}

    def lookup(self, value: SSAValue) -> Tracked:
        return self.values[value]

    def run_function(self, function: func.FuncOp, arguments: Sequence[Tracked]) -> list[Tracked]:
        return self.run_block(function.body.block, arguments)

    def run_block(self, block: Block, arguments: Sequence[Tracked]) -> list[Tracked]:
        """Execute a block and give the operands of its terminator."""
        self.values.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            if isinstance(op, func.ReturnOp | scf.YieldOp | scf.ConditionOp | tensor.YieldOp | InParallelOp):
                return [self.values[v] for v in op.operands]
            results = self.evaluate(op)
            self.values.update(zip(op.results, results, strict=True))
        return []

    def apply(self, op: Operation, args: Sequence[Tracked]) -> Sequence[Tracked]:
        """The results of an `arith` or `math` operation on tracked values, or of a call of a function on such."""
        if isinstance(op, func.CallOp):
            return self.run_function(function_named(self.module, op.callee.string_value()), args)
        if op.name in EXTENDED:
            width = storage_dtype(element_type(op.operands[0].type)).itemsize * 8
            found = EXTENDED[op.name](args[0].value, args[1].value, width)
            return [Tracked(value, operation_error(op, args, value), unwritten_of(op, args)) for value in found]
        if op not in self.functions:
            self.functions[op] = elementwise_function(op, reference_dtype)
        function = self.functions[op]
        if function is None:
            raise TreadleError(NOT_EXECUTABLE, location_of(op), name=op.name, reason="it has no definition here")
        value = np.asarray(function(*(a.value for a in args)))
        return [Tracked(value, operation_error(op, args, value), unwritten_of(op, args))]

    def evaluate(self, op: Operation) -> Iterable[Tracked]:
        """The results of one operation."""
        match op:
            case _ if op.name.startswith(("arith.", "math.")):
                return self.apply(op, [self.values[v] for v in op.operands])
            case BitcastOp():
                return self.apply(op, [self.values[op.source]])
            case SoftmaxOp():
                return [softmax(self.values[op.input], op.axis, precision_of_type(op))]
            case Structured():
                return self._structured(op)
            case _ if op.name.startswith("affine."):
                return [self._affine(op)]
            case scf.ForOp():
                return self._for(op)
            case scf.IfOp():
                taken = op.true_region if bool(scalar(self.lookup, op.cond)) else op.false_region
                return self.run_block(taken.block, []) if taken.blocks else []
            case scf.WhileOp():
                return self._while(op)
            case func.CallOp():
                callee = function_named(self.module, op.callee.string_value())
                return self.run_function(callee, [self.values[v] for v in op.operands])
            case ForallOp():
                return self._forall(op)
            case _:
                if isinstance(op, tensor.PadOp):
                    self.run_block(op.region.block, [Tracked(np.asarray(0))] * len(op.region.block.args))
                found = evaluate_tensor(op, self.lookup)
                if found is None:
                    raise TreadleError(NOT_EXECUTABLE, location_of(op), name=op.name, reason="the reference does not define it")
                return [found]

    def _structured(self, op: Structured) -> list[Tracked]:
        operands = [self.values[v] for v in op.operands]
        maps = [m.data for m in op.get_indexing_maps()]
        reduction = [it.data != linalg.attrs.IteratorType.PARALLEL for it in op.get_iterator_types()]
        loops = loops_of(op, maps, reduction, [t.value.shape for t in operands])
        block = op.body.block
        inside = {result for inner in block.walk() for result in inner.results} | set(block.args)
        outer = {v: self.values[v] for inner in block.walk() for v in inner.operands if v not in inside}
        return run_structured(op, block, loops, operands, outer, self.apply, f32_precision=self.f32_precision)

    def _affine(self, op: Operation) -> Tracked:
        given = [index(self.lookup, v) for v in op.operands]
        attribute = op.properties.get("map")
        if not isinstance(attribute, builtin.AffineMapAttr) or op.name not in _AFFINE:
            raise TreadleError(NOT_EXECUTABLE, location_of(op), name=op.name, reason="the reference does not define it")
        affine_map: AffineMap = attribute.data
        results = affine_map.eval(given[: affine_map.num_dims], given[affine_map.num_dims :])
        return Tracked(np.asarray(_AFFINE[op.name](results), dtype=np.int64))

    def _for(self, op: scf.ForOp) -> list[Tracked]:
        start, stop, step = (index(self.lookup, v) for v in (op.lb, op.ub, op.step))
        dtype = storage_dtype(op.lb.type)
        carried = [self.values[v] for v in op.iter_args]
        for i in range(start, stop, step):
            carried = self.run_block(op.body.block, [Tracked(np.asarray(i, dtype=dtype)), *carried])
        return carried

    def _while(self, op: scf.WhileOp) -> list[Tracked]:
        carried = [self.values[v] for v in op.operands]
        terminator = op.before_region.block.last_op
        while terminator is not None:
            _, *carried = self.run_block(op.before_region.block, carried)
            if not bool(scalar(self.lookup, terminator.operands[0])):
                return carried
            carried = self.run_block(op.after_region.block, carried)
        return carried

    def _forall(self, op: ForallOp) -> list[Tracked]:
        """`scf.forall`: iterations one after the other; each reads the initial outputs, the insertions go to the results."""
        bounds = zip(op.lower_bounds, op.upper_bounds, op.steps, strict=True)
        ranges = [range(*(index(self.lookup, bound) for bound in triple)) for triple in bounds]
        initial = [self.values[v] for v in op.outputs]
        state: dict[SSAValue, Tracked] = dict(zip(op.output_arguments, initial, strict=True))
        written: set[SSAValue] = set()
        insertions = [inner for inner in op.terminator.body.block.ops if isinstance(inner, ParallelInsertSliceOp)]
        for place in np.ndindex(*(len(r) for r in ranges)):
            ids = [Tracked(np.asarray(r[i], dtype=np.int64)) for r, i in zip(ranges, place, strict=True)]
            self.run_block(op.body.block, [*ids, *initial])
            for insertion in insertions:
                state[insertion.dest] = insert(self.lookup, insertion, state[insertion.dest], in_place=insertion.dest in written)
                written.add(insertion.dest)
        return [state[argument] for argument in op.output_arguments]


_AFFINE: dict[str, Callable[[Sequence[int]], int]] = {"affine.apply": lambda r: r[0], "affine.min": min, "affine.max": max}
