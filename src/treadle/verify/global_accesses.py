"""Accesses to global arrays, each with the set of its executions: which workgroup, iterations, element and warp, and at what address."""

from itertools import pairwise, permutations

from treadle.dialects import pipe, tile
from treadle.dialects.agents import role_of
from treadle.dialects.effects import Effect
from treadle.errors import InternalError
from treadle.ir.core import Operation, Region, SSAValue
from treadle.ir.dialects import scf
from treadle.layout.tile_layout import TileLayout
from treadle.plan import expr
from treadle.plan.expr import Expr
from treadle.records import dataclass
from treadle.verify.affine import Forms
from treadle.verify.formulas import Formula, symbols_in


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where an access's element is, in numbers that are equal where places are: `places`, those of a view at `offset` elements.

    `is_linear`: one number, the address; all strides are constants. Else the element's coordinates in the view, whose strides and sizes are
    named in order, as of each array that is always viewed alike: questions about these are far simpler. `is_nested`: they alone say that no
    two elements of the view share an address (else that is assumed).
    """

    offset: int
    places: tuple[Formula, ...]
    is_linear: bool = True
    is_nested: bool = True
    strides: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class GlobalAccess:
    """One effect of one operation on a global array. Compared by identity.

    `role`: the role it is in (None: outside). `group`: the number of its group there. `loops`: those around it, outermost first; `numbers`:
    the symbols of their iterations. `domain`: what holds for each execution. `warp`: the symbol of the warp of the team that touches the
    element, with what layouts say in `warp_domain`. `elements`: symbols of the tile's coordinates in order ("" for an extent of one).
    `doubt`: what about it is not known; empty where `is_exact`. `update`: how it combines elements with values in one step.
    """

    op: Operation
    index: int
    pointer: SSAValue
    is_write: bool
    role: Region | None
    group: Expr
    loops: tuple[scf.ForOp, ...]
    numbers: tuple[str, ...]
    elements: tuple[str, ...]
    domain: tuple[Formula, ...]
    warp: str
    warp_domain: tuple[Formula, ...]
    addresses: Addresses | None
    names: frozenset[str]
    is_exact: bool
    doubt: str
    update: str = ""

    def conflicts(self, other: "GlobalAccess") -> bool:
        """Whether their order matters where they meet: they are in one array, one writes, and they are no updates that commute."""
        commute = bool(self.update) and self.update == other.update
        return self.pointer is other.pointer and (self.is_write or other.is_write) and not commute


def access_of(forms: Forms, op: Operation, index: int, effect: Effect) -> GlobalAccess:
    """The access that an effect of operation number `index` is."""
    return _Reader(forms, op, index, effect).read()


class _Reader:
    """What is gathered about one access."""

    def __init__(self, forms: Forms, op: Operation, index: int, effect: Effect) -> None:
        self.forms, self.op, self.index, self.effect = forms, op, index, effect
        self.domain: list[Formula] = []
        self.warp_domain: list[Formula] = []
        self.doubts: list[str] = []
        self.loops: list[scf.ForOp] = []
        self.role = role_of(op)

    def read(self) -> GlobalAccess:
        forms, effect = self.forms, self.effect
        view = effect.resource.owner
        if not isinstance(view, tile.ViewOp):
            raise InternalError("an access to a global array without a view")
        self._around()
        group = forms.group(self.role)
        elements: dict[int, str] = {}
        coordinates: list[Expr] = []
        sizes = [self._value(size) for size in view.size_values()]
        offsets, extents = (effect.slice.offsets, effect.slice.extents) if effect.slice is not None else ((), ())
        for dim, (offset, extent, size) in enumerate(zip(offsets, extents, sizes, strict=effect.slice is not None)):
            at = self._value(offset)
            if extent > 1:
                element = forms.element((self.op, self.index, dim), extent)
                elements[dim] = str(element)
                at = at + element
            coordinates.append(at)
            self.domain.append(f"0 <= {forms.formula(at)} < {forms.formula(size)}")
        addresses = self._addresses(view, coordinates, sizes) if effect.slice is not None and view.folding is None else None
        if view.folding is not None:
            self.doubts.append("its view folds the axes of the array")
        if effect.slice is None:
            self.doubts.append("its places are computed from data")
        held = tuple(elements.get(dim, "") for dim in _tile_dims(self.op))
        warp = self._warp(held)
        numbers = tuple(str(forms.number(loop)) for loop in self.loops)
        names = {name for formula in self.domain for name in symbols_in(formula)} | {*elements.values(), *numbers}
        names |= {str(i) for i in forms.ids if not i.is_constant} | (set() if group.is_constant else {str(group)})
        if addresses is not None:
            names |= {name for place in addresses.places for name in symbols_in(place)}
        names = forms.closed(names)
        for name in sorted(names):
            if not forms.symbols[name].is_exact:
                self.doubts.append(f"its place depends on {forms.symbols[name].meaning}")
        return GlobalAccess(
            self.op,
            self.index,
            view.pointer,
            effect.access == "write",
            None if self.role is None else self.role.region,
            group,
            tuple(self.loops),
            numbers,
            held,
            tuple(self.domain),
            warp,
            tuple(self.warp_domain),
            addresses,
            frozenset(names),
            not self.doubts,
            self.doubts[0] if self.doubts else "",
            effect.update,
        )

    def _value(self, value: SSAValue | int) -> Expr:
        return expr.constant(value) if isinstance(value, int) else self.forms.of(value)

    def _around(self) -> None:
        """Loops, branches and roles that the operation is in."""
        forms = self.forms
        parent, inside = self.op.parent_op(), self.op
        while parent is not None and not isinstance(parent, tile.KernelOp):
            if isinstance(parent, scf.ForOp):
                value = forms.of(parent.body.block.args[0])
                self.domain.append(f"{forms.formula(value)} < {forms.formula(forms.of(parent.ub))}")
                self.loops.insert(0, parent)
            elif isinstance(parent, scf.IfOp):
                condition = forms.condition(parent.cond)
                if condition is None:
                    self.doubts.append("a condition around it is not known")
                else:
                    self.domain.append(condition if inside.parent is parent.true_region.block else f"not ({condition})")
            elif not isinstance(parent, pipe.RolesOp):
                self.doubts.append(f"it stands in {parent.name}")
            parent, inside = parent.parent_op(), parent

    def _addresses(self, view: tile.ViewOp, coordinates: list[Expr], sizes: list[Expr]) -> Addresses | None:
        forms, offset = self.forms, view.offset.value.data
        steps = [self._value(stride) for stride in view.stride_values()]
        whole = [(stride, size, forms.formula(at)) for stride, size, at in zip(steps, sizes, coordinates, strict=True)]
        whole = [dim for dim in whole if dim[0] != 0 and dim[1] != 1]
        nested = next((order for order in permutations(whole) if _is_nested(forms, order)), None) if len(whole) <= 4 else None
        is_static = all(step.is_constant for step in steps)
        if is_static and (nested is None or not _is_only_view(view)):
            total = expr.constant(offset)
            for step, coordinate in zip(steps, coordinates, strict=True):
                total = total + step * coordinate
            return Addresses(offset, (forms.formula(total),))
        if forms.depends(*steps, *sizes):
            self.doubts.append("the sizes or strides of its view are not the same in all executions")
            return None
        box = nested or tuple(sorted(whole, key=lambda dim: (str(dim[0]), str(dim[1]))))
        strides, known = tuple(str(dim[0]) for dim in box), tuple(str(dim[1]) for dim in box)
        return Addresses(offset, tuple(dim[2] for dim in box), False, nested is not None, strides, known)

    def _warp(self, held: tuple[str, ...]) -> str:
        """The symbol of the warp that touches an element: by the layout, or any."""
        forms, layout = self.forms, _layout(self.op)
        warps = forms.kernel.num_warps.value.data if self.role is None else self.role.executing_warps
        name = str(forms.element((self.op, self.index, "warp"), warps))
        if isinstance(self.op, tile.LoadOp | tile.StoreOp) and (layout is None or layout.num_warps != warps):
            if self.effect.access == "write":
                self.warp_domain.append(f"{{{name}}} = 0")
        elif layout is not None and (bits := _warp_bits(forms, layout, held, self.effect.access == "write")) is not None:
            known = " + ".join(["0", *(f"{1 << at} * {bit}" for at, bit in enumerate(bits) if bit)])
            free = sum(1 << at for at, bit in enumerate(bits) if bit is None)
            if not free:
                self.warp_domain.append(f"{{{name}}} = {known}")
            else:  # replicas: any value of the bits that are free
                ways = [
                    f"{{{name}}} = {known} + {sum(1 << at for at in picked)}"
                    for picked in _subsets([a for a, b in enumerate(bits) if b is None])
                ]
                self.warp_domain.append("(" + " or ".join(ways) + ")")
        return name


def _subsets(items: list[int]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for item in items:
        found += [(*one, item) for one in found]
    return found


def _is_only_view(view: tile.ViewOp) -> bool:
    """Whether all views of an array are this one, sizes and strides constants."""
    views = [use.operation for use in view.pointer.uses if isinstance(use.operation, tile.ViewOp)]
    known = {(each.offset.value.data, *each.size_values(), "by", *each.stride_values()) for each in views}
    return len(known) == 1 and all(isinstance(value, int | str) for value in next(iter(known)))


def _is_nested(forms: Forms, order: tuple[tuple[Expr, Expr, Formula], ...]) -> bool:
    """Whether each stride is at least the next one times the size there, by their form alone."""
    if not order or not forms.is_nonnegative(order[-1][0] - 1):
        return False
    return all(forms.is_nonnegative(outer[0] - inner[0] * inner[1]) for outer, inner in pairwise(order))


def _tile_dims(op: Operation) -> tuple[int, ...]:
    dims = op.properties.get("dims")
    return tile.ints(dims) if dims is not None else ()


def _layout(op: Operation) -> TileLayout | None:
    match op:
        case tile.LoadOp():
            return tile.layout_of(op.result)
        case tile.StoreOp():
            return tile.layout_of(op.value)
        case _:
            return None


def _warp_bits(forms: Forms, layout: TileLayout, held: tuple[str, ...], writes: bool) -> list[Formula | None] | None:
    """Each bit of the warp as a formula of the tile's coordinates, None where any will do; None where bits mix coordinates.

    Of warps that hold the same elements the first one writes.
    """
    single = [basis for basis in (*layout.register, *layout.lane, *layout.warp) if any(basis)]
    if any(sum(1 for v in basis if v) > 1 or max(basis) & (max(basis) - 1) for basis in single):
        return None
    found: list[Formula | None] = []
    for basis in layout.warp:
        axis = next((axis for axis, value in enumerate(basis) if value), None)
        if axis is None:
            found.append("0" if writes else None)
        elif held[axis]:
            element = expr.symbol(held[axis])
            found.append(forms.formula(element // basis[axis] % 2))
        else:
            found.append("0")
    return found
