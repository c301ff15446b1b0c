"""The CUDA device on a real GPU: launches, arguments of every kind, tensor maps, errors, streams, cost of a call."""

import time
from dataclasses import replace

import numpy as np
import pytest
from codegen.kernels import NVIDIA, vector_add
from runtime.programs import vector_add_manifest

from treadle.artifact import Buffer, Kernel, KernelArg, Launch, Manifest, PointerValue, TensorMap, TensorMapValue, TensorRecord
from treadle.codegen import worker
from treadle.codegen.llvm_text import I32, VOID, Builder, Module, Parameter, i32, i64, key_value, pointer
from treadle.errors import TreadleError
from treadle.runtime.cuda import CudaDevice
from treadle.runtime.gpu_program import GpuProgram
from treadle.targets.nvidia.toolchain import assemble_ptx


@pytest.fixture(scope="module")
def cubin(device: CudaDevice) -> bytes:
    text = worker.emit_assembly(vector_add(NVIDIA), triple=NVIDIA, cpu=device.target)
    return assemble_ptx(text, device.target).cubin


@pytest.fixture(scope="module")
def program(device: CudaDevice, cubin: bytes) -> GpuProgram:
    return device.load(vector_add_manifest(device.target), {"k0.bin": cubin})


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 100_003])
def test_sizes(program: GpuProgram, n: int) -> None:
    x, y = np.random.default_rng(n).standard_normal((2, n), np.float32)
    (r,) = program(x, y)
    assert r.shape == (n,)
    np.testing.assert_array_equal(r.numpy(), x + y + y)


def test_results_feed_calls_and_other_libraries(program: GpuProgram) -> None:
    x = np.arange(1000, dtype=np.float32)
    (r,) = program(x, x)
    (again,) = program(r, r)  # through DLPack
    np.testing.assert_array_equal(again.numpy(), 9 * x)
    assert r.__cuda_array_interface__["typestr"] == "<f4"
    torch = pytest.importorskip("torch")
    t = torch.from_dlpack(again)
    assert t.is_cuda
    np.testing.assert_array_equal(t.cpu().numpy(), 9 * x)
    del again
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        u = torch.randn(100_000, device="cuda")
        (s,) = program(u, u)
        assert torch.equal(s, u + u + u)


def test_wrong_arguments(program: GpuProgram) -> None:
    torch = pytest.importorskip("torch")
    x = torch.zeros(64, device="cuda")
    for arrays, code in [
        ((x,), "TR721"),
        ((x.reshape(8, 8), x), "TR722"),
        ((x, torch.zeros(65, device="cuda")), "TR723"),
        ((x.half(), x), "TR725"),
        ((torch.zeros(128, device="cuda")[::2], x), "TR727"),
        (("text", x), "TR729"),
    ]:
        with pytest.raises(TreadleError) as caught:
            program(*arrays)
        assert caught.value.code == code
    np.testing.assert_array_equal(program(np.zeros(128, np.float32)[::2], x)[0].cpu().numpy(), np.zeros(64))


def test_beyond_the_device(device: CudaDevice, cubin: bytes) -> None:
    with pytest.raises(TreadleError) as caught:
        device.load(vector_add_manifest(device.target, shared_bytes=300_000), {"k0.bin": cubin})
    assert caught.value.code == "TR605"
    with pytest.raises(TreadleError) as caught:
        device.load(vector_add_manifest(device.target), {"k0.bin": cubin[:100]})
    assert caught.value.code == "TR607"
    with pytest.raises(TreadleError) as caught:
        device.load(vector_add_manifest("gfx942"), {"k0.bin": cubin})
    assert caught.value.code == "TR602"
    manifest = vector_add_manifest(device.target)
    b0, b1, b2, b3 = manifest.buffers
    greedy = replace(manifest, buffers=(b0, b1, replace(b2, bytes=1 << 45), b3))
    x = np.ones(3, np.float32)
    with pytest.raises(TreadleError) as caught:
        device.load(greedy, {"k0.bin": cubin})(x, x)
    assert caught.value.code == "TR606"
    wide = replace(manifest, launches=(replace(manifest.launches[0], grid=(1, 70_000, 1)), manifest.launches[1]))
    with pytest.raises(TreadleError) as caught:
        device.load(wide, {"k0.bin": cubin})(x, x)
    assert caught.value.code == "TR604"


def tensor_map_copy() -> str:
    """Copy a 64 x 32 box of f16 at (row 64 y, column 32 x) through shared memory with one thread, bulk in and plain out."""
    module = Module(NVIDIA)
    shared = module.shared_array("smem", None, 1024)
    parameters = [Parameter("ptr", "map", 'byval([128 x i8]) align 64 "nvvm.grid_constant"'), Parameter(pointer(1), "out")]
    words = ["nounwind", key_value("nvvm.maxntid", "32")]
    kernel = module.function("box", parameters, convention="ptx_kernel", attributes=words)
    b = Builder(kernel)
    tensor_map, out = kernel.parameters
    thread, gx, gy = (b.intrinsic(f"llvm.nvvm.read.ptx.sreg.{n}", I32, pure=True) for n in ("tid.x", "ctaid.x", "ctaid.y"))
    address = b.ptrtoint(shared, I32)
    barrier = b.add(address, i32(64 * 32 * 2))
    with b.when(b.icmp("eq", thread, i32(0))):
        b.asm("mbarrier.init.shared.b64 [$0], 1;", "r,~{memory}", [barrier])
        b.asm("mbarrier.arrive.expect_tx.shared.b64 _, [$0], 4096;", "r,~{memory}", [barrier])
        b.asm(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3}], [$4];",
            "r,l,r,r,r,~{memory}",
            [address, b.ptrtoint(tensor_map, "i64"), b.mul(gx, i32(32)), b.mul(gy, i32(64)), barrier],
        )
        wait = "{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [$0], 0; @!p bra again; }"
        b.asm(wait, "r,~{memory}", [barrier])
        tile = b.gep(out, b.mul(b.sext(b.add(b.mul(gy, i32(4)), gx), "i64"), i64(4096)))
        with b.loop(i32(0), i32(4096), i32(4), runs_once=True) as loop:
            b.store(b.load(I32, b.gep(shared, loop.index), 4), b.gep(tile, b.sext(loop.index, "i64")), 4)
    b.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", VOID, [i32(0)])
    b.ret()
    return str(module)


def test_tensor_maps_clusters_and_large_shared_memory(device: CudaDevice) -> None:
    if device.target != "sm_90a":
        pytest.skip(f"tensor maps are tried on sm_90a, this is {device.target}")
    rows, columns = 100, 104  # the last boxes hang over both edges
    text = worker.emit_assembly(tensor_map_copy(), triple=NVIDIA, cpu="sm_90a")
    result = assemble_ptx(text, "sm_90a")
    args = (KernelArg("tensor_map", 0), KernelArg("pointer", 128))
    kernel = Kernel("k0", "box", "k0.cubin", (32, 1, 1), (2, 1, 1), 100_000, 136, args)
    box = TensorMapValue("b0", TensorMap("f16", (columns, rows), (2 * columns,), (32, 64), (1, 1), "none", "none", "128B", "zero"))
    manifest = Manifest(
        treadle="0",
        target="sm_90a",
        function="boxes",
        dims={},
        inputs=(TensorRecord("x", "f16", (rows, columns), (columns, 1), "b0"),),
        outputs=(TensorRecord("r0", "f16", (2, 4, 64, 32), (8192, 2048, 32, 1), "b1"),),
        buffers=(Buffer("b0", "input", 2 * rows * columns, 16), Buffer("b1", "output", 2 * 4 * 4096, 256)),
        kernels=(kernel,),
        launches=(Launch("k0", (4, 2, 1), (box, PointerValue("b1"))),),
    )
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float16)
    (r,) = device.load(Manifest.from_json(manifest.to_json()), {"k0.cubin": result.cubin})(x)
    padded = np.zeros((128, 128), np.float16)
    padded[:rows, :columns] = x
    np.testing.assert_array_equal(r.numpy(), padded.reshape(2, 64, 4, 32).transpose(0, 2, 1, 3))


def test_memory_is_reused_and_calls_are_cheap(device: CudaDevice, program: GpuProgram) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(1024, device="cuda")
    for _ in range(100):
        program(x, x)
    device.synchronize()
    before, started = device.pool.allocations, time.perf_counter()
    for _ in range(1000):
        program(x, x)
    spent = (time.perf_counter() - started) / 1000
    device.synchronize()
    assert device.pool.allocations == before
    print(f"{spent * 1e6:.1f} us a call with two launches")
    assert spent < 200e-6
