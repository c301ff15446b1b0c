"""Walking, making, reading, copying and verifying operations without the general case.

A compilation does each of them some thousand times. Upstream walks by a generator within a generator for each level, sorts the parts of
operations that have none of variable number, searches the traits for each question about them, and verifies every operation anew. What is
special goes the way upstream goes. Types and operands are read some hundred thousand times: without a call in Python where that can be.
"""

from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from struct import unpack
from typing import Any, cast

from xdsl import builder
from xdsl.dialects.builtin import UNKNOWN_LOC, DenseArrayBase, LocationAttr
from xdsl.ir import Attribute, Block, Operation, OpTrait, Region, SSAValue
from xdsl.ir.core import IRNode, OpOperands, OpResult, SSAValues
from xdsl.irdl import IRDLOperation, OpDef, operations
from xdsl.irdl.operations import BaseAttrAccessor, BeforeVariadicSingleAccessor, VariadicDef, VarIRConstruct, get_op_constructs

MAX_VERIFIED = 1 << 13
"""Kinds of operations that are remembered as verified."""

_init, _verify = operations.irdl_op_init, OpDef.verify
_operation_init, _is_ancestor, _get_trait = Operation.__init__, Operation.is_ancestor, Operation.get_trait.__func__
_get_accessed: Callable[..., Any] = getattr(BeforeVariadicSingleAccessor, "__get__")  # noqa: B009 - untyped upstream
_item: Callable[[tuple[Any, ...], Any], Any] = tuple[Any, ...].__getitem__  # past a subclass that asks whether the index is a slice
_NOTHING: Mapping[str, Attribute] = {}
SEGMENT_BYTES = 4
OPERAND, RESULT = VarIRConstruct.OPERAND, VarIRConstruct.RESULT
_walk_of_operation, _walk_of_block, _walk_of_region, _clone = Operation.walk, Block.walk, Region.walk, Operation.clone
_verified: set[tuple[object, ...]] = set()


def _walk_operation(self: Operation, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
    """All operations within one, that one first. Whoever walks may move or erase what was given last, as upstream."""
    if reverse or region_first:
        yield from _walk_of_operation(self, reverse=reverse, region_first=region_first)
        return
    yield self
    if self.regions:
        yield from _within(block for region in self.regions for block in region.blocks)


def _walk_region(self: Region, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
    if reverse or region_first:
        yield from _walk_of_region(self, reverse=reverse, region_first=region_first)
        return
    yield from _within(iter(self.blocks))


def _walk_block(self: Block, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
    if reverse or region_first:
        yield from _walk_of_block(self, reverse=reverse, region_first=region_first)
        return
    yield from _within(iter((self,)))


def _within(blocks: Iterator[Block]) -> Iterator[Operation]:
    """The operations of blocks and all within them; what is left to do around them is kept, not the generators that would do it."""
    around: list[tuple[Iterator[Block], Operation | None]] = []
    following: Operation | None = None
    while True:
        while (op := following) is not None:
            following = op.next_op
            yield op
            if op.regions:
                around.append((blocks, following))
                blocks, following = iter([block for region in op.regions for block in region.blocks]), None
        if (block := next(blocks, None)) is not None:
            following = block.first_op
        elif around:
            blocks, following = around.pop()
        else:
            return


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


def _operation(
    self: Operation,
    *,
    operands: Sequence[SSAValue] = (),
    result_types: Sequence[Attribute] = (),
    properties: Mapping[str, Attribute] = _NOTHING,
    attributes: Mapping[str, Attribute] = _NOTHING,
    location: LocationAttr | None = None,
    successors: Sequence[Block] = (),
    regions: Sequence[Region] = (),
) -> None:
    if successors:
        parts: dict[str, Any] = {"operands": operands, "result_types": result_types, "successors": successors, "regions": regions}
        _operation_init(self, properties=properties, attributes=attributes, location=location, **parts)
        return
    self.operands = operands
    self.results = SSAValues([OpResult(kind, self, at) for at, kind in enumerate(result_types)])
    self.properties, self.attributes = dict(properties), dict(attributes)
    self.location = UNKNOWN_LOC if location is None else location
    for region in regions:
        self.add_region(region)
    self.__post_init__()


_post_init = Operation.__post_init__


def _put_where_a_builder_is(self: Operation) -> None:
    """Insert a new operation where an implicit builder of this thread stands, if there is one."""
    _post_init(self)
    if (place := builder._current_builder.builder) is not None:  # pyright: ignore[reportPrivateUsage]
        place.insert(self)


def _already_there() -> Callable[[Operation], None]:
    """What an implicit builder would install, and take away at its end: two threads with one each would insert operations twice."""
    return _put_where_a_builder_is


def _quick_is_ancestor(self: Operation, op: IRNode) -> bool:
    """Nothing is within an operation without regions."""
    return op is self or (bool(self.regions) and _is_ancestor(self, op))


def _quick_get(self: BeforeVariadicSingleAccessor, obj: Operation, objtype: type | None = None) -> Any:
    """An operand or a result that stands before those of variable number."""
    if self.construct is OPERAND:
        return obj.operands[self.idx]
    return _item(obj.results, self.idx) if self.construct is RESULT else _get_accessed(self, obj, objtype)


_operands: Callable[[OpOperands], SSAValues] = attrgetter("_op._operands")


def _quick_operand(self: OpOperands, idx: int | slice) -> Any:
    found = _item(_operands(self), idx)
    return SSAValues(found) if isinstance(idx, slice) else found


@cache
def _segments(sizes: bytes) -> tuple[int, ...]:
    return unpack(f"<{len(sizes) // SEGMENT_BYTES}i", sizes)


def _quick_get_segment(self: BaseAttrAccessor, obj: Operation, objtype: type | None = None) -> Any:
    """Operands or results of an operation that says how many of each variable kind it has."""
    sizes = cast("DenseArrayBase[Any]", self.option.container(obj)[self.option.attribute_name])
    values: Sequence[Any] = obj.operands if self.construct is OPERAND else get_op_constructs(obj, self.construct)
    return self.index(_segments(sizes.data.data), values)


@cache
def _first_trait(traits: frozenset[OpTrait], kind: type[OpTrait]) -> OpTrait | None:
    return next((trait for trait in traits if isinstance(trait, kind)), None)


def _quick_get_trait(cls: type[Operation], trait: Any) -> Any:
    return _first_trait(cls.traits.traits, trait) if isinstance(trait, type) else _get_trait(cls, trait)


@cache
def _checking(traits: frozenset[OpTrait]) -> tuple[OpTrait, ...]:
    """Those that verify something."""
    return tuple(trait for trait in traits if type(trait).verify is not OpTrait.verify)


def _quick_verify(self: OpDef, op: Operation) -> None:
    """The types and attributes of an operation are what its definition asks for, once for all operations that share them."""
    if op.regions or op.successors:
        _verify(self, op)
        return
    types = [value.type for value in (*op.operands, *op.results)]
    parts = (*types, *op.properties.values(), *op.attributes.values())
    key = (id(self), len(op.results), *op.properties, None, *op.attributes, *parts)
    if key in _verified:
        for trait in _checking(self.traits.traits):
            trait.verify(op)
        return
    _verify(self, op)
    if len(_verified) >= MAX_VERIFIED:
        _verified.clear()
    _verified.add(key)


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


class _QuickChecks(ABCMeta):
    """Classes of which nothing is an instance by registration alone, so that `isinstance` looks at the bases and calls no Python."""

    __instancecheck__ = type.__instancecheck__


def _check_quickly(kind: type) -> None:
    for derived in type.__subclasses__(kind):
        _check_quickly(derived)
    if type(kind) is ABCMeta:
        kind.__class__ = _QuickChecks


for checked in (Operation, Attribute, SSAValue):
    _check_quickly(checked)
setattr(SSAValue, "type", property(attrgetter("_type")))  # noqa: B010 - read-only, as upstream
setattr(Operation, "operands", property(OpOperands, Operation.operands.fset))  # noqa: B010 - its type is a class
OpOperands.__getitem__ = _quick_operand
Operation.walk = _walk_operation
Operation.clone = _quick_clone
Operation.__init__ = _operation
Operation.__post_init__ = _put_where_a_builder_is
builder._override_operation_post_init = _already_there  # pyright: ignore[reportPrivateUsage]
Operation.is_ancestor = _quick_is_ancestor
setattr(Operation, "get_trait", classmethod(_quick_get_trait))  # noqa: B010 - its type is an overloaded one
BeforeVariadicSingleAccessor.__get__ = _quick_get
BaseAttrAccessor.__get__ = _quick_get_segment
Region.walk = _walk_region
Block.walk = _walk_block
IRDLOperation.__hash__ = object.__hash__  # told apart by identity, as upstream, without a call in Python
SSAValue.__hash__ = object.__hash__
operations.irdl_op_init = _quick_init
OpDef.verify = _quick_verify
