"""The parts of insert-sync: its data flows, the barriers of copies, the phases of rings."""
