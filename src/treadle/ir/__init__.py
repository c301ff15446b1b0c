"""The only door to xDSL.

`core` (structures), `builtin` (types and attributes), `dialects` (upstream dialects; `arith` is ours), `context`, `text` (MLIR text in and
out), `locations`, `rewriting`, `passes`, `simplify` (cse, dce, canonicalize).
"""

from treadle.ir import quick_classes as quick_classes  # first: it imports upstream, and what changes upstream
