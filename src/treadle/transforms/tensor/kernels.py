"""The kernels of a module while programs are built: regions become isolated kernels, equal ones are shared."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from treadle.analysis.shapes import Shapes
from treadle.dialects import dispatch
from treadle.errors import InternalError
from treadle.ir.core import Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import builtin, func, tensor
from treadle.ir.emitter import at_end
from treadle.ir.locations import set_location
from treadle.ir.text import print_module
from treadle.plan.expr import Expr, symbol
from treadle.transforms.tensor.buffers import Buffer
from treadle.transforms.tensor.generics import copy_body, elementwise
from treadle.transforms.tensor.groups import captured
from treadle.transforms.tensor.tensors import tensor_type


class Holder(Protocol):
    """What outlining needs to know of the function around a region."""

    function: func.FuncOp
    shapes: Shapes

    def buffer(self, value: SSAValue, like: Operation) -> Buffer:
        """The buffer of a tensor."""
        ...


@dataclass(frozen=True, slots=True)
class Outlined:
    """A region's kernel: its name, the tensors it takes, and its symbols as expressions over the program's."""

    name: str
    tensors: tuple[SSAValue, ...]
    symbols: dict[str, str]


def copy_region(source: SSAValue, like: Operation) -> dispatch.RegionOp:
    """A region that copies the tensor `source`; its size operands are the emitter's to give (`tensor.dim` on the source)."""
    type_ = tensor_type(source)
    plain = builtin.TensorType(type_.element_type, type_.get_shape())
    empty = tensor.EmptyOp([], plain)
    copy = elementwise([source], [empty.tensor], copy_body(plain.element_type), like)
    copy.attributes[dispatch.ROOT] = builtin.UnitAttr()
    region = dispatch.RegionOp([plain], Region(Block([empty, copy, dispatch.YieldOp(copy.results)])))
    region.attributes["origin"] = builtin.StringAttr("copy")
    return region


@dataclass(slots=True)
class KernelTable:
    """Kernels in the order they were first needed; `_names` finds an equal one by its text."""

    ops: list[dispatch.KernelOp] = field(default_factory=list[dispatch.KernelOp])
    _names: dict[str, str] = field(default_factory=dict[str, str])
    _counts: dict[str, int] = field(default_factory=dict[str, int])

    def outline(self, region: dispatch.RegionOp, holder: Holder, outputs: Sequence[Buffer], like: Operation) -> Outlined:
        """The kernel of a region whose results go to `outputs`, made new or found."""
        values = list(dict.fromkeys(captured(region)))
        tensors = [value for value in values if isinstance(value.type, builtin.TensorType)]
        indices = {value: holder.shapes.index(value) for value in values if not isinstance(value.type, builtin.TensorType)}
        sizes: dict[SSAValue, Expr] = {}
        for value, size in indices.items():
            if size is None:
                raise InternalError(f"a kernel captures {value.type}, which is no size")
            sizes[value] = size
        inputs = [holder.buffer(value, like) for value in tensors]
        names = _symbol_names([*(size for buffer in (*inputs, *outputs) for size in (*buffer.shape, *buffer.strides)), *sizes.values()])
        renamed: dict[str, Expr | int] = {old: symbol(new) for old, new in names.items()}
        kernel = _build(
            region.body, tensors, inputs, outputs, {v: s.substitute(renamed) for v, s in sizes.items()}, renamed, list(names.values())
        )
        set_location(kernel, like)
        kernel.attributes.update({name: value for name, value in region.attributes.items() if name == "origin"})
        name = self._intern(kernel, holder.function.sym_name.data)
        return Outlined(name, tuple(tensors), {new: old for old, new in names.items()})

    def _intern(self, kernel: dispatch.KernelOp, function: str) -> str:
        text = print_module(kernel.clone(clone_name_hints=False))  # equal kernels may name their values differently
        if text not in self._names:
            number = self._counts.get(function, 0)
            self._counts[function] = number + 1
            self._names[text] = f"{function}_k{number}"
            kernel.properties["sym_name"] = builtin.StringAttr(self._names[text])
            self.ops.append(kernel)
        return self._names[text]


def _symbol_names(sizes: Sequence[Expr]) -> dict[str, str]:
    """Program symbol -> kernel symbol s0, s1, ..: in order of first appearance, so that equal kernels get equal texts."""
    names: dict[str, str] = {}
    for size in sizes:
        for name in sorted(size.symbols()):
            names.setdefault(name, f"s{len(names)}")
    return names


def _build(
    body: Region,
    tensors: Sequence[SSAValue],
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    sizes: dict[SSAValue, Expr],
    renamed: dict[str, Expr | int],
    symbols: Sequence[str],
) -> dispatch.KernelOp:
    block = Block(arg_types=[*(value.type for value in tensors), *(builtin.IndexType() for _ in symbols)])
    mapping: dict[SSAValue, SSAValue] = dict(zip(tensors, block.args, strict=False))
    for number, argument in enumerate(block.args):
        argument.name_hint = f"t{number}" if number < len(tensors) else symbols[number - len(tensors)]
    emit = at_end(block, dict(zip(symbols, block.args[len(tensors) :], strict=True)))
    for value, size in sizes.items():
        mapping[value] = emit.expression(size)
    result_types: list[Attribute] = []
    for op in body.block.ops:
        missing = _missing_sizes(op)
        extra = [emit.expression(size.substitute(renamed)) for size in (outputs[0].shape[axis] for axis in missing)]
        copy = op.clone(value_mapper=mapping)
        if extra and isinstance(copy, tensor.EmptyOp):
            copy = tensor.EmptyOp(extra, copy.tensor.type)
            mapping[op.results[0]] = copy.tensor
        block.add_op(copy)
        if isinstance(copy, dispatch.YieldOp):
            result_types = [value.type for value in copy.values]
    rename = [[size.substitute(renamed) for size in row] for row in (*(b.shape for b in inputs), *(b.strides for b in inputs))]
    results = [[size.substitute(renamed) for size in row] for row in (*(b.shape for b in outputs), *(b.strides for b in outputs))]
    return dispatch.KernelOp(
        "kernel",
        Region(block),
        result_types,
        symbols=symbols,
        arg_shapes=rename[: len(inputs)],
        arg_strides=rename[len(inputs) :],
        arg_align=[buffer.align for buffer in inputs],
        result_shapes=results[: len(outputs)],
        result_strides=results[len(outputs) :],
        result_align=[buffer.align for buffer in outputs],
    )


def _missing_sizes(op: Operation) -> list[int]:
    """Axes of a `tensor.empty` without operands for its dynamic sizes (a copy region leaves them to be given here)."""
    if not isinstance(op, tensor.EmptyOp) or op.dynamic_sizes:
        return []
    return [axis for axis, size in enumerate(tensor_type(op.tensor).get_shape()) if size == builtin.DYNAMIC_INDEX]
