"""Calls of one form on PyTorch tensors (call_form.py): memory is PyTorch's, results are tensors."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from treadle.runtime.bound_call import BoundCall, retry
from treadle.runtime.call_form import PER_THREAD, CallForm, Loaded
from treadle.runtime.direct_call import DirectCall, SettledCall, direct_call, never, settled_call
from treadle.runtime.invocation import Invocation
from treadle.runtime.torch_tensors import TensorMemory, capture_function, current_stream, guard_of, stream_function


class TensorCalls(CallForm):
    """Calls on PyTorch tensors: memory is PyTorch's, results are tensors."""

    def __init__(self, loaded: Loaded, invocation: Invocation, given: bool, waits: bool, memory: TensorMemory) -> None:
        super().__init__(loaded, invocation, given, waits)
        self._memory = memory
        made = {} if given else self._made
        self._makers = [memory.maker(f.shape, f.strides, f.element_type, invocation.buffer_bytes[b]) for b, f in made.items()]
        self._make_workspace = memory.maker((self._workspace_bytes,), (1,), "ui8", 0) if self._workspace_bytes else None

    def run(self, pointers: Sequence[int], arrays: Sequence[Any], outs: Sequence[Any] | None, stream: int | None = None) -> tuple[Any, ...]:
        """Enqueue one call. `stream` must be PyTorch's current one, which orders the memory."""
        if stream is None:
            stream = current_stream(self._kind, self._ordinal)
        code = self._stream_code(stream) if self._kept.sizes else stream
        if self.waits:
            self._order(arrays, outs, stream)
        if self._makers:
            made = [make() for make in self._makers]
            key = (code, *pointers, *[tensor.data_ptr() for tensor in made])
        else:
            made, key = [], (code, *pointers)
        if self._make_workspace is not None:
            workspace = self._make_workspace()
            key = (*key, workspace.data_ptr())
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepare(key)
        self._enqueue(prepared)
        if outs is not None:
            return tuple(outs)
        return tuple(made) if self._plain else self._all(pointers, arrays, made, stream)

    def direct(self, arrays: Sequence[Any], outs: Sequence[Any] | None, mask: int) -> DirectCall:
        """Calls on tensors like these."""
        if (stream := self._stream_of(arrays)) is None or (check := guard_of((*arrays, *(outs or ())))) is None:
            return never
        counts = (len(arrays), len(outs or ()), len(self._makers))
        return direct_call(check, counts, self._all_makers, stream, self._prepared.get, self._prepare, mask, partial(retry, self._driver))

    def settled(self, arrays: Sequence[Any], mask: int, other: SettledCall) -> SettledCall | None:
        """Calls on tensors like these, which are not looked at."""
        if (stream := self._stream_of(arrays)) is None or self.given:
            return None
        counts = (len(arrays), len(self._makers))
        return settled_call(other, counts, self._all_makers, stream, self._prepared.get, self._prepare, mask, partial(retry, self._driver))

    def _stream_of(self, arrays: Sequence[Any]) -> tuple[Callable[[int], int], int] | None:
        """What tells the stream of calls that are not looked up, and its argument; None where such calls cannot be."""
        stream_of = stream_function(self._kind)
        if stream_of is None or self.waits or not (self.given or self._plain) or any(type(array) is int for array in arrays):
            return None
        return self._code_function(stream_of) if self._kept.sizes else stream_of, self._ordinal

    def _code_function(self, stream_of: Callable[[int], int]) -> Callable[[int], int]:
        """From a GPU's number to what keys say about PyTorch's current stream on it."""
        is_capturing = capture_function(self._kind)
        if is_capturing is None:
            return lambda ordinal: self._stream_code(stream_of(ordinal))

        def code(ordinal: int) -> int:
            stream = stream_of(ordinal)
            try:
                is_free = stream != PER_THREAD and not is_capturing()
            except RuntimeError:  # the legacy stream refuses to tell while another one is captured
                is_free = False
            return stream if is_free else self._stream_code(stream)

        return code

    @property
    def _all_makers(self) -> list[Callable[[], Any]]:
        return [*self._makers, *([] if self._make_workspace is None else [self._make_workspace])]

    def _all(self, pointers: Sequence[int], arrays: Sequence[Any], made: Sequence[Any], stream: int) -> tuple[Any, ...]:
        owners, addresses = self._fixed(pointers, arrays)
        for buffer, tensor in zip(self._made, made, strict=True):
            owners[buffer], addresses[buffer] = tensor, tensor.data_ptr()
        return tuple(self._memory.wrap(view) for view in self._views(owners, addresses, stream))

    def bind(self, pointers: Sequence[int], arrays: Sequence[Any], outs: Sequence[Any] | None) -> BoundCall:
        """The call with tensors of its own for what is not given."""
        stream = current_stream(self._kind, self._ordinal)
        self._driver.activate()
        if self.waits:
            self._order(arrays, outs, stream)
        own = [make() for make in self._makers]
        made = list(own)
        if self._make_workspace is not None:
            own.append(self._make_workspace())
        results = tuple(outs) if outs is not None else tuple(made) if self._plain else self._all(pointers, arrays, made, stream)
        places = (*pointers, *(tensor.data_ptr() for tensor in own))

        def move(other: int) -> None:
            for tensor in own:
                self._memory.note_use(tensor)

        return BoundCall(self._driver, self._bound(places, stream), places, stream, results, (tuple(arrays), own), move)
