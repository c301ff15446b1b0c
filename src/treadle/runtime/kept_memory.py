"""Memory that calls leave as they found it, zero: one piece for each stream, zeroed when it is made, and a few for graphs.

Zeroing it in a graph costs more than the launch that counts in it: a fill is a node of its own between two kernels.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from treadle.runtime.pool import Block

if TYPE_CHECKING:
    from treadle.runtime.call_form import Loaded

Counters = Literal["stream", "own", "graph", "fill"]
"""Where the launches of a call count: in memory kept for the stream; in the call's own, which is zero; in that of the graph that it goes
into; in its own, zeroed each time.
"""
_ALIGN: Final = 256
_FOR_GRAPHS: Final = 16
"""Pieces for graphs beside that of the first stream. Nobody tells when a graph has ended, so they do not come back."""
_MOST_BYTES: Final = 1 << 20
"""Of all these pieces together."""
_in_graphs: Final[list[Block]] = []
"""Memory that graphs may count in: it lives as long as the process."""


class Kept:
    """The kept buffers of a form of calls. `sizes`: bytes, by buffer. Calls on one stream run one after the other."""

    def __init__(self, loaded: "Loaded", sizes: Mapping[int, int]) -> None:
        self.sizes = sizes
        self._loaded = loaded
        self._blocks: dict[int, Block] = {}
        self._spare: list[tuple[int, Block]] = []
        self._graphs: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    def placed(self, addresses: Sequence[int], stream: int) -> list[int]:
        """The addresses of all buffers, with those of the kept ones for a stream. Raises TR603 and TR606."""
        return self._at(self._block(stream).address, addresses) if self.sizes else list(addresses)

    def placed_for_graph(self, addresses: Sequence[int], stream: int, graph: int) -> tuple[Counters, list[int]]:
        """The same for calls that a graph captures from a stream, which run one after the other there; "fill", with the addresses as they
        are, where there is no piece for it. `graph`: its number, 0 where it has none.
        """
        with self._lock:
            if (graph, stream) not in self._graphs:
                if not graph or not self._spare:
                    return "fill", list(addresses)
                self._graphs[graph, stream], block = self._spare.pop()
                _in_graphs.append(block)
            return "graph", self._at(self._graphs[graph, stream], addresses)

    def _at(self, address: int, addresses: Sequence[int]) -> list[int]:
        found = list(addresses)
        for buffer, size in self.sizes.items():
            found[buffer] = address
            address += -(-size // _ALIGN) * _ALIGN
        return found

    def _block(self, stream: int) -> Block:
        with self._lock:
            if stream not in self._blocks:
                nbytes = sum(-(-size // _ALIGN) * _ALIGN for size in self.sizes.values())
                pieces = 1 + (0 if self._blocks else min(_FOR_GRAPHS, _MOST_BYTES // nbytes))
                driver, block = self._loaded.driver, self._loaded.memory(pieces * nbytes, stream)
                if status := driver.prepare_fill(block.address, pieces * nbytes, stream)():
                    driver.refuse("fill", status)
                if pieces > 1:
                    driver.wait_stream(stream)  # a graph may be launched on any stream
                self._spare += [(block.address + piece * nbytes, block) for piece in range(1, pieces)]
                self._blocks[stream] = block
            return self._blocks[stream]
