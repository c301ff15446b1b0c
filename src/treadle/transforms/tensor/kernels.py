"""The kernels of a module while programs are built: regions become isolated kernels, equal ones are shared."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Protocol

from treadle.analysis.shapes import Shapes
from treadle.analysis.sizes import ReadNumber, cannot_compile
from treadle.dialects import dispatch
from treadle.errors import InternalError
from treadle.ir.ancestry import captured
from treadle.ir.core import Attribute, Block, Operation, Region, SSAValue
from treadle.ir.dialects import builtin, func, tensor
from treadle.ir.emitter import Index
from treadle.ir.locations import set_location
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.ir.text import print_module
from treadle.plan.block_bounds import of_the_launch
from treadle.plan.expr import Expr, constant, symbol
from treadle.records import dataclass
from treadle.transforms.tensor.buffers import Buffer
from treadle.transforms.tensor.generics import copy_body, elementwise


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


@dataclass(frozen=True, slots=True)
class Ranges:
    """What differs from block to block: the symbols of blocks with their extents, and those of the numbers that blocks read."""

    blocks: dict[str, Expr]
    reads: dict[str, dispatch.Read]


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
        hoisted: dict[Expr, Expr] = {}
        walked = holder.shapes.ranges.keys()

        def settled(size: Expr) -> Expr:
            return of_the_launch(size, walked, hoisted, lambda: f"h{len(hoisted)}")

        outputs = [_with_sizes(buffer, settled) for buffer in outputs]
        sizes = {value: settled(size) for value, size in sizes.items()}
        read = _numbers_read([holder.buffer(value, like) for value in tensors], outputs, sizes.values(), holder.shapes)
        tensors = list(dict.fromkeys((*tensors, *(number.table for number in read.values()))))
        inputs = [_with_sizes(holder.buffer(value, like), settled) for value in tensors]
        if any(inputs[tensors.index(number.table)].cut is not None for number in read.values()):
            hint = "read offsets and sizes from whole tensors, at indices that are computed from the index of scf.forall"
            raise cannot_compile(like, what="an offset or a size that is read from a slice inside 'scf.forall'", hint=hint)
        numbers = {name: ReadNumber(n.table, tuple(map(settled, n.place)), settled(n.most)) for name, n in read.items()}
        told = [*(size for buffer in (*inputs, *outputs) for size in _sizes_told(buffer)), *sizes.values()]
        told += [each for number in numbers.values() for each in (*number.place, number.most)]
        used = frozenset[str]().union(*(size.symbols() for size in told))
        blocks = {name: holder.shapes.resolve(extent) for name, extent in holder.shapes.blocks.items() if name in used}
        names = _symbol_names([*told, *blocks.values()], {*blocks, *numbers})
        places = {name: f"p{number}" for number, name in enumerate(blocks)} | {name: f"r{number}" for number, name in enumerate(numbers)}
        renamed: dict[str, Expr | int] = {old: symbol(new) for old, new in (names | places).items()}
        per_block = Ranges(
            {places[name]: extent.substitute(renamed) for name, extent in blocks.items()},
            {places[name]: _read_by_kernel(number, tensors, renamed) for name, number in numbers.items()},
        )
        known = {v: s.substitute(renamed) for v, s in sizes.items()}
        kernel = _build(region.body, tensors, inputs, outputs, known, renamed, list(names.values()), per_block)
        set_location(kernel, like)
        kernel.attributes.update({name: value for name, value in region.attributes.items() if name == "origin"})
        name = self._intern(kernel, holder.function.sym_name.data)
        given = {str(place): str(size) for size, place in hoisted.items()}
        return Outlined(name, tuple(tensors), {new: given.get(old, old) for old, new in names.items()})

    def _intern(self, kernel: dispatch.KernelOp, function: str) -> str:
        text = print_module(kernel.clone(clone_name_hints=False))  # equal kernels may name their values differently
        if text not in self._names:
            number = self._counts.get(function, 0)
            self._counts[function] = number + 1
            self._names[text] = f"{function}_k{number}"
            kernel.properties["sym_name"] = builtin.StringAttr(self._names[text])
            self.ops.append(kernel)
        return self._names[text]


def _numbers_read(inputs: Sequence[Buffer], outputs: Sequence[Buffer], sizes: Iterable[Expr], shapes: Shapes) -> dict[str, ReadNumber]:
    """The numbers that blocks read and the kernel has a use for, in the order of the function."""
    used = set[str]().union(*(size.symbols() for buffer in (*inputs, *outputs) for size in _sizes_told(buffer)))
    used.update(*(size.symbols() for size in sizes))
    return {name: number for name, number in shapes.reads.items() if name in used}


def _read_by_kernel(number: ReadNumber, tensors: Sequence[SSAValue], renamed: dict[str, Expr | int]) -> dispatch.Read:
    place = tuple(str(index.substitute(renamed)) for index in number.place)
    return dispatch.Read(tensors.index(number.table), place, str(number.most.substitute(renamed)))


def _with_sizes(buffer: Buffer, changed: Callable[[Expr], Expr]) -> Buffer:
    """A buffer with its sizes, strides, and the place of a block's part of it changed."""
    shape, strides = tuple(map(changed, buffer.shape)), tuple(map(changed, buffer.strides))
    cut = buffer.cut
    if cut is not None:
        cut = replace(cut, whole=_with_sizes(cut.whole, changed), offsets=tuple(map(changed, cut.offsets)))
    return replace(buffer, shape=shape, strides=strides, cut=cut)


def _sizes_told(buffer: Buffer) -> Iterator[Expr]:
    """Everything that a kernel must know of a buffer."""
    yield from (*buffer.whole.shape, *buffer.whole.strides)
    if buffer.cut is not None:
        yield from (*buffer.shape, *buffer.cut.offsets)


def _symbol_names(sizes: Sequence[Expr], blocks: Collection[str]) -> dict[str, str]:
    """Program symbol -> kernel symbol s0, s1, ..: in order of first appearance, so that equal kernels get equal texts."""
    names: dict[str, str] = {}
    for size in sizes:
        for name in sorted(size.symbols().difference(blocks)):
            names.setdefault(name, f"s{len(names)}")
    return names


def _static(buffer: Buffer) -> list[int]:
    """The sizes as a type has them."""
    return [builtin.DYNAMIC_INDEX if (number := size.as_int()) is None else number for size in buffer.shape]


def _cut(buffer: Buffer, renamed: dict[str, Expr | int], emit: TensorEmitter) -> list[list[Index]]:
    """Offsets, sizes and strides of what is cut out of a buffer."""
    cut = buffer.cut
    if cut is None:
        raise InternalError("nothing is cut out of this buffer")
    sizes = [constant(1)] * len(cut.offsets)
    for axis, size in zip(cut.kept, buffer.shape, strict=True):
        sizes[axis] = size
    return [[emit.index(each.substitute(renamed)) for each in values] for values in (cut.offsets, sizes, cut.steps)]


def _build(
    body: Region,
    tensors: Sequence[SSAValue],
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    sizes: dict[SSAValue, Expr],
    renamed: dict[str, Expr | int],
    symbols: Sequence[str],
    per_block: Ranges,
) -> dispatch.KernelOp:
    types = [
        value.type if buffer.cut is None else builtin.TensorType(buffer.element, _static(buffer.whole))
        for value, buffer in zip(tensors, inputs, strict=True)
    ]
    indices = [*symbols, *per_block.blocks, *per_block.reads]
    block = Block(arg_types=[*types, *(builtin.IndexType() for _ in indices)])
    mapping: dict[SSAValue, SSAValue] = dict(zip(tensors, block.args, strict=False))
    for number, argument in enumerate(block.args):
        argument.name_hint = f"t{number}" if number < len(tensors) else indices[number - len(tensors)]
    emit = TensorEmitter(block, dict(zip(indices, block.args[len(tensors) :], strict=True)))
    for value, size in sizes.items():
        mapping[value] = emit.expression(size)
    for value, buffer in zip(tensors, inputs, strict=True):
        if buffer.cut is not None:
            offsets, sizes_cut, steps = _cut(buffer, renamed, emit)
            mapping[value] = emit.extract_slice(mapping[value], sizes_cut, offsets, steps, shape=tensor_type(value).get_shape())
    result_types: list[Attribute] = []
    for op in body.block.ops:
        if isinstance(op, dispatch.YieldOp):
            stored = [_stored(mapping[v], buffer, renamed, emit) for v, buffer in zip(op.values, outputs, strict=True)]
            result_types = [value.type for value in stored]
            block.add_op(dispatch.YieldOp(stored))
            continue
        missing = _missing_sizes(op)
        extra = [emit.expression(size.substitute(renamed)) for size in (outputs[0].shape[axis] for axis in missing)]
        copy = op.clone(value_mapper=mapping)
        if extra and isinstance(copy, tensor.EmptyOp):
            copy = tensor.EmptyOp(extra, copy.tensor.type)
            mapping[op.results[0]] = copy.tensor
        block.add_op(copy)
    wholes = [[buffer.whole for buffer in buffers] for buffers in (inputs, outputs)]
    shapes, strides = (
        [[[e.substitute(renamed) for e in row] for row in rows] for rows in told]
        for told in ([[b.shape for b in buffers] for buffers in wholes], [[b.strides for b in buffers] for buffers in wholes])
    )
    return dispatch.KernelOp(
        "kernel",
        Region(block),
        result_types,
        symbols=symbols,
        blocks=per_block.blocks,
        reads=per_block.reads,
        arg_shapes=shapes[0],
        arg_strides=strides[0],
        arg_align=[buffer.align for buffer in wholes[0]],
        result_shapes=shapes[1],
        result_strides=strides[1],
        result_align=[buffer.align for buffer in wholes[1]],
    )


def _stored(value: SSAValue, buffer: Buffer, renamed: dict[str, Expr | int], emit: TensorEmitter) -> SSAValue:
    """What a kernel yields for a result: itself, or the whole that each block inserts its own into."""
    if buffer.cut is None:
        return value
    whole = emit.empty([emit.index(size.substitute(renamed)) for size in buffer.whole.shape], buffer.element, _static(buffer.whole))
    offsets, sizes, steps = _cut(buffer, renamed, emit)
    return emit.insert_slice(value, whole, offsets, sizes, steps)


def _missing_sizes(op: Operation) -> list[int]:
    """Axes of a `tensor.empty` without operands for its dynamic sizes (a copy region leaves them to be given here)."""
    if not isinstance(op, tensor.EmptyOp) or op.dynamic_sizes:
        return []
    return [axis for axis, size in enumerate(tensor_type(op.tensor).get_shape()) if size == builtin.DYNAMIC_INDEX]
