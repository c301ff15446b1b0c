"""Calls of programs on a stand-in for the CUDA driver and PyTorch: what is looked up, made, launched and refused, and by whom."""

import ctypes
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as real
from runtime.fake_cuda import ELF, FUNCTION, FakeBindings, FakeLibrary, make_torch
from runtime.programs import vector_add_manifest

from treadle.artifact import Buffer, KernelArg, Manifest, PointerValue, TensorMap, TensorMapValue
from treadle.driver.program import Program
from treadle.errors import TreadleError
from treadle.plan.argument_layout import ArgumentLayout, Layouts
from treadle.runtime import cuda, cuda_launch, torch_tensors
from treadle.runtime.cuda import CudaDevice
from treadle.runtime.invocation import InvocationPlan, ResolvedLaunch, TensorMapArg

REMARKS = b"[]"


class Machine:
    """A device, its driver's stand-ins, and a program on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bindings = FakeBindings()
        self.library = FakeLibrary(self.bindings)
        functions = cuda_launch.DriverFunctions(self.library)
        monkeypatch.setattr(cuda, "bindings", lambda: self.bindings)
        monkeypatch.setattr(cuda_launch, "functions", lambda: functions)
        self.device = CudaDevice()
        self.variants: list[Layouts] = []

    def program(self, manifest: Manifest) -> Program:
        files = {"manifest.json": manifest.to_json().encode(), "remarks.json": REMARKS, **{k.binary: ELF for k in manifest.kernels}}

        def specialise(layouts: Layouts | None, *, wide: bool) -> Program:
            assert layouts is not None
            self.variants.append(layouts)
            return self.program(manifest)

        def absent(*_: Any) -> Any:
            raise AssertionError("not asked for")

        return Program("sm_90a", files, absent, absent, lambda: self.device, specialise)

    def launches(self) -> list[tuple[Any, ...]]:
        found = [call for call in self.library.calls if call[0] == "launch"]
        self.library.calls.clear()
        return found


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture(params=[True, False], ids=["guards", "no guards"])
def torch(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Any]:
    made = make_torch(guards=request.param)
    monkeypatch.setitem(sys.modules, "torch", made)
    yield made
    torch_tensors._streams.clear()
    torch_tensors._guards.clear()
    torch_tensors._met.clear()
    torch_tensors.TENSOR_TYPES.clear()


@pytest.fixture
def program(machine: Machine) -> Program:
    return machine.program(vector_add_manifest("sm_90a"))


def code_of(call: Any) -> str:
    with pytest.raises(TreadleError) as caught:
        call()
    return caught.value.code


def test_tensors_in_tensors_out(machine: Machine, torch: Any, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.tensor([1, 2, 3]), torch.tensor([10, 20, 30])
    torch.stream = 77
    (first,) = program(x, y)
    assert isinstance(first, torch.Tensor)
    np.testing.assert_array_equal(first.memory, [21, 42, 63])
    one, two = machine.launches()
    assert one[1:7] == two[1:7] == (FUNCTION, (1, 1, 1), (256, 1, 1), 0, 77, [])
    between = one[7][2]
    assert (one[7][:2], two[7]) == ((x.data_ptr(), y.data_ptr()), (between, y.data_ptr(), first.data_ptr()))
    assert between not in (x.data_ptr(), y.data_ptr(), first.data_ptr())
    assert torch.allocations == 2  # the result, and a workspace
    # The second call takes no views, and its result is another.
    monkeypatch.setattr("treadle.runtime.arguments.view", None)
    x.memory[...] = 5
    (second,) = program(x, y)
    np.testing.assert_array_equal(second.memory, [25, 45, 65])
    np.testing.assert_array_equal(first.memory, [21, 42, 63])
    torch.stream = 78
    program(x, y)
    assert [call[5] for call in machine.launches()] == [77, 77, 78, 78]
    assert not machine.bindings.syncs


def test_tensors_that_change_are_new(machine: Machine, torch: Any, program: Program) -> None:
    x, y = torch.tensor([1, 2, 3]), torch.tensor([10, 20, 30])
    program(x, y)
    x.memory, y.memory = torch.tensor([1, 1, 1, 1, 1]).memory, torch.tensor([2, 2, 2, 2, 2]).memory
    (r,) = program(x, y)  # other shapes and memory behind the same objects
    np.testing.assert_array_equal(r.memory, [5] * 5)
    assert not machine.variants
    x.memory = np.arange(10, dtype=np.float32)[::2]  # other strides
    assert code_of(lambda: program(x, y)) == "TR727"  # the stand-in's variant takes what the program takes
    assert len(machine.variants) == 1
    x.dtype = torch.float16
    assert code_of(lambda: program(x, y)) == "TR725"


def test_a_tensor_of_the_host_is_never_taken_for_one_of_the_gpu(machine: Machine, torch: Any, program: Program) -> None:
    x = torch.tensor([1, 2, 3])
    program(x, x)
    x.on_gpu, x.device.type = False, "cpu"
    machine.launches()
    (r,) = program(x, x)
    np.testing.assert_array_equal(r.numpy(), [3, 6, 9])  # a copy was made, so the result is the device's
    assert machine.bindings.memory


def test_lazily_negated_tensors_are_refused(torch: Any, program: Program) -> None:
    x = torch.tensor([1, 2, 3])
    program(x, x)
    x.negated = True
    assert code_of(lambda: program(x, x)) == "TR729"
    assert code_of(lambda: program.bind(x, x)) == "TR729"


def test_addresses_are_told_apart_where_kernels_rely_on_them(machine: Machine, torch: Any) -> None:
    manifest = vector_add_manifest("sm_90a")
    b0, *rest = manifest.buffers
    program = machine.program(replace(manifest, buffers=(replace(b0, align=16), *rest)))
    room, y = torch.tensor(range(8)), torch.tensor(range(7))
    x = torch.tensor(range(7))
    x.memory = room.memory[:7]
    program(x, y)
    assert not machine.variants
    x.memory = room.memory[1:]
    assert code_of(lambda: program(x, y)) == "TR728"  # the stand-in's variant relies on as much as the program
    assert len(machine.variants) == 1
    assert machine.variants[0][0] is not None
    assert isinstance(machine.variants[0][0], ArgumentLayout) and machine.variants[0][0].align == 4


@pytest.mark.parametrize("own", ["tensor", "list"])
def test_given_results(machine: Machine, torch: Any, program: Program, own: str) -> None:
    x, y, z = torch.tensor([1, 2, 3]), torch.tensor([10, 20, 30]), torch.tensor([0, 0, 0])
    for _ in range(2):
        z.memory[...] = 0
        (r,) = program(x, y, out=z if own == "tensor" else [z])
        assert r is z
        np.testing.assert_array_equal(z.memory, [21, 42, 63])
    assert torch.allocations == 2  # workspaces


def test_refused_results(torch: Any, program: Program) -> None:
    x, good = torch.tensor(np.ones(100)), torch.tensor(np.ones(100))
    program(x, x, out=good)
    off = torch.tensor(np.ones(101))
    off.memory = off.memory[1:]
    apart = torch.tensor(np.ones(200))
    apart.memory = apart.memory[::2]
    inside = torch.tensor(np.ones(200))
    both = torch.tensor(np.ones(100))
    inside.memory, both.memory = inside.memory[:100], inside.memory[64:164]
    cases = [
        [],
        [good, good],
        x,
        torch.tensor(np.ones(99)),
        off,
        apart,
        torch.tensor(np.ones(100), torch.float16),
        np.ones(100, np.float32),
    ]
    codes = [code_of(lambda out=out: program(x, x, out=out)) for out in cases]
    assert codes == ["TR730", "TR730", *["TR731"] * 6]
    assert code_of(lambda: program(x, both, out=inside)) == "TR731"
    assert code_of(lambda: program(x, x, out="text")) == "TR729"
    assert code_of(lambda: program(x, x, out=x)) == "TR731"  # still, when the form is known


def test_results_that_are_no_memory_of_their_own(machine: Machine, torch: Any) -> None:
    manifest = vector_add_manifest("sm_90a")
    (r,) = manifest.outputs
    program = machine.program(replace(manifest, outputs=(r, replace(r, name="r1", buffer="b0"), replace(r, name="r2"))))
    x = torch.tensor([1, 2, 3])
    for _ in range(2):
        results = program(x, x)
        assert [kind for kind, _ in results] == ["wrapped"] * 3
        assert results[1][1].address == x.data_ptr()
        assert results[0][1].address == results[2][1].address
    assert code_of(lambda: program(x, x, out=[x, x, x])) == "TR731"


def test_bound_calls(machine: Machine, torch: Any, program: Program) -> None:
    x, y = torch.tensor([1, 2, 3]), torch.tensor([10, 20, 30])
    call = program.bind(x, y)
    assert not machine.launches()
    allocations = torch.allocations
    x.memory[...] = 7
    (r,) = call()
    np.testing.assert_array_equal(r.memory, [27, 47, 67])
    assert call() == (r,) == call.outputs  # type: ignore[attr-defined]
    assert torch.allocations == allocations
    torch.stream = 5
    call()
    torch.stream = 0
    call()
    assert [launch[5] for launch in machine.launches()] == [0, 0, 0, 0, 5, 5, 0, 0]
    assert torch.recorded == [5, 5, 0, 0]  # result and workspace, at each change of stream
    z = torch.tensor([0, 0, 0])
    assert program.bind(x, y, out=z)() == (z,)
    np.testing.assert_array_equal(z.memory, [27, 47, 67])
    assert code_of(lambda: program.bind(x, np.ones(3, np.float32))) == "TR726"
    assert code_of(lambda: program.bind(x, y, out=x)) == "TR731"


def test_capture_takes_no_memory_of_the_pool(machine: Machine, torch: Any, program: Program) -> None:
    torch.stream = 9
    x = torch.tensor([1, 2, 3])
    (r,) = machine.device.load(program.manifest, program.files)(np.ones(3, np.float32), np.ones(3, np.float32))
    bound = program.bind(r, r)
    program(r, r)
    program(x, x)
    machine.library.captured.add(9)
    allocations = machine.device.pool.allocations
    program(x, x)  # PyTorch's allocator knows of captures
    bound()
    assert code_of(lambda: program(r, r)) == "TR608"
    assert code_of(lambda: program(np.ones(3, np.float32), x)) == "TR608"
    assert machine.device.pool.allocations == allocations


def test_device_arrays_are_passed_as_they_are(machine: Machine, program: Program) -> None:
    x = np.array([1, 2, 3], np.float32)
    (r,) = program(x, x)
    np.testing.assert_array_equal(program(r, r)[0].numpy(), [9, 18, 27])
    machine.bindings.syncs.clear()
    allocations, (last,) = machine.device.pool.allocations, program(r, r)
    for _ in range(5):
        (last,) = program(r, r)
    assert machine.device.pool.allocations <= allocations + 1
    assert not machine.bindings.syncs
    np.testing.assert_array_equal(last.numpy(), [9, 18, 27])
    (again,) = program(last, last, out=r)
    assert again is r
    np.testing.assert_array_equal(r.numpy(), [27, 54, 81])


def test_another_stream_waits_and_keeps_the_memory(machine: Machine, torch: Any, program: Program) -> None:
    x = np.ones(3, np.float32)
    torch.stream = 1
    (r,) = program(x, x)
    torch.stream = 2
    (s,) = program(r, r)
    assert set(machine.bindings.syncs) == {1}
    machine.bindings.syncs.clear()
    program(s, s)
    assert not machine.bindings.syncs
    address = r.address
    del r
    torch.stream = 1
    blocks = [machine.device.pool.get(12, 1) for _ in range(8)]
    assert "context" in machine.bindings.syncs  # before the block is given out again
    assert address in [block.address for block in blocks if block]


def test_the_context_of_the_thread(machine: Machine, torch: Any, program: Program) -> None:
    x = torch.tensor([1, 2, 3])
    program(x, x)
    machine.bindings.current = 0xBAD
    program(x, x)
    assert machine.bindings.current == 0xC0


def test_zeroed_memory(machine: Machine, torch: Any) -> None:
    manifest = vector_add_manifest("sm_90a")
    b0, b1, b2, b3 = manifest.buffers
    extra = Buffer("b4", "temporary", 100, 256, zero=True)
    program = machine.program(replace(manifest, buffers=(b0, b1, b2, replace(b3, zero=True), extra)))
    x = torch.tensor([1, 2, 3])
    for _ in range(2):
        program(x, x)
        fills, machine.library.calls = machine.library.calls[:2], []
        assert [(name, value, size) for name, _, value, size, _ in fills] == [("fill", 0, 12), ("fill", 0, 100)]
        assert fills[1][1] % 256 == 0


def test_a_refusal_of_the_driver(machine: Machine, torch: Any, program: Program) -> None:
    x = torch.tensor([1, 2, 3])
    program(x, x)
    bound = program.bind(x, x)
    machine.library.status = 700
    for call in (lambda: program(x, x), bound):
        with pytest.raises(TreadleError, match="ILLEGAL_ADDRESS") as caught:
            call()
        assert caught.value.code == "TR603"


def test_threads(machine: Machine, torch: Any, program: Program) -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        for step in range(60):
            size = 1 + (number + step) % 7
            x = torch.tensor(np.full(size, number + step))
            (r,) = program(x, x)
            if not np.array_equal(r.memory, 3 * x.memory):
                wrong.append((number, step, r.memory))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def resolved(manifest: Manifest, n: int = 5) -> ResolvedLaunch:
    return InvocationPlan(manifest).resolve(((n,), (n,)), ((1,), (1,))).launches[0]


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1)])
@pytest.mark.parametrize("early", [False, True])
def test_launch_configurations_are_those_of_the_bindings(cluster: tuple[int, int, int], early: bool) -> None:
    launch = resolved(vector_add_manifest("sm_90a", shared_bytes=70_000), 1000)
    launch = replace(launch, kernel=replace(launch.kernel, cluster=cluster))
    ours = cuda_launch.launch_config(launch, 0x1234, early)
    theirs, attributes = real.CUlaunchConfig(), []
    theirs.gridDimX, theirs.gridDimY, theirs.gridDimZ = 4, 1, 1
    theirs.blockDimX, theirs.blockDimY, theirs.blockDimZ = 256, 1, 1
    theirs.sharedMemBytes, theirs.hStream = 70_000, 0x1234
    kinds = real.CUlaunchAttributeID
    if cluster != (1, 1, 1):
        attributes.append(real.CUlaunchAttribute())
        attributes[-1].id, dim = kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, attributes[-1].value.clusterDim
        dim.x, dim.y, dim.z = cluster
    if early:
        attributes.append(real.CUlaunchAttribute())
        attributes[-1].id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attributes[-1].value.programmaticStreamSerializationAllowed = 1
    theirs.attrs, theirs.numAttrs = attributes, len(attributes)
    size = ctypes.sizeof(ours)
    mine, other = ctypes.string_at(ctypes.addressof(ours), size), ctypes.string_at(theirs.getPtr(), size)
    assert mine[:40] == other[:40]
    assert mine[48:52] == other[48:52]
    places = [int.from_bytes(config[40:48], "little") for config in (mine, other)]
    if attributes:
        assert ctypes.string_at(places[0], 72 * len(attributes)) == ctypes.string_at(places[1], 72 * len(attributes))


def test_tensor_maps_are_made_once_for_an_address(machine: Machine, torch: Any) -> None:
    manifest = vector_add_manifest("sm_90a")
    (kernel,) = manifest.kernels
    box = TensorMapValue("b0", TensorMap("f32", (4, 3), (16,), (4, 1), (1, 1), "128B", "none", "256B", "nan"))
    wide = replace(kernel, kernarg_bytes=192, args=(*kernel.args, KernelArg("tensor_map", 64)))
    launches = tuple(replace(launch, args=(*launch.args, box)) for launch in manifest.launches)
    program = machine.program(replace(manifest, kernels=(wide,), launches=launches))
    x, y = torch.tensor(range(12)), torch.tensor(range(12))
    out = torch.tensor(range(12))
    for _ in range(3):
        program(x, y, out=out)
    assert len(set(machine.library.encoded)) == 1
    assert len(machine.library.encoded) % 2 == 0
    argument = InvocationPlan(program.manifest).resolve(((12,), (12,)), ((1,), (1,))).launches[0].args[4]
    assert isinstance(argument, TensorMapArg)
    encode = machine.device.tensor_map_encoder(argument)
    room = ctypes.create_string_buffer(192)
    place = -(-ctypes.addressof(room) // 64) * 64
    encode(0x7000_0000_1000, place)
    made = ctypes.string_at(place, 128)
    words = [int.from_bytes(made[i : i + 8], "little") for i in range(0, 128, 8)]
    assert words[:14] == [7, 2, 0x7000_0000_1000, 4, 3, 16, 4, 1, 1, 1, 0, 3, 3, 1]
    with pytest.raises(TreadleError, match="address 0x1001"):
        encode(0x1001, place)


def test_maps_that_walk_pixels_have_corners(machine: Machine) -> None:
    seen = TensorMap("f16", (64, 9, 8, 2), (128, 1152, 9216), (64, 128), (1, 2, 1, 1), "128B", lower_corner=(-1, -2), upper_corner=(1, 0))
    argument = TensorMapArg(0, 0, 0, (64, 9, 8, 2), (128, 1152, 9216), seen)
    room = ctypes.create_string_buffer(192)
    place = -(-ctypes.addressof(room) // 64) * 64
    machine.device.activate()
    machine.device.tensor_map_encoder(argument)(0x1000, place)
    words = [int.from_bytes(ctypes.string_at(place + i, 8), "little") for i in range(0, 128, 8)]
    assert words == [6, 4, 0x1000, 64, 9, 8, 2, 128, 1152, 9216, 999, 998, 1001, 1000, 64, 128]
    with pytest.raises(TreadleError, match=r"cuTensorMapEncodeIm2col.*corners \(-1, -2\) and \(1, 0\)"):
        machine.device.tensor_map_encoder(argument)(0x1001, place)


def test_no_pointer_value_is_forgotten(machine: Machine) -> None:
    launch = resolved(vector_add_manifest("sm_90a"))
    template = machine.device.load(vector_add_manifest("sm_90a"), {"k0.bin": ELF}).template(launch)
    block = template.filled([0x1000, 0x2000, 0x3000, 0x4000])
    assert [int.from_bytes(block.contents()[i : i + 8], "little") for i in (0, 8, 16)] == [0x1000, 0x2000, 0x3000]
    assert block.contents()[24:28] == (5).to_bytes(4, "little")
    assert block.address % 64 == 0
    pointers = (ctypes.c_uint64 * 4).from_address(block.pointers)
    assert [p - block.address for p in pointers] == [0, 8, 16, 24]
    assert isinstance(vector_add_manifest("sm_90a").launches[0].args[0], PointerValue)
