"""Code generation for machines: tile programs to LLVM text, assembly and binaries. Reached through `registry`."""
