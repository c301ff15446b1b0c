"""A call whose arguments, results and temporaries are settled: calling it only enqueues its launches."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from treadle.runtime.torch_tensors import current_stream, stream_function

Enqueue = Callable[[], int]
"""Puts one launch or fill on its stream; returns the driver's status, 0 if it was taken."""


class BoundDriver(Protocol):
    """What a bound call asks of its device."""

    @property
    def kind(self) -> Any: ...
    @property
    def ordinal(self) -> int: ...
    def recovers(self, status: int) -> bool:
        """Whether another device was current for the calling thread, so that a refused launch is worth a second try: now this one is."""
        ...

    def refuse(self, call: str, status: int) -> Any:
        """Raise TR603 for a status that is not 0."""
        ...


def retry(driver: BoundDriver, enqueue: Enqueue, status: int) -> None:
    """Make up for a launch that the driver refused, if it was for the device that was current; else raise TR603."""
    if driver.recovers(status):
        status = enqueue()
    if status:
        driver.refuse("launch", status)


class BoundCall:
    """Call it to run the program once more on the same memory; returns `outputs`, which every call overwrites.

    It runs on the stream that is PyTorch's current one at the call (0 where PyTorch is not loaded), takes no memory and waits for nothing:
    it may be captured into a graph, which the caller then keeps together with this object. Arguments are read from the memory that they
    had when the call was bound. Calls on several streams at once, or from several threads, overwrite each other's results and temporaries
    unless the caller orders them.
    """

    __slots__ = (
        "_driver",
        "_enqueuers",
        "_keep",
        "_kind",
        "_lock",
        "_move",
        "_ordinal",
        "_places",
        "_prepared",
        "_stream",
        "_stream_of",
        "outputs",
    )

    def __init__(
        self,
        driver: BoundDriver,
        enqueuers: Callable[[tuple[int, ...]], tuple[Enqueue, ...]],
        places: Sequence[int],
        stream: int,
        outputs: tuple[Any, ...],
        keep: Any,
        move: Callable[[int], None],
    ) -> None:
        self._driver, self._kind, self._ordinal = driver, driver.kind, driver.ordinal
        self._enqueuers, self._places, self._keep = enqueuers, tuple(places), keep
        self._move, self._stream = move, stream
        self._stream_of = stream_function(driver.kind)
        self._lock = threading.Lock()
        self._prepared = {stream: enqueuers((stream, *self._places))}
        self.outputs = outputs

    def __call__(self) -> tuple[Any, ...]:
        """Enqueue the launches. Raises TR603."""
        get = self._stream_of
        stream = current_stream(self._kind, self._ordinal) if get is None else get(self._ordinal)
        prepared = self._prepared[stream] if stream == self._stream else self._on(stream)
        for enqueue in prepared:
            if status := enqueue():
                retry(self._driver, enqueue, status)
        return self.outputs

    def _on(self, stream: int) -> tuple[Enqueue, ...]:
        with self._lock:
            prepared = self._prepared.get(stream)
            if prepared is None:
                prepared = self._prepared[stream] = self._enqueuers((stream, *self._places))
            self._move(stream)
            self._stream = stream
            return prepared
