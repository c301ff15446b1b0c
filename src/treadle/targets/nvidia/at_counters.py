"""What one thread does at a counter of workgroups, written out: LLVM selects `atom.inc` without its memory order.

A release covers what bar.sync has ordered before it, too (PTX ISA, "Causality order").
"""

from treadle.codegen.llvm_text import I32, Builder, Value

_MEMORY = "~{memory}"


class AtCounters:
    """See `targets/simt/counters.py`."""

    def count_in(self, b: Builder, address: Value, largest: Value, order: str) -> Value:
        """One atomic operation."""
        return b.asm(f"atom.{order}.gpu.global.inc.u32 $0, [$1], $2;", f"=r,l,r,{_MEMORY}", [address, largest], I32)

    def await_turn(self, b: Builder, address: Value, turn: Value, order: str) -> None:
        """Loads, one after another."""
        read = f"ld.{order}.gpu.global.u32 found, [$0];\nsetp.eq.u32 p, found, $1;"
        text = f"{{ .reg .pred p;\n.reg .u32 found;\nWAIT:\n{read}\n@p bra DONE;\nbra WAIT;\nDONE: }}"
        b.asm(text, f"l,r,{_MEMORY}", [address, turn])

    def pass_turn(self, b: Builder, address: Value, turn: Value, order: str) -> None:
        """One store: nobody else writes the counter now."""
        b.asm(f"st.{order}.gpu.global.u32 [$0], $1;", f"l,r,{_MEMORY}", [address, turn])
