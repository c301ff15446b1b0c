"""`@treadle.kernel`: a Python function on tiles as a kernel that is compiled at its first call with each class of arguments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from math import gcd
from threading import Lock
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from treadle.errors import KERNEL_CALL, TreadleError
from treadle.language import launches
from treadle.language.known_calls import KnownCall, call_key

if TYPE_CHECKING:
    from pathlib import Path

    from treadle.driver import Program, Trace
    from treadle.driver.lowering import Stage
    from treadle.language.build import ArrayClass, Form
    from treadle.language.inspection import Inspection
    from treadle.options import CompileOptions
    from treadle.timeline.kernels import Timeline

Grid = int | Sequence[int] | Callable[[Mapping[str, Any]], "int | Sequence[int]"]
_USUAL_WARPS = 4
_USUAL_STAGES = 4


if TYPE_CHECKING:
    constexpr: TypeAlias = Any
else:

    class constexpr:
        """Annotates an argument whose value is known when the kernel is compiled: each value is compiled for by itself."""


class ConstexprFunction:
    """A function of constants alone, which is computed while a kernel that calls it is compiled."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.wrapped = function
        update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function gives."""
        return self.wrapped(*arguments, **named)


def constexpr_function(function: Callable[..., Any]) -> ConstexprFunction:
    """Mark a function of constants: kernels call it while they are compiled, and it may be any Python. Tiles and indices are refused."""
    return ConstexprFunction(function)


class Kernel:
    """A kernel in Python. `kernel[grid](*arguments)` runs it; `grid` is a number of workgroups, a tuple of up to three, or a function
    that computes it from the arguments by name.

    Arguments are arrays (NumPy, PyTorch, or anything with DLPack or `__cuda_array_interface__`), integers, and constants: those that are
    annotated with `tl.constexpr`, and whatever is neither an array nor an integer. Arrays that the kernel writes to are changed in place.
    Each element type, rank and class of layouts of the arrays and each value of the constants is compiled once; sizes are not compiled in.
    """

    def __init__(self, function: FunctionType, target: str, options: "CompileOptions | None") -> None:
        self.function, self.target, self.options = function, target, options
        self._signature = inspect.signature(function)
        self._constants = frozenset(
            name for name, p in self._signature.parameters.items() if p.annotation in (constexpr, "tl.constexpr", "constexpr")
        )
        self.forms: dict[tuple[Any, ...], KnownCall] = {}
        self.lock = Lock()
        self.last: Inspection | None = None
        self._programs: dict[tuple[Form, str], tuple[Program, tuple[int, ...]]] = {}
        update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<treadle.kernel {self.function.__name__}{self._signature}, compiled {len(self._programs)} time(s)>"

    def __getitem__(self, grid: Grid) -> "Launch":
        return Launch(self, grid)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Kernels are launched over a grid; inside of another kernel a call is compiled there."""
        raise TreadleError(KERNEL_CALL, name=self.function.__name__, problem="it is called without a grid")

    def has_program(self, form: "Form", target: str) -> bool:
        """Whether a class of arguments has been compiled for."""
        return (form, target) in self._programs

    def add_program(self, form: "Form", target: str, program: "Program", order: tuple[int, ...]) -> None:
        """Take over a program that was compiled elsewhere."""
        self._programs[form, target] = (program, order)

    def inspection(self) -> "Inspection":
        """The kernel for the arguments of its last call that was not like one before. Raises TR738 where there was none."""
        if self.last is None:
            name = self.function.__name__
            problem = f"nothing has called it yet; {name}[grid].inspect(..) takes the arguments of a call and runs nothing"
            raise TreadleError(KERNEL_CALL, name=name, problem=problem)
        return self.last

    def explain(self, target: str | None = None) -> str:
        """`Inspection.explain` of the last call."""
        return self.inspection().explain(target)

    def ir(self, level: str = "tile", target: str | None = None) -> str:
        """`Inspection.ir` of the last call."""
        return self.inspection().ir(level, target)

    def asm(self, target: str | None = None) -> str:
        """`Inspection.asm` of the last call."""
        return self.inspection().asm(target)

    def timeline(self, target: str | None = None, output: "str | Path | None" = None) -> "Timeline":
        """`Inspection.timeline` of the last call."""
        return self.inspection().timeline(target, output)

    def program(self, form: "Form", target: str) -> "tuple[Program, tuple[int, ...]]":
        """The compiled program for a class of arguments, and the order in which it takes the arrays."""
        found = self._programs.get((form, target))
        if found is None:
            from treadle.driver import compile as compile_program
            from treadle.language.build import build

            built = build(self.function, form)
            program = compile_program(built.module, target, self.options, level="tile")
            found = self._programs[form, target] = (program, built.order)
        return found

    def bound(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, with defaults. Raises TR738."""
        try:
            bound = self._signature.bind(*arguments, **named)
        except TypeError as error:
            raise TreadleError(KERNEL_CALL, name=self.function.__name__, problem=str(error)) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def partly_bound(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name as far as they are given. Raises TR738 for what fits no parameter."""
        try:
            return dict(self._signature.bind_partial(*arguments, **named).arguments)
        except TypeError as error:
            raise TreadleError(KERNEL_CALL, name=self.function.__name__, problem=str(error)) from None

    def parameters(self) -> tuple[str, ...]:
        """The names of its arguments."""
        return tuple(self._signature.parameters)

    def is_constant(self, name: str, value: Any) -> bool:
        """Whether an argument is compiled in."""
        return name in self._constants or value is None or isinstance(value, bool | float | str | tuple) or callable(value)


class Launch:
    """A kernel with its grid."""

    def __init__(self, kernel: Kernel, grid: Grid) -> None:
        self._kernel, self._grid = kernel, grid

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self._kernel

    def __call__(
        self,
        *arguments: Any,
        num_warps: int = _USUAL_WARPS,
        num_stages: int = _USUAL_STAGES,
        target: str | None = None,
        **named: Any,
    ) -> None:
        """Run the kernel. `num_warps`: warps of a workgroup that compute; `num_stages`: steps of a loop that are
        in flight at once, where it multiplies matrices; `target`: another than the kernel's own.

        On a GPU the call only enqueues the work, on PyTorch's current stream where PyTorch is loaded. Raises `TreadleError`: TR109 at the
        line of what does not compile, TR738 for arguments that do not fit the signature, and what `treadle.Program` raises.
        """
        if launches.are_left_out:
            return
        kernel = self._kernel
        grid = self._extents(kernel.bound(arguments, named) if callable(self._grid) else {})
        key = call_key(arguments, named, (grid, num_warps, num_stages, target))
        known = kernel.forms.get(key) if key else None
        if known is not None:
            known.run(arguments, named)
            return
        form, arrays, numbers = self._resolved(arguments, named, num_warps, num_stages)
        kernel.last = self._inspection(form, arrays, numbers, target)
        program, order = kernel.program(form, target or kernel.target)
        given = [*(arrays[i] for i in order), *numbers]
        if key and (call := program.form_for(*given)) is not None:
            positions = {id(value): place for place, value in reversed(list(enumerate((*arguments, *named.values()))))}
            kernel.forms[key] = KnownCall(call, [positions[id(arrays[i])] for i in order], len(numbers))
        program(*given)

    def prepare(
        self,
        *arguments: Any,
        num_warps: int = _USUAL_WARPS,
        num_stages: int = _USUAL_STAGES,
        target: str | None = None,
        **named: Any,
    ) -> str:
        """Compile in a process of its own what the call would run, for calls that follow; why that failed, "" where it did not."""
        from treadle.ir.text import print_module
        from treadle.language.build import build
        from treadle.language.compile_worker import compile_apart

        kernel, machine = self._kernel, target or self._kernel.target
        with kernel.lock:  # operations are made by one thread at a time
            form, _, _ = self._resolved(arguments, named, num_warps, num_stages)
            if kernel.has_program(form, machine):
                return ""
            built = build(kernel.function, form)
            text = print_module(built.module, locations=True)
        found = compile_apart(text, machine, kernel.options)
        if isinstance(found, str):
            return found
        kernel.add_program(form, machine, found, built.order)
        return ""

    def compile(
        self,
        *arguments: Any,
        num_warps: int = _USUAL_WARPS,
        num_stages: int = _USUAL_STAGES,
        target: str | None = None,
        **named: Any,
    ) -> "Program":
        """The program that the call would run: its `stages` are the texts of all levels, `remarks` the compiler's decisions."""
        form, _, _ = self._resolved(arguments, named, num_warps, num_stages)
        return self._kernel.program(form, target or self._kernel.target)[0]

    def trace(
        self,
        *arguments: Any,
        num_warps: int = _USUAL_WARPS,
        num_stages: int = _USUAL_STAGES,
        target: str | None = None,
        until: "Stage" = "asm",
        **named: Any,
    ) -> "Trace":
        """The texts of the stages up to `until`, and the remarks, as `treadle.driver.trace` has them. Needs no device."""
        from treadle.driver import trace
        from treadle.language.build import build

        kernel = self._kernel
        form, _, _ = self._resolved(arguments, named, num_warps, num_stages)
        built = build(kernel.function, form)
        return trace(built.module, target or kernel.target, kernel.options, until=until, level="tile")

    def inspect(
        self,
        *arguments: Any,
        num_warps: int = _USUAL_WARPS,
        num_stages: int = _USUAL_STAGES,
        target: str | None = None,
        **named: Any,
    ) -> "Inspection":
        """What is made of the kernel for these arguments: `explain()`, `ir(level)`, `asm()`, `timeline()`. Nothing is run."""
        return self._inspection(*self._resolved(arguments, named, num_warps, num_stages), target)

    def _inspection(self, form: "Form", arrays: Sequence[Any], numbers: Sequence[int], target: str | None) -> "Inspection":
        from treadle.language.build import symbols_of
        from treadle.language.inspection import Inspection
        from treadle.runtime.arrays import view

        values: list[int] = []
        for number, ((name, kind), array) in enumerate(zip(form.arrays, arrays, strict=True)):
            seen = view(array, name, number)
            values += seen.shape
            values += [given for given, stride in zip(seen.strides, kind.layout.strides, strict=True) if stride is None]
        sizes = dict(zip(symbols_of(form), [*values, *numbers], strict=True))
        return Inspection(self._kernel, form, sizes, target or self._kernel.target)

    def _resolved(
        self, arguments: Sequence[Any], named: Mapping[str, Any], num_warps: int, num_stages: int
    ) -> "tuple[Form, list[Any], list[int]]":
        """What to compile for, the arrays, and the numbers that follow them."""
        from treadle.language.build import Form
        from treadle.runtime.arrays import view

        kernel = self._kernel
        values = kernel.bound(arguments, named)
        grid = self._extents(values)
        arrays: list[tuple[str, ArrayClass]] = []
        given: list[Any] = []
        integers: dict[str, int] = {}
        constants: list[tuple[str, object]] = []
        for name, value in values.items():
            if kernel.is_constant(name, value):
                constants.append((name, value))
            elif isinstance(value, int):
                integers[name] = value
            else:
                arrays.append((name, _class_of(view(value, name, len(arrays)))))
                given.append(value)
        form = Form(tuple(arrays), tuple(integers), tuple(constants), len(grid), num_warps, num_stages)
        return form, given, [*grid, *integers.values()]

    def _extents(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        grid = self._grid(values) if callable(self._grid) else self._grid
        extents = (grid,) if isinstance(grid, int) else tuple(grid)
        if not 1 <= len(extents) <= 3 or not all(isinstance(extent, int) and extent >= 0 for extent in extents):
            problem = f"its grid is {grid!r}, not one to three numbers"
            raise TreadleError(KERNEL_CALL, name=self._kernel.function.__name__, problem=problem)
        return extents


def _class_of(array: Any) -> "ArrayClass":
    from treadle.language.build import ArrayClass
    from treadle.plan.argument_layout import WIDEST_BYTES, classify
    from treadle.runtime.arrays import element

    dtype = array.dtype.removeprefix("u")
    layout, _ = classify(tuple(array.shape), tuple(array.strides), array.address % WIDEST_BYTES, element(dtype).bytes)
    along = [size for size, stride in zip(array.shape, layout.strides, strict=True) if stride == 1]
    return ArrayClass(dtype, layout, gcd(WIDEST_BYTES // element(dtype).bytes, *along) if along else 1)


@overload
def kernel(function: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(*, target: str = "auto", options: "CompileOptions | None" = None) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(function: Callable[..., Any] | None = None, *, target: str = "auto", options: "CompileOptions | None" = None) -> Any:
    """Make a kernel of a Python function on tiles (docs/language.md). `target`: as for `treadle.compile`; "auto" is the GPU that is there,
    else the simulator.
    """

    def decorate(given: Callable[..., Any]) -> Kernel:
        if not isinstance(given, FunctionType):
            raise TypeError(f"@treadle.kernel decorates functions, not {given!r}")
        return Kernel(given, target, options)

    return decorate if function is None else decorate(function)
