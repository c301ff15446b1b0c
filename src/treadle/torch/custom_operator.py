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
from treadle.records import Record
from treadle.runtime.torch_tensors import torch_dtype

_NAMESPACE = "treadle"
_libraries: list[Any] = []
"""Operators are there as long as their libraries are."""


class _Source(Record):
    """What an operator stands for. `records`: PyTorch's operators are called in it, which autograd could see."""

    run: Callable[..., Any]
    fake: Callable[..., Any]
    schema: str
    name: str
    target: str
    records: bool


def op(
    function: Any,
    name: str = "",
    *,
    schema: str = "",
    mutates: Sequence[str] = (),
    fake: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
    definition: Callable[..., Any] | bool = False,
    target: str = "auto",
) -> Any:
    """Register an operator of PyTorch and return it.

    `function`: a `treadle.Program`; or a Python function that makes tensors, launches kernels on them and returns them, with annotated
    arguments and results; or a kernel with its grid (`kernel[grid]`), which changes arrays in place and needs a `schema`. `name`:
    "namespace::name", by default that of the function in the namespace "treadle". `schema`: as `torch.library.define` takes it, such as
    "(Tensor x, Tensor(a!) y, int n) -> ()", where annotations do not say it; `mutates`: the arguments that a function changes.

    `fake`: the results' shapes and types for tensors without contents. Of programs they are known; of functions they are what the function
    makes while its launches are left out.

    Gradients are those of a formula, `backward(ctx, *grads)` and `setup_context(ctx, inputs, output)`, as
    `torch.library.register_autograd` takes it; or of a `definition`, a function of the same arguments that computes the same with PyTorch's
    operators: its joint graph is compiled at the first call with each class of arguments, to read the arguments and the results. With
    `definition=True` the function is its own: it is compiled too, and backward reads what is cheaper to keep than to compute again.
    `target`: what definitions are compiled for, by default what a program is for, or the tensors' GPU; tensors of the processor take the
    simulator.

    Raises ModuleNotFoundError where PyTorch is missing, and TR738 for a function without what the schema needs, and for gradients of an
    operator that changes its arguments.
    """
    torch: Any = import_module("torch")
    source = _source(torch, function, mutates, schema)
    text = schema or source.schema
    if not text:
        raise _refusal(source.name, 'its operator needs a schema, such as "(Tensor x, Tensor(a!) y, int n) -> ()"')
    if definition and backward is not None:
        raise _refusal(source.name, "its operator has gradients either of backward= or of definition=")
    compiled, is_own = None, definition is True
    if definition:
        from treadle.torch.compiled_function import CompiledFunction

        defining: Any = function if is_own else definition
        compiled = CompiledFunction(defining, source.name, source.target if target == "auto" else target)
        if is_own:
            source = _Source(compiled, _dense(torch, function), text, source.name, source.target, records=False)
    whole = name if "::" in name else f"{_NAMESPACE}::{name or source.name}"
    known = fake or source.fake
    return _registered(torch, whole, text, source, known, (backward, setup_context), compiled, is_own)


def _registered(
    torch: Any,
    whole: str,
    text: str,
    source: "_Source",
    fake: Callable[..., Any],
    formula: tuple[Callable[..., Any] | None, Callable[..., Any] | None],
    compiled: Any,
    is_own: bool,
) -> Any:
    """The operator, with gradients of a formula or of a compiled definition, if there is either."""
    from treadle.torch.operator_calls import make_direct
    from treadle.torch.operator_library import OperatorLibrary

    space, _, short = whole.partition("::")
    library = OperatorLibrary(space, source.run, source.records)
    library.define(f"{short}{text}")
    library.impl(short, source.run, "CompositeExplicitAutograd")
    torch.library.register_fake(whole, fake, lib=library)
    operator = getattr(getattr(torch.ops, space), short).default
    backward, setup_context = formula
    if (compiled is not None or backward is not None) and operator._schema.is_mutable:
        raise _refusal(source.name, "it changes its arguments, so that it has no gradients")
    if compiled is not None:
        from treadle.torch.operator_gradients import Formula, apart

        made = Formula(library, operator, compiled)
        backward, setup_context = made.backward, made.setup_context
        library.apart = apart(compiled) if is_own else None
    if backward is not None:
        torch.library.register_autograd(whole, backward, setup_context=setup_context, lib=library)
    make_direct(operator, source.run if backward is None else library.run)
    _libraries.append(library)
    return operator


def _source(torch: Any, function: Any, mutates: Sequence[str], schema: str) -> "_Source":
    """What an operator stands for. Raises TR738."""
    if isinstance(function, Program):
        run, known = _of_program(torch, function), _fake_of_program(torch, function)
        return _Source(run, known, _schema_of(function), function.name, function.target, False)
    if isinstance(function, Launch):
        return _Source(_of_launch(function), _nothing, "", function.kernel.function.__name__, "auto", True)
    if isinstance(function, Kernel):
        raise _refusal(function.function.__name__, "an operator launches it: give it a grid, as in treadle.op(kernel[grid], schema=..)")
    text = _inferred(torch.library, function, mutates, schema)
    return _Source(function, _fake_of(function), text, function.__name__, "auto", True)


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
    is_one, expected = len(names) == 1, program.expected

    def run(*tensors: Any) -> Any:
        results = expected.last(tensors, ())
        if results is None:
            # Tensors of a GPU are read where they lie, so that the next call with the same is known; those of the host become arrays.
            plain = [tensor.detach() if tensor.requires_grad and not tensor.is_cuda else tensor for tensor in tensors]
            results = tuple([_as_tensor(torch, result, name) for result, name in zip(program(*plain), names, strict=True)])
        return results[0] if is_one else results

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


def _dense(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The results of a function as a program has them: dense, in the order of their dimensions."""
    pytree = import_module("torch.utils._pytree")

    def like(result: Any) -> Any:
        return torch.empty(result.shape, dtype=result.dtype, device=result.device)

    def known(*arguments: Any, **named: Any) -> Any:
        return pytree.tree_map(like, function(*arguments, **named))

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
