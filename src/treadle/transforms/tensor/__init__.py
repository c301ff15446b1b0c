"""Tensor level to dispatch level: one form for linalg operations, what becomes one kernel, kernels and the host program."""
