"""Copies of operands that contractions read instead, by kernels of their own: which share a kernel, and how it is made."""

from collections.abc import Sequence

from treadle.analysis.indexing import dim_map
from treadle.analysis.operation_marks import ORIGIN
from treadle.ir.core import DYNAMIC_INDEX, Attribute, Operation, SSAValue
from treadle.ir.dialects import builtin
from treadle.ir.tensors import TensorEmitter, tensor_type
from treadle.records import dataclass
from treadle.transforms.tensor.generics import build_generic, scalar_body


@dataclass(frozen=True, slots=True)
class CopiedOperand:
    """A copy of a tensor: the tensor's axes in the copy's order, and how many elements the rows along the copy's last axis are apart."""

    value: SSAValue
    axes: tuple[int, ...]
    pitch: int


class OperandCopies:
    """The copies that a function's contractions read so far: those that want the same share it. `origin`: of the kernels that copy."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._made: dict[CopiedOperand, SSAValue] = {}

    def of(self, wanted: Sequence[CopiedOperand], anchor: Operation) -> list[SSAValue]:
        """The copies, made in front of `anchor` where there are none yet: those of one type and order by one kernel."""
        missing = dict.fromkeys(copy for copy in wanted if copy not in self._made)
        for together in _of_one_kernel(list(missing)):
            self._made.update(zip(together, _made(together, anchor, self._origin), strict=True))
        return [self._made[copy] for copy in wanted]


def _made(copies: Sequence[CopiedOperand], anchor: Operation, origin: str) -> list[SSAValue]:
    """Copies of tensors of one type by one kernel, in front of `anchor`. Each is a slice of an array that has the longer rows, which also
    keeps the kernel apart from its readers' where rows are no longer than they were.
    """
    emit, values, axes = TensorEmitter(anchor), [copy.value for copy in copies], copies[0].axes
    type_ = tensor_type(values[0])
    sizes, shape = emit.sizes(values[0]), type_.get_shape()
    sizes, shape = [sizes[axis] for axis in axes], [shape[axis] for axis in axes]
    rank, count = len(axes), len(values)
    places = [axes.index(axis) for axis in range(rank)]
    maps = [*[dim_map(rank, places)] * count, *[dim_map(rank, range(rank))] * count]
    body = scalar_body([type_.element_type] * (2 * count), lambda _, arguments: arguments[:count])
    outputs = [emit.empty(sizes, type_.element_type) for _ in values]
    made = build_generic(values, outputs, maps, ["parallel"] * rank, body, anchor)
    made.attributes.clear()
    made.attributes[ORIGIN] = builtin.StringAttr(origin)
    emit.put(made)
    found: list[SSAValue] = []
    for result, copy in zip(made.results, copies, strict=True):
        whole = emit.insert_slice(result, emit.empty([*sizes[:-1], copy.pitch], type_.element_type), [0] * rank, sizes)
        found.append(emit.extract_slice(whole, sizes, shape=shape))
    return found


def _of_one_kernel(copies: Sequence[CopiedOperand]) -> list[list[CopiedOperand]]:
    """What one kernel copies: tensors of one type, of sizes that are known, in one order."""
    found: dict[tuple[Attribute | SSAValue, tuple[int, ...]], list[CopiedOperand]] = {}
    for copy in copies:
        is_known = DYNAMIC_INDEX not in tensor_type(copy.value).get_shape()
        found.setdefault((copy.value.type if is_known else copy.value, copy.axes), []).append(copy)
    return list(found.values())
