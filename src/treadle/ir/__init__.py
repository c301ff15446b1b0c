"""The only door to xDSL.

`ir.core` (structures), `ir.builtin` (types and attributes), `ir.dialects` (upstream dialects; `arith` is ours), `ir.context`, `ir.text` (MLIR text in
and out), `ir.locations`, `ir.rewriting`, `ir.passes`, `ir.simplify` (cse, dce, canonicalize).
"""
