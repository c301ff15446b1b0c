"""Which register tiles must share one layout: classes of values tied by elementwise operations and loop-carried values.

Classes are linked where one layout follows from another: a broadcast's source and a reduction's result are projections of the wide tile, a
permuted tile is the permuted layout. Contractions, loads, stores and accesses to shared buffers anchor classes.
"""

from collections.abc import Iterable
from dataclasses import field

from treadle.analysis.element_bytes import element_bytes
from treadle.analysis.view_access import view_op
from treadle.dialects import tile
from treadle.dialects.tile_types import is_tile
from treadle.errors import InternalError
from treadle.ir.core import Operation, SSAValue
from treadle.ir.dialects import scf
from treadle.plan.access import contiguous_dim
from treadle.plan.layout_choice import GlobalAccess
from treadle.records import dataclass

AccessOp = tile.LoadOp | tile.StoreOp
SharedOp = tile.LocalLoadOp | tile.LocalStoreOp
RenamedOp = tile.PermuteOp | tile.ReshapeOp


@dataclass(eq=False)
class LayoutClass:
    """Values of one layout, in program order, with what anchors them."""

    values: list[SSAValue] = field(default_factory=list[SSAValue])
    accesses: list[AccessOp] = field(default_factory=list[AccessOp])
    shared: list[SharedOp] = field(default_factory=list[SharedOp])
    contracts: list[tile.ContractOp] = field(default_factory=list[tile.ContractOp])
    reduces: list[tile.ReduceOp] = field(default_factory=list[tile.ReduceOp])
    broadcasts: list[tile.BroadcastOp] = field(default_factory=list[tile.BroadcastOp])
    permutes: list[RenamedOp] = field(default_factory=list[RenamedOp])

    @property
    def shape(self) -> tuple[int, ...]:
        """Sides of the tiles of this class."""
        return tuple(tile.tile_type(self.values[0]).get_shape())


class LayoutClasses:
    """The classes of a kernel: `of(value)` and `classes` in program order.

    Lists of a class: `contracts` whose accumulator it is, `accesses` and `shared` of its values, `reduces` and `broadcasts` that it is the
    *wide* side of, `permutes` (and reshapes) that read it.
    """

    def __init__(self, kernel: tile.KernelOp) -> None:
        self._parent: dict[SSAValue, SSAValue] = {}
        self._order: list[SSAValue] = []
        operations = tuple(kernel.body.walk())
        for op in operations:
            self._tie(op)
        self._classes: dict[SSAValue, LayoutClass] = {}
        for value in self._order:
            root = self._root(value)
            self._classes.setdefault(root, LayoutClass()).values.append(value)
        for op in operations:
            self._anchor(op)

    @property
    def classes(self) -> tuple[LayoutClass, ...]:
        """All classes, in the order of their first value."""
        return tuple(self._classes.values())

    def of(self, value: SSAValue) -> LayoutClass:
        """The class of a register tile."""
        return self._classes[self._root(value)]

    def _root(self, value: SSAValue) -> SSAValue:
        if value not in self._parent:
            self._parent[value] = value
            self._order.append(value)
        while self._parent[value] is not value:
            self._parent[value] = self._parent[self._parent[value]]
            value = self._parent[value]
        return value

    def _union(self, values: Iterable[SSAValue]) -> None:
        first: SSAValue | None = None
        for value in values:
            if not is_tile(value):
                continue
            root = self._root(value)
            if first is None:
                first = root
            else:
                self._parent[root] = first = self._root(first)

    def _tie(self, op: Operation) -> None:
        match op:
            case tile.ContractOp():
                self._union((op.accumulator, op.result))
                for operand in (op.a, op.b):
                    self._union((operand,))
            case scf.ForOp():
                terminator = op.body.block.last_op
                if not isinstance(terminator, scf.YieldOp):
                    raise InternalError("scf.for without scf.yield")
                carried = zip(op.iter_args, op.body.block.args[1:], terminator.operands, op.results, strict=True)
                for values in carried:
                    self._union(values)
            case scf.IfOp():
                for region in op.regions:
                    if region.blocks and isinstance(terminator := region.block.last_op, scf.YieldOp):
                        for values in zip(terminator.operands, op.results, strict=True):
                            self._union(values)
            case tile.ReduceOp():
                self._union(op.inputs)
                self._union(op.results)
            case tile.BroadcastOp() | tile.PermuteOp() | tile.ReshapeOp() | tile.ConvertLayoutOp():
                self._union((op.source,))
                self._union((op.result,))
            case tile.PrintOp():
                for value in op.values:
                    self._union((value,))
            case scf.YieldOp():
                pass
            case _:
                self._union((*op.operands, *op.results))

    def _anchor(self, op: Operation) -> None:
        match op:
            case tile.ContractOp():
                self.of(op.accumulator).contracts.append(op)
            case tile.LoadOp():
                self.of(op.result).accesses.append(op)
            case tile.StoreOp():
                self.of(op.value).accesses.append(op)
            case tile.LocalLoadOp():
                self.of(op.result).shared.append(op)
            case tile.LocalStoreOp():
                self.of(op.value).shared.append(op)
            case tile.ReduceOp():
                self.of(op.inputs[0]).reduces.append(op)
            case tile.BroadcastOp():
                self.of(op.result).broadcasts.append(op)
            case tile.PermuteOp() | tile.ReshapeOp():
                self.of(op.source).permutes.append(op)
            case _:
                pass


def accessed_tile(op: AccessOp) -> SSAValue:
    """The register tile that a load makes or a store writes."""
    return op.result if isinstance(op, tile.LoadOp) else op.value


def access_of(op: AccessOp) -> GlobalAccess:
    """The access as the cost functions see it."""
    tile_type = tile.tile_type(accessed_tile(op))
    along = contiguous_dim(tile.view_strides(op.view), tile.ints(op.dims), tile_type.get_shape())
    is_folded = view_op(op.view).folding is not None
    return GlobalAccess(along, op.vector.value.data, element_bytes(tile_type.element_type), is_folded)
