"""The parts of convert-dispatch-to-tile: index arithmetic, tile values, and one file for each kind of kernel."""
