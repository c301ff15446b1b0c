"""NVIDIA Hopper: hooks over `targets/simt`, warpgroup matrix instructions, tensor copies, ptxas and the audit."""
