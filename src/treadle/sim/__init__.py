"""Execution of every level on the CPU: the float64 reference of a tensor-level module, and the simulator of tile kernels and host programs."""
