"""Ways in: `mlir` reads MLIR text."""
