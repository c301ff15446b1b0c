"""Code generation below the IR: LLVM text, worker processes around LLVM, and the vendors' tools."""
