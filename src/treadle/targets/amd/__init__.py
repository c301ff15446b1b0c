"""AMD: hooks over simt, LLVM to code objects, the audit of the assembly. Reached through targets/registry.py only."""
