"""A kernel's module at tile level for one class of arguments: the arrays' element types, ranks and layouts, and the values of constants."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType

from treadle.dialects import tile
from treadle.dialects.dispatch_attributes import strings
from treadle.dialects.kernel_form import KernelForm, KernelFormAttr
from treadle.dialects.tile_attributes import PointerType
from treadle.errors import SourceLocation
from treadle.ir.core import Block as IrBlock
from treadle.ir.core import Region
from treadle.ir.dialects import arith, builtin, scf
from treadle.ir.locations import make_location
from treadle.language.compiler import FunctionCompiler
from treadle.language.dtypes import BY_MLIR
from treadle.language.emitter import INDEX, Emitter
from treadle.language.intrinsics import Call
from treadle.language.values import Array, Index
from treadle.plan.argument_layout import ArgumentLayout

GRID = ("grid_x", "grid_y", "grid_z")


@dataclass(frozen=True, slots=True)
class ArrayClass:
    """What a kernel is compiled for of an array: `dtype` is the MLIR name, `layout` its class of strides and alignment.

    `size_divisor`: a power of two that divides the size along the axis of unit stride, if there is one.
    """

    dtype: str
    layout: ArgumentLayout
    size_divisor: int = 1

    def size_divisors(self) -> tuple[int, ...]:
        """What divides the size of each axis."""
        return tuple(self.size_divisor if stride == 1 else 1 for stride in self.layout.strides)


@dataclass(frozen=True, slots=True)
class Form:
    """What a kernel is compiled for. `arrays` by argument, `integers`: arguments that are sizes or counts, `constants`: the others.

    `grid_rank`: how many axes of the grid a call names; the others have extent 1. `num_stages`: of the rings that operands come through.
    """

    arrays: tuple[tuple[str, ArrayClass], ...]
    integers: tuple[str, ...]
    constants: tuple[tuple[str, object], ...]
    grid_rank: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class Built:
    """A module of one kernel, and the order in which its program takes the arrays (numbers among the call's)."""

    module: builtin.ModuleOp
    order: tuple[int, ...]


def symbols_of(form: Form) -> list[str]:
    """Names of the kernel's index arguments: sizes and strides of the arrays, the grid, integers."""
    names: list[str] = []
    for name, array in form.arrays:
        names += [f"{name}_size{axis}" for axis in range(len(array.layout.strides))]
        names += [f"{name}_stride{axis}" for axis, stride in enumerate(array.layout.strides) if stride is None]
    return [*names, *GRID[: form.grid_rank], *form.integers]


def _strides(name: str, array: ArrayClass) -> list[str]:
    return [f"{name}_stride{axis}" if stride is None else str(stride) for axis, stride in enumerate(array.layout.strides)]


def _requirements(form: Form) -> list[str]:
    """What the code relies on of sizes and strides; the stride of an axis of one element is never used."""
    found: list[str] = []
    for name, array in form.arrays:
        for axis, (stride, divisor) in enumerate(zip(array.layout.strides, array.size_divisors(), strict=True)):
            size = f"{name}_size{axis}"
            if divisor > 1:
                found.append(f"{size} % {divisor} == 0")
            if stride is None and array.layout.stride_divisor > 1:
                found.append(f"min({size} - 1, {name}_stride{axis} % {array.layout.stride_divisor}) <= 0")
    return found


class _Frame:
    """The kernel around the body: its arguments, and the views of its arrays."""

    def __init__(self, form: Form, location: SourceLocation, order: Sequence[int]) -> None:
        self.form, self.names = form, symbols_of(form)
        kinds = [PointerType(BY_MLIR[array.dtype].ir) for _, array in form.arrays]
        self.block = IrBlock(arg_types=[*(kinds[i] for i in order), *(INDEX for _ in self.names)])
        for argument, name in zip(self.block.args, [*(form.arrays[i][0] for i in order), *self.names], strict=True):
            argument.name_hint = name
        self.pointers = {number: self.block.args[place] for place, number in enumerate(order)}
        self.symbols = dict(zip(self.names, self.block.args[len(kinds) :], strict=True))
        self.emit = Emitter(self.block)
        self.emit.location = location

    def index(self, name: str) -> Index:
        """One of the index arguments."""
        return Index(self.symbols[name], self.symbols[name])

    def array(self, number: int) -> Array:
        """An array argument, with the view of its memory."""
        name, kind = self.form.arrays[number]
        sizes = tuple(self._multiple(f"{name}_size{axis}", divisor) for axis, divisor in enumerate(kind.size_divisors()))
        by = kind.layout.stride_divisor
        strides = [self._multiple(f"{name}_stride{axis}", by).value if s is None else s for axis, s in enumerate(kind.layout.strides)]
        view = tile.ViewOp(self.pointers[number], [size.value for size in sizes], strides, align=kind.layout.align)
        return Array(name, number, self.emit.insert(view), sizes, BY_MLIR[kind.dtype])

    def _multiple(self, name: str, divisor: int) -> Index:
        """An index argument that a number divides: the division stands in the arithmetic, where accesses look for it."""
        value = self.index(name)
        if divisor == 1:
            return value
        by = self.emit.index(divisor).value
        return self.emit.index_of(self.emit.insert(arith.MuliOp(self.emit.insert(arith.DivUIOp(value.value, by)), by, result_type=INDEX)))

    def kernel(self, name: str, order: Sequence[int], outputs: int) -> tile.KernelOp:
        """The finished kernel."""
        self.emit.add(tile.ReturnOp())
        form = self.form
        grid = [*GRID[: form.grid_rank], *["1"] * (3 - form.grid_rank)]
        aligns = [form.arrays[i][1].layout.align for i in order]
        kernel = tile.KernelOp(
            name,
            Region(self.block),
            symbols=self.names,
            grid=grid,
            num_warps=form.num_warps,
            target="any",
            arg_align=aligns,
            output_count=outputs,
        )
        shapes = [[f"{form.arrays[i][0]}_size{axis}" for axis in range(len(form.arrays[i][1].layout.strides))] for i in order]
        multiplies = any(isinstance(op, tile.ContractOp) and isinstance(op.parent_op(), scf.ForOp) for op in kernel.body.walk())
        if form.num_stages > 1 and multiplies:
            kernel.config = KernelFormAttr(KernelForm("roles", (("num_stages", form.num_stages),)))
        kernel.properties["arg_shapes"] = builtin.ArrayAttr([strings(shape) for shape in shapes])
        kernel.properties["arg_strides"] = builtin.ArrayAttr([strings(_strides(*form.arrays[i])) for i in order])
        kernel.properties["arg_names"] = strings([form.arrays[i][0] for i in order])
        kernel.properties["requires"] = strings(_requirements(form))
        kernel.properties["in_place"] = tile.i64_array(list(range(len(order) - outputs, len(order))))
        return kernel


def build(function: FunctionType, form: Form) -> Built:
    """The kernel of a Python function for one class of arguments. Raises TR109 at the line of what the language does not have.

    Arrays that the body writes to are outputs, which are changed in place; they come after the others.
    """
    numbers = list(range(len(form.arrays)))
    _, written = _compiled(function, form, numbers)
    order = sorted(numbers, key=lambda number: (number in written, number))
    frame, _ = _compiled(function, form, order)
    kernel = frame.kernel(function.__name__, order, len(written))
    kernel.location = make_location(frame.emit.location or SourceLocation("<kernel>", 1))
    return Built(builtin.ModuleOp([kernel]), tuple(order))


def _compiled(function: FunctionType, form: Form, order: Sequence[int]) -> tuple[_Frame, set[int]]:
    """The body in a frame with the arrays in this order, and the numbers of those that it writes."""
    call = Call()
    location = SourceLocation(function.__code__.co_filename, function.__code__.co_firstlineno)
    frame = _Frame(form, location, order)
    call.grid = tuple(frame.symbols[name] for name in GRID[: form.grid_rank]) + (1,) * (3 - form.grid_rank)
    arguments: dict[str, object] = {name: frame.array(number) for number, (name, _) in enumerate(form.arrays)}
    arguments |= {name: frame.index(name) for name in form.integers}
    arguments |= dict(form.constants)
    FunctionCompiler(function, frame.emit, call).run(arguments)
    return frame, call.written
