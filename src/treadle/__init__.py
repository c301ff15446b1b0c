"""Treadle: tensor programs to GPU kernels."""
