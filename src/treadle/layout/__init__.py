"""Layouts: where the elements of a tile live in registers and in shared memory, and what moves them. Pure algebra, no IR."""
