"""Calls of one form: a program on arguments of certain shapes, strides and element types, everything worked out but the addresses.

What is left for a call is to make memory, to look the launches for its addresses up, and to enqueue them. Memory comes from PyTorch where
an argument is a PyTorch tensor: results are tensors then, and a graph that is being captured keeps them. Else results are `DeviceArray`s
from the device's pool. The temporaries of a call share one piece of memory, which is free again for later work of the same stream.

A `BoundCall` (bound_call.py) is a call whose memory is settled too.

Memory that is kept from call to call (counters, which every call leaves zero) is one piece for each stream, zeroed when it is made, for
calls on one stream follow one another. A graph may run beside later calls on the stream that it was captured from, so it has a piece of its
own. Stream 2 is another one in each thread: its calls, and those of graphs for which no piece is left, zero memory of their own every time
(`_stream_code`).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from treadle import errors
from treadle.artifact import Manifest
from treadle.errors import InternalError, TreadleError
from treadle.runtime.argument_block import BlockTemplate, MapDriver
from treadle.runtime.arrays import ArrayForm
from treadle.runtime.bound_call import BoundCall, Enqueue, retry
from treadle.runtime.device_array import DeviceArray, MemoryOwner
from treadle.runtime.direct_call import DirectCall, SettledCall, never
from treadle.runtime.invocation import Invocation, ResolvedLaunch
from treadle.runtime.kept_memory import Counters, Kept
from treadle.runtime.pool import Block
from treadle.runtime.torch_tensors import current_stream

_CACHED_ADDRESSES: Final = 1024
"""With launches that are ready: the layers of a model that share a program call it in turn, each on its own weights."""
_WORKSPACE_ALIGN: Final = 256
PER_THREAD: Final = 2
"""The handle by which every thread names a stream of its own."""
_HANDLE_BITS: Final = 64


class CallDriver(MapDriver, MemoryOwner, Protocol):
    """What calls ask of a device."""

    def activate(self) -> None:
        """Make this device current for the calling thread."""
        ...

    def is_capturing(self, stream: int) -> bool:
        """Whether work on a stream goes into a graph."""
        ...

    def capture(self, stream: int) -> int:
        """A number of the graph that work on a stream goes into, which no other one has; 0 where that is not known."""
        ...

    def preparation(self, stream: int) -> tuple[Enqueue, ...]:
        """What a call on a stream begins with, so that its work goes to this device whichever is current."""
        ...

    def recovers(self, status: int) -> bool:
        """Whether another device was current for the calling thread, so that a refused launch is worth a second try: now this one is."""
        ...

    def prepare_fill(self, address: int, nbytes: int, stream: int) -> Enqueue:
        """What zeroes memory."""
        ...

    def refuse(self, call: str, status: int) -> Any:
        """Raise TR603 for a status that is not 0."""
        ...


class Loaded(Protocol):
    """What calls ask of a loaded program."""

    @property
    def manifest(self) -> Manifest: ...
    @property
    def driver(self) -> CallDriver: ...
    @property
    def input_buffers(self) -> tuple[int, ...]: ...
    @property
    def output_buffers(self) -> tuple[int, ...]: ...
    @property
    def constants(self) -> "dict[int, Block]": ...
    def memory(self, nbytes: int, stream: int) -> Block:
        """Memory of the device's pool; raises TR606."""
        ...

    def template(self, launch: ResolvedLaunch) -> BlockTemplate:
        """The arguments of a launch; raises TR604."""
        ...

    def enqueuer(self, template: BlockTemplate, addresses: Sequence[int], stream: int) -> Enqueue:
        """A launch with its addresses."""
        ...


class CallForm(ABC):
    """The calls of one form. `given`: the caller brings the results' memory. `waits`: a `DeviceArray` is among the arrays.

    `run` and `bind` take the addresses of the arguments and of the given results, and the arrays themselves. Any thread may call them.
    """

    def __init__(self, loaded: Loaded, invocation: Invocation, given: bool, waits: bool) -> None:
        manifest, driver = loaded.manifest, loaded.driver
        self.invocation = invocation
        self.given, self.waits = given, waits
        self._loaded, self._driver = loaded, driver
        self._kind, self._ordinal = driver.kind, driver.ordinal
        bound = {*loaded.input_buffers, *loaded.constants}
        outputs = zip(manifest.outputs, invocation.output_shapes, invocation.output_strides, strict=True)
        self.output_forms = [ArrayForm(shape, strides, t.dtype, driver.kind, driver.ordinal) for t, shape, strides in outputs]
        self._changed = tuple(i for i, t in enumerate(manifest.inputs) if t.in_place)
        # Results with memory of their own, by buffer; the others are arguments, constants or further views of such a buffer.
        self._made: dict[int, ArrayForm] = {}
        for buffer, form in zip(loaded.output_buffers, self.output_forms, strict=True):
            if buffer not in bound:
                self._made.setdefault(buffer, form)
        self._plain = len(self._made) == len(self.output_forms)
        if given and not self._plain:
            what = "cannot be filled: one of the results is an argument, a constant or another result"
            raise TreadleError(errors.OUTPUT_ARRAY, index=0, name=manifest.outputs[0].name, what=what)
        self._filled_buffers = (*loaded.input_buffers, *self._made)
        self._room: dict[int, int] = {}
        self._workspace_bytes = 0
        for index, buffer in enumerate(manifest.buffers):
            if buffer.align > _WORKSPACE_ALIGN:
                raise InternalError(f"buffer {buffer.name} asks for an alignment of {buffer.align}")
            if index not in bound and index not in self._made:
                self._room[index] = -(-self._workspace_bytes // _WORKSPACE_ALIGN) * _WORKSPACE_ALIGN
                self._workspace_bytes = self._room[index] + invocation.buffer_bytes[index]
        zeroed = [i for i, b in enumerate(manifest.buffers) if b.zero and i not in bound and invocation.buffer_bytes[i]]
        self._zeroed = [i for i in zeroed if not manifest.buffers[i].kept]
        self._kept = Kept(loaded, {i: invocation.buffer_bytes[i] for i in zeroed if manifest.buffers[i].kept})
        self._templates = [loaded.template(launch) for launch in invocation.launches]
        self._prepared: dict[tuple[int, ...], tuple[Enqueue, ...]] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def run(self, pointers: Sequence[int], arrays: Sequence[Any], outs: Sequence[Any] | None, stream: int | None = None) -> tuple[Any, ...]:
        """Enqueue one call; the results. `stream`: by default PyTorch's current stream, 0 where PyTorch is not loaded."""

    def direct(self, arrays: Sequence[Any], outs: Sequence[Any] | None, mask: int) -> DirectCall:
        """Calls on tensors like these at addresses without a bit of `mask`."""
        return never

    def settled(self, arrays: Sequence[Any], mask: int, other: SettledCall) -> SettledCall | None:
        """Calls on tensors like these, which are not looked at, at addresses without a bit of `mask`; `other` is called at others. None
        where there is no such call.
        """
        return None

    @abstractmethod
    def bind(self, pointers: Sequence[int], arrays: Sequence[Any], outs: Sequence[Any] | None) -> BoundCall:
        """The call with memory of its own for what is not given."""

    def _order(self, arrays: Sequence[Any], outs: Sequence[Any] | None, stream: int) -> None:
        for array in arrays:
            if type(array) is DeviceArray:
                array.ready_for(stream)
        for array in (*(outs or ()), *[arrays[i] for i in self._changed]):
            if type(array) is DeviceArray:
                array.ready_for(stream)
                array.stream = stream

    def _stream_code(self, stream: int) -> int:
        """What a key says about the stream: its handle; below 0 where the call takes no memory that is kept for it: the complement of
        the handle and of the number of the graph that the call goes into.
        """
        if stream != PER_THREAD and not self._driver.is_capturing(stream):
            return stream
        return ~(stream | (self._driver.capture(stream) << _HANDLE_BITS))

    def _prepare(self, key: tuple[int, ...]) -> tuple[Enqueue, ...]:
        """What a call enqueues; the key is the stream's code and the addresses of arguments, results, and workspace."""
        with self._lock:
            made = self.enqueuers(key)
            if len(self._prepared) >= _CACHED_ADDRESSES:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[key] = made
            return made

    def enqueuers(self, key: tuple[int, ...], counters: Counters = "stream") -> tuple[Enqueue, ...]:
        """The same, not kept. `counters`: the stream's, or ("own") zeros in the workspace."""
        loaded, stream, graph = self._loaded, key[0], 0
        if stream < 0:
            graph, stream = divmod(~stream, 1 << _HANDLE_BITS)
            counters = "graph"
        self._driver.activate()  # tensor maps ask for a context
        addresses = [0] * len(loaded.manifest.buffers)
        for buffer, address in zip(self._filled_buffers, key[1:], strict=False):
            addresses[buffer] = address
        if self.given:
            self._check_disjoint(addresses)
        if self._changed:
            self._check_in_place(addresses)
        for buffer, offset in self._room.items():
            addresses[buffer] = key[-1] + offset
        for buffer, block in loaded.constants.items():
            addresses[buffer] = block.address
        sizes = self.invocation.buffer_bytes
        if counters == "stream":
            addresses = self._kept.placed(addresses, stream)
        elif counters == "graph":
            counters, addresses = self._kept.placed_for_graph(addresses, stream, graph)
        zeroed = [*self._zeroed, *(self._kept.sizes if counters == "fill" else ())]
        fills = [self._driver.prepare_fill(addresses[buffer], sizes[buffer], stream) for buffer in zeroed]
        return (
            *self._driver.preparation(stream),
            *fills,
            *(loaded.enqueuer(template, addresses, stream) for template in self._templates),
        )

    def _bound(self, places: tuple[int, ...], stream: int) -> Callable[[tuple[int, ...]], tuple[Enqueue, ...]]:
        """What makes the launches of a bound call, with counters in its own workspace, zero by now unless the stream is being captured."""
        if not self._kept.sizes:
            return self.enqueuers
        if self._driver.is_capturing(stream):
            return partial(self.enqueuers, counters="fill")
        for buffer, size in self._kept.sizes.items():
            status = self._driver.prepare_fill(places[-1] + self._room[buffer], size, stream)()
            if status:
                self._driver.refuse("fill", status)
        self._driver.wait_stream(stream)  # the call may be made on any stream
        return partial(self.enqueuers, counters="own")

    def _check_disjoint(self, addresses: Sequence[int]) -> None:
        sizes, outputs = self.invocation.buffer_bytes, self._loaded.manifest.outputs
        spans = {buffer: (addresses[buffer], addresses[buffer] + sizes[buffer]) for buffer in self._filled_buffers if sizes[buffer]}
        for number, output in enumerate(self._made):
            for other, (start, end) in spans.items():
                if other != output and output in spans and start < spans[output][1] and spans[output][0] < end:
                    what = f"shares memory with {self._loaded.manifest.buffers[other].role} '{self._name(other)}'"
                    raise TreadleError(errors.OUTPUT_ARRAY, index=number, name=outputs[number].name, what=what)

    def _check_in_place(self, addresses: Sequence[int]) -> None:
        """Raises TR737 for an argument in place that another argument or result shares memory with: kernels take them to be apart."""
        sizes, inputs = self.invocation.buffer_bytes, self._loaded.input_buffers
        spans = {buffer: (addresses[buffer], addresses[buffer] + sizes[buffer]) for buffer in self._filled_buffers if sizes[buffer]}
        for number in self._changed:
            own = spans.get(inputs[number], (0, 0))
            for other, (start, end) in spans.items():
                if other != inputs[number] and start < own[1] and own[0] < end:
                    name, what = self._loaded.manifest.inputs[number].name, f"shares memory with '{self._name(other)}'"
                    raise TreadleError(errors.IN_PLACE, index=number, name=name, what=what)

    def _name(self, buffer: int) -> str:
        manifest = self._loaded.manifest
        tensors = zip((*manifest.inputs, *manifest.outputs), (*self._loaded.input_buffers, *self._loaded.output_buffers), strict=True)
        return next(tensor.name for tensor, index in tensors if index == buffer)

    def _enqueue(self, prepared: Sequence[Enqueue]) -> None:
        for enqueue in prepared:
            if status := enqueue():
                retry(self._driver, enqueue, status)

    def _views(self, owners: Mapping[int, Any], addresses: Mapping[int, int], stream: int) -> list[DeviceArray]:
        """All results as arrays, in memory that `owners` keep alive."""
        pairs = zip(self._loaded.output_buffers, self.output_forms, strict=True)
        return [DeviceArray(self._driver, addresses[buffer], form, stream, owners[buffer]) for buffer, form in pairs]

    def _fixed(self, pointers: Sequence[int], arrays: Sequence[Any]) -> tuple[dict[int, Any], dict[int, int]]:
        """Owners and addresses of the arguments and constants, by buffer."""
        inputs, constants = self._loaded.input_buffers, self._loaded.constants
        owners = {**dict(zip(inputs, arrays, strict=True)), **constants}
        addresses = {**dict(zip(inputs, pointers, strict=False)), **{index: block.address for index, block in constants.items()}}
        return owners, addresses


class PoolCalls(CallForm):
    """Calls without PyTorch: memory is the device's pool, results are `DeviceArray`s."""

    def run(self, pointers: Sequence[int], arrays: Sequence[Any], outs: Sequence[Any] | None, stream: int | None = None) -> tuple[Any, ...]:
        """Enqueue one call."""
        stream = current_stream(self._kind, self._ordinal) if stream is None else stream
        self._driver.activate()
        if self.waits:
            self._order(arrays, outs, stream)
        made, workspace = self._blocks(stream)
        code = self._stream_code(stream) if self._kept.sizes else stream
        key = (code, *pointers, *[block.address for block in made], *[block.address for block in workspace])
        prepared = self._prepared.get(key)
        self._enqueue(self._prepare(key) if prepared is None else prepared)
        return self._results(pointers, arrays, outs, made, stream)

    def _blocks(self, stream: int) -> tuple[list[Block], list[Block]]:
        """Memory for the results that are not given, and for the temporaries. Raises TR606, and TR608 while the stream is captured."""
        sizes = self.invocation.buffer_bytes
        made = [] if self.given else list(self._made)
        if (made or self._workspace_bytes) and self._driver.is_capturing(stream):
            reason = "its memory could be given to others while the graph still uses it"
            raise TreadleError(errors.CAPTURED_CALL, function=self._loaded.manifest.function, reason=reason)
        workspace = [self._loaded.memory(self._workspace_bytes, stream)] if self._workspace_bytes else []
        return [self._loaded.memory(sizes[buffer], stream) for buffer in made], workspace

    def _results(
        self, pointers: Sequence[int], arrays: Sequence[Any], outs: Sequence[Any] | None, made: Sequence[Block], stream: int
    ) -> tuple[Any, ...]:
        if outs is not None:
            return tuple(outs)
        if self._plain:
            driver, forms = self._driver, self.output_forms
            return tuple([DeviceArray(driver, block.address, form, stream, block) for block, form in zip(made, forms, strict=True)])
        owners, addresses = self._fixed(pointers, arrays)
        for buffer, block in zip(self._made, made, strict=True):
            owners[buffer], addresses[buffer] = block, block.address
        return tuple(self._views(owners, addresses, stream))

    def bind(self, pointers: Sequence[int], arrays: Sequence[Any], outs: Sequence[Any] | None) -> BoundCall:
        """The call with blocks of its own for what is not given."""
        stream = current_stream(self._kind, self._ordinal)
        self._driver.activate()
        if self.waits:
            self._order(arrays, outs, stream)
        made, workspace = self._blocks(stream)
        own = [*made, *workspace]
        results = self._results(pointers, arrays, outs, made, stream)

        def move(other: int) -> None:
            for block in own:
                block.share()
            for result in results:
                if type(result) is DeviceArray:
                    result.stream = other

        places = (*pointers, *(block.address for block in own))
        return BoundCall(self._driver, self._bound(places, stream), places, stream, results, (tuple(arrays), own), move)
