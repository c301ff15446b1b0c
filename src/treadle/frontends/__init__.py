"""Ways in: `loading` takes a program at any level, as text, path or module; `mlir` and `kernels` have the levels' rules."""
