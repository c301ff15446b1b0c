"""Memory that calls leave as they found it, zero: one piece for each stream, zeroed when it is made."""

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from treadle.runtime.pool import Block

if TYPE_CHECKING:
    from treadle.runtime.call_form import Loaded

Counters = Literal["stream", "own", "fill"]
"""Where the launches of a call count: in memory kept for the stream; in the call's own, which is zero; in its own, zeroed each time."""
_ALIGN: Final = 256


class Kept:
    """The kept buffers of a form of calls. `sizes`: bytes, by buffer. Calls on one stream run one after the other."""

    def __init__(self, loaded: "Loaded", sizes: Mapping[int, int]) -> None:
        self.sizes = sizes
        self._loaded = loaded
        self._blocks: dict[int, Block] = {}
        self._lock = threading.Lock()

    def placed(self, addresses: Sequence[int], stream: int) -> list[int]:
        """The addresses of all buffers, with those of the kept ones for a stream. Raises TR603 and TR606."""
        found = list(addresses)
        if self.sizes:
            address = self._block(stream).address
            for buffer, size in self.sizes.items():
                found[buffer] = address
                address += -(-size // _ALIGN) * _ALIGN
        return found

    def _block(self, stream: int) -> Block:
        with self._lock:
            if stream not in self._blocks:
                nbytes = sum(-(-size // _ALIGN) * _ALIGN for size in self.sizes.values())
                driver, block = self._loaded.driver, self._loaded.memory(nbytes, stream)
                if status := driver.prepare_fill(block.address, nbytes, stream)():
                    driver.refuse("fill", status)
                self._blocks[stream] = block
            return self._blocks[stream]
