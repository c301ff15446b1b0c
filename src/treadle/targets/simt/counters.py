"""What one thread does at a counter of workgroups (an i32 of global memory), in one step for all of the device.

`order`: "relaxed", "release", "acquire" or "acq_rel", as in C++, for all of global memory. A release covers what other threads of the
workgroup did before a barrier ahead of it.
"""

from typing import Protocol

from treadle.codegen.llvm_text import Builder, Value


class Counters(Protocol):
    """The instructions of a machine."""

    def count_in(self, b: Builder, address: Value, largest: Value, order: str) -> Value:
        """Count up by one, from `largest` back to 0; the number before."""
        ...

    def await_turn(self, b: Builder, address: Value, turn: Value, order: str) -> None:
        """Wait until the counter is `turn`; "relaxed" or "acquire"."""
        ...

    def pass_turn(self, b: Builder, address: Value, turn: Value, order: str) -> None:
        """Make the counter `turn`; "relaxed" or "release"."""
        ...
