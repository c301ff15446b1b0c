"""The only door to xDSL.

`core` (structures), `builtin` (types and attributes), `dialects` (upstream dialects; `arith` is ours), `context`, `text` (MLIR text in and
out), `locations`, `rewriting`, `passes`, `simplify` (cse, dce, canonicalize).
"""

from treadle.ir import compact_splats as compact_splats
from treadle.ir import lazy_formats as lazy_formats  # before any dialect is imported
from treadle.ir import linear_lexer as linear_lexer
from treadle.ir import quick_operations as quick_operations
