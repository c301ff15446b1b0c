"""Calls of `treadle.op`'s operators that pass PyTorch's dispatcher by: those on tensors like an earlier call's.

The dispatcher takes about a microsecond to call a function of Python that does nothing: the arguments are boxed, the schema is compared,
and results go the same way back. Where a guard (`torch_tensors.guard_of`) finds tensors, and what PyTorch dispatches by, to be as in a call
that went to the function with nothing in between, the function is called at once. Modes, transforms, tracing, lazy negation and autocast
all show in what it dispatches by. What does not is asked for by itself: modes for functions, the profiler, and whether gradients are
recorded at all.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import torch
from torch._ops import OpOverload

from treadle.runtime.torch_tensors import TENSOR_TYPES, dtype_name, guard_of

_C: Final[Any] = torch._C
_KEY: Final[Any] = _C.DispatchKey
_DEVICES: Final = frozenset({_KEY.CPU, _KEY.CUDA})
_TYPES: Final[dict[str, type[Any]]] = {"IntType": int, "FloatType": float, "BoolType": bool, "StringType": str}
"""Values that the dispatcher passes as they are."""
_FIRST: Final = _DEVICES | {_KEY.AutogradCPU, _KEY.AutogradCUDA}


def is_below(keys: Any) -> bool:
    """Whether a call with these keys goes to a device's kernel once gradients are dealt with."""
    below = (keys & _C._after_autograd_keyset).remove(_KEY.ADInplaceOrView).remove(_KEY.BackendSelect)  # neither is of our operators
    return below.highestPriorityTypeId() in _DEVICES


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether an operator on a tensor goes to its device's kernel by way of gradients alone."""
    keys = (_C._dispatch_keys(tensor) | _C._dispatch_tls_local_include_set()) - _C._dispatch_tls_local_exclude_set()
    return keys.highestPriorityTypeId() in _FIRST and is_below(keys)


@lru_cache(maxsize=64)
def _mixed(kinds: tuple[type[Any] | None, ...]) -> Callable[..., Callable[..., bool]]:
    """From a guard of tensors to one of tensors (None) and of values of some types. Written out for the numbers: every call pays for it."""
    names = [f"a{i}" for i in range(len(kinds))]
    tensors = ", ".join(name for name, kind in zip(names, kinds, strict=True) if kind is None)
    facts = [f"type({name}) is {kind.__name__}" for name, kind in zip(names, kinds, strict=True) if kind is not None]
    facts.append(f"check({tensors})")
    made: dict[str, Any] = {}
    exec(f"def make(check):\n  return lambda {', '.join(names)}: {' and '.join(facts)}", made)
    return made["make"]


def _guard(operator: Any, arguments: Sequence[Any]) -> Callable[..., bool] | None:
    """What recognises arguments like these; None where not all that happens is a call of the function, with arguments as they are: tensors,
    and values that the schema has so.
    """
    declared = [_TYPES.get(argument.type.kind()) for argument in operator._schema.arguments[: len(arguments)]]
    tensors: list[Any] = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    kinds = tuple([None if isinstance(argument, torch.Tensor) else argument.__class__ for argument in arguments])
    if not tensors or any(kind is not None and kind is not known for kind, known in zip(kinds, declared, strict=True)):
        return None
    dtype_name(tensors[0])  # PyTorch's types are known from the first tensor on
    if any(type(tensor) not in TENSOR_TYPES or not _is_plain(tensor) for tensor in tensors):
        return None
    if torch.is_grad_enabled() and _C._any_requires_grad(*tensors):
        return None
    check = guard_of(tensors)
    return check if check is None or len(tensors) == len(arguments) else _mixed(kinds)(check)


def _never(*_: Any) -> bool:
    return False


class DirectOperator(OpOverload):
    """An operator's overload, which PyTorch made, with these calls in front (`make_direct`)."""

    _function: Callable[..., Any]
    _known: "tuple[Callable[..., bool], int, bool]"  # what recognises arguments, of how many, and whether some have gradients
    _misses: int

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        """Call the function where the arguments are like an earlier call's, else the dispatcher."""
        is_like, count, has_gradients = self._known
        if len(arguments) == count and not named and is_like(*arguments):
            # A guard knows which tensors have gradients, and not whether any are recorded.
            if not (_is_seen() or _is_profiled() or (has_gradients and _is_recorded())):
                return self._function(*arguments)
        results: Any = super().__call__(*arguments, **named)
        if not named:
            self._learn(arguments)
        return results

    def _learn(self, arguments: Sequence[Any]) -> None:
        """Look for calls like this one from now on. A guard costs as much as several calls: the first, second, fourth .. one is made."""
        self._misses += 1
        if not self._misses & (self._misses - 1) and (guard := _guard(self, arguments)) is not None:
            self._known = (guard, len(arguments), _C._any_requires_grad(*arguments))


_is_seen: Final[Callable[[], bool]] = _C._is_torch_function_mode_enabled
_is_profiled: Final[Callable[[], bool]] = _C._autograd._profiler_enabled
_is_recorded: Final[Callable[[], bool]] = torch.is_grad_enabled


def make_direct(operator: Any, function: Callable[..., Any]) -> None:
    """Let calls of an operator go to its function where nothing else would happen. The operator stays the object that PyTorch knows."""
    operator._function, operator._known, operator._misses = function, (_never, -1, False), 0
    operator.__class__ = DirectOperator
