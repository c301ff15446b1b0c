"""Where PyTorch finds `treadle.op`'s operators: what a call costs besides what the operator does.

The kernel that PyTorch registers for gradients takes 2.5 us a call where none are wanted: it calls the operator once more, below itself.
Ours stands in front of it: a call on plain tensors that wants no gradients is the operator's function.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.library import Library

from treadle.torch.operator_calls import is_below

_C: Final[Any] = torch._C
_known: Final[dict[int, bool]] = {}
"""Whether calls with a set of keys go to a device's kernel once gradients are dealt with: finding out costs as much as the rest."""


def _is_plain(keys: Any) -> bool:
    found = _known[keys.raw_repr()] = is_below(keys)
    return found


class OperatorLibrary(Library):
    """The library of one operator, whose kernel for gradients comes after ours.

    `run`: what the operator does, unseen by autograd. `records`: PyTorch's operators are called in it, which autograd could see.
    `apart`: what a call on plain tensors does that wants gradients; by default what the registered formula says.
    """

    def __init__(self, namespace: str, run: Callable[..., Any], records: bool) -> None:
        super().__init__(namespace, "FRAGMENT")
        self.run = _unseen(run) if records else run
        self.apart: Callable[..., Any] | None = None

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        """Register a kernel, as `torch.library.Library.impl` does."""
        return super().impl(op_name, self._in_front_of(fn) if dispatch_key == "Autograd" else fn, dispatch_key, **options)

    def _in_front_of(self, formula: Callable[..., Any]) -> Callable[..., Any]:
        run, apart, known, is_on, is_wanted = self.run, self.apart, _known.get, _C.is_grad_enabled, _C._any_requires_grad

        def kernel(keys: Any, *arguments: Any, **named: Any) -> Any:
            is_plain = known(keys.raw_repr())
            if is_plain or (is_plain is None and _is_plain(keys)):
                if not (is_on() and is_wanted(*arguments, **named)):
                    return run(*arguments, **named)
                if apart is not None:
                    return apart(*arguments, **named)
            return formula(keys, *arguments, **named)

        return kernel


def _unseen(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors whose operators autograd does not see, as below PyTorch's own kernel for gradients."""
    below, is_on = _C._AutoDispatchBelowAutograd, _C.is_grad_enabled

    def quiet(*arguments: Any, **named: Any) -> Any:
        if not is_on():
            return run(*arguments, **named)
        with below():
            return run(*arguments, **named)

    return quiet
