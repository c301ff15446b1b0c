"""What one thread does at a counter of workgroups: atomic accesses in the scope of the device, between fences."""

from collections.abc import Callable

from treadle.codegen.llvm_text import I32, VOID, Builder, Value, i32

_BYTES = 4
_RELAXED = f'syncscope("agent") monotonic, align {_BYTES}'
_SLEEP = 1
"""Of 64 clocks each, between two looks at a counter."""


def of_the_device(b: Builder) -> str:
    """Arrays and counters lie in memory of the device: without these words LLVM has to expect memory that knows no such instruction."""
    nothing = b.module.metadata("!{}")
    words = ("no.fine.grained.memory", "no.remote.memory", "ignore.denormal.mode")
    return ", ".join(f"!amdgpu.{word} {nothing}" for word in words)


class AtCounters:
    """See `targets/simt/counters.py`. `written_back`: waits for the write-back that a release begins."""

    def __init__(self, written_back: Callable[[Builder], None]) -> None:
        self._written_back = written_back

    def count_in(self, b: Builder, address: Value, largest: Value, order: str) -> Value:
        """One atomic operation."""
        self._release(b, order)
        before = b.atomic("uinc_wrap", address, largest, "monotonic", _BYTES, scope="agent", metadata=of_the_device(b))
        self._acquire(b, order)
        return before

    def await_turn(self, b: Builder, address: Value, turn: Value, order: str) -> None:
        """Loads, one after another, with a rest between them."""
        look, again, done = b.block("look"), b.block("again"), b.block("come")
        b.branch(look)
        b.place(look, keep_scope=True)
        found = b.emit(I32, f"load atomic {I32}, {address.typed} {_RELAXED}")
        b.branch_if(b.icmp("eq", found, turn), done, again)
        b.place(again, keep_scope=True)
        b.intrinsic("llvm.amdgcn.s.sleep", VOID, [i32(_SLEEP)])
        b.branch(look)
        b.place(done, keep_scope=True)
        self._acquire(b, order)

    def pass_turn(self, b: Builder, address: Value, turn: Value, order: str) -> None:
        """One store: nobody else writes the counter now."""
        self._release(b, order)
        b.emit(VOID, f"store atomic {turn.typed}, {address.typed} {_RELAXED}")

    def _release(self, b: Builder, order: str) -> None:
        if order in ("release", "acq_rel"):
            b.fence("release", "agent")
            self._written_back(b)

    def _acquire(self, b: Builder, order: str) -> None:
        if order in ("acquire", "acq_rel"):
            b.fence("acquire", "agent")
