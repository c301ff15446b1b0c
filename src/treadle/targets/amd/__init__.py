"""AMD: hooks over simt, LLVM to code objects, the audit of the assembly. Reached through targets/registry.py only."""

# Instructions made of several operations' have no line; without this they would seem to have their neighbours'.
LLVM_OPTIONS = ("-use-unknown-locations=Enable",)
LLVM_PROCESSES = 2
"""Assembly and object file of a kernel are made at once."""
