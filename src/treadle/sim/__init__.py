"""Execution on the CPU: the float64 reference of tensor-level modules, and the simulator of tile kernels and host programs."""
