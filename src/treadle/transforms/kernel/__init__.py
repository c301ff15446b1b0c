"""Passes from dispatch level to schedule level, in the order of `pipelines.py`."""
