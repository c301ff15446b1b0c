"""Device memory that is kept for the next call: allocating from the driver costs far more than a launch.

Blocks come back when their last user is gone and are given out again on the same stream only, where the order of work makes that safe.
Blocks that another stream used as well wait until the device has been synchronised, which happens only when there is nothing else left.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Final

_GRAIN: Final = 512


class Block:
    """A piece of device memory; returns to its pool when nothing refers to it."""

    __slots__ = ("__weakref__", "_pool", "_shared", "address", "bytes", "stream")

    def __init__(self, pool: "Pool", address: int, size: int, stream: int) -> None:
        self._pool = pool
        self.address = address
        self.bytes = size
        self.stream = stream
        self._shared = False

    def share(self) -> None:
        """Note that a stream other than the block's own uses it."""
        self._shared = True

    def __del__(self) -> None:
        self._pool.take_back(self.address, self.bytes, self.stream, self._shared)


class Pool:
    """Free blocks by stream and size. `allocate(bytes) -> address or None when out of memory`, `release(address)` are the driver's."""

    def __init__(self, allocate: Callable[[int], int | None], release: Callable[[int], None], synchronize: Callable[[], None]) -> None:
        self._allocate = allocate
        self._release = release
        self._synchronize = synchronize
        self._free: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self._shared: list[tuple[int, int, int]] = []
        # Re-entrant: the collector may end a block's life while this very pool is at work.
        self._lock = threading.RLock()
        self.allocations = 0

    def get(self, nbytes: int, stream: int) -> Block | None:
        """A block of at least `nbytes` for use on a stream; None when the device has no memory left even after freeing what is kept."""
        size = _rounded(nbytes)
        with self._lock:
            kept = self._free[stream, size]
            if not kept and any(shared[1:] == (size, stream) for shared in self._shared):
                self._settle()
            if kept:
                return Block(self, kept.pop(), size, stream)
            address = self._allocate(size)
            if address is None:
                self.trim()
                address = self._allocate(size)
            if address is None:
                return None
            self.allocations += 1
            return Block(self, address, size, stream)

    def take_back(self, address: int, size: int, stream: int, shared: bool = False) -> None:
        """Keep a block for later (called when a `Block` dies); `shared` says that other streams may still use it."""
        with self._lock:
            if shared:
                self._shared.append((address, size, stream))
            else:
                self._free[stream, size].append(address)

    def _settle(self) -> None:
        """Make shared blocks free, after all work."""
        settled, self._shared = self._shared, []
        self._synchronize()
        for address, size, stream in settled:
            self._free[stream, size].append(address)

    def trim(self) -> None:
        """Give all free blocks back to the driver, after the work that may still use them."""
        with self._lock:
            if self._shared or any(self._free.values()):
                self._settle()
            for addresses in self._free.values():
                for address in addresses:
                    self._release(address)
            self._free.clear()


def _rounded(nbytes: int) -> int:
    """Up to a multiple of 512 bytes, and from 1 MiB on of an eighth of the next lower power of two, so that like sizes share blocks."""
    grain = max(_GRAIN, 1 << max(0, nbytes.bit_length() - 4)) if nbytes >= 1 << 20 else _GRAIN
    return max(grain, (nbytes + grain - 1) // grain * grain)
