"""Kernels in LLVM text that several tests compile."""

from treadle.codegen.llvm_text import F32, I64, Builder, Module, Parameter, Value, i32, pointer

NVIDIA, AMD = "nvptx64-nvidia-cuda", "amdgcn-amd-amdhsa"
_IDS = {
    NVIDIA: ("llvm.nvvm.read.ptx.sreg.tid.x", "llvm.nvvm.read.ptx.sreg.ctaid.x"),
    AMD: ("llvm.amdgcn.workitem.id.x", "llvm.amdgcn.workgroup.id.x"),
}


def vector_add(triple: str) -> str:
    """z[i] = x[i] + y[i] for i < n, 256 threads a workgroup."""
    module = Module(triple)
    parameters = [*(Parameter(pointer(1), name) for name in "xyz"), Parameter("i32", "n")]
    kernel = module.function(
        "vector_add", parameters, convention="ptx_kernel" if triple == NVIDIA else "amdgpu_kernel", attributes=["nounwind"]
    )
    b = Builder(kernel)
    x, y, z, n = kernel.parameters
    thread, group = (b.intrinsic(name, "i32", pure=True) for name in _IDS[triple])
    i = b.add(b.mul(group, i32(256)), thread)
    with b.when(b.icmp("slt", i, n)):
        wide = b.sext(i, I64)

        def at(base: Value) -> Value:
            return b.gep(base, wide, F32)

        b.store(b.fadd(b.load(F32, at(x), 4), b.load(F32, at(y), 4)), at(z), 4)
    b.ret()
    return str(module)
