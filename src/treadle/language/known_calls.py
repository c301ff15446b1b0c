"""Launches like one that was made before, without finding out once more what is launched."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from treadle.plan.argument_layout import WIDEST_BYTES
from treadle.runtime.torch_tensors import TENSOR_TYPES

if TYPE_CHECKING:
    from treadle.runtime.call_form import CallForm

_MASK = WIDEST_BYTES - 1


def call_key(arguments: Sequence[Any], named: Mapping[str, Any], rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a launch depends on but for the tensors' addresses; empty where arguments are arrays that are no PyTorch tensors of a GPU."""
    key: list[Any] = [rest, *named]
    for value in (*arguments, *named.values()):
        if type(value) in TENSOR_TYPES:
            if value.is_neg():
                return ()
            key += (value.shape, value.stride(), value.dtype, value.get_device(), value.data_ptr() & _MASK)
        elif value is None or isinstance(value, bool | int | float | str) or callable(value):
            key += (type(value), value)
        else:
            return ()
    return tuple(key)


class KnownCall:
    """A launch that was made before. `order`: which of the arguments the program's arrays are; `numbers`: how many follow them."""

    def __init__(self, form: "CallForm", order: Sequence[int], numbers: int) -> None:
        self._form, self._order, self._zeros = form, order, (0,) * numbers

    def run(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Enqueue it with these tensors."""
        values = (*arguments, *named.values()) if named else arguments
        arrays = [values[i] for i in self._order]
        self._form.run((*[array.data_ptr() for array in arrays], *self._zeros), (*arrays, *self._zeros), None)
