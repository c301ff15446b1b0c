"""The sizes of one function's tensors as expressions: what is known, what replaces what, what must be checked at run time."""

from collections.abc import Sequence
from dataclasses import field
from typing import cast

from treadle import errors
from treadle.analysis.indexing import tensor_of
from treadle.errors import SourceLocation, TreadleError
from treadle.ir.core import DYNAMIC_INDEX, Attribute, BlockArgument, Operation, SSAValue
from treadle.ir.dialects import builtin, func, tensor
from treadle.ir.locations import location_of
from treadle.plan.block_bounds import least
from treadle.plan.expr import Expr, constant, maximum, symbol
from treadle.plan.index_range import is_never_negative
from treadle.records import dataclass


@dataclass(frozen=True, slots=True)
class SizeCheck:
    """`left relation right` ("==" or "<=") must hold at run time; `message` says what is wrong where it does not."""

    left: Expr
    relation: str
    right: Expr
    message: str
    location: SourceLocation | None


@dataclass(frozen=True, slots=True)
class ReadNumber:
    """A number from 0 to `most` that each block reads from a tensor of the function, at these indices."""

    table: SSAValue
    place: tuple[Expr, ...]
    most: Expr


@dataclass(slots=True)
class Shapes:
    """The sizes of one function. `sources[name]` says where a symbol is read: (input, axis), axis < 0 for the stride of axis -1-axis.

    Axis 0 of an input without dimensions is its value.
    """

    sources: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    blocks: dict[str, Expr] = field(default_factory=dict[str, Expr])
    """The symbols of block indices with the number of values of each; what holds of them must hold for every value."""
    reads: dict[str, ReadNumber] = field(default_factory=dict[str, ReadNumber])
    """The symbols of numbers that blocks read from tensors, and where; the same for them."""
    _shapes: dict[SSAValue, tuple[Expr, ...]] = field(default_factory=dict[SSAValue, tuple[Expr, ...]])
    _indices: dict[SSAValue, Expr] = field(default_factory=dict[SSAValue, Expr])
    _replaced: dict[str, Expr] = field(default_factory=dict[str, Expr])
    _checks: list[SizeCheck] = field(default_factory=list[SizeCheck])

    def shape(self, value: SSAValue) -> tuple[Expr, ...]:
        """The sizes of a tensor."""
        if value not in self._shapes:
            raise errors.InternalError(f"no shape is known for a value of type {value.type}")
        return tuple(self.resolve(size) for size in self._shapes[value])

    def knows(self, value: SSAValue) -> bool:
        """Whether the tensor has been given a shape."""
        return value in self._shapes

    def index(self, value: SSAValue) -> Expr | None:
        """An index value as an expression; None where it depends on data."""
        found = self._indices.get(value)
        return None if found is None else self.resolve(found)

    def resolve(self, size: Expr) -> Expr:
        """The expression with every replaced symbol replaced."""
        while used := size.symbols() & self._replaced.keys():
            size = size.substitute({name: self._replaced[name] for name in used})
        return size

    @property
    def checks(self) -> list[SizeCheck]:
        """What must be checked at run time beyond the inputs' shapes; those that hold always are left out."""
        found: list[SizeCheck] = []
        for check in self._checks:
            left, right = self.resolve(check.left), self.resolve(check.right)
            gap = (right - left).as_int()
            if gap is not None and (gap == 0 if check.relation == "==" else gap >= 0):
                continue
            found.append(SizeCheck(left, check.relation, right, check.message, check.location))
        return list({(c.left, c.relation, c.right): c for c in found}.values())

    @property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """The symbols still in use and where each is read."""
        return {name: source for name, source in self.sources.items() if name not in self._replaced}

    def new_symbol(self, source: tuple[int, int]) -> Expr:
        """A fresh symbol read from `source`."""
        name = f"s{len(self.sources)}"
        self.sources[name] = source
        return symbol(name)

    def new_block(self, extent: Expr) -> Expr:
        """A fresh symbol for a block index of so many values."""
        name = f"p{len(self.blocks)}"
        self.blocks[name] = extent
        return symbol(name)

    def new_read(self, number: ReadNumber) -> Expr:
        """The symbol of a number that blocks read, the same for the same number."""
        name = next((name for name, known in self.reads.items() if known == number), f"r{len(self.reads)}")
        self.reads[name] = number
        return symbol(name)

    @property
    def ranges(self) -> dict[str, Expr]:
        """The symbols whose values differ from block to block, with how many values each may have, from 0."""
        found = {name: self.resolve(extent) for name, extent in self.blocks.items()}
        return found | {name: self.resolve(read.most) + 1 for name, read in self.reads.items()}

    def is_per_block(self, size: Expr) -> bool:
        """Whether an expression differs from block to block."""
        used = size.symbols()
        return not (self.blocks.keys().isdisjoint(used) and self.reads.keys().isdisjoint(used))

    def set_shape(self, value: SSAValue, sizes: Sequence[Expr]) -> None:
        """Record the shape of a tensor."""
        self._shapes[value] = tuple(sizes)

    def set_index(self, value: SSAValue, size: Expr) -> None:
        """Record an index value."""
        self._indices[value] = size

    def equate(self, left: Expr, right: Expr, message: str, op: Operation) -> None:
        """Require two sizes to be equal: a lone symbol is replaced by the other side, else a check is kept.

        Raises `TreadleError` TR202 where both are known and differ.
        """
        left, right = self.resolve(left), self.resolve(right)
        gap = (left - right).as_int()
        if gap == 0:
            return
        if gap is not None:
            raise TreadleError(errors.SIZE_MISMATCH, location_of(op), message=message, left=left, right=right)
        if self.is_per_block(left - right):
            self.require_at_most(left, right, message, op)
            self.require_at_most(right, left, message, op)
            return
        for one, other in sorted(((left, right), (right, left)), key=lambda pair: _age(pair[0]), reverse=True):
            name = _sole_symbol(one)
            if name is not None and name not in other.symbols() and (one == symbol(name) or other.divisor() % one.divisor() == 0):
                self._replaced[name] = other
                return
        self._checks.append(SizeCheck(left, "==", right, message, location_of(op)))

    def require_at_most(self, left: Expr, right: Expr, message: str, op: Operation) -> None:
        """Require `left <= right`, in every block; raises `TreadleError` TR202 where both are known and it fails, TR301 where it cannot be
        told from the sizes whether it holds in every block.
        """
        gap = self.resolve(right) - self.resolve(left)
        if self.is_per_block(gap):
            known = self.ranges
            if (smallest := least(gap, known)) is None:
                hint = "compute the offsets and sizes in scf.forall with sums, products with sizes, min and max of its indices"
                raise cannot_compile(op, what=f"a size that must hold in every block ({message})", hint=hint)
            blocks = [known[name] for name in self.blocks if name in gap.symbols() and not known[name].is_constant]
            for value in (each for each in smallest if not is_never_negative(each)):
                # Nothing is required where there is no block.
                self.require_at_most(constant(0), maximum(value, *(-extent for extent in blocks)), message, op)
            return
        gap = gap.as_int()
        if gap is not None and gap < 0:
            raise TreadleError(errors.SIZE_MISMATCH, location_of(op), message=message, left=self.resolve(left), right=self.resolve(right))
        if gap is None:
            self._checks.append(SizeCheck(left, "<=", right, message, location_of(op)))


def _sole_symbol(size: Expr) -> str | None:
    """The symbol that a size is, or whose multiple it is said to be."""
    names = size.symbols()
    name = next(iter(names)) if len(names) == 1 else ""
    return name if name and size in (symbol(name), symbol(name) // size.divisor() * size.divisor()) else None


def _age(size: Expr) -> tuple[bool, int]:
    """Later symbols give way to earlier ones, so that the first input names a size, and all to what is known of them."""
    name = _sole_symbol(size)
    return (False, -1) if name is None else (size.divisor() == 1, int(name[1:]))


def cannot_compile(op: Operation, *, what: str, hint: str) -> TreadleError:
    """The error TR301 at the line of `op`: `what` cannot be compiled yet, `hint` says what to write instead."""
    return TreadleError(errors.UNSUPPORTED, location_of(op), what=what, hint=hint)


def _scalar_on_the_host(op: Operation) -> TreadleError | None:
    """The error for a scalar argument, an array without dimensions by now, that a size or an index is computed from; None for others."""
    source = op.operands[0] if op.name == "tensor.extract" and len(op.operands) == 1 else None
    if not isinstance(source, BlockArgument) or not isinstance(source.owner.parent_op(), func.FuncOp):
        return None
    what = f"a size or an index that is computed from argument {source.index} ('{source.name_hint or f'arg{source.index}'}') of type"
    users = [use.operation for use in op.results[0].uses]
    hint = "take it as an integer (index, i32, i64): whole numbers are read before kernels are launched, others inside of them"
    return cannot_compile(users[0] if users else op, what=f"{what} {op.results[0].type}", hint=hint)


def unsupported(op: Operation) -> TreadleError:
    """The error for an operation that no kernel and no host program can hold."""
    if (scalar := _scalar_on_the_host(op)) is not None:
        return scalar
    hints = {
        "scf.for": "give it constant bounds, or write it as a reduction with linalg.generic or linalg.reduce",
        "scf.if": "choose elementwise with arith.select inside linalg.generic",
        "scf.while": "write it without a loop whose end depends on data: kernels are launched before that is known",
        "tensor.extract": "take sizes and offsets from constants, tensor.dim and integer arguments, those of slices in scf.forall "
        "from tensors of i32 or i64 too, with arith.index_cast, and use elements inside linalg.generic",
    }
    hint = hints.get(op.name, "express it with linalg.generic on tensors, tensor slices and reshapes")
    return cannot_compile(op, what=f"'{op.name}' on tensors, outside a kernel,", hint=hint)


def mixed(static: Sequence[int], dynamic: Sequence[SSAValue], shapes: Shapes, op: Operation) -> list[Expr]:
    """A static list with each dynamic marker replaced by the next operand's expression.

    Raises `TreadleError` TR301 where that depends on data.
    """
    values = iter(dynamic)
    found: list[Expr] = []
    for entry in static:
        if entry != DYNAMIC_INDEX:
            found.append(constant(int(entry)))
            continue
        value = next(values)
        size = shapes.index(value)
        if size is None:
            raise cannot_compile(
                op,
                what=f"'{op.name}' with a size or offset that is computed from data",
                hint="compute it from constants and tensor.dim with index arithmetic",
            )
        found.append(size)
    return found


def tensor_sizes(value: SSAValue) -> list[int]:
    """Sizes of a tensor as its type has them, DYNAMIC_INDEX where dynamic."""
    type_ = tensor_of(value)
    if type_ is None:
        raise errors.InternalError(f"{value.type} is not a tensor")
    return list(type_.get_shape())


def groups_of(attr: Attribute) -> list[list[int]]:
    """The reassociation of expand_shape and collapse_shape as lists of axes of the larger rank."""
    groups = cast(builtin.ArrayAttr[builtin.ArrayAttr[builtin.IntegerAttr]], attr)
    return [[entry.value.data for entry in group] for group in groups]


def kept_axes(op: tensor.ExtractSliceOp | tensor.InsertSliceOp, part: SSAValue) -> list[int]:
    """The axes of the larger tensor that the slice type keeps (dropped ones have static size 1), matched from the left. A type may know
    less than the sizes, which have been folded since.
    """
    wanted = tensor_sizes(part)
    sizes = [int(size) for size in op.static_sizes.get_values()]
    kept: list[int] = []
    for axis, size in enumerate(sizes):
        next_one, dropped = next(iter(wanted[len(kept) :]), None), axis - len(kept)
        is_folded = next_one == DYNAMIC_INDEX and (size != 1 or dropped == len(sizes) - len(wanted))
        if next_one == size or is_folded:
            kept.append(axis)
        elif size != 1:
            raise errors.InternalError(f"{op.name}: {part.type} is no rank reduction of sizes {sizes}")
    return kept


def slice_parameters(op: tensor.ExtractSliceOp | tensor.InsertSliceOp, shapes: Shapes) -> tuple[list[Expr], list[Expr], list[Expr]]:
    """Offsets, sizes and strides of a slice, one an axis of the larger tensor."""
    return (
        mixed([int(v) for v in op.static_offsets.get_values()], op.offsets, shapes, op),
        mixed([int(v) for v in op.static_sizes.get_values()], op.sizes, shapes, op),
        mixed([int(v) for v in op.static_strides.get_values()], op.strides, shapes, op),
    )
