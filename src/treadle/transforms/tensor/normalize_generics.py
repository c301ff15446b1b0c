"""normalize-generics: one form for every generic, so that later passes need not ask.

Level: tensor. Reads: `linalg.generic`, `linalg.fill` and the scalars they use.
Writes: generics in which
 - loops are ordered: dimensions of the first result, then reductions in their order;
 - scalars (constants, splat constants, fills that are read, single elements of tensors) live in the body or are tensor operands
   (`sink_scalars.py`): besides tensors that it gathers from, a body captures only values of type `index` that the host knows;
 - the `outs` of all-parallel generics are `tensor.empty` and never read (what was read became an input);
 - what is read through a map that divides is gathered (`affine_reads.py`);
 - unused and repeated inputs are gone, but for those of reductions declared to be associative;
 - no loop is known to be empty: such a generic has given way to its initial values;
and a fill that is not the initial value of a reduction becomes a generic without inputs.
Leaves alone: generics whose first result is not a projection of the loops (form-dispatches refuses them).
"""

from typing import ClassVar

from treadle.analysis.indexing import StructuredOp, is_projection, loop_sizes, map_dims, structured, view_of
from treadle.analysis.operation_marks import ASSOCIATIVE
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import arith, builtin, func, linalg, tensor
from treadle.ir.emitter import before
from treadle.ir.passes import register_pass
from treadle.ir.tensors import TensorEmitter
from treadle.records import dataclass
from treadle.transforms.tensor.affine_reads import gather_divided_reads
from treadle.transforms.tensor.copying import copy_block
from treadle.transforms.tensor.drafts import Draft, draft_of
from treadle.transforms.tensor.function_pass import FunctionPass
from treadle.transforms.tensor.generics import (
    elementwise,
    erase_dead,
    generics,
    give_way,
    rename_dims,
    replace,
    scalar_body,
)
from treadle.transforms.tensor.sink_scalars import depends_on_data, sink_scalars


def splat_constant(value: SSAValue) -> builtin.IntegerAttr | builtin.FloatAttr | None:
    """The scalar attribute that a dense constant holds everywhere; None for other values."""
    owner = value.owner
    if not isinstance(owner, arith.ConstantOp) or not isinstance(owner.value, builtin.DenseIntOrFPElementsAttr):
        return None
    if not owner.value.is_splat():
        return None
    scalar = next(iter(owner.value.get_attrs()), None)
    return scalar if isinstance(scalar, builtin.IntegerAttr | builtin.FloatAttr) else None


def uniform_scalar(value: SSAValue, anchor: Operation) -> SSAValue | None:
    """A scalar that every element of the operand equals (inserted before `anchor` where it is new); None where there is none."""
    if not isinstance(value.type, builtin.TensorType):
        return value
    if (attr := splat_constant(value)) is not None:
        return before(anchor).insert(arith.ConstantOp(attr))
    return value.owner.inputs[0] if isinstance(value.owner, linalg.ops.FillOp) else None


def _fold_uniform_inputs(draft: Draft) -> None:
    for index in range(len(draft.inputs) - 1, -1, -1):
        if not draft.sizes_loops_without(index):
            continue
        if draft.block.args[index].first_use is None:
            draft.drop_input(index, draft.block.args[index])
        elif (scalar := uniform_scalar(draft.inputs[index], draft.op)) is not None:
            draft.drop_input(index, scalar)


def _merge_repeated_inputs(draft: Draft) -> None:
    for index in range(len(draft.inputs) - 1, 0, -1):
        for earlier in range(index):
            if draft.inputs[earlier] is draft.inputs[index] and draft.maps[earlier] == draft.maps[index]:
                draft.drop_input(index, draft.block.args[earlier])
                break


def _free_outputs(draft: Draft) -> None:
    """Turn reads of the outputs of an all-parallel generic into inputs, and the outputs into empty tensors."""
    for index, (value, map_) in enumerate(zip(list(draft.outputs), draft.output_maps, strict=True)):
        argument = draft.block.args[len(draft.inputs) + index]
        if argument.first_use is not None:
            argument.replace_all_uses_with(draft.add_input(value, map_, argument.type))
        if not isinstance(value.owner, tensor.EmptyOp):
            draft.outputs[index] = TensorEmitter(draft.op).empty_like(value)
            draft.changed = True


def _ordered_loops(view: StructuredOp) -> list[int] | None:
    """Old dimension numbers in their new order; None where the first result is no projection of parallel dimensions."""
    dims = map_dims(view.output_maps[0])
    if dims is None or not is_projection(view.output_maps[0]) or any(view.iterators[d] != "parallel" for d in dims):
        return None
    rest = [d for d in range(view.rank) if d not in dims]
    return [*dims, *rest]


def normalize(op: linalg.ops.GenericOp) -> None:
    """Bring one generic to the form the module's docstring describes."""
    view = view_of(op)
    if 0 in loop_sizes(view):  # the results are the initial values, or have no elements
        give_way(op, view.outputs)
        return
    draft = draft_of(view)
    gather_divided_reads(draft)
    sink_scalars(draft, view.rank)
    if view.is_parallel:
        _free_outputs(draft)
    if ASSOCIATIVE not in op.attributes:  # there, the body takes one element for each accumulator
        _fold_uniform_inputs(draft)
    sink_scalars(draft, view.rank)
    if ASSOCIATIVE not in op.attributes:
        _merge_repeated_inputs(draft)
    iterators = view.iterators
    order = _ordered_loops(view)
    if order is not None and order != list(range(view.rank)):
        position = [order.index(d) for d in range(view.rank)]
        draft.maps = [rename_dims(map_, position) for map_ in draft.maps]
        draft.output_maps = [rename_dims(map_, position) for map_ in draft.output_maps]
        iterators = tuple(view.iterators[d] for d in order)
        for index in [inner for inner in draft.block.walk() if isinstance(inner, linalg.ops.IndexOp)]:
            replace(index, linalg.ops.IndexOp(position[int(index.dim.value.data)]))
        draft.changed = True
    draft.finish(iterators)


def fill_as_generic(op: linalg.ops.FillOp) -> linalg.ops.GenericOp:
    """A generic without inputs that yields the filled value; its `outs` is a fresh empty tensor. Inserted before `op`."""
    output = op.outputs[0]
    if not isinstance(output.owner, tensor.EmptyOp):
        output = TensorEmitter(op).empty_like(output)
    new = elementwise([], [output], scalar_body([op.body.block.args[-1].type], lambda emit, _: [op.inputs[0]]), op)
    before(op).put(new)
    return new


def _is_initial_value(operation: Operation, index: int) -> bool:
    view = structured(operation)
    if view is None or view.is_parallel or index < len(view.inputs):
        return False
    owner = operation.operands[index].owner
    return not isinstance(owner, linalg.ops.FillOp) or not depends_on_data(owner.inputs[0])


def _convert_filled(op: linalg.ops.FillOp) -> None:
    """Move the conversion that a fill implies out of it: the scalar gets the element type of the tensor."""
    converted: dict[SSAValue, SSAValue] = {op.body.block.args[0]: op.inputs[0]}
    (scalar,) = copy_block(op.body.block, converted, op)
    if scalar is not op.inputs[0]:
        new = type(op)([scalar], [op.outputs[0]], [op.results[0].type])
        new.attributes.update(op.attributes)
        replace(op, new)


def _normalize_fill(op: linalg.ops.FillOp) -> None:
    uses = [use for use in op.results[0].uses if not _is_initial_value(use.operation, use.index)]
    if uses:
        new = fill_as_generic(op)
        op.results[0].replace_uses_with_if(new.results[0], lambda use: not _is_initial_value(use.operation, use.index))
    if not isinstance(op.outputs[0].owner, tensor.EmptyOp) and op.results[0].first_use is not None:
        op.operands[1] = TensorEmitter(op).empty_like(op.outputs[0])


def _fills(function: func.FuncOp) -> list[linalg.ops.FillOp]:
    return [op for op in function.walk() if isinstance(op, linalg.ops.FillOp) and op.results]


@register_pass
@dataclass(frozen=True)
class NormalizeGenericsPass(FunctionPass):
    """See the module's docstring."""

    name: ClassVar[str] = "normalize-generics"

    def run(self, function: func.FuncOp) -> None:
        """Normalise every generic."""
        for op in _fills(function):
            _convert_filled(op)
        for op in generics(function):
            normalize(op)
        for op in _fills(function):
            _normalize_fill(op)
        for op in generics(function):  # fills that became generics may hold scalars still
            normalize(op)
        erase_dead(function)
