"""`treadle.op`: compiled programs, and functions that launch kernels, as operators of PyTorch, which torch.compile and autograd see.

PyTorch is imported when the first operator is made. An operator is one call of what it stands for: `torch.library.define` and `impl`.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from treadle.driver import Program
from treadle.errors import KERNEL_CALL, TreadleError
from treadle.language import launches
from treadle.language.kernel import Kernel, Launch
from treadle.runtime.torch_tensors import torch_dtype

_NAMESPACE = "treadle"


def op(
    function: Any,
    name: str = "",
    *,
    schema: str = "",
    mutates: Sequence[str] = (),
    fake: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
) -> Any:
    """Register an operator of PyTorch and return it.

    `function`: a `treadle.Program`; or a Python function that makes tensors, launches kernels on them and returns them, with annotated
    arguments and results; or a kernel with its grid (`kernel[grid]`), which changes arrays in place and needs a `schema`. `name`:
    "namespace::name", by default that of the function in the namespace "treadle". `schema`: as `torch.library.define` takes it, such as
    "(Tensor x, Tensor(a!) y, int n) -> ()", where annotations do not say it; `mutates`: the arguments that a function changes.

    `fake`: the results' shapes and types for tensors without contents. Of programs they are known; of functions they are what the function
    makes while its launches are left out. `backward(ctx, *grads)` and `setup_context(ctx, inputs, output)`: the autograd formula, as
    `torch.library.register_autograd` takes it.

    Raises ModuleNotFoundError where PyTorch is missing, and TR738 for a function without what the schema needs.
    """
    torch: Any = import_module("torch")
    library = torch.library
    if isinstance(function, Program):
        run, known, text, own = _of_program(torch, function), fake or _fake_of_program(torch, function), _schema_of(function), function.name
    elif isinstance(function, Launch):
        run, known, text, own = _of_launch(function), fake or _nothing, "", function.kernel.function.__name__
    elif isinstance(function, Kernel):
        raise _refusal(function.function.__name__, "an operator launches it: give it a grid, as in treadle.op(kernel[grid], schema=..)")
    else:
        run, known, text, own = function, fake or _fake_of(function), _inferred(library, function, mutates, schema), function.__name__
    if not (schema or text):
        raise _refusal(own, 'its operator needs a schema, such as "(Tensor x, Tensor(a!) y, int n) -> ()"')
    whole = name if "::" in name else f"{_NAMESPACE}::{name or own}"
    library.define(whole, schema or text)
    library.impl(whole, "default")(run)
    library.register_fake(whole)(known)
    if backward is not None:
        library.register_autograd(whole, backward, setup_context=setup_context)
    space, _, short = whole.partition("::")
    return getattr(getattr(torch.ops, space), short).default


def _refusal(name: str, problem: str) -> TreadleError:
    return TreadleError(KERNEL_CALL, name=name, problem=problem)


# --- programs


def _schema_of(program: Program) -> str:
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    inputs = [f"Tensor{f'({next(letters)}!)' if record.in_place else ''} {record.name}" for record in program.manifest.inputs]
    outputs = ", ".join("Tensor" for _ in program.manifest.outputs)
    return f"({', '.join(inputs)}) -> {outputs if len(program.manifest.outputs) == 1 else f'({outputs})'}"


def _of_program(torch: Any, program: Program) -> Callable[..., Any]:
    names = [record.dtype for record in program.manifest.outputs]

    def run(*tensors: Any) -> Any:
        results = program(*tensors)
        made = [_as_tensor(torch, result, name) for result, name in zip(results, names, strict=True)]
        return made[0] if len(made) == 1 else tuple(made)

    return run


def _as_tensor(torch: Any, result: Any, dtype: str) -> Any:
    """A result as a tensor: on the host it is an array of NumPy, whose element types PyTorch does not all know."""
    if isinstance(result, torch.Tensor):
        return result
    if isinstance(result, np.ndarray):
        return torch.from_numpy(result.view(f"i{result.itemsize}")).view(torch_dtype(dtype))
    return torch.from_dlpack(result)


def _fake_of_program(torch: Any, program: Program) -> Callable[..., Any]:
    manifest = program.manifest

    def known(*tensors: Any) -> Any:
        sizes = {
            name: tensors[dim.input].shape[dim.axis] if dim.axis >= 0 else tensors[dim.input].stride(-1 - dim.axis)
            for name, dim in manifest.dims.items()
        }
        device = tensors[0].device if tensors else "cpu"
        made = [
            torch.empty([_size(extent, sizes) for extent in record.shape], dtype=torch_dtype(record.dtype), device=device)
            for record in manifest.outputs
        ]
        return made[0] if len(made) == 1 else tuple(made)

    return known


def _size(extent: Any, sizes: dict[str, Any]) -> Any:
    """An extent, over sizes that may be symbols: Python evaluates the expression's text."""
    return extent if isinstance(extent, int) else eval(str(extent), {"min": min, "max": max}, sizes)


# --- functions and kernels


def _inferred(library: Any, function: Callable[..., Any], mutates: Sequence[str], schema: str) -> str:
    if schema:
        return schema
    try:
        return str(library.infer_schema(function, mutates_args=tuple(mutates)))
    except ValueError as error:
        raise _refusal(function.__name__, f"its operator's schema cannot be read off {signature(function)}: {error}") from None


def _fake_of(function: Callable[..., Any]) -> Callable[..., Any]:
    def known(*arguments: Any, **named: Any) -> Any:
        with _without_launches():
            return function(*arguments, **named)

    return known


@contextmanager
def _without_launches() -> Generator[None]:
    """Within: kernels are not launched."""
    before, launches.are_left_out = launches.are_left_out, True
    try:
        yield
    finally:
        launches.are_left_out = before


def _of_launch(launch: Launch) -> Callable[..., None]:
    def run(*arguments: Any, **named: Any) -> None:
        launch(*arguments, **named)

    return run


def _nothing(*_: Any, **__: Any) -> None:
    """A kernel gives no results."""
