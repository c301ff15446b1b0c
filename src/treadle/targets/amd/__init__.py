"""AMD: hooks over simt, LLVM to code objects, the audit of the assembly. Reached through targets/registry.py only."""

# Instructions made of several operations' have no line; without the first they would seem to have their neighbours'. Loops carry what loads
# bring as whole vectors; broken into elements they are copied, and waited for, right behind each load that stands under a condition.
LLVM_OPTIONS = ("-use-unknown-locations=Enable", "-amdgpu-codegenprepare-break-large-phis=0")
LLVM_PROCESSES = 2
"""Assembly and object file of a kernel are made at once."""
