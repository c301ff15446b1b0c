"""Walking, making, copying and verifying operations without the general case.

A compilation does each of them some thousand times. Upstream walks by a generator within a generator for each level, sorts the parts of
operations that have none of variable number, and verifies every clone of an operation anew. What is special goes the way upstream goes.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation, OpDef, operations
from xdsl.irdl.operations import VariadicDef

MAX_VERIFIED = 1 << 13
"""Kinds of operations that are remembered as verified."""

_init, _verify = operations.irdl_op_init, OpDef.verify
_walk_of_operation, _walk_of_block, _walk_of_region, _clone = Operation.walk, Block.walk, Region.walk, Operation.clone
_verified: dict[tuple[object, ...], tuple[Attribute, ...]] = {}


def _walk_operation(self: Operation, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
    """All operations within one, that one first. Whoever walks may move or erase what was given last, as upstream."""
    if reverse or region_first:
        yield from _walk_of_operation(self, reverse=reverse, region_first=region_first)
        return
    yield self
    for region in self.regions:
        yield from _walk_region(region)


def _walk_region(self: Region, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
    if reverse or region_first:
        yield from _walk_of_region(self, reverse=reverse, region_first=region_first)
        return
    for block in self.blocks:
        yield from _walk_block(block)


def _walk_block(self: Block, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
    if reverse or region_first:
        yield from _walk_of_block(self, reverse=reverse, region_first=region_first)
        return
    following = self.first_op
    while (op := following) is not None:
        following = op.next_op
        yield op
        for region in op.regions:
            yield from _walk_region(region)


@cache
def _is_plain(kind: type[IRDLOperation]) -> bool:
    """Whether operations of a kind have a fixed number of operands and results, no regions and no successors."""
    definition = kind.get_irdl_definition()
    parts = (*definition.operands, *definition.results)
    return not (definition.regions or definition.successors or any(isinstance(part, VariadicDef) for _, part in parts))


def _quick_init(
    self: IRDLOperation,
    op_def: OpDef,
    *,
    operands: Sequence[Any],
    result_types: Sequence[Any],
    properties: Mapping[str, Attribute | None],
    attributes: Mapping[str, Attribute | None],
    successors: Sequence[Any],
    regions: Sequence[Any],
) -> None:
    counts = len(operands) == len(op_def.operands) and len(result_types) == len(op_def.results)
    single = all(isinstance(part, SSAValue | Operation) for part in operands) and all(isinstance(kind, Attribute) for kind in result_types)
    if not (counts and single and _is_plain(type(self))):
        parts: dict[str, Any] = {"operands": operands, "result_types": result_types, "successors": successors, "regions": regions}
        _init(self, op_def, properties=properties, attributes=attributes, **parts)
        return
    Operation.__init__(
        self,
        operands=[SSAValue.get(part) for part in operands],
        result_types=result_types,
        properties={name: value for name, value in properties.items() if value is not None},
        attributes={name: value for name, value in attributes.items() if value is not None},
    )


def _quick_verify(self: OpDef, op: Operation) -> None:
    """The types and attributes of an operation are what its definition asks for, once for all operations that share them."""
    if op.regions or op.successors:
        _verify(self, op)
        return
    types = [value.type for value in (*op.operands, *op.results)]
    parts = (*types, *op.properties.values(), *op.attributes.values())
    key = (id(self), len(op.results), *op.properties, None, *op.attributes, *map(id, parts))
    if key in _verified:
        for trait in self.traits:
            trait.verify(op)
        return
    _verify(self, op)
    if len(_verified) >= MAX_VERIFIED:
        _verified.clear()
    _verified[key] = parts  # alive, so that nothing else gets their numbers


def _quick_clone(
    self: Operation,
    value_mapper: dict[SSAValue, SSAValue] | None = None,
    block_mapper: dict[Block, Block] | None = None,
    *,
    clone_name_hints: bool = True,
    clone_operands: bool = True,
) -> Operation:
    if self.regions or self.successors or not clone_operands:
        return _clone(self, value_mapper, block_mapper, clone_name_hints=clone_name_hints, clone_operands=clone_operands)
    known = value_mapper if value_mapper is not None else {}
    made = self.create(
        operands=[known.get(operand, operand) for operand in self.operands],
        result_types=self.result_types,
        attributes=self.attributes,
        properties=self.properties,
        location=self.location,
    )
    for result, copy in zip(self.results, made.results, strict=True):
        known[result] = copy
        if clone_name_hints:
            copy.name_hint = result.name_hint
    return made


Operation.walk = _walk_operation
Operation.clone = _quick_clone
Region.walk = _walk_region
Block.walk = _walk_block
IRDLOperation.__hash__ = object.__hash__  # told apart by identity, as upstream, without a call in Python
SSAValue.__hash__ = object.__hash__
operations.irdl_op_init = _quick_init
OpDef.verify = _quick_verify
