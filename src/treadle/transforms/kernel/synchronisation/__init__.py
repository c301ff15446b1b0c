"""The parts of insert-sync that write: waits and barriers, the barriers of copies, the phases of rings."""
