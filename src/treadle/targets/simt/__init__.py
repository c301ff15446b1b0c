"""Tile programs as per-thread LLVM IR, for machines whose threads run in warps. A vendor supplies `hooks.SimtHooks`."""
