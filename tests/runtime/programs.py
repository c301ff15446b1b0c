"""Small artifacts for tests of the runtime: a vector addition and a copy through a tensor map, in LLVM text."""

from treadle.artifact import Buffer, Dim, Kernel, KernelArg, Launch, Manifest, PointerValue, ScalarValue, TensorRecord
from treadle.plan.expr import ceil_div, symbol

S = symbol("s0")


def vector_add_manifest(target: str, binary: str = "k0.bin", **kernel_facts: int) -> Manifest:
    """r0 = (x + y) + y over one dynamic dimension, in two launches with a temporary between them."""
    pointers = tuple(KernelArg("pointer", 8 * i) for i in range(3))
    kernel = Kernel(
        name="k0",
        symbol="vector_add",
        binary=binary,
        block=(256, 1, 1),
        cluster=(1, 1, 1),
        shared_bytes=kernel_facts.get("shared_bytes", 0),
        kernarg_bytes=28,
        args=(*pointers, KernelArg("i32", 24)),
    )

    def launch(a: str, b: str, c: str) -> Launch:
        return Launch("k0", (ceil_div(S, 256), 1, 1), (PointerValue(a), PointerValue(b), PointerValue(c), ScalarValue(S)))

    def tensor(name: str, buffer: str) -> TensorRecord:
        return TensorRecord(name, "f32", (S,), (1,), buffer)

    return Manifest(
        treadle="0",
        target=target,
        function="add_twice",
        dims={"s0": Dim(0, 0)},
        inputs=(tensor("x", "b0"), tensor("y", "b1")),
        outputs=(tensor("r0", "b3"),),
        buffers=(
            Buffer("b0", "input", 4 * S, 4),
            Buffer("b1", "input", 4 * S, 4),
            Buffer("b2", "temporary", 4 * S, 256),
            Buffer("b3", "output", 4 * S, 256),
        ),
        kernels=(kernel,),
        launches=(launch("b0", "b1", "b2"), launch("b2", "b1", "b3")),
    )
