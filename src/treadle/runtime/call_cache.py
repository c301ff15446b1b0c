"""From the arrays of a call to its form, without views: what repeated calls pay for finding out what they are.

Arrays are told apart by everything that a compiled variant and an invocation depend on: shape, strides, element type, device, and the
address modulo what kernels rely on. Tensors can change in place, so none of it is remembered by the object.
"""

import threading
from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from typing import Any, Final

from treadle.artifact import Manifest
from treadle.plan.argument_layout import WIDEST_BYTES
from treadle.runtime.call_form import CallForm
from treadle.runtime.device_array import DeviceArray
from treadle.runtime.direct_call import UNALIGNED, DirectCall, SettledCall, never
from treadle.runtime.torch_tensors import TENSOR_TYPES

_CACHED_FORMS: Final = 256

Key = tuple[Any, ...]


def _nothing(arrays: Sequence[Any], tensors: Container[type], mask: int) -> None:
    """A program without arguments has nothing to look up."""


@lru_cache(maxsize=64)
def _probe(count: int) -> Callable[[Sequence[Any], Container[type], int], tuple[tuple[int, ...], Key] | None]:
    """A function from arrays, the types of tensors and an address mask to the addresses and the key, None if not all are tensors.

    Written out for a number of arrays: a loop over them takes half as long again, and every call pays for it.
    """
    if not count:
        return _nothing
    names = [f"a{i}" for i in range(count)]
    pointers = [f"p{i}" for i in range(count)]
    facts = ", ".join(f"{a}.shape, {a}.stride(), {a}.dtype, {a}.get_device()" for a in names)
    lines = [
        "def probe(arrays, tensors, mask):",
        f"  {', '.join(names)}, = arrays",
        f"  if {' and '.join(f'type({a}) in tensors and not {a}.is_neg()' for a in names)}:",
        *(f"    {p} = {a}.data_ptr()" for p, a in zip(pointers, names, strict=True)),
        f"    if ({' | '.join(pointers)}) & mask:",
        f"      return ({', '.join(pointers)},), ({facts}, ({', '.join(f'{p} & mask' for p in pointers)},))",
        f"    return ({', '.join(pointers)},), ({facts})",
        "  return None",
    ]
    made: dict[str, Any] = {}
    exec("\n".join(lines), made)
    return made["probe"]


class Known:
    """A form that was met on arrays of one key, and the direct call for arrays like those of the last time that it was looked for."""

    __slots__ = ("direct", "form", "misses")

    def __init__(self, form: CallForm) -> None:
        self.form = form
        self.direct: DirectCall | None = None
        self.misses = 0


class Expected:
    """The direct calls to try before a look-up: those of the two forms that were used last."""

    __slots__ = ("last", "older")

    def __init__(self) -> None:
        self.last: DirectCall = never
        self.older: DirectCall = never

    def try_older(self, arrays: Sequence[Any], outs: Sequence[Any]) -> tuple[Any, ...] | None:
        """The call by the older one, which is then the last."""
        older = self.older
        results = older(arrays, outs)
        if results is not None:
            self.older, self.last = self.last, older
        return results

    def put(self, direct: DirectCall, instead: DirectCall | None) -> None:
        """Try this one first from now on. `instead`: the one that it takes the place of."""
        if self.last is not instead:
            self.older = self.last
        self.last = direct


class CallCache:
    """Forms by arrays. Arguments and given results count alike: with the latter there are more arrays.

    `fresh` and `given`: what is tried first for calls without and with given results.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._mask = max([WIDEST_BYTES, *(b.align for b in manifest.buffers if b.role in ("input", "output"))]) - 1
        self._inputs, self._outputs = len(manifest.inputs), len(manifest.outputs)
        self.fresh, self.given = Expected(), Expected()
        self._forms: dict[Key, Known] = {}
        self._lock = threading.Lock()

    def find(self, arrays: Sequence[Any], outs: Sequence[Any] | None) -> tuple[Known | None, Sequence[int], Key]:
        """The form if it is known, the arrays' addresses, and the key for `learn`.

        The key is empty for arrays that are not told apart so cheaply, and for a wrong number of arguments or given results.
        """
        if len(arrays) != self._inputs or (outs is not None and len(outs) != self._outputs):
            return None, (), ()
        arrays = arrays if outs is None else (*arrays, *outs)
        probed = _probe(len(arrays))(arrays, TENSOR_TYPES, self._mask)
        if probed is None and (probed := self._mixed(arrays)) is None:
            return None, (), ()
        pointers, key = probed
        return self._forms.get(key), pointers, key

    def _mixed(self, arrays: Sequence[Any]) -> tuple[tuple[int, ...], Key] | None:
        """What `_probe` finds, for `DeviceArray`s and for numbers too, which have no address and count by their value."""
        parts: list[Any] = []
        pointers: list[int] = []
        for array in arrays:
            if type(array) is DeviceArray:
                pointers.append(array.address)
                parts.append(array.form)
            elif type(array) is int:
                pointers.append(0)
                parts.append(array)
            elif (found := _probe(1)((array,), TENSOR_TYPES, 0)) is not None:
                pointers += found[0]
                parts += found[1]
            else:
                return None
        if any(pointer & self._mask for pointer in pointers):
            parts.append(tuple([pointer & self._mask for pointer in pointers]))
        return tuple(pointers), tuple(parts)

    def settled(self, arrays: Sequence[Any], other: SettledCall) -> SettledCall | None:
        """Calls on tensors like these, of a form that is known, that look at addresses alone; `other` is called at those that are less
        aligned. None where there are none.
        """
        known, pointers, _ = self.find(arrays, None)
        if known is None or any(pointer & self._mask for pointer in pointers):
            return None
        return known.form.settled(arrays, self._mask, other)

    def learn(self, key: Key, form: CallForm) -> None:
        """Remember a form."""
        with self._lock:
            if len(self._forms) >= _CACHED_FORMS:
                del self._forms[next(iter(self._forms))]
            self._forms[key] = Known(form)

    def expect(self, known: Known, pointers: Sequence[int], arrays: Sequence[Any], outs: Sequence[Any] | None) -> None:
        """Let the next call like this one, which no direct call took, go without a look-up.

        Making a direct call costs as much as several look-ups, and one may take none of the calls that it is made for (`guard_of`). So
        where the one that is there fails, another is made at the first, second, fourth .. time.
        """
        expected = self.fresh if outs is None else self.given
        before = direct = known.direct
        if direct is None or direct is expected.last or direct is expected.older:
            known.misses += 1
            if direct is None or not known.misses & (known.misses - 1):
                # Addresses that are less aligned than kernels like it may have a form of their own, which suits no others.
                mask = UNALIGNED if any(pointer & self._mask for pointer in pointers) else self._mask
                direct = known.direct = known.form.direct(arrays, outs, mask)
        expected.put(direct, before)
