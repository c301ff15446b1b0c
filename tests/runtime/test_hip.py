"""The HIP device against a recording stand-in: what is launched with what, memory, and errors."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from codegen.kernels import AMD, vector_add
from runtime.fake_hip import FakeHip
from runtime.programs import vector_add_manifest

from treadle.codegen import worker
from treadle.errors import InternalError, TreadleError
from treadle.runtime import hip
from treadle.runtime.arguments import views_of
from treadle.runtime.dlpack import ROCM, import_tensor
from treadle.targets.amd.toolchain import link_amdgpu


@pytest.fixture(scope="module")
def code_object() -> bytes:
    return link_amdgpu(worker.emit_object(vector_add(AMD), triple=AMD, cpu="gfx942"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeHip:
    made = FakeHip()
    monkeypatch.setattr(hip, "bindings", lambda: made)
    return made


def test_a_program_runs(fake: FakeHip, code_object: bytes) -> None:
    device = hip.open_device()
    assert (device.kind, device.name, device.target) == ("hip", "Fake Instinct", "gfx942")
    program = device.load(vector_add_manifest("gfx942"), {"k0.bin": code_object})
    x = np.arange(1001, dtype=np.float32)
    (r,) = program(x, 2 * x)
    np.testing.assert_array_equal(r.numpy(), 5 * x)
    launches = [call for call in fake.calls if call[0] == "hipModuleLaunchKernel"]
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
    assert launches == [("hipModuleLaunchKernel", b"vector_add", 4, 1, 1, 256, 1, 1, 0, None, None, kinds)] * 2
    assert r.__dlpack_device__() == (ROCM, 0)
    assert not hasattr(r, "__cuda_array_interface__")


def test_a_device_is_compiled_for_as_its_product_where_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, machine in (("AMD Instinct MI325X", "gfx942:mi325x"), ("AMD Instinct MI300X", "gfx942"), ("something new", "gfx942")):
        monkeypatch.setattr(hip, "bindings", lambda name=name: FakeHip(name=name))
        assert (hip.open_device().machine, hip.open_device().target) == (machine, "gfx942")


def test_streams_and_device_arrays(fake: FakeHip, code_object: bytes) -> None:
    device = hip.open_device()
    program = device.load(vector_add_manifest("gfx942"), {"k0.bin": code_object})
    x = np.ones(5, np.float32)
    (r,) = program(x, x, stream=77)
    assert {call[-3] for call in fake.calls if call[0] == "hipModuleLaunchKernel"} == {77}
    fake.calls.clear()
    (again,) = program(r, r, stream=77)  # a device array is passed as it is
    assert "hipMemcpyAsync" not in fake.names()
    np.testing.assert_array_equal(again.numpy(), np.full(5, 9, np.float32))
    fake.calls.clear()
    import_tensor(again)  # a consumer that knows nothing of stream 77 must find the work done
    assert fake.calls == [("hipStreamSynchronize", 77)]


def test_bound_calls_choose_the_device(fake: FakeHip, code_object: bytes) -> None:
    program = hip.open_device().load(vector_add_manifest("gfx942"), {"k0.bin": code_object})
    x = np.ones(5, np.float32)
    (r,) = program(x, x)
    bound = program.bind(views_of(program.manifest, (r, r)))
    fake.chosen = 0
    np.testing.assert_array_equal(bound()[0].numpy(), np.full(5, 9, np.float32))
    assert fake.chosen == 2  # the call, and the copy to the host


def test_memory_comes_back(fake: FakeHip, code_object: bytes) -> None:
    device = hip.open_device()
    program = device.load(vector_add_manifest("gfx942"), {"k0.bin": code_object})
    x = np.ones(300, np.float32)
    first = program(x, x)
    allocations = device.pool.allocations
    second = program(x, x)
    assert first[0].address != second[0].address  # both are alive
    assert device.pool.allocations == allocations + 1
    del first, second
    for _ in range(5):
        program(x, x)
    assert device.pool.allocations == allocations + 1
    device.pool.trim()
    assert fake.room == 1 << 24


def test_memory_is_freed_before_giving_up(fake: FakeHip, code_object: bytes) -> None:
    program = hip.open_device().load(vector_add_manifest("gfx942"), {"k0.bin": code_object})
    fake.room = 7 << 10
    small, large = np.ones(256, np.float32), np.ones(300, np.float32)
    program(small, small)
    np.testing.assert_array_equal(program(large, large)[0].numpy(), 3 * large)
    huge = np.ones(10_000, np.float32)
    with pytest.raises(TreadleError) as caught:
        program(huge, huge)
    assert caught.value.code == "TR606"


def test_errors(fake: FakeHip, code_object: bytes) -> None:
    device, manifest = hip.open_device(), vector_add_manifest("gfx942")
    for bad, files, code in [
        (vector_add_manifest("gfx950"), {"k0.bin": code_object}, "TR602"),
        (vector_add_manifest("gfx942", shared_bytes=70_000), {"k0.bin": code_object}, "TR605"),
        (manifest, {"k0.bin": b"text"}, "TR607"),
        (replace(manifest, kernels=(replace(manifest.kernels[0], symbol="other"),)), {"k0.bin": code_object}, "TR607"),
    ]:
        with pytest.raises(TreadleError) as caught:
            device.load(bad, files)
        assert caught.value.code == code
    program = device.load(manifest, {"k0.bin": code_object})
    x = np.ones(8, np.float32)
    for arrays, code in [
        ((x,), "TR721"),
        ((x.reshape(2, 4), x), "TR722"),
        ((x, x[:7]), "TR723"),
        ((x.astype(np.float64), x), "TR725"),
        (("x", x), "TR729"),
        ((None, x), "TR729"),
    ]:
        with pytest.raises(TreadleError) as caught:
            program(*arrays)
        assert caught.value.code == code
    with pytest.raises(TreadleError) as caught:
        tall = replace(manifest, launches=(replace(manifest.launches[0], grid=(1, 65536, 1)), manifest.launches[1]))
        device.load(tall, {"k0.bin": code_object})(x, x)
    assert caught.value.code == "TR604"
    with pytest.raises(TreadleError) as caught:  # 2^32 threads along an axis, in 2^24 workgroups of 256
        long = replace(manifest, launches=(replace(manifest.launches[0], grid=(1 << 24, 1, 1)), manifest.launches[1]))
        device.load(long, {"k0.bin": code_object})(x, x)
    assert caught.value.code == "TR604"


def test_arguments_must_lie_where_c_puts_them(fake: FakeHip, code_object: bytes) -> None:
    manifest = vector_add_manifest("gfx942")
    kernel = manifest.kernels[0]
    moved = replace(kernel, kernarg_bytes=36, args=(*kernel.args[:3], replace(kernel.args[3], offset=32)))
    program = hip.open_device().load(replace(manifest, kernels=(moved,)), {"k0.bin": code_object})
    with pytest.raises(InternalError, match="offset 32"):
        program(np.ones(8, np.float32), np.ones(8, np.float32))


def test_empty_arrays_launch_nothing(fake: FakeHip, code_object: bytes) -> None:
    program = hip.open_device().load(vector_add_manifest("gfx942"), {"k0.bin": code_object})
    empty = np.ones(0, np.float32)
    assert program(empty, empty)[0].numpy().shape == (0,)
    assert "hipModuleLaunchKernel" not in fake.names()


def test_absence_has_a_reason() -> None:
    hip.bindings.cache_clear()
    with pytest.raises(TreadleError) as caught:
        hip.open_device()
    assert caught.value.code == "TR601"
