"""The ways to compute a kernel, one module each; `registry.py` lists them."""
